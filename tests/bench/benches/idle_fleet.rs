//! B7: agents that are connected and have nothing to do.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::FutureExt;
use tokio::process::Command;

use super::Bench;
use crate::harness::contender::Metered;
use crate::harness::held::{self, Held, Open};
use crate::harness::meter::Reading;
use crate::harness::process::Server;
use crate::harness::report::{Figure, Goal, Report};
use crate::harness::stats::Interval;
use crate::harness::wire::Connection;
use crate::options::Options;
use crate::skein::fleet::{Caller, Node};
use crate::skein::sleepers::Sleepers;

pub(super) const BENCH: Bench = Bench {
    name: "idle_fleet",
    about: "1,000 and 10,000 agents that are connected and have nothing to do",
    run: |options| run(options).boxed(),
};

/// Goals of B7.
const TO_SSE: f64 = 1.5;
const TO_RMCP: f64 = 1.1;
const IDLE_CPU: f64 = 0.02;
const RECONNECT_S: f64 = 10.0;
const STREAMED_KB: f64 = 6.0;
/// Definitions of the runner whose instances come over its stream.
const AGENTS: u32 = 100;

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    // Two signs of life of each connection: they are what is left to do.
    let idle = options.slot * 10;
    for count in [1000, 10_000] {
        let clients = count as usize;
        let sse =
            bare("bare-sse", clients, idle, "GET /events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".into()).await?;
        let caller = Caller { address: ([127, 0, 0, 1], 0).into(), token: "none".to_owned() };
        let rmcp = bare("bare-rmcp-wait", clients, idle, wait(&caller)).await?;
        let skein = waits(&options, clients, idle, &mut report).await?;
        for (name, held) in [("bare SSE", &sse), ("bare rmcp wait", &rmcp), ("skein wait", &skein)] {
            tell(&mut report, &format!("{name}, {count}"), held);
        }
        goals(&mut report, count, &sse, &rmcp, &skein);
        if let Err(error) = streamed(&options, count, idle, &mut report).await {
            report.remarks.push(format!("agents of a runner's stream, {count}, ARE NOT MEASURED: {error:#}"));
            let text = format!("B7 KB for an agent of a runner's stream, {count}");
            report.goals.push(Goal::at_most(text, STREAMED_KB, None));
        }
    }
    Ok(report)
}

fn tell(report: &mut Report, name: &str, held: &Held) {
    let figures = [
        ("resident an agent", "KB", held.bytes / 1000.0),
        ("opened", "s", held.opened_s),
        ("opened again", "s", held.reopened_s),
        ("idle processor", "% of a core", held.idle_cpu * 100.0),
    ];
    report
        .figures
        .extend(figures.map(|(what, unit, value)| Figure::new(format!("{name}: {what}"), unit, value)));
}

fn goals(report: &mut Report, count: u32, sse: &Held, rmcp: &Held, skein: &Held) {
    let ratio = |to: &Held| Some(Interval::exactly(skein.bytes / to.bytes));
    report.goals.extend([
        Goal::at_most(format!("B7 memory to bare SSE, {count}"), TO_SSE, ratio(sse)),
        Goal::at_most(format!("B7 memory to a bare rmcp wait, {count}"), TO_RMCP, ratio(rmcp)),
        Goal::at_most(
            format!("B7 idle processor, {count}"),
            IDLE_CPU,
            Some(Interval::exactly(skein.idle_cpu)),
        ),
        Goal::at_most(
            format!("B7 seconds for {count} reconnects"),
            RECONNECT_S,
            Some(Interval::exactly(skein.reopened_s)),
        ),
    ]);
}

/// The call that an idle agent has open: it watches the swarm's tasks, for an hour.
fn wait(caller: &Caller) -> Vec<u8> {
    caller.request("wait", &serde_json::json!({ "for": ["tasks"], "timeout_s": 3600 }), true)
}

/// A server of the bench's own that holds clients.
async fn bare(server: &str, count: usize, idle: Duration, request: Vec<u8>) -> Result<Held> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve", server]);
    let (server, address) = Server::start_listening(server, command).await?;
    let address = address.parse()?;
    let request: Arc<[u8]> = request.into();
    let open: Open = Arc::new(move |_| {
        let request = Arc::clone(&request);
        Box::pin(async move {
            let mut connection = Connection::open(address).await?;
            connection.begin(&request).await?;
            Ok(connection)
        })
    });
    let held = held::hold(server.id()?, count, idle, &open).await?;
    server.stop().await?;
    Ok(held)
}

/// Agents that have joined a swarm and wait, each on its own connection.
async fn waits(options: &Options, count: usize, idle: Duration, report: &mut Report) -> Result<Held> {
    let node = Node::start(&options.folder_for("skein-idle")?).await?;
    let agents = node.workers(count).await?;
    let requests: Arc<[Vec<u8>]> = agents.iter().map(|agent| wait(&agent.caller)).collect();
    drop(agents);
    let address = node.endpoint.http;
    let open: Open = Arc::new(move |client| {
        let requests = Arc::clone(&requests);
        Box::pin(async move {
            let mut connection = Connection::open(address).await?;
            connection.begin(&requests[client]).await?;
            Ok(connection)
        })
    });
    let before = operations(&node).await?;
    let held = held::hold(node.id()?, count, idle, &open).await?;
    let made = operations(&node).await? - before;
    let name = format!("B7 store operations while {count} agents wait");
    report.goals.push(Goal::at_most(name, 0.0, Some(Interval::exactly(made as f64))));
    node.stop().await?;
    Ok(held)
}

/// Agents of a runner, which come over its one stream.
async fn streamed(options: &Options, count: u32, idle: Duration, report: &mut Report) -> Result<()> {
    let node = Node::start(&options.folder_for("skein-streamed")?).await?;
    let metered = Metered::Tree(node.id()?);
    let sleepers = Sleepers::connect(&node, AGENTS, count / AGENTS).await?;
    let before = Reading::of(metered)?;
    sleepers.run(&node, AGENTS, count / AGENTS).await?;
    tokio::time::sleep(held::SETTLE).await;
    let (full, made) = (Reading::of(metered)?, operations(&node).await?);
    tokio::time::sleep(idle).await;
    let used = Reading::of(metered)?.since(&full);
    let made = operations(&node).await? - made;
    let exactly = |value| Some(Interval::exactly(value));
    let bytes = (full.resident - before.resident) / f64::from(count);
    let processor = used.cpu_us / idle.as_secs_f64() / 1e6;
    report.figures.push(Figure::new(
        format!("runner's stream, {count}: resident an agent"),
        "KB",
        bytes / 1000.0,
    ));
    report.goals.extend([
        Goal::at_most(
            format!("B7 KB for an agent of a runner's stream, {count}"),
            STREAMED_KB,
            exactly(bytes / 1000.0),
        ),
        Goal::at_most(format!("B7 idle processor, runner's stream, {count}"), IDLE_CPU, exactly(processor)),
        Goal::at_most(format!("B7 store operations, runner's stream, {count}"), 0.0, exactly(made as f64)),
    ]);
    drop(sleepers);
    node.stop().await
}

/// Commits and flushes of a node so far.
async fn operations(node: &Node) -> Result<u64> {
    Ok(node.counter("skein_entity_commits_total").await? + node.counter("skein_store_flushes_total").await?)
}
