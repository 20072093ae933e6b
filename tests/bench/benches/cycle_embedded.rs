//! B1: a task is created, claimed and completed, each step on the disk before it is answered.

use anyhow::Result;
use futures::FutureExt;

use super::Bench;
use crate::harness::contender::Contender;
use crate::harness::report::{Case, Figure, Goal, Report};
use crate::harness::rounds::{self, Load};
use crate::options::Options;
use crate::peers::{self, bullmq, nats, postgres};
use crate::probes::sqlite::{Bare, Shaped, Step};
use crate::skein::embedded::{self, Embedded};

pub(super) const BENCH: Bench = Bench {
    name: "cycle_embedded",
    about: "create, claim, complete in process, power-cut safe",
    run: |options| run(options).boxed(),
};

/// The number in flight at which other products are measured.
const WITH_PEERS: usize = 32;

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    let bare = options.folder_for("bare")?;
    let mut contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(Shaped::new(&options.folder_for("shaped")?, embedded::recording(embedded::cycle))),
        Box::new(Bare::new(&bare, &[Step::Insert, Step::Update, Step::Update])?),
        Box::new(Embedded::open(&options.folder_for("skein")?, embedded::cycle)?),
    ];
    let own = contenders.len();
    for in_flight in [1, WITH_PEERS, 256] {
        if in_flight == WITH_PEERS {
            let others = [nats::ALWAYS, nats::LAZY, postgres::POSTGRES, bullmq::ALWAYS, bullmq::EVERYSEC];
            peers::add(&mut contenders, &mut report, &options, &others).await?;
        }
        let load = Load::new("task cycle", in_flight).with_latencies();
        report.cases.push(rounds::run(&load, &mut contenders, &options).await?);
        for peer in contenders.split_off(own) {
            peer.stop().await?;
        }
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
        (1, nats::ALWAYS.name, 4.0),
        (1, postgres::POSTGRES.name, 2.5),
    ];
    for (case, to, bound) in wanted {
        let case = &report.cases[case];
        let text = format!("B1 rate to {to}, {}", case.name);
        report.goals.push(Goal::at_least(text, bound, case.ratio("skein", to)));
    }
    // Of another durability class: shown, and no goal.
    report.figures.extend(to_lazy(&report.cases[1]));
}

fn to_lazy(case: &Case) -> Option<Figure> {
    let value = case.ratio("skein", nats::LAZY.name)?;
    Some(Figure {
        name: "B1 rate to NATS lazy, which a power cut costs its tasks".into(),
        unit: "ratio".into(),
        value,
    })
}
