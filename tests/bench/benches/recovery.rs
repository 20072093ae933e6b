//! B18: a node with a million tasks is killed at work; how long until somebody can claim again, and in how much
//! memory.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;

use super::Bench;
use crate::harness::contender::{Pace, Plan};
use crate::harness::load::{self, Operation};
use crate::harness::report::{Figure, Goal, Report};
use crate::harness::stats::Interval;
use crate::options::Options;
use crate::skein::fill::Contents;
use crate::skein::node::{Memory, Node};
use crate::skein::place::Place;

pub(super) const BENCH: Bench = Bench {
    name: "recovery",
    about: "kill -9 at work with 1,000,000 tasks and 10,000 leases, until the first claim",
    run: |options| run(options).boxed(),
};

/// Clients at work when the node is killed.
const CLIENTS: usize = 16;
/// How long a node rests before its memory counts as steady.
const REST: Duration = Duration::from_secs(10);

async fn run(options: Options) -> Result<Report> {
    let (pending, leases) = if options.rounds < 5 { (100_000, 1000) } else { (1_000_000, 10_000) };
    let mut report = Report::default();
    let full = Place::new(&options, "full", Contents { members: 0, pending, leases }).await?;
    let empty = Place::new(&options, "empty", Contents { members: 0, pending: 0, leases: 0 }).await?;
    let (mut recovered, mut started) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        started.push(empty.first_claim().await?.1);
        let (node, milliseconds) = full.first_claim().await?;
        recovered.push(milliseconds);
        work_and_die(node, &full, options.slot).await?;
    }
    let (node, _) = full.first_claim().await?;
    let claimed = node.memory()?;
    full.caught_up(&node).await?;
    let whole = node.memory()?;
    let steady = full.rested(&node, REST).await?;
    node.kill().await?;
    let figure = |name: &str, values: &[f64]| {
        let value = Interval::of(values).context("at least one round")?;
        anyhow::Ok(Figure { name: name.to_owned(), unit: "ms".to_owned(), value })
    };
    report
        .figures
        .push(figure(&format!("first claim after kill -9, {pending} tasks, {leases} leases"), &recovered)?);
    report.figures.push(figure("first claim of an empty node", &started)?);
    memory(&mut report, &claimed, &whole, &steady);
    report.goals.push(Goal::at_most("B18 first claim, ms (aim 1000)", 3000.0, Interval::of(&recovered)));
    let ratio = Interval::exactly(steady.peak / steady.resident);
    report.goals.push(Goal::at_most("B18 peak memory to steady", 1.3, Some(ratio)));
    Ok(report)
}

fn memory(report: &mut Report, claimed: &Memory, whole: &Memory, steady: &Memory) {
    for (name, value) in [
        ("resident at the first claim", claimed.resident),
        ("peak until the first claim", claimed.peak),
        ("peak until the lists are whole", whole.peak),
        ("resident at rest", steady.resident),
    ] {
        report.figures.push(Figure::new(name, "MiB", value));
    }
}

/// Kills the node while clients create tasks.
async fn work_and_die(node: Node, place: &Place, time: Duration) -> Result<()> {
    let client = place.client(&node);
    let operation: Operation = Arc::new(move |_| -> BoxFuture<'static, Result<()>> {
        let client = client.clone();
        async move {
            let create = json!({ "action": "create", "task": "made at work", "tags": ["tag-1"] });
            client.call("task-action", create).await.map(|_| ())
        }
        .boxed()
    });
    // It lasts longer than the node does, and so ends with the error of the first call that is cut off.
    let plan = Plan { in_flight: CLIENTS, time: time + Duration::from_secs(60), pace: Pace::Closed };
    let work = tokio::spawn(async move { load::run(&plan, operation).await });
    tokio::time::sleep(time).await;
    node.kill().await?;
    let _ = work.await?;
    Ok(())
}
