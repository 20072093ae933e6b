//! B5: a lock is taken and given back, both on the disk before they are answered.

use anyhow::Result;
use futures::FutureExt;

use super::Bench;
use crate::harness::contender::Contender;
use crate::harness::report::{Goal, Report};
use crate::harness::rounds::{self, Load};
use crate::options::Options;
use crate::probes::sqlite::{Bare, Shaped, Step};
use crate::skein::embedded::{self, Embedded};

pub(super) const BENCH: Bench = Bench {
    name: "lock_embedded",
    about: "acquire and release in process, power-cut safe",
    run: |options| run(options).boxed(),
};

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    let mut contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(Shaped::new(&options.folder_for("shaped")?, embedded::recording(embedded::lock))),
        Box::new(Bare::new(&options.folder_for("bare")?, &[Step::Insert, Step::Update])?),
        Box::new(Embedded::open(&options.folder_for("skein")?, embedded::lock)?),
    ];
    for in_flight in [1, 32, 256] {
        let load = Load::new("acquire and release", in_flight).with_latencies();
        report.cases.push(rounds::run(&load, &mut contenders, &options).await?);
    }
    for contender in contenders {
        contender.stop().await?;
    }
    let case = &report.cases[1];
    let goals = [("shaped", 0.70), ("bare", 0.40)].map(|(to, bound)| {
        Goal::at_least(format!("B5 rate to {to}, {}", case.name), bound, case.ratio("skein", to))
    });
    report.goals.extend(goals);
    Ok(report)
}
