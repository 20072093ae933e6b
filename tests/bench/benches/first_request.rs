//! What the split into core and deferred tools is worth: the first request of the real Claude Code to its model.

use anyhow::{Context, Result};
use futures::FutureExt;
use serde_json::Value;
use skein_tests::first_request::{Setting, turn};
use skein_tests::up::{Folder, Up};

use super::Bench;
use crate::harness::report::{Figure, Goal, Report};
use crate::harness::stats::Interval;
use crate::options::Options;

pub(super) const BENCH: Bench = Bench {
    name: "first_request",
    about: "bytes and tokens of Claude Code's first request, with and without the split into core and deferred tools",
    run: |options| run(options).boxed(),
};

/// What a setting costs.
struct Cost {
    tools: usize,
    /// Of the swarm's tools.
    tokens: usize,
    /// Of the whole request.
    bytes: usize,
    request_tokens: usize,
}

async fn run(_: Options) -> Result<Report> {
    let up = Up::start().await?;
    let token = up.token("lead", "lead").await?;
    let full = format!("{}/full", up.mcp);
    let settings = [
        ("its search and /mcp/full", &full, true),
        ("no search and /mcp", &up.mcp, false),
        ("no split", &full, false),
    ];
    let mut report = Report::default();
    let mut costs = Vec::new();
    for (name, url, search) in settings {
        let folder = Folder::new()?;
        let setting = Setting { url, token: &token, search, wanted: Vec::new() };
        let cost = Cost::of(turn(folder.path(), &setting).await?.first()?);
        let figures = [
            ("tools of Skein", "", cost.tools),
            ("of which it pays", "tokens", cost.tokens),
            ("whole request", "tokens", cost.request_tokens),
            ("whole request", "bytes", cost.bytes),
        ];
        for (what, unit, value) in figures {
            let (name, value) = (format!("{name}: {what}"), Interval::exactly(value as f64));
            report.figures.push(Figure { name, unit: unit.to_owned(), value });
        }
        costs.push(cost);
    }
    let whole = costs.last().context("three settings")?.tokens as f64;
    let share = |cost: &Cost| Some(Interval::exactly(cost.tokens as f64 / whole));
    report.goals = vec![
        Goal::at_most(
            "tokens of the tools with its search, of those without the split",
            0.4,
            share(&costs[0]),
        ),
        Goal::at_most("tokens of the tools at /mcp, of those without the split", 0.3, share(&costs[1])),
    ];
    report.remarks.push(
        "Tokens are counted with o200k, as the tools' JSON and the whole request have them.".to_owned(),
    );
    Ok(report)
}

impl Cost {
    fn of(request: &Value) -> Self {
        let tools = request["tools"].as_array().into_iter().flatten();
        let ours = |tool: &&Value| tool["name"].as_str().is_some_and(|name| name.starts_with("mcp__skein__"));
        let ours: Vec<&Value> = tools.filter(ours).collect();
        let text = request.to_string();
        Self {
            tools: ours.len(),
            tokens: ours.iter().map(|tool| tokens(&tool.to_string())).sum(),
            bytes: text.len(),
            request_tokens: tokens(&text),
        }
    }
}

fn tokens(text: &str) -> usize {
    tiktoken_rs::o200k_base_singleton().encode_ordinary(text).len()
}
