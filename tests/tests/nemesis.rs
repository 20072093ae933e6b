//! 32 clients and real agents work with a whole cluster while a nemesis breaks one thing after another. When all is well
//! again everything drains, and what was told is compared with what the store has.
//!
//! `SKEIN_NEMESIS_SEED` repeats the faults and the clients' choices of a run; `SKEIN_NEMESIS_SECONDS` makes it longer, and
//! draws them anew.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::Value;
use skein_tests::cluster::Cluster;
use skein_tests::nemesis::{Fault, Nemesis, Site, leave_traces};
use skein_tests::redis::Server;
use skein_tests::workload::swarm::Swarm;
use skein_tests::workload::{Map, agents};
use tokio::sync::watch;
use tokio::time::Instant;

const LEASE: Duration = Duration::from_secs(3);
/// Of a run that nobody has given one.
const SEED: u64 = 9_649_729_908_229_128_386;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_holds_whatever_breaks() -> Result<()> {
    // One round of all faults, or as long as is said.
    let seconds = setting("SKEIN_NEMESIS_SECONDS");
    let drawn = seconds.map_or(SEED, |_| fastrand::u64(..));
    let (time, seed) =
        (Duration::from_secs(seconds.unwrap_or(0)), setting("SKEIN_NEMESIS_SEED").unwrap_or(drawn));
    println!("SKEIN_NEMESIS_SEED={seed}");
    let mut nemesis = Nemesis::start(LEASE, seed, agents::define).await?;
    let working = Swarm::gather(&nemesis.sites[0].up, nemesis.map(), seed).await?.begin();
    let began = Instant::now();
    while began.elapsed() < time || nemesis.done.len() < Fault::ALL.len() {
        nemesis.strike().await?;
    }
    working.has_done_everything().await;
    let swarm = working.stop().await?;
    let healed = swarm.field.claims.now();
    let swarm = swarm.drain().await?;
    let mut broken = swarm.judge(&nemesis.sites[0].up, &nemesis.cluster.server, healed).await?;
    broken.extend(swarm.judge_agents(&nemesis).await?);
    if broken.is_empty() {
        return Ok(());
    }
    let left = nemesis.leave_traces().await?;
    bail!("seed {seed}, after {:?}: {broken:#?}, and {} has its traces", nemesis.done, left.display());
}

/// Redis answers before its replica has the write, so what it acknowledged last may be lost when the replica takes its
/// place. Then nothing else is: older writes are there, tokens rise, the nodes agree, and what is gone is named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_a_replica_that_lags_loses_what_came_last_and_nothing_else() -> Result<()> {
    let settings = ["--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0"];
    let primary = Server::in_memory_with(&settings).await?;
    let (replica, replication) = primary.replica().await?;
    let wanted = redis::cmd("CONFIG").arg("SET").arg("min-replicas-to-write").arg(1).to_owned();
    let () = wanted.query_async(&mut primary.connection().await?).await?;
    let settings = format!("lease = \"{}ms\"\nsettle = \"1s\"", LEASE.as_millis());
    let (mut cluster, first) = Cluster::over(primary, &settings).await?;
    let sites = Site::several(&cluster, first, 3).await?;
    let map = watch::Sender::new(Map::default());
    let nodes = sites.iter().map(|site| site.up.mcp.clone()).collect();
    map.send_replace(Map { nodes, ingress: String::new() });
    let swarm = Swarm::gather(&sites[0].up, map.subscribe(), 1).await?;
    let field = Arc::clone(&swarm.field);
    let working = swarm.begin();
    field.told(300).await;
    // What was told by now the replica has, for it has what was written after.
    let lost_from = field.claims.now();
    ensure!(cluster.server.replicate().await? == 1, "the replica does not follow");
    replication.hold_back();
    field.told(field.count_told() + 100).await;
    cluster.server.kill().await?;
    let lost_to = field.claims.now();
    replica.promote().await?;
    for site in &sites {
        site.leads_to(&replica);
    }
    let node = &sites[0].up;
    field.told(field.count_told() + 200).await;
    let swarm = working.stop().await?;
    let healed = field.claims.now();
    let swarm = swarm.drain().await?;
    let broken = swarm.judge_without(node, Some(&replica), healed, lost_from..lost_to, LEASE).await?;
    if !broken.is_empty() {
        let left = leave_traces(&sites, &replica).await?;
        bail!("lost {lost_from:?} to {lost_to:?}, and {} has traces: {broken:#?}", left.display());
    }
    // Something was acknowledged and is gone, and each such task is named.
    let gone = swarm.gone(node).await?;
    ensure!(!gone.is_empty(), "nothing was lost");
    let unnamed = async || {
        let status: Value = serde_json::from_str(&node.skein(&["cluster", "status", "--json"]).await?)?;
        let incidents = status["incidents"].to_string();
        Ok::<_, anyhow::Error>(gone.iter().filter(|task| !incidents.contains(*task)).collect::<Vec<_>>())
    };
    let named = async || Ok(unnamed().await?.is_empty().then_some(()));
    match node.until("each task that is gone is named as lost", named).await {
        Ok(()) => Ok(()),
        Err(error) => Err(error.context(format!("of {gone:?} these are not: {:?}", unnamed().await?))),
    }
}
