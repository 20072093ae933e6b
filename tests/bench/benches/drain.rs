//! One of three coordinators gives its shards away while somebody writes on each of them: how long each is without an
//! owner that writes.
//!
//! Seen from outside that is the time between two acknowledgements: it begins before the shard is closed and ends after
//! the next owner's first write, so it is never less than what lies between these.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use skein_coordinator::auth::Role;
use skein_coordinator::auth::token::Keys;
use skein_coordinator::store::redis::shard::Shard;
use skein_shared::id::{EntityKey, Kind, Name};
use skein_tests::cluster::{Cluster, Status};
use skein_tests::up::Up;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::Bench;
use crate::harness::mcp::{Client, Target};
use crate::harness::report::{Figure, Goal, Report};
use crate::harness::stats::{Interval, median};
use crate::options::Options;
use crate::skein::coordinators::shared;
use crate::skein::embedded::refused;
use crate::skein::node;

pub(super) const BENCH: Bench = Bench {
    name: "drain",
    about: "one of three coordinators gives its shards away while a task is made on each of them again and again",
    run: |options| run(options).boxed(),
};

const SETTINGS: &str = "lease = \"10s\"\nsettle = \"1s\"";
/// Between an acknowledgement and the next write of the same swarm. It counts as time without an owner.
const PAUSE: Duration = Duration::from_millis(20);
const AGAIN: Duration = Duration::from_millis(2);
const LOOK: Duration = Duration::from_millis(100);
/// How long a drain may take before the bench gives up.
const PATIENCE: Duration = Duration::from_secs(120);

async fn run(options: Options) -> Result<Report> {
    let (cluster, first) = Cluster::start(SETTINGS).await?;
    let keys = Keys::load_or_create(&first.data())?;
    let mut nodes = vec![first, cluster.join().await?, cluster.join().await?];
    // The same agent in every round, for its name is taken then.
    let who = Uuid::now_v7();
    let (mut medians, mut worst) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        shared(&nodes).await?;
        let mut silences = drain(&nodes, &keys, who).await?;
        silences.sort_by(f64::total_cmp);
        medians.push(median(&silences).context("no shard has moved")?);
        worst.push(silences[(silences.len() * 99).div_ceil(100) - 1]);
        // Whoever has drained takes no shards until it is started again.
        let drained = nodes.pop().context("three nodes")?;
        nodes.push(cluster.serve(drained.terminate().await?).await?);
    }
    let mut report = Report::default();
    for (share, values) in [("median", &medians), ("p99", &worst)] {
        let value = Interval::of(values).context("at least one round")?;
        let name = format!("longest time between two writes on a shard that moves, {share} of the shards");
        report.figures.push(Figure { name, unit: "ms".to_owned(), value });
    }
    let goal = "drain: close of a shard to its first write at the next owner, p99 of the shards, ms";
    report.goals.push(Goal::at_most(goal, 200.0, Interval::of(&worst)));
    Ok(report)
}

/// Drains the last node; gives the milliseconds for each of its shards.
async fn drain(nodes: &[Up], keys: &Keys, who: Uuid) -> Result<Vec<f64>> {
    let (leaving, staying) = nodes.split_last().context("three nodes")?;
    let address = Status::of(leaving).await?.address()?;
    let status = Status::of(&staying[0]).await?;
    let swarms = swarms()?;
    let theirs: Vec<_> =
        swarms.iter().filter(|(shard, _)| status.owner(**shard).as_ref() == Some(&address)).collect();
    ensure!(!theirs.is_empty(), "{address} has no shards: {:?}", status.shards());
    let (draining, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut writers = JoinSet::new();
    for (number, (_, swarm)) in theirs.into_iter().enumerate() {
        let client = agent(&staying[number % staying.len()], keys, swarm, who).await?;
        writers.spawn(write(client, Arc::clone(&draining), Arc::clone(&over)));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    draining.store(true, Ordering::Release);
    staying[0].skein(&["cluster", "drain", &address]).await?;
    let drained = async {
        let left = async || {
            let shards = Status::of(&staying[0]).await?.shards();
            anyhow::Ok(shards.into_iter().any(|(node, count)| node == address && count > 0))
        };
        while left().await? {
            tokio::time::sleep(LOOK).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, drained).await.context("the node keeps its shards")??;
    over.store(true, Ordering::Release);
    writers.join_all().await.into_iter().collect()
}

/// A swarm for each shard, whose pool lies there.
fn swarms() -> Result<BTreeMap<u16, String>> {
    let (mut swarms, all) = (BTreeMap::new(), Shard::all().count());
    for number in 0.. {
        let name = format!("swarm-{number}");
        let shard = Shard::of(&EntityKey::of(Kind::Pool, &Name::parse(&name).map_err(refused)?));
        swarms.entry(shard.number()).or_insert(name);
        if swarms.len() == all {
            break;
        }
    }
    Ok(swarms)
}

/// Somebody of a swarm, at a node.
async fn agent(up: &Up, keys: &Keys, swarm: &str, who: Uuid) -> Result<Client> {
    let token = node::token_in(keys, swarm, Role::Worker, who, "bench")?;
    let address = up.mcp.trim_start_matches("http://").trim_end_matches("/mcp").parse()?;
    let mut client = Client::connect(&Target { address, path: "/mcp" }, Some(&token)).await?;
    client.succeed("join-swarm", r#"{"name":"bench"}"#).await?;
    Ok(client)
}

/// Makes tasks until it is over; gives the longest time between two of them during the drain, in milliseconds.
async fn write(mut client: Client, draining: Arc<AtomicBool>, over: Arc<AtomicBool>) -> Result<f64> {
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    let began = Instant::now();
    while !over.load(Ordering::Acquire) {
        let made = client.succeed("task-action", r#"{"action":"create","task":"meanwhile"}"#).await;
        if let Err(problem) = made {
            ensure!(began.elapsed() < PATIENCE, "nothing is written any more: {problem:#}");
            tokio::time::sleep(AGAIN).await;
            continue;
        }
        if draining.load(Ordering::Acquire) {
            longest = longest.max(last.elapsed());
        }
        last = Instant::now();
        tokio::time::sleep(PAUSE).await;
    }
    Ok(longest.as_secs_f64() * 1000.0)
}
