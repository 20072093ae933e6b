//! B1: a task is created, claimed and completed, each step on the disk before it is answered.

use anyhow::Result;
use futures::FutureExt;

use super::Bench;
use crate::harness::contender::Contender;
use crate::harness::report::{Goal, Report};
use crate::harness::rounds::{self, Load};
use crate::options::Options;
use crate::peers;
use crate::probes::sqlite::{Bare, Shaped, Step};
use crate::skein::embedded::{self, Embedded};

pub(super) const BENCH: Bench = Bench {
    name: "cycle_embedded",
    about: "create, claim, complete in process, power-cut safe",
    run: |options| run(options).boxed(),
};

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    let bare = options.folder_for("bare")?;
    let mut contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(Shaped::new(&options.folder_for("shaped")?, embedded::recording(embedded::cycle))),
        Box::new(Bare::new(&bare, &[Step::Insert, Step::Update, Step::Update])?),
        Box::new(Embedded::open(&options.folder_for("skein")?, embedded::cycle)?),
    ];
    peers::add(&mut contenders, &mut report, &options, &[]).await?;
    for in_flight in [1, 32, 256] {
        let load = Load::new("task cycle", in_flight).with_latencies();
        report.cases.push(rounds::run(&load, &mut contenders, &options).await?);
    }
    for contender in contenders {
        contender.stop().await?;
    }
    goals(&mut report);
    Ok(report)
}

fn goals(report: &mut Report) {
    let wanted = [
        (1, "shaped", 0.70),
        (1, "bare", 0.40),
        (2, "shaped", 0.70),
        (2, "bare", 0.30),
        (1, "NATS always", 4.0),
        (1, "PostgreSQL", 2.5),
    ];
    for (case, to, bound) in wanted {
        let case = &report.cases[case];
        let text = format!("B1 rate to {to}, {}", case.name);
        report.goals.push(Goal::at_least(text, bound, case.ratio("skein", to)));
    }
}
