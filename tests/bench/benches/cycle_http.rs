//! B2: the task cycle as agents do it, over MCP: three calls, each on the disk before it is answered.

use anyhow::Result;
use futures::FutureExt;

use super::Bench;
use crate::harness::contender::Contender;
use crate::harness::report::{Goal, Report};
use crate::harness::rounds::{self, Load};
use crate::options::Options;
use crate::peers::{self, restate};
use crate::probes::http::{self, Bare};
use crate::skein::server::{self, Agents, Node};

pub(super) const BENCH: Bench = Bench {
    name: "cycle_http",
    about: "create, claim, complete over MCP, power-cut safe, beside three empty calls",
    run: |options| run(options).boxed(),
};

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    let node = Node::start(&options.folder_for("skein")?).await?;
    let mut contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(Bare::rmcp(http::thrice).await?),
        Box::new(Bare::axum(http::thrice).await?),
        Box::new(Agents::writing(&node, server::cycle)),
    ];
    peers::add(&mut contenders, &mut report, &options, &[restate::RESTATE]).await?;
    for in_flight in [1, 32, 256] {
        let load = Load::new("three calls", in_flight).with_latencies();
        report.cases.push(rounds::run(&load, &mut contenders, &options).await?);
    }
    for contender in contenders {
        contender.stop().await?;
    }
    let case = &report.cases[1];
    report.goals = vec![
        Goal::at_least(
            "B2 rate to three calls of bare rmcp, 32 in flight",
            0.6,
            case.ratio("skein", "bare rmcp"),
        ),
        Goal::at_least("B2 rate to Restate, 32 in flight", 5.0, case.ratio("skein", "Restate")),
    ];
    Ok(report)
}
