//! What a container is closed to, and what bad ones do to others: nothing.

use std::fs;

use anyhow::{Context, Result, ensure};
use procfs::process::Process;
use serde_json::{Value, json};
use skein_runner::container::Handle;
use skein_tests::docker::docker;
use skein_tests::engine::{Bed, Kind};
use skein_tests::stage::{are_frozen, are_running};

async fn inspected(handle: &Handle) -> Result<Value> {
    let id = handle.container.as_ref().context("it lives in no container")?;
    let found: Value = serde_json::from_str(&docker(&["inspect", &id.id]).await?)?;
    Ok(found[0].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_closed_in_every_respect() -> Result<()> {
    let mut bed = Bed::new(Kind::Docker).await?;
    let script = r#"
        id
        cat /proc/self/status
        for place in / /etc /app/static /usr/bin /root; do (echo x > $place/x) 2>/dev/null && echo "open: $place"; done
        for place in /tmp /home/node; do (echo 'echo ran' > $place/x; sh $place/x > /dev/null) || echo "shut: $place"; done
        dd if=/dev/zero of=/home/node/file bs=1M count=100 2> /dev/null || echo "home is full"
        pwd; echo up; sleep 1000
    "#;
    let handle = bed.start("a-1", script).await?;
    let log = bed.log("a-1");
    for line in ["uid=1000 gid=1000 groups=1000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000"] {
        ensure!(log.contains(line), "{line} is missing: {log}");
    }
    ensure!(log.contains("NoNewPrivs:\t1") && log.contains("Seccomp:\t2"), "{log}");
    ensure!(log.contains("home is full\n/app/static\n"), "{log}");
    ensure!(!log.contains("open: ") && !log.contains("shut: "), "{log}");

    let found = inspected(&handle).await?;
    let host = &found["HostConfig"];
    for (key, expected) in [
        ("ReadonlyRootfs", json!(true)),
        ("CapDrop", json!(["ALL"])),
        ("SecurityOpt", json!(["no-new-privileges:true"])),
        ("PidsLimit", json!(64)),
        ("Memory", json!(256 << 20)),
        ("MemorySwap", json!(256 << 20)),
        ("NanoCpus", json!(1_000_000_000)),
        ("Init", json!(true)),
        ("Privileged", json!(false)),
    ] {
        ensure!(host[key] == expected, "{key} is {}", host[key]);
    }
    ensure!(host["Tmpfs"]["/tmp"].to_string().contains("nosuid,nodev"), "{}", host["Tmpfs"]);
    ensure!(found["Config"]["User"] == "1000:1000", "{}", found["Config"]["User"]);
    let mounts = found["Mounts"].as_array().context("no mounts")?;
    ensure!(mounts.iter().any(|mount| mount["Destination"] == "/app/static"), "{mounts:?}");
    ensure!(mounts.iter().all(|mount| mount["RW"] == false || mount["Type"] == "tmpfs"), "{mounts:?}");
    let labels = &found["Config"]["Labels"];
    ensure!(labels["skein.runner"] == bed.mark() && labels["skein.instance"] == bed.id("a-1"), "{labels}");
    bed.engine().kill(&handle).await?;
    bed.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_and_an_endless_printer_are_contained() -> Result<()> {
    let mut bed = Bed::new(Kind::Docker).await?;
    let quiet = bed
        .start("quiet-1", "echo up; while [ ! -e /app/static/go ]; do sleep 0.05; done; echo fine")
        .await?;
    let bomb = "sh -c 'while :; do sleep 1000 & done' & echo up; exec sleep 1000";
    let bomb = bed.start("bomb-1", bomb).await?;
    // Lines of some length: how many a second are taken down is a matter of the machine.
    let loud =
        bed.start("loud-1", "echo up; exec yes as long a line as one that a program would print").await?;
    bed.until("the bomb meets its limit", || bed.tree("bomb-1").len() >= 60).await?;
    ensure!(bed.tree("bomb-1").len() <= 64, "{}", bed.tree("bomb-1").len());
    let printed = |size: u64| fs::metadata(bed.log_file("loud-1")).is_ok_and(|about| about.len() > size);
    bed.until("the printer has printed", || printed(256 * 1024)).await?;

    bed.engine().freeze(&bomb).await?;
    ensure!(are_frozen(&bed.tree("bomb-1")), "a part of it runs");
    fs::write(bed.log_file("quiet-1").with_file_name("go"), "")?;
    ensure!(bed.engine().wait(&quiet).await.code == Some(0), "it was harmed");
    bed.engine().kill(&quiet).await?;
    ensure!(bed.log("quiet-1") == "up\nfine\n", "{}", bed.log("quiet-1"));
    for handle in [&bomb, &loud] {
        bed.engine().kill(handle).await?;
    }
    for instance in ["bomb-1", "loud-1"] {
        ensure!(bed.tree(instance).is_empty(), "{instance} runs on");
    }
    bed.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn want_of_memory_is_told_from_other_ends() -> Result<()> {
    let mut bed = Bed::new(Kind::Docker).await?;
    // What is in /tmp counts.
    let mut spec = bed.spec("full-1", "echo up; exec dd if=/dev/zero of=/tmp/file bs=1M");
    spec.container.as_mut().context("no container")?.memory = 64 << 20;
    let full = bed.start_as(spec).await?;
    let exit = bed.engine().wait(&full).await;
    ensure!(exit.out_of_memory && exit.code == Some(137), "{exit:?}");
    let killed = bed.start("killed-1", "echo up; sleep 1000").await?;
    bed.engine().kill(&killed).await?;
    let exit = bed.engine().wait(&killed).await;
    ensure!(!exit.out_of_memory && exit.code == Some(137), "{exit:?}");
    bed.engine().kill(&full).await?;
    bed.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_do_to_a_container_is_put_right() -> Result<()> {
    let mut bed = Bed::new(Kind::Docker).await?;
    let handle = bed.start("a-1", "echo up; sleep 1000").await?;
    let id = handle.container.as_ref().context("no container")?;
    docker(&["pause", &id.id]).await?;
    bed.until("it goes on", || are_running(&bed.tree("a-1"))).await?;

    bed.engine().freeze(&handle).await?;
    if let Some(group) = &handle.cgroup {
        let first = group.join("freezer.state");
        if first.exists() {
            fs::write(first, "THAWED")?
        } else {
            fs::write(group.join("cgroup.freeze"), "0")?
        }
        bed.until("it stands still again", || are_frozen(&bed.tree("a-1"))).await?;
    }
    // Removed by somebody else while it is frozen: its end is noticed all the same.
    bed.engine().thaw(&handle).await?;
    docker(&["rm", "--force", &id.id]).await?;
    bed.engine().wait(&handle).await;
    bed.engine().kill(&handle).await?;
    bed.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_cannot_be_started_is_removed() -> Result<()> {
    let bed = Bed::new(Kind::Docker).await?;
    let mut spec = bed.spec("a-1", "true");
    bed.engine().door(spec.container.as_ref()).await?;
    // The daemon makes the container, and finds only at its start that there is no network.
    docker(&["network", "rm", &format!("skein-{}", bed.mark())]).await?;
    let Err(problem) = bed.engine().start(&spec).await else { anyhow::bail!("it started") };
    ensure!(problem.to_string().contains("network"), "{problem}");
    ensure!(bed.lists(&[]).await, "it is left behind");
    spec.container.as_mut().context("no container")?.image = "registry.invalid/agent".to_owned();
    spec.container.as_mut().context("no container")?.pull = true;
    let Err(problem) = bed.engine().start(&spec).await else { anyhow::bail!("it started") };
    ensure!(problem.to_string().contains("could not be pulled"), "{problem}");
    bed.close().await
}

/// Rounds of start, freeze, thaw and end; `SKEIN_ROUNDS` asks for more.
const ROUNDS: usize = 6;
/// After so many everything that is made once has been made.
const WARM: usize = 3;

/// Growth of the resident memory that is no leak: what the allocator keeps.
const MEMORY: u64 = 16 << 20;

/// The memory of this process, which the engine is part of, in bytes.
fn resident() -> Result<u64> {
    Ok(Process::myself()?.status()?.vmrss.context("the kernel does not say")? * 1024)
}

async fn round(bed: &mut Bed) -> Result<()> {
    let handle = bed.start("a-1", "sleep 1000 & echo up; sleep 1000").await?;
    bed.engine().freeze(&handle).await?;
    bed.engine().thaw(&handle).await?;
    bed.engine().kill(&handle).await?;
    bed.engine().wait(&handle).await;
    bed.engine().let_go(&handle);
    ensure!(bed.tree("a-1").is_empty() && bed.lists(&[]).await, "something of it is left");
    ensure!(handle.cgroup.as_ref().is_none_or(|group| !group.exists()), "its control group is left");
    Ok(fs::remove_file(bed.log_file("a-1"))?)
}

#[tokio::test(flavor = "multi_thread")]
async fn rounds_of_start_freeze_thaw_and_end_leave_nothing_behind() -> Result<()> {
    let mut bed = Bed::new(Kind::Docker).await?;
    let descriptors = || fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    for _ in 0..WARM {
        round(&mut bed).await?;
    }
    let (before, memory) = (descriptors(), resident()?);
    let asked = std::env::var("SKEIN_ROUNDS").ok().map(|rounds| rounds.parse()).transpose()?;
    for _ in 0..asked.unwrap_or(ROUNDS) {
        round(&mut bed).await?;
    }
    // What listened to the last container may be about to hang up.
    bed.until("no file is open that was not before", || descriptors() <= before).await?;
    let grown = resident()?.saturating_sub(memory);
    ensure!(grown < MEMORY, "the engine's process has grown by {grown} bytes");
    bed.close().await
}
