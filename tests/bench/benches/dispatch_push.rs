//! B6: a task is created here and is at the agent there, which waited for it.

use anyhow::Result;
use futures::FutureExt;

use super::Bench;
use crate::harness::contender::Contender;
use crate::harness::report::{Goal, Report};
use crate::harness::rounds::{self, Load};
use crate::harness::stats::Interval;
use crate::options::Options;
use crate::peers::{self, nats_push};
use crate::skein::push::Push;

pub(super) const BENCH: Bench = Bench {
    name: "dispatch_push",
    about: "created here, at the waiting agent there: 1,000 connected agents, 200 tasks a second",
    run: |options| run(options).boxed(),
};

const AGENTS: usize = 1000;
const RATE: f64 = 200.0;

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    let mut contenders: Vec<Box<dyn Contender>> =
        vec![Box::new(Push::start(&options.folder_for("skein-push")?).await?)];
    peers::add(&mut contenders, &mut report, &options, &[nats_push::ALWAYS, nats_push::LAZY]).await?;
    let load = Load::new("task dispatched", AGENTS).at_rate(RATE);
    report.cases.push(rounds::run(&load, &mut contenders, &options).await?);
    for contender in contenders {
        contender.stop().await?;
    }
    goals(&mut report);
    Ok(report)
}

fn goals(report: &mut Report) {
    let case = &report.cases[0];
    let skein = case.row("skein").and_then(|row| row.latency);
    let exactly =
        |read: fn(&crate::harness::report::Latency) -> f64| skein.as_ref().map(read).map(Interval::exactly);
    report.goals.extend([
        Goal::at_most("B6 median, ms, quiet machine", 1.0, exactly(|latency| latency.p50)),
        Goal::at_most("B6 p99, ms, quiet machine", 5.0, exactly(|latency| latency.p99)),
        Goal::at_most("B6 p99, ms, busy machine", 15.0, exactly(|latency| latency.p99)),
        Goal::at_most("B6 median to NATS's", 2.0, case.latency_ratio("skein", "NATS always")),
    ]);
}
