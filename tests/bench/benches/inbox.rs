//! B9: a message is put into an inbox, fetched by its agent, and answered; 1,000 inboxes.

use anyhow::Result;
use futures::FutureExt;

use super::Bench;
use crate::harness::contender::Contender;
use crate::harness::report::{Figure, Goal, Report};
use crate::harness::rounds::{self, Load};
use crate::options::Options;
use crate::peers::{self, nats_inbox};
use crate::probes::sqlite::Shaped;
use crate::skein::embedded::{self, Embedded};
use crate::skein::inboxes;

pub(super) const BENCH: Bench = Bench {
    name: "inbox",
    about: "send, fetch and answer over 1,000 inboxes in process, power-cut safe",
    run: |options| run(options).boxed(),
};

/// The number in flight at which the goal stands.
const WITH_PEERS: usize = 32;

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    let mut contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(Shaped::new(&options.folder_for("shaped")?, embedded::recording(inboxes::pass))),
        Box::new(Embedded::open(&options.folder_for("skein")?, inboxes::pass)?),
    ];
    peers::add(&mut contenders, &mut report, &options, &[nats_inbox::ALWAYS, nats_inbox::LAZY]).await?;
    let load = Load::new("send, fetch, answer", WITH_PEERS).with_latencies();
    report.cases.push(rounds::run(&load, &mut contenders, &options).await?);
    for contender in contenders {
        contender.stop().await?;
    }
    let case = &report.cases[0];
    report.goals.push(Goal::at_least("B9 rate to NATS", 4.0, case.ratio("skein", nats_inbox::ALWAYS.name)));
    // Of another durability class: shown, and no goal.
    if let Some(value) = case.ratio("skein", nats_inbox::LAZY.name) {
        let name = "B9 rate to NATS lazy, which a power cut costs its messages".to_owned();
        report.figures.push(Figure { name, unit: "ratio".to_owned(), value });
    }
    Ok(report)
}
