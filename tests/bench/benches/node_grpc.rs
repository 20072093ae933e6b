//! B15: one coordinator forwards to another, by a call each and on the stream between them.

use std::sync::Arc;

use anyhow::Result;
use futures::FutureExt;

use super::Bench;
use crate::harness::contender::Contender;
use crate::harness::report::{Goal, Report};
use crate::harness::rounds::{self, Load};
use crate::options::Options;
use crate::skein::neighbours::{Bare, Forwarding, Neighbours};

pub(super) const BENCH: Bench = Bench {
    name: "node_grpc",
    about: "forwards from one coordinator to another, beside bare tonic",
    run: |options| run(options).boxed(),
};

const CALLS: &str = "a call each";
const STREAM: &str = "on the stream";

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    let nodes = Neighbours::start().await?;
    let forwarding = |label, streams| -> Box<dyn Contender> {
        Box::new(Forwarding { label, nodes: Arc::clone(&nodes), streams })
    };
    let mut contenders: Vec<Box<dyn Contender>> =
        vec![Box::new(Bare::start().await?), forwarding(CALLS, false), forwarding(STREAM, true)];
    for in_flight in [1, 64, 1024] {
        let load = Load::new("300 bytes there and back", in_flight).with_latencies();
        report.cases.push(rounds::run(&load, &mut contenders, &options).await?);
    }
    for contender in contenders {
        contender.stop().await?;
    }
    let (few, many) = (&report.cases[1], &report.cases[2]);
    report.goals = vec![
        Goal::at_least("B15 a call each to bare tonic, 64 in flight", 0.70, few.ratio(CALLS, "bare tonic")),
        Goal::at_least("B15 on the stream to a call each, 1024 in flight", 10.0, many.ratio(STREAM, CALLS)),
    ];
    Ok(report)
}
