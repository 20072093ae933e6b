//! B7: agents that are connected and have nothing to do.

use std::net::SocketAddr;
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
/// Runs of each before it is looked how much memory more of them take: by then caches have their size.
const WARM: u32 = 2;
/// In a shorter time nobody gives a sign of life.
const SIGN: Duration = Duration::from_secs(30);

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    // Two signs of life of each connection: they are what is left to do.
    let idle = options.slot * 10;
    if idle < SIGN {
        report.remarks.push("a first look: too short for signs of life".to_owned());
    }
    for count in [1000, 10_000] {
        let hello = "GET /events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
        let caller = Caller { address: ([127, 0, 0, 1], 0).into(), token: "none".to_owned() };
        let sse = bare("bare-sse", count, hello.into()).await?;
        let rmcp = bare("bare-rmcp-wait", count, wait(&caller)).await?;
        let waiting = Waiting::begin(&options, count).await?;
        let streamed = Streamed::begin(&options, count).await;
        let (quiet, streamed) = quiet(idle, &waiting, streamed).await?;
        let cost = waiting.end().await?;
        for (name, cost) in [("bare SSE", &sse), ("bare rmcp wait", &rmcp), ("skein wait", &cost)] {
            tell(&mut report, &format!("{name}, {count}"), cost);
        }
        goals(&mut report, count, [&sse, &rmcp, &cost]);
        quiet.tell(&mut report, &format!("{count} waits"));
        match streamed {
            Ok((bytes, quiet)) => {
                report.goals.push(streamed_goal(count, Some(Interval::exactly(bytes / 1000.0))));
                quiet.tell(&mut report, &format!("{count} of a runner's stream"));
            }
            Err(error) => {
                let remark = format!("agents of a runner's stream, {count}, ARE NOT MEASURED: {error:#}");
                report.remarks.push(remark);
                report.goals.push(streamed_goal(count, None));
            }
        }
    }
    Ok(report)
}

/// What open connections were to their server.
struct Cost {
    /// Resident bytes for each.
    bytes: f64,
    opened_s: f64,
    reopened_s: f64,
}

impl Cost {
    async fn of(held: Held) -> Result<Self> {
        let (bytes, opened_s) = (held.bytes, held.opened_s);
        Ok(Self { bytes, opened_s, reopened_s: held.open_again().await? })
    }
}

fn tell(report: &mut Report, name: &str, cost: &Cost) {
    let figures = [
        ("resident an agent", "KB", cost.bytes / 1000.0),
        ("opened", "s", cost.opened_s),
        ("opened again", "s", cost.reopened_s),
    ];
    report
        .figures
        .extend(figures.map(|(what, unit, value)| Figure::new(format!("{name}: {what}"), unit, value)));
}

fn goals(report: &mut Report, count: usize, [sse, rmcp, skein]: [&Cost; 3]) {
    let ratio = |to: &Cost| Some(Interval::exactly(skein.bytes / to.bytes));
    let reopened = Some(Interval::exactly(skein.reopened_s));
    report.goals.extend([
        Goal::at_most(format!("B7 memory to bare SSE, {count}"), TO_SSE, ratio(sse)),
        Goal::at_most(format!("B7 memory to a bare rmcp wait, {count}"), TO_RMCP, ratio(rmcp)),
        Goal::at_most(format!("B7 seconds for {count} reconnects"), RECONNECT_S, reopened),
    ]);
}

fn streamed_goal(count: usize, kilobytes: Option<Interval>) -> Goal {
    Goal::at_most(format!("B7 KB for an agent of a runner's stream, {count}"), STREAMED_KB, kilobytes)
}

/// What a node did while nothing happened.
struct Quiet {
    /// Share of a core.
    processor: f64,
    /// Commits and flushes.
    operations: u64,
}

impl Quiet {
    fn tell(&self, report: &mut Report, who: &str) {
        let (processor, made) =
            (Interval::exactly(self.processor), Interval::exactly(self.operations as f64));
        report.goals.extend([
            Goal::at_most(format!("B7 idle processor, {who}"), IDLE_CPU, Some(processor)),
            Goal::at_most(format!("B7 store operations, {who}"), 0.0, Some(made)),
        ]);
    }
}

/// A node whose quiet time has begun.
struct Watched<'a> {
    node: &'a Node,
    reading: Reading,
    operations: u64,
}

impl<'a> Watched<'a> {
    async fn begin(node: &'a Node) -> Result<Self> {
        let operations = operations(node).await?;
        Ok(Self { node, reading: Reading::of(Metered::Tree(node.id()?))?, operations })
    }

    async fn end(self, idle: Duration) -> Result<Quiet> {
        let used = Reading::of(Metered::Tree(self.node.id()?))?.since(&self.reading);
        let processor = used.cpu_us / idle.as_secs_f64() / 1e6;
        Ok(Quiet { processor, operations: operations(self.node).await? - self.operations })
    }
}

/// Lets both nodes be quiet for a while, at the same time.
async fn quiet(
    idle: Duration,
    waiting: &Waiting,
    streamed: Result<Streamed>,
) -> Result<(Quiet, Result<(f64, Quiet)>)> {
    let watched = Watched::begin(&waiting.node).await?;
    let streamed = match streamed {
        Ok(streamed) => streamed,
        Err(error) => {
            tokio::time::sleep(idle).await;
            return Ok((watched.end(idle).await?, Err(error)));
        }
    };
    let other = Watched::begin(&streamed.node).await?;
    tokio::time::sleep(idle).await;
    let (quiet, other) = (watched.end(idle).await?, other.end(idle).await?);
    let bytes = streamed.bytes;
    streamed.end().await?;
    Ok((quiet, Ok((bytes, other))))
}

/// The call that an idle agent has open: it watches the swarm's tasks, for an hour.
fn wait(caller: &Caller) -> Vec<u8> {
    caller.request("wait", &serde_json::json!({ "for": ["tasks"], "timeout_s": 3600 }), true)
}

/// A server of the bench's own that holds clients.
async fn bare(server: &str, count: usize, request: Vec<u8>) -> Result<Cost> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve", server]);
    let (server, address) = Server::start_listening(server, command).await?;
    let held = Held::open(server.id()?, count, asking(address.parse()?, vec![request])).await?;
    let cost = Cost::of(held).await?;
    server.stop().await?;
    Ok(cost)
}

/// Clients that ask in turn for one of the streams.
fn asking(address: SocketAddr, requests: Vec<Vec<u8>>) -> Open {
    let requests = Arc::new(requests);
    Arc::new(move |client| {
        let requests = Arc::clone(&requests);
        Box::pin(async move {
            let mut connection = Connection::open(address).await?;
            connection.begin(&requests[client % requests.len()]).await?;
            Ok(connection)
        })
    })
}

/// Agents that have joined a swarm and wait, each on its own connection.
struct Waiting {
    node: Node,
    held: Held,
}

impl Waiting {
    async fn begin(options: &Options, count: usize) -> Result<Self> {
        let node = Node::start(&options.folder_for("skein-idle")?).await?;
        let agents = node.workers(count).await?;
        let requests = agents.iter().map(|agent| wait(&agent.caller)).collect();
        drop(agents);
        held::settled(node.id()?).await?;
        let held = Held::open(node.id()?, count, asking(node.endpoint.http, requests)).await?;
        Ok(Self { node, held })
    }

    async fn end(self) -> Result<Cost> {
        let cost = Cost::of(self.held).await?;
        self.node.stop().await?;
        Ok(cost)
    }
}

/// Agents of a runner, which come over its one stream.
struct Streamed {
    node: Node,
    _sleepers: Sleepers,
    /// Resident for each.
    bytes: f64,
}

impl Streamed {
    async fn begin(options: &Options, count: usize) -> Result<Self> {
        let node = Node::start(&options.folder_for("skein-streamed")?).await?;
        let all = u32::try_from(count)? / AGENTS;
        let measured = all - WARM;
        let sleepers = Sleepers::connect(&node, AGENTS, all).await?;
        sleepers.run(&node, WARM).await?;
        let before = held::settled(node.id()?).await?;
        sleepers.run(&node, measured).await?;
        let bytes = (held::settled(node.id()?).await? - before) / f64::from(AGENTS * measured);
        Ok(Self { node, _sleepers: sleepers, bytes })
    }

    async fn end(self) -> Result<()> {
        self.node.stop().await
    }
}

/// Commits and flushes of a node so far.
async fn operations(node: &Node) -> Result<u64> {
    Ok(node.counter("skein_entity_commits_total").await? + node.counter("skein_store_flushes_total").await?)
}
