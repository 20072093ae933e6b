//! A Redis that is full, stands still, holds garbage or has lost something: nothing is written that is in doubt, and
//! whoever looks after the cluster is told.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use skein_coordinator::store::redis::shard::Shard;
use skein_shared::id::{EntityKey, Kind, Name};
use skein_tests::cluster::{Cluster, Status, alarm, all_is_well, number};
use skein_tests::mcp::Client;
use skein_tests::process;
use skein_tests::redis::Server;
use skein_tests::redis_cluster::RedisCluster;
use skein_tests::tasks::{agent, create, create_again, listed};
use skein_tests::up::{Folder, Up};
use tokio::time::Instant;

const SETTINGS: &str = "lease = \"4s\"\nsettle = \"1s\"";
/// That of the settings.
const LEASE: Duration = Duration::from_secs(4);
/// How often to look for what must not come.
const LOOK: Duration = Duration::from_millis(20);

/// Why a task was not created.
async fn refusal(client: &Client, text: &str) -> Result<String> {
    let refused = create(client, text).await.err().context("it was created")?;
    Ok(format!("{refused:#}"))
}

/// After a task `before` another one is made, nothing is wrong any more, and nothing else was written. Whoever reads
/// finds that it is answered again when it reads next.
async fn goes_on(node: &Up, token: &str) -> Result<()> {
    create_again(node, &Client::new(&node.mcp, token), "after").await?;
    node.skein(&["events"]).await?;
    all_is_well(node).await?;
    let there = listed(node).await?;
    ensure!(there == ["after", "before"], "{there:?}");
    Ok(())
}

async fn set_memory(cluster: &Cluster, limit: u64) -> Result<()> {
    let mut redis = cluster.server.connection().await?;
    Ok(redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(limit).exec_async(&mut redis).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_redis_takes_nothing_and_is_shown_until_it_has_room() -> Result<()> {
    let (cluster, node) = Cluster::start(SETTINGS).await?;
    let (lena, token) = agent(&node).await?;
    create(&lena, "before").await?;
    set_memory(&cluster, 1).await?;
    let refused = refusal(&lena, "meanwhile").await?;
    ensure!(refused.contains("nothing was written") && refused.contains("Redis is full"), "{refused}");
    let said = alarm(&node, "store_full", "Redis is full").await?;
    ensure!(said.contains("maxmemory"), "{said}");
    ensure!(number(&node, "skein_alarms{kind=\"store_full\"}").await? == 1.0);
    set_memory(&cluster, 0).await?;
    goes_on(&node, &token).await
}

/// Its leases cannot be renewed then, and nothing is wrong with them.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_whose_replica_is_away_takes_nothing_and_is_shown_for_that_alone() -> Result<()> {
    let server = Server::in_memory().await?;
    let (replica, _link) = server.replica().await?;
    let mut redis = server.connection().await?;
    redis::cmd("CONFIG").arg("SET").arg("min-replicas-to-write").arg(1).exec_async(&mut redis).await?;
    let (cluster, node) = Cluster::over(server, SETTINGS).await?;
    let (lena, token) = agent(&node).await?;
    create(&lena, "before").await?;
    drop(replica);
    alarm(&node, "store_full", "bring them back").await?;
    let refused = refusal(&lena, "meanwhile").await?;
    node.until("its leases have ended", async || {
        Ok((number(&node, "skein_cluster_shards ").await? == 0.0).then_some(()))
    })
    .await?;
    let alarms = Status::of(&node).await?.alarms();
    ensure!(alarms.iter().all(|(kind, _)| kind == "store_full"), "{alarms:?}; {refused}");

    let (_replica, _link) = cluster.server.replica().await?;
    goes_on(&node, &token).await
}

/// A commit needs keys that are here and keys that are there, so nobody can run it until all are there.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_of_a_redis_cluster_that_is_moved_is_shown_and_followed_once_it_is_there() -> Result<()> {
    let mut redis = RedisCluster::start().await?;
    let folder = Folder::new()?.configured("[store]\ndurability = \"replicated\"\n")?;
    let node = Up::serve_in(folder, &["--redis", &redis.url()]).await?;
    let (lena, token) = agent(&node).await?;
    create(&lena, "before").await?;
    redis.begin_to_move().await?;
    let refused = refusal(&lena, "meanwhile").await?;
    ensure!(refused.contains("nothing was written") && refused.contains("is being moved"), "{refused}");
    alarm(&node, "store_moving", "--cluster fix").await?;
    ensure!(number(&node, "skein_alarms{kind=\"store_moving\"}").await? >= 1.0);
    redis.end_the_move().await?;
    goes_on(&node, &token).await
}

/// It answers some questions meanwhile, and no others.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_reads_for_long_what_it_has_is_waited_for() -> Result<()> {
    let (mut cluster, node) = Cluster::start(SETTINGS).await?;
    let (lena, token) = agent(&node).await?;
    create(&lena, "before").await?;
    // What its disk has is a dump then, of which it reads a key in this time, in microseconds, and it looks after its
    // clients between some.
    let mut redis = cluster.server.connection().await?;
    redis::cmd("BGREWRITEAOF").exec_async(&mut redis).await?;
    node.until("its log is written anew", async || {
        let said: String = redis::cmd("INFO").arg("persistence").query_async(&mut redis.clone()).await?;
        Ok(said.contains("aof_rewrite_in_progress:0").then_some(()))
    })
    .await?;
    cluster.server.will_have(&[
        "--key-load-delay",
        "10000",
        "--loading-process-events-interval-bytes",
        "1024",
    ]);
    cluster.server.crash_and_restart().await?;
    goes_on(&node, &token).await?;
    let log = node.log()?;
    ensure!(log.contains("store_unfit") && log.contains("still reads what its disk has"), "{log}");
    let told = log.matches("by a replica; everything is loaded anew").count();
    ensure!(told == 1, "it is told {told} times that Redis was restarted: {log}");
    Ok(())
}

/// Nothing works until it is mended, so whoever looks is to be told why.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_comes_back_set_up_to_lose_writes_is_an_alarm_until_it_is_mended() -> Result<()> {
    let (mut cluster, node) = Cluster::start(SETTINGS).await?;
    let (lena, token) = agent(&node).await?;
    create(&lena, "before").await?;
    cluster.server.will_have(&["--maxmemory-policy", "allkeys-lru"]);
    cluster.server.crash_and_restart().await?;
    let said = alarm(&node, "store_unfit", "set `maxmemory-policy noeviction`").await?;
    ensure!(said.contains("restarted or replaced"), "{said}");
    ensure!(number(&node, "skein_alarms{kind=\"store_unfit\"}").await? == 1.0);
    let held = number(&node, "skein_cluster_shards ").await?;
    ensure!(held == 0.0, "it holds {held} shards of a Redis that forgets");
    let mut redis = cluster.server.connection().await?;
    redis::cmd("CONFIG").arg("SET").arg("maxmemory-policy").arg("noeviction").exec_async(&mut redis).await?;
    goes_on(&node, &token).await
}

/// What was lost is in the log then, and serving goes on.
#[tokio::test(flavor = "multi_thread")]
async fn garbage_among_the_incidents_keeps_nobody_from_going_on() -> Result<()> {
    const INCIDENTS: &str = "{skein}:incidents";
    let (mut cluster, node) = Cluster::start(SETTINGS).await?;
    let (lena, token) = agent(&node).await?;
    create(&lena, "kept").await?;
    let mut redis = cluster.server.connection().await?;
    redis::cmd("SET").arg(INCIDENTS).arg("scribble").exec_async(&mut redis).await?;
    let snapshot = cluster.server.snapshot()?;
    create(&lena, "lost").await?;
    cluster.server.fall_back(&snapshot).await?;
    alarm(&node, "store_garbage", INCIDENTS).await?;
    alarm(&node, "store_lost", "commits that it had acknowledged").await?;
    create_again(&node, &Client::new(&node.mcp, &token), "after").await?;
    ensure!(listed(&node).await? == ["after", "kept"], "{:?}", listed(&node).await?);
    let told = node.skein(&["cluster", "status"]).await?;
    ensure!(!told.is_empty(), "it is not shown any more");

    // One that cannot be read hides no others.
    let incident = json!({"at": 1, "node": "former", "lost": []}).to_string();
    let mut redis = cluster.server.connection().await?;
    redis::cmd("DEL").arg(INCIDENTS).exec_async(&mut redis).await?;
    redis::cmd("LPUSH").arg(INCIDENTS).arg(incident).arg("scribble").exec_async(&mut redis).await?;
    let said = node.skein(&["cluster", "status", "--json"]).await?;
    let incidents = serde_json::from_str::<Value>(&said)?["incidents"].take();
    ensure!(incidents[0]["node"] == "former" && incidents[1].is_null(), "{incidents}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_stands_still_is_shown_and_what_was_in_flight_is_told_truly() -> Result<()> {
    let (cluster, node) = Cluster::start(SETTINGS).await?;
    let (lena, token) = agent(&node).await?;
    create(&lena, "before").await?;
    let redis = cluster.server.id().context("Redis has ended")?;
    process::freeze(redis).await?;
    let late = tokio::spawn(async move { create(&lena, "meanwhile").await });
    let shown = async {
        let said = alarm(&node, "store_slow", "does not answer").await?;
        ensure!(said.contains("see that it runs"), "{said}");
        let slow = number(&node, "skein_alarms{kind=\"store_slow\"}").await?;
        ensure!(slow >= 1.0, "{slow}");
        let status = node.skein(&["status"]).await?;
        for told in ["store_slow", "swarms: unknown", "effectsGivenUp: unknown"] {
            ensure!(status.contains(told), "{told}: {status}");
        }
        Ok(())
    };
    let shown = shown.await;
    // It goes on also when something was wrong, so that it can be ended.
    process::thaw(redis)?;
    shown?;
    let late = late.await?;
    create_again(&node, &Client::new(&node.mcp, &token), "after").await?;
    // What reads finds that it is answered again when it reads next, which by itself it does twice a minute.
    node.skein(&["events"]).await?;
    all_is_well(&node).await?;
    let there = listed(&node).await?;
    let times = there.iter().filter(|text| *text == "meanwhile").count();
    // Who was told nothing certain finds it there or not.
    ensure!(times == 1 || (times == 0 && late.is_err()), "it is there {times} times: {late:?}");
    ensure!(there.len() == 2 + times, "{there:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_in_a_key_is_shown_and_stops_what_it_belongs_to_alone() -> Result<()> {
    let (cluster, node) = Cluster::start(SETTINGS).await?;
    let (lena, _) = agent(&node).await?;
    let mut redis = cluster.server.connection().await?;
    let swarm = Name::parse("default").unwrap();
    let shard = Shard::of(&EntityKey::of(Kind::Pool, &swarm)).number();

    // The lease of another shard: that one is nobody's, and all others go on.
    let lease = format!("{{skein}}:s{}:lease", (shard + 1) % 256);
    redis::cmd("SET").arg(&lease).arg("scribble").exec_async(&mut redis).await?;
    alarm(&node, "store_garbage", &lease).await?;
    let unowned = node
        .until("the shard is given up", async || {
            let unowned = number(&node, "skein_cluster_shards_unowned").await?;
            Ok((unowned > 0.0).then_some(unowned))
        })
        .await?;
    ensure!(unowned == 1.0, "{unowned} shards are nobody's");
    create(&lena, "before").await?;

    // The pool itself: what is in memory is not written over it.
    let pool = format!("{{skein}}:s{shard}:entity:pool/default");
    redis::cmd("RENAME").arg(&pool).arg("aside").exec_async(&mut redis).await?;
    redis::cmd("SET").arg(&pool).arg("scribble").exec_async(&mut redis).await?;
    let refused = refusal(&lena, "meanwhile").await?;
    ensure!(refused.contains(&pool), "{refused}");
    let said = alarm(&node, "store_garbage", &pool).await?;
    ensure!(said.contains("restore it from a copy"), "{said}");
    let there: String = redis::cmd("GET").arg(&pool).query_async(&mut redis).await?;
    ensure!(there == "scribble", "it was written over");

    // The lists of yet another shard, as they are with one that has entities.
    let other = (shard + 2) % 256;
    redis::cmd("SETBIT").arg("{skein}:inhabited").arg(other).arg(1).exec_async(&mut redis).await?;
    let lists = ["timers", "outbox", "entities"].map(|list| format!("{{skein}}:s{other}:{list}"));
    for list in &lists {
        redis::cmd("SET").arg(list).arg("scribble").exec_async(&mut redis).await?;
    }
    redis::cmd("RENAME").arg("aside").arg(&pool).exec_async(&mut redis).await?;
    what_is_due_comes(&node, &lena).await?;
    for list in &lists {
        alarm(&node, "store_garbage", list).await?;
    }

    redis::cmd("DEL").arg(&lease).arg(&lists).exec_async(&mut redis).await?;
    create_again(&node, &lena, "after").await?;
    let there = listed(&node).await?;
    ensure!(there[0] == "after" && there[1] == "before" && there[2] == "now and then", "{there:?}");
    Ok(())
}

/// Otherwise a rolling restart would end the cluster.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_starts_again_while_a_lease_cannot_be_read() -> Result<()> {
    let (cluster, node) = Cluster::start(SETTINGS).await?;
    let mut redis = cluster.server.connection().await?;
    let swarm = Name::parse("default").unwrap();
    let other = (Shard::of(&EntityKey::of(Kind::Pool, &swarm)).number() + 1) % 256;
    let lease = format!("{{skein}}:s{other}:lease");
    redis::cmd("SET").arg(&lease).arg("scribble").exec_async(&mut redis).await?;
    let node = cluster.serve(node.kill().await?).await?;
    alarm(&node, "store_garbage", &lease).await?;
    let (lena, _) = agent(&node).await?;
    create(&lena, "all the same").await?;
    redis::cmd("DEL").arg(&lease).exec_async(&mut redis).await?;
    node.until("the shard has an owner again", async || {
        Ok((number(&node, "skein_cluster_shards_unowned").await? == 0.0).then_some(()))
    })
    .await
}

/// It is a hint, and fills again.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_starts_again_while_the_list_of_nodes_cannot_be_read() -> Result<()> {
    const MEMBERS: &str = "{skein}:members";
    let (cluster, node) = Cluster::start(SETTINGS).await?;
    let mut redis = cluster.server.connection().await?;
    redis::cmd("SET").arg(MEMBERS).arg("scribble").exec_async(&mut redis).await?;
    let node = cluster.serve(node.kill().await?).await?;
    alarm(&node, "store_garbage", MEMBERS).await?;
    let (lena, _) = agent(&node).await?;
    create(&lena, "all the same").await?;
    redis::cmd("DEL").arg(MEMBERS).exec_async(&mut redis).await?;
    node.until("it is among those who live", async || Ok(Status::of(&node).await?.address().ok())).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_lost_writes_and_is_full_is_gone_on_with() -> Result<()> {
    let (mut cluster, node) = Cluster::start(SETTINGS).await?;
    let (lena, token) = agent(&node).await?;
    create(&lena, "kept").await?;
    let snapshot = cluster.server.snapshot()?;
    create(&lena, "lost").await?;
    cluster.server.will_have(&["--maxmemory", "1"]);
    cluster.server.fall_back(&snapshot).await?;
    alarm(&node, "store_lost", "commits that it had acknowledged").await?;
    node.until("all shards are taken", async || {
        Ok((number(&node, "skein_cluster_shards_unowned").await? == 0.0).then_some(()))
    })
    .await?;
    let said = node.skein(&["cluster", "status", "--json"]).await?;
    let incidents = serde_json::from_str::<Value>(&said)?["incidents"].take();
    ensure!(incidents.to_string().contains("task/"), "the lost task is not named: {incidents}");
    let lena = Client::new(&node.mcp, &token);
    node.until("a write is refused for the memory", async || {
        Ok(refusal(&lena, "meanwhile").await?.contains("Redis is full").then_some(()))
    })
    .await?;
    alarm(&node, "store_full", "Redis is full").await?;
    // Also for a node that comes.
    let node = cluster.serve(node.kill().await?).await?;
    set_memory(&cluster, 0).await?;
    create_again(&node, &Client::new(&node.mcp, &token), "after").await?;
    ensure!(listed(&node).await? == ["after", "kept"], "{:?}", listed(&node).await?);
    Ok(())
}

/// A lock ends by its time, and a schedule makes its task.
async fn what_is_due_comes(node: &Up, holder: &Client) -> Result<()> {
    let lock = json!({"resource_key": "file:///shared", "ttl_seconds": 1});
    let held = node
        .until("the lock is taken", async || Ok(holder.call("acquire_lock", lock.clone()).await.ok()))
        .await?;
    ensure!(held["ok"] == json!(true), "{held}");
    let schedule = json!({"name": "often", "taskTemplate": "now and then", "intervalMs": 1000});
    node.until("a schedule is made", async || {
        Ok(holder.call("create-schedule", schedule.clone()).await.ok())
    })
    .await?;
    let next = Client::new(&node.mcp, &node.token("worker", "mia").await?);
    next.call("join-swarm", json!({"name": "mia"})).await?;
    node.until("the lock ends by its time", async || {
        let taken = next.call("acquire_lock", lock.clone()).await.is_ok_and(|said| said["ok"] == json!(true));
        Ok(taken.then_some(()))
    })
    .await?;
    node.until("the schedule fires", async || {
        Ok(listed(node).await?.contains(&"now and then".to_owned()).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_redis_has_lost_is_an_alarm_and_in_an_emptied_one_nothing_is_taken() -> Result<()> {
    let (mut cluster, node) = Cluster::start(SETTINGS).await?;
    let (lena, _) = agent(&node).await?;
    create(&lena, "kept").await?;
    let snapshot = cluster.server.snapshot()?;
    create(&lena, "lost").await?;
    cluster.server.fall_back(&snapshot).await?;
    alarm(&node, "store_lost", "commits that it had acknowledged").await?;
    ensure!(number(&node, "skein_alarms{kind=\"store_lost\"}").await? == 1.0);
    create_again(&node, &lena, "again").await?;
    ensure!(listed(&node).await? == ["again", "kept"], "{:?}", listed(&node).await?);

    let mut redis = cluster.server.connection().await?;
    let snapshot = cluster.server.snapshot()?;
    redis::cmd("FLUSHALL").exec_async(&mut redis).await?;
    alarm(&node, "store_lost", "has lost the store").await?;
    // It waits for the store that the node knew, and mostly is still waiting when that is back.
    let (asks, begun) = (lena.clone(), Instant::now());
    let late = tokio::spawn(async move { create(&asks, "meanwhile").await });
    while begun.elapsed() < LEASE + LEASE / 4 {
        let taken: Vec<String> = redis::cmd("KEYS").arg("{skein}:s*").query_async(&mut redis).await?;
        ensure!(taken.is_empty(), "an emptied Redis was written to: {taken:?}");
        tokio::time::sleep(LOOK).await;
    }

    cluster.server.fall_back(&snapshot).await?;
    create_again(&node, &lena, "after").await?;
    let late = late.await?;
    let there = listed(&node).await?;
    let meanwhile = there.iter().filter(|text| *text == "meanwhile").count();
    ensure!(meanwhile == 1 || (meanwhile == 0 && late.is_err()), "it is there {meanwhile} times: {late:?}");
    ensure!(there.len() == 3 + meanwhile && there[..3] == ["after", "again", "kept"], "{there:?}");
    Ok(())
}
