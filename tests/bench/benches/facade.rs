//! How long a client waits for the list of tools, and how long a search among many takes.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use hdrhistogram::Histogram;
use serde_json::json;
use skein_coordinator::mcp::catalogue::{Call, Outcome, Tool};
use skein_coordinator::mcp::result::Answer;
use skein_coordinator::mcp::{Catalogue, finder, tools};
use skein_tests::mcp::Client;
use skein_tests::up::Up;

use super::Bench;
use crate::harness::load::{histogram, nanoseconds};
use crate::harness::report::{Figure, Goal, Report};
use crate::harness::stats::Interval;
use crate::options::Options;

pub(super) const BENCH: Bench = Bench {
    name: "facade",
    about: "the list at /mcp over HTTP, and a search among 250 tools, beside an empty answer of the same node",
    run: |options| run(options).boxed(),
};

/// Tools of a large catalogue.
const MANY: usize = 250;
const ROUNDS: usize = 1000;
/// What people and agents ask for.
const QUERIES: [&str; 6] = [
    "run something every hour",
    "delegate work to a teammate",
    "pause until a github webhook arrives",
    "acquire_lock",
    "remove task from project",
    "aquire the mutexx for a very long sentence that names many things which no tool has ever been called by",
];

async fn run(_: Options) -> Result<Report> {
    let up = Up::start().await?;
    let client = Client::new(&up.mcp, &up.token("lead", "lead").await?);
    let mut report = Report::default();
    // What one request costs here whatever it asks for.
    let ping = over_http(&client, "server/discover").await?;
    let list = over_http(&client, "tools/list").await?;
    let search = searches(&many()?);
    for (name, times) in [("an answer of some lines", &ping), ("the list", &list), ("a search", &search)] {
        for (what, quantile) in [("median", 0.5), ("p99", 0.99)] {
            let value = Interval::exactly(milliseconds(times, quantile));
            report.figures.push(Figure { name: format!("{name}, {what}"), unit: "ms".to_owned(), value });
        }
    }
    let exactly = |times, quantile| Some(Interval::exactly(milliseconds(times, quantile)));
    report.goals = vec![
        Goal::at_most("list at /mcp, median, ms", 1.0, exactly(&list, 0.5)),
        Goal::at_most("search among 250 tools, p99, ms", 1.0, exactly(&search, 0.99)),
    ];
    Ok(report)
}

async fn over_http(client: &Client, method: &str) -> Result<Histogram<u64>> {
    let mut times = histogram();
    for round in 0..ROUNDS {
        let began = Instant::now();
        let answer = client.request(method, json!({})).await?;
        ensure!(answer["result"].is_object(), "{method} answered {answer}");
        // The first ones open the connection.
        if round > ROUNDS / 10 {
            times.saturating_record(nanoseconds(began.elapsed()));
        }
    }
    Ok(times)
}

fn searches(catalogue: &Catalogue) -> Histogram<u64> {
    let mut times = histogram();
    for round in 0..ROUNDS {
        let began = Instant::now();
        std::hint::black_box(finder::search(catalogue, QUERIES[round % QUERIES.len()], 8, |_| true));
        times.saturating_record(nanoseconds(began.elapsed()));
    }
    times
}

/// The tools of Skein over and over, under names of their own.
fn many() -> Result<Catalogue> {
    async fn nothing(_: Call, (): ()) -> Outcome {
        Ok(Answer::plain(json!({})))
    }
    let real = tools::catalogue()?;
    let copies = (0..MANY).zip(real.tools().cycle()).map(|(number, tool)| {
        let name: &'static str = Box::leak(format!("{}-{number}", tool.name).into_boxed_str());
        let copy = Tool::new(name, tool.title, tool.toolset, nothing).about(tool.summary, tool.details);
        copy.found_by(tool.search).args(tool.args.clone())
    });
    Catalogue::new(copies.collect()).context("the copies have names of their own")
}

fn milliseconds(times: &Histogram<u64>, quantile: f64) -> f64 {
    times.value_at_quantile(quantile) as f64 / 1e6
}
