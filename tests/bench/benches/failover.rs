//! B18 over Redis: the coordinator that has the pool is killed; how long until another one gives out its tasks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::FutureExt;
use serde_json::{Value, json};
use skein_coordinator::auth::Role;
use skein_coordinator::auth::token::Keys;
use skein_coordinator::entity::Clock;
use skein_coordinator::store::redis::shard::Shard;
use skein_coordinator::store::redis::{self, Redis};
use skein_shared::id::{EntityKey, Kind, Name};
use skein_tests::cluster::{Cluster, Status};
use skein_tests::mcp::Client;
use skein_tests::up::Up;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Bench;
use crate::harness::report::{Figure, Goal, Report};
use crate::harness::stats::Interval;
use crate::options::Options;
use crate::skein::embedded::refused;
use crate::skein::fill::{Contents, fill_store};
use crate::skein::node;

pub(super) const BENCH: Bench = Bench {
    name: "failover",
    about: "kill -9 of the coordinator that has 1,000,000 tasks in Redis, until another gives them out",
    run: |options| run(options).boxed(),
};

const LEASE: Duration = Duration::from_secs(4);
const SETTINGS: &str = "lease = \"4s\"\nsettle = \"1s\"";
/// How long a call may be refused before the bench gives up.
const PATIENCE: Duration = Duration::from_secs(120);
const AGAIN: Duration = Duration::from_millis(5);

async fn run(options: Options) -> Result<Report> {
    let pending = if options.rounds < 5 { 100_000 } else { 1_000_000 };
    let contents = Contents { members: 0, pending, leases: pending / 100 };
    let (cluster, first) = Cluster::start(SETTINGS).await?;
    // The first node has given its keys; the store is filled by somebody who has it alone.
    let keys = Keys::load_or_create(&first.data())?;
    let folder = first.terminate().await?;
    let agent = Uuid::now_v7();
    fill_redis(&cluster, agent, &contents).await?;
    let token = node::token(&keys, Role::Worker, agent, "bench")?;
    let mut nodes = vec![cluster.serve(folder).await?, cluster.join().await?];
    let (mut claims, mut writes) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let (claim, write) = kill_the_owner(&cluster, &mut nodes, &token).await?;
        claims.push(claim);
        writes.push(write);
    }
    let mut report = Report::default();
    for (name, values) in [("first claim of the pool", &claims), ("first write on a moved shard", &writes)] {
        let value = Interval::of(values).context("at least one round")?;
        let name = format!("{name} after kill -9, {pending} tasks in Redis, lease {} s", LEASE.as_secs());
        report.figures.push(Figure { name, unit: "ms".to_owned(), value });
    }
    let lease = LEASE.as_secs_f64() * 1000.0;
    let after: Vec<f64> = claims.iter().map(|claim| claim - lease).collect();
    report.goals.push(Goal::at_most("B18 first claim after the lease, ms", 4000.0, Interval::of(&after)));
    let goal = "B18 first write on a moved shard, ms (lease + 2 s)";
    report.goals.push(Goal::at_most(goal, lease + 2000.0, Interval::of(&writes)));
    Ok(report)
}

async fn fill_redis(cluster: &Cluster, agent: Uuid, contents: &Contents) -> Result<()> {
    let wall = Clock::start().wall();
    let access = redis::Options::new(cluster.server.url(), "filler");
    let store = Arc::new(Redis::open(&access, wall).await?);
    let (keeper, stop) = (Arc::clone(&store), CancellationToken::new());
    let ends = stop.clone();
    let keeping = tokio::spawn(async move { keeper.keep(ends).await });
    fill_store(store, wall, agent, contents).await?;
    stop.cancel();
    keeping.await??;
    Ok(())
}

/// Milliseconds from the death of the node that has the pool until its tasks are given out again, and until a write on
/// another of its shards. The node is started again, and gets its shards back.
async fn kill_the_owner(cluster: &Cluster, nodes: &mut Vec<Up>, token: &str) -> Result<(f64, f64)> {
    let swarm = Name::parse("default").map_err(refused)?;
    let pool = Shard::of(&EntityKey::of(Kind::Pool, &swarm)).number();
    let place = owner(nodes, pool).await?;
    let victim = nodes.swap_remove(place);
    let survivor = Client::new(&nodes[0].mcp, token);
    let died = Instant::now();
    let folder = victim.kill().await?;
    let (said, none) = (json!({ "content": "anybody there?" }), json!({}));
    let write = first(&survivor, died, "post-message", said, |answer| answer["success"] == json!(true));
    let claim = first(&survivor, died, "task_claim_next", none, |answer| answer["task"].is_object());
    let (claim, write) = tokio::try_join!(claim, write)?;
    nodes.push(cluster.serve(folder).await?);
    let both = async {
        while Status::of(&nodes[0]).await?.shards().iter().any(|(_, count)| *count < 64) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, both).await.context("the shards were not shared again")??;
    Ok((claim, write))
}

/// The place of the node that has a shard.
async fn owner(nodes: &[Up], shard: u16) -> Result<usize> {
    let owner = Status::of(&nodes[0]).await?.owner(shard).context("nobody has the shard")?;
    for (place, node) in nodes.iter().enumerate() {
        if Status::of(node).await?.address()? == owner {
            return Ok(place);
        }
    }
    anyhow::bail!("nobody is {owner}")
}

/// Asks until it is done; gives the milliseconds since a moment.
async fn first(
    client: &Client,
    since: Instant,
    tool: &str,
    arguments: Value,
    is_done: fn(&Value) -> bool,
) -> Result<f64> {
    let asked = async {
        while !client.call(tool, arguments.clone()).await.is_ok_and(|answer| is_done(&answer)) {
            tokio::time::sleep(AGAIN).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.context("nobody answered in time")?;
    Ok(since.elapsed().as_secs_f64() * 1000.0)
}
