//! Whole runs under a nemesis, over programs on this machine or in containers: 32 clients and real agents work, things
//! break, and when all is well again everything drains, and what was told is compared with what the store has.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::time::Instant;

use super::{Fault, Nemesis};
use crate::history::NOTHING;
use crate::program::Ground;
use crate::redis::{LASTING, Server};
use crate::up::Up;
use crate::workload::agents;
use crate::workload::swarm::Swarm;

const LEASE: Duration = Duration::from_secs(3);
/// Before, during and after the time that is lost so many events are taken in, the last twice.
const EVENTS: usize = 2;
/// Redis takes no writes any more once it has heard nothing of its replica for ten seconds.
const MISSED: Duration = Duration::from_secs(9);

/// Breaks one thing after another: each fault once, and for as long as is said.
///
/// # Errors
/// When a checker finds something, or a part does not start.
pub async fn what_was_told_holds(ground: Ground, seed: u64, time: Duration) -> Result<()> {
    println!("SKEIN_NEMESIS_SEED={seed}");
    let server = Server::in_memory_on(ground, LASTING).await?;
    let mut nemesis = Nemesis::start(server, LEASE, seed, agents::define).await?;
    let working = Swarm::gather(&nemesis.sites[0].up, nemesis.map(), seed).await?.begin();
    let began = Instant::now();
    while began.elapsed() < time || nemesis.done.len() < Fault::ALL.len() {
        nemesis.strike().await?;
    }
    working.has_done_everything().await;
    let swarm = working.stop().await?;
    let field = Arc::clone(&swarm.field);
    let healed = field.claims.now();
    let judged = async {
        let swarm = swarm.drain().await?;
        let mut broken = swarm.judge(&nemesis.sites[0].up, &nemesis.cluster.server, healed).await?;
        broken.extend(swarm.judge_agents(&nemesis, &NOTHING).await?);
        Ok(broken)
    };
    nemesis
        .is_sound(&field, judged.await)
        .await
        .with_context(|| format!("seed {seed}, after {:?}", nemesis.done))
}

/// What becomes of a Redis whose place a replica takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Former {
    Dies,
    /// It is cut off, and one coordinator with it: for a while two of them acknowledge writes.
    GoesOn,
    /// The same, and that coordinator dies with it: nobody knows any more what the two of them have done.
    TakesOneAlong,
}

/// Redis answers before its replica has the write, so what it acknowledged last may be lost when the replica takes its
/// place. Then nothing else is: older writes are there, tokens rise, the nodes agree, what is gone is named, runs and
/// schedules go on, and events and calls that were taken in before or after are done.
///
/// # Errors
/// When a checker finds something, or a part does not start.
pub async fn a_failover_loses_what_came_last_and_nothing_else(
    ground: Ground,
    seed: u64,
    former: Former,
) -> Result<()> {
    let settings = [LASTING, &["--repl-diskless-sync-delay", "0"]].concat();
    let primary = Server::in_memory_on(ground, &settings).await?;
    let (replica, replication) = primary.replica().await?;
    let wanted = redis::cmd("CONFIG").arg("SET").arg("min-replicas-to-write").arg(1).to_owned();
    let () = wanted.query_async(&mut primary.connection().await?).await?;
    let mut nemesis = Nemesis::start(primary, LEASE, seed, agents::define).await?;
    let swarm = Swarm::gather(&nemesis.sites[0].up, nemesis.map(), seed).await?;
    let field = Arc::clone(&swarm.field);
    let working = swarm.begin();
    field.told(300).await;
    field.takes_in(EVENTS).await;
    // What was told by now the replica has, for it has what was written after.
    let lost_from = field.claims.now();
    ensure!(nemesis.cluster.server.replicate().await? == 1, "the replica does not follow");
    replication.hold_back();
    let last = async { tokio::join!(field.told(field.count_told() + 100), field.takes_in(EVENTS)) };
    // On a busy machine less has to do.
    let _ = tokio::time::timeout(MISSED, last).await;
    match former {
        Former::Dies => nemesis.fail_over(replica).await?,
        Former::GoesOn | Former::TakesOneAlong => {
            let mut of_one = nemesis.split(replica).await?;
            field.told(field.count_told() + 200).await;
            // Each side has had the time to take the shards of the other.
            tokio::time::sleep(LEASE).await;
            if former == Former::GoesOn {
                nemesis.unite();
            } else {
                nemesis.unite_anew().await?;
            }
            of_one.kill().await?;
        }
    }
    let lost_to = field.claims.now();
    field.told(field.count_told() + 200).await;
    field.takes_in(2 * EVENTS).await;
    let swarm = working.stop().await?;
    let healed = field.claims.now();
    let (node, server) = (&nemesis.sites[0].up, &nemesis.cluster.server);
    let mut gone = Vec::new();
    let judged = async {
        let swarm = swarm.drain().await?;
        let mut broken = swarm.judge_without(node, Some(server), healed, lost_from..lost_to, LEASE).await?;
        // What was decided before shows in what agents do a little later.
        broken.extend(swarm.judge_agents(&nemesis, &(lost_from..lost_to + LEASE)).await?);
        gone = swarm.gone(node).await?;
        Ok(broken)
    };
    nemesis
        .is_sound(&field, judged.await)
        .await
        .with_context(|| format!("lost {lost_from:?} to {lost_to:?}"))?;
    ensure!(!gone.is_empty(), "nothing was lost");
    // Something was acknowledged and is gone, and each such task is named by whoever acknowledged it, if that lives.
    match former {
        Former::TakesOneAlong => Ok(()),
        Former::Dies | Former::GoesOn => each_is_named(node, &gone).await,
    }
}

/// Waits until the status of the cluster names all of these as lost.
async fn each_is_named(node: &Up, gone: &[String]) -> Result<()> {
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
