//! B4: a lock is taken and given back in Redis, whose log is flushed before each answer.

use anyhow::Result;
use futures::FutureExt;

use super::Bench;
use crate::harness::contender::Contender;
use crate::harness::report::{Figure, Goal, Latency, Report};
use crate::harness::rounds::{self, Load};
use crate::harness::stats::Interval;
use crate::options::Options;
use crate::skein::embedded;
use crate::skein::lock_wait;
use crate::skein::over_redis::{Fsync, OverRedis, Scripts};

pub(super) const BENCH: Bench = Bench {
    name: "lock_redis",
    about: "acquire and release over Redis, beside its own scripts",
    run: |options| run(options).boxed(),
};

const LABEL: &str = "skein";

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    let mut contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(
            Scripts::open(
                "scripts",
                &options.folder_for("scripts")?,
                (embedded::lock, embedded::LOCK_STEPS),
                Fsync::Always,
            )
            .await?,
        ),
        Box::new(OverRedis::open(LABEL, &options.folder_for("skein")?, embedded::lock, Fsync::Always).await?),
    ];
    for in_flight in [1, 32] {
        let load = Load::new("acquire and release", in_flight).with_latencies();
        report.cases.push(rounds::run(&load, &mut contenders, &options).await?);
    }
    for contender in contenders {
        contender.stop().await?;
    }
    for case in &report.cases {
        let text = format!("B4 rate to scripts, {}", case.name);
        report.goals.push(Goal::at_least(text, 0.80, case.ratio(LABEL, "scripts")));
        let medians = case
            .row(LABEL)
            .zip(case.row("scripts"))
            .and_then(|(skein, scripts)| Some(Interval::exactly(skein.latency?.p50 / scripts.latency?.p50)));
        let text = format!("B4 median to scripts, {}", case.name);
        report.goals.push(Goal::at_most(text, 1.25, medians));
    }
    let times = options.rounds as usize * 100;
    let told = Latency::of(0.0, &lock_wait::told(times).await?);
    for (name, value) in [("median", told.p50), ("p99", told.p99)] {
        report.figures.push(Figure::new(format!("told of a release through `wait`, {name}"), "ms", value));
    }
    let p99 = Some(Interval::exactly(told.p99));
    report.goals.push(Goal::at_most("B4 told of a release through `wait`, p99, ms", 5.0, p99));
    Ok(report)
}
