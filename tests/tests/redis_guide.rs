//! What the operators' guide says of Redis: which rights a node needs, and how a copy is restored.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use redis::{Cmd, cmd};
use skein_tests::cluster::Cluster;
use skein_tests::deployed::text;
use skein_tests::redis::{LASTING, Server, until};
use skein_tests::redis_cluster::RedisCluster;
use skein_tests::sentinel::Watched;
use skein_tests::tasks::{agent, create, create_again, listed};
use skein_tests::up::{Folder, Up, binary};
use tokio::process::Command;

const SETTINGS: &str = "lease = \"4s\"\nsettle = \"1s\"";
const PASSWORD: &str = "hush";

/// The line of the guide for the user that nodes come as.
fn rights() -> Result<String> {
    let guide = text("docs/operators.md");
    let line = guide.lines().find_map(|line| line.strip_prefix("user skein "));
    Ok(line.context("the guide has no such line")?.replace("PASSWORD", PASSWORD))
}

/// The command that lets such a user in.
fn let_in() -> Result<Cmd> {
    let mut order = cmd("ACL");
    order.arg("SETUSER").arg("skein");
    for rule in rights()?.split(' ') {
        order.arg(rule);
    }
    Ok(order)
}

/// The same URL for that user.
fn as_user(url: &str) -> String {
    url.replacen("://", &format!("://skein:{PASSWORD}@"), 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_that_the_guide_gives_are_enough_for_all_that_nodes_do() -> Result<()> {
    let rights = rights()?;
    let mut settings = [LASTING, &["--user", "skein"]].concat();
    settings.extend(rights.split(' '));
    let mut server = Server::in_memory_with(&settings).await?;
    let url = format!("{}?user=skein&pass={PASSWORD}", server.url());
    let node = Up::serve_in(Folder::new()?, &["--redis", &url]).await?;
    let (lena, _) = agent(&node).await?;
    create(&lena, "before").await?;
    // It makes its connections anew, and ends what was under way on those before.
    let mut redis = server.connection().await?;
    let mut cut = cmd("CLIENT");
    cut.arg("KILL").arg("USER").arg("skein");
    cut.exec_async(&mut redis).await?;
    create_again(&node, &lena, "cut").await?;
    server.crash_and_restart().await?;
    create_again(&node, &lena, "restarted").await?;

    // The next one takes the shards over, and the store is written into a file.
    let folder = node.kill().await?;
    let node = Up::serve_in(folder, &["--redis", &url]).await?;
    ensure!(listed(&node).await? == ["before", "cut", "restarted"]);
    let folder = node.terminate().await?;
    let file = folder.path().join("state.jsonl");
    exported(&folder, &file, &url).await?;
    ensure!(std::fs::read_to_string(file)?.contains("restarted"));

    let mut redis = server.connection().await?;
    let denied: Vec<redis::Value> = cmd("ACL").arg("LOG").query_async(&mut redis).await?;
    ensure!(denied.is_empty(), "{denied:?}");
    Ok(())
}

async fn exported(folder: &Folder, file: &Path, redis: &str) -> Result<()> {
    let mut command = Command::new(binary("skein"));
    command.arg("export").arg(file).args(["--redis", redis]).arg("--data").arg(folder.data());
    let output = command.output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// A node that answers when a replica has what it answers for works on once its server is gone.
async fn outlives(url: &str, kill: impl Future<Output = Result<()>>) -> Result<()> {
    let settings = "[store]\ndurability = \"replicated\"\n";
    let node = Up::serve_in(Folder::new()?.configured(settings)?, &["--redis", &as_user(url)]).await?;
    let (lena, _) = agent(&node).await?;
    create(&lena, "before").await?;
    kill.await?;
    create_again(&node, &lena, "after").await?;
    ensure!(listed(&node).await? == ["after", "before"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_that_the_guide_gives_are_enough_behind_sentinels() -> Result<()> {
    let mut redis = Watched::start().await?;
    redis.tell(&let_in()?).await?;
    outlives(&redis.url(), redis.kill_the_primary()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_that_the_guide_gives_are_enough_in_a_redis_cluster() -> Result<()> {
    let mut redis = RedisCluster::start().await?;
    redis.tell(&let_in()?).await?;
    outlives(&redis.url(), redis.kill_the_owner()).await
}

/// Waits until `INFO` says all of this.
async fn until_it_says(server: &Server, facts: &[&str]) -> Result<()> {
    let redis = server.connection().await?;
    until(&format!("{facts:?}"), async || {
        let said: String = cmd("INFO").arg("persistence").query_async(&mut redis.clone()).await?;
        Ok(facts.iter().all(|fact| said.contains(fact)))
    })
    .await
}

async fn tell(server: &Server, order: &[&str]) -> Result<()> {
    let mut command = cmd(order[0]);
    command.arg(&order[1..]);
    Ok(command.exec_async(&mut server.connection().await?).await?)
}

async fn size(server: &Server) -> Result<u64> {
    Ok(cmd("DBSIZE").query_async(&mut server.connection().await?).await?)
}

fn folder(server: &Server) -> PathBuf {
    server.socket().parent().unwrap().to_owned()
}

/// Ends the server, and starts it on the dump alone.
async fn start_from(server: &mut Server, dump: &[u8]) -> Result<()> {
    server.kill().await?;
    let folder = folder(server);
    std::fs::remove_dir_all(&folder)?;
    std::fs::create_dir(&folder)?;
    std::fs::write(folder.join("dump.rdb"), dump)?;
    server.launch().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_redis_is_restored_as_the_guide_says() -> Result<()> {
    let (mut cluster, node) = Cluster::start(SETTINGS).await?;
    let (lena, _) = agent(&node).await?;
    create(&lena, "before").await?;
    let log = cluster.server.snapshot()?;
    tell(&cluster.server, &["BGSAVE"]).await?;
    until_it_says(&cluster.server, &["rdb_bgsave_in_progress:0", "rdb_last_bgsave_status:ok"]).await?;
    let dump = std::fs::read(folder(&cluster.server).join("dump.rdb"))?;
    create(&lena, "undone").await?;
    let home = node.terminate().await?;

    start_from(&mut cluster.server, &dump).await?;
    ensure!(size(&cluster.server).await? == 0, "a dump is read beside a log");

    cluster.server.will_have(&["--appendonly", "no"]);
    start_from(&mut cluster.server, &dump).await?;
    tell(&cluster.server, &["CONFIG", "SET", "appendonly", "yes"]).await?;
    until_it_says(&cluster.server, &["aof_rewrite_in_progress:0", "aof_last_bgrewrite_status:ok"]).await?;
    cluster.server.will_have(&["--appendonly", "yes"]);
    let node = cluster.serve(home).await?;
    ensure!(listed(&node).await? == ["before"]);
    let lena = lena.at(&node.mcp);
    create(&lena, "since").await?;
    cluster.server.crash_and_restart().await?;
    create_again(&node, &lena, "at last").await?;
    ensure!(listed(&node).await? == ["at last", "before", "since"]);
    let home = node.terminate().await?;

    cluster.server.fall_back(&log).await?;
    let node = cluster.serve(home).await?;
    ensure!(listed(&node).await? == ["before"]);
    Ok(())
}
