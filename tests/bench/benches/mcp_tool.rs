//! B14: an agent asks something over MCP, beside servers that answer without looking.

use anyhow::Result;
use futures::FutureExt;

use super::Bench;
use crate::harness::contender::Contender;
use crate::harness::mcp::Script;
use crate::harness::report::{Case, Goal, Report};
use crate::harness::rounds::{self, Load};
use crate::options::Options;
use crate::probes::http::{self, Bare};
use crate::skein::server::{self, Agents, Node};

pub(super) const BENCH: Bench = Bench {
    name: "mcp_tool",
    about: "a tool that reads, over MCP, beside a bare rmcp server and a bare axum one",
    run: |options| run(options).boxed(),
};

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    let node = Node::start(&options.folder_for("skein")?).await?;
    let mut contenders = contenders(server::who_am_i, &node).await?;
    for in_flight in [1, 32, 256] {
        let load = Load::new("who am I", in_flight).with_latencies();
        report.cases.push(rounds::run(&load, &mut contenders, &options).await?);
    }
    contenders.pop();
    contenders.push(Box::new(Agents::reading(&node, server::ten_tasks)));
    fill(&node).await?;
    let load = Load { name: "list, 32 in flight".to_owned(), ..Load::new("list of ten tasks", 32) };
    report.cases.push(rounds::run(&load, &mut contenders, &options).await?);
    for contender in contenders {
        contender.stop().await?;
    }
    goals(&mut report);
    Ok(report)
}

/// Skein comes last.
async fn contenders(script: Script, node: &std::sync::Arc<Node>) -> Result<Vec<Box<dyn Contender>>> {
    Ok(vec![
        Box::new(Bare::rmcp(http::once).await?),
        Box::new(Bare::axum(http::once).await?),
        Box::new(Agents::reading(node, script)),
    ])
}

async fn fill(node: &Node) -> Result<()> {
    const TASKS: usize = 100;
    let mut maker = node.agent("maker").await?;
    for number in 0..TASKS {
        let create = format!(r#"{{"action":"create","task":"Read chapter {number}"}}"#);
        maker.succeed("task-action", &create).await?;
    }
    Ok(())
}

fn goals(report: &mut Report) {
    let case: &Case = &report.cases[1];
    report.goals = vec![
        Goal::at_least("B14 rate to bare rmcp, 32 in flight", 0.85, case.ratio("skein", "bare rmcp")),
        Goal::at_most("B14 CPU to bare rmcp, 32 in flight", 1.3, case.cpu_ratio("skein", "bare rmcp")),
    ];
}
