//! The disk of an embedded store runs full while clients work, the node is killed over it, and there is room again:
//! what was told holds. Needs root, to mount a small file system; elsewhere it says so and proves nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use skein_tests::history::NOTHING;
use skein_tests::mcp;
use skein_tests::up::{Folder, Up};
use skein_tests::workload::Map;
use skein_tests::workload::swarm::Swarm;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::Instant;

const SIZE: &str = "size=32m";
/// Between two looks at what no event tells.
const LOOK: Duration = Duration::from_millis(50);

/// For what has to come about in the end.
const LIMIT: Duration = Duration::from_secs(60);

/// A small file system in memory. Unmounted when it is dropped.
struct Disk(TempDir);

impl Disk {
    /// None for whoever may not mount.
    fn mount() -> Result<Option<Self>> {
        let folder = TempDir::with_prefix("skein-disk-")?;
        let mut mount = Command::new("mount");
        if mount.args(["-t", "tmpfs", "-o", SIZE, "tmpfs"]).arg(folder.path()).status()?.success() {
            return Ok(Some(Self(folder)));
        }
        let user = Command::new("id").arg("-u").output()?;
        ensure!(user.stdout != b"0\n", "root can mount, so this must be tested");
        Ok(None)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// Leaves no room.
    fn fill(&self) -> Result<()> {
        let mut file = std::fs::File::options().create(true).append(true).open(self.ballast())?;
        for block in [1 << 20, 4096, 1] {
            let zeros = vec![0; block];
            while file.write_all(&zeros).is_ok() {}
        }
        Ok(())
    }

    fn make_room(&self) -> Result<()> {
        Ok(std::fs::remove_file(self.ballast())?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

/// Fills the disk again and again, for the store frees some itself, until the node refuses a task for want of room.
async fn until_it_refuses(disk: &Disk, client: &mcp::Client) -> Result<()> {
    let began = Instant::now();
    loop {
        disk.fill()?;
        let text = "x".repeat(20_000);
        let answer = client.call("task-action", json!({"action": "create", "task": text})).await;
        // Where the disk fails for want of room in another way, nobody can be told whether the write is on it.
        let whys = ["disk is full", "outcome_unknown"];
        if answer.as_ref().is_err_and(|refusal| whys.iter().any(|why| refusal.to_string().contains(why))) {
            return Ok(());
        }
        ensure!(began.elapsed() < LIMIT, "a full disk refuses nothing: {answer:?}");
        tokio::time::sleep(LOOK).await;
    }
}

async fn join(client: &mcp::Client) -> Option<()> {
    let joined = client.call("join-swarm", json!({"name": "stranger"})).await;
    joined.ok().filter(|answer| answer["success"] == json!(true)).map(|_| ())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_loses_nothing_that_was_told() -> Result<()> {
    let Some(disk) = Disk::mount()? else {
        eprintln!("NOT TESTED, it needs root to mount a small file system");
        return Ok(());
    };
    let up = Up::start_in(Folder::within(disk.path())?, &["--no-runner"]).await?;
    let map = watch::Sender::new(Map { nodes: vec![up.mcp.clone()], ingress: String::new() });
    let swarm = Swarm::gather(&up, map.subscribe(), 1).await?;
    // In a swarm of its own, so that the others are not asked about its tasks.
    let issue = ["token", "issue", "--swarm", "elsewhere", "--role", "worker", "--name", "stranger"];
    let printed = up.skein(&issue).await?;
    let stranger = mcp::Client::new(&up.mcp, printed.lines().last().context("no token was printed")?);
    join(&stranger).await.context("the stranger is not let in")?;
    let field = Arc::clone(&swarm.field);
    let working = swarm.begin();
    field.told(200).await;
    until_it_refuses(&disk, &stranger).await?;
    // Once the same node goes on when there is room, and once another one does.
    disk.make_room()?;
    up.until("it works again", async || Ok(join(&stranger).await)).await?;
    field.told(field.count_told() + 100).await;
    until_it_refuses(&disk, &stranger).await?;
    let folder = up.kill().await?;
    disk.make_room()?;
    let up = Up::start_in(folder, &["--no-runner"]).await?;
    map.send_replace(Map { nodes: vec![up.mcp.clone()], ingress: String::new() });
    let swarm = working.stop().await?;
    let healed = swarm.field.claims.now();
    let swarm = swarm.drain().await?;
    let broken = swarm.judge_without(&up, None, healed, NOTHING, Duration::ZERO).await?;
    ensure!(broken.is_empty(), "{broken:#?}");
    Ok(())
}

/// What has no room, as the node says.
async fn without_room(up: &Up) -> Result<Vec<String>> {
    let status: Value = serde_json::from_str(&up.skein(&["status", "--json"]).await?)?;
    let alarms = status["alarms"].as_array().context("it says nothing of alarms")?;
    let full = alarms.iter().filter(|alarm| alarm["kind"] == "store_full");
    Ok(full.filter_map(|alarm| alarm["subject"].as_str().map(str::to_owned)).collect())
}

#[tokio::test]
async fn whoever_writes_to_a_full_disk_is_told_why_and_so_is_the_operator() -> Result<()> {
    let Some(disk) = Disk::mount()? else {
        eprintln!("NOT TESTED, it needs root to mount a small file system");
        return Ok(());
    };
    let up = Up::start_in(Folder::within(disk.path())?, &["--no-runner"]).await?;
    let text = "x".repeat(50_000);
    let create = async || up.run(&["task", "create", &text]).await;
    ensure!(create().await?.status.success());
    // Whoever asks for it has the journal brought to its tables, so that it is the next commit that finds no room.
    ensure!(without_room(&up).await?.is_empty());
    let refused = async || {
        disk.fill()?;
        let created = create().await?;
        let said = String::from_utf8_lossy(&created.stderr).into_owned();
        // A smaller commit may have found room since.
        let is_told = without_room(&up).await?.iter().any(|subject| subject == "commits");
        Ok((!created.status.success() && is_told).then_some(said))
    };
    let said = up.until("a task is refused, and the operator told", refused).await?;
    ensure!(said.contains("nothing was written") && said.contains("disk is full"), "{said}");
    disk.make_room()?;
    up.until("it works again", async || Ok(create().await?.status.success().then_some(()))).await?;
    up.until("it has room", async || Ok(without_room(&up).await?.is_empty().then_some(()))).await
}
