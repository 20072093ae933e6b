//! The other products by themselves: whether they can be had here, and what they do.

use anyhow::Result;
use futures::FutureExt;
use std::sync::Arc;

use super::Bench;
use crate::harness::contender::{Contender, Pace, Plan};
use crate::harness::load::{self, Operation};
use crate::harness::report::{Figure, Latency, Report};
use crate::harness::rounds::{self, Load};
use crate::options::Options;
use crate::peers::nats::{Nats, Push, Sync};
use crate::peers::{self, restate};

pub(super) const BENCH: Bench = Bench {
    name: "peers",
    about: "Restate's invocation of nothing, and how soon a waiting worker of NATS has a message",
    run: |options| run(options).boxed(),
};

/// Workers that wait, and messages a second.
const WORKERS: usize = 50;
const RATE: f64 = 100.0;

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    let mut contenders: Vec<Box<dyn Contender>> = Vec::new();
    peers::add(&mut contenders, &mut report, &options, &[restate::RESTATE]).await?;
    let load = Load::new("invocation", 32);
    report.cases.push(rounds::run(&load, &mut contenders, &options).await?);
    for contender in contenders {
        contender.stop().await?;
    }
    if options.without_peers {
        return Ok(report);
    }
    for (name, sync) in [("NATS always", Sync::Always), ("NATS lazy", Sync::Lazy)] {
        match push(&options, sync).await {
            Ok(latency) => report.figures.extend([
                Figure::new(format!("{name}: dispatch, median"), "ms", latency.p50),
                Figure::new(format!("{name}: dispatch, 99 of 100"), "ms", latency.p99),
            ]),
            Err(error) => report.remarks.push(format!("{name} IS MISSING: {error:#}")),
        }
    }
    Ok(report)
}

/// From the beginning of a publication until the worker has it.
async fn push(options: &Options, sync: Sync) -> Result<Latency> {
    let nats = Nats::start(options, sync).await?;
    let workers = Push::open(&nats, WORKERS).await?;
    let took = Arc::new(std::sync::Mutex::new(load::histogram()));
    let operation: Operation = {
        let (workers, took) = (workers.clone(), Arc::clone(&took));
        Arc::new(move |worker| {
            let (workers, took) = (workers.clone(), Arc::clone(&took));
            Box::pin(async move {
                let time = load::nanoseconds(workers.dispatch(worker).await?);
                took.lock().unwrap_or_else(std::sync::PoisonError::into_inner).saturating_record(time);
                Ok(())
            })
        })
    };
    load::run(&Plan { in_flight: WORKERS, time: options.slot, pace: Pace::Open(RATE) }, operation).await?;
    nats.stop().await?;
    let took = took.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(Latency::of(RATE, &took))
}
