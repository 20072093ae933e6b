//! B17: one swarm floods a node with tasks; how long another swarm's tasks take to their agents meanwhile.

use std::sync::Arc;

use anyhow::{Context, Result};
use async_trait::async_trait;
use futures::FutureExt;
use tokio::sync::Mutex;

use super::Bench;
use crate::harness::contender::{Card, Contender, Plan, Work};
use crate::harness::report::{Figure, Goal, Report};
use crate::harness::rounds::{self, Load};
use crate::options::Options;
use crate::skein::flood::Flood;
use crate::skein::push::Push;

pub(super) const BENCH: Bench = Bench {
    name: "fairness",
    about: "a swarm floods the node with tasks; another one's dispatch, beside the same without the flood",
    run: |options| run(options).boxed(),
};

/// Waiting agents of the swarm that is measured, and its tasks a second.
const AGENTS: usize = 32;
const RATE: f64 = 50.0;

const ALONE: &str = "alone";
const FLOODED: &str = "flooded";

/// The same agents on the same node, with the flood or without it.
struct Dispatch {
    label: &'static str,
    push: Arc<Mutex<Push>>,
    flood: Option<Arc<Mutex<Flood>>>,
    card: Card,
}

#[async_trait]
impl Contender for Dispatch {
    fn card(&self) -> Card {
        Card { label: self.label, ..self.card.clone() }
    }

    async fn prepare(&mut self, in_flight: usize) -> Result<()> {
        match self.flood {
            None => self.push.lock().await.prepare(in_flight).await,
            Some(_) => Ok(()),
        }
    }

    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        let mut push = self.push.lock().await;
        let Some(flood) = &self.flood else { return push.work(plan).await };
        let mut flood = flood.lock().await;
        let running = flood.start();
        let work = push.work(plan).await;
        flood.stop(running).await?;
        work
    }

    fn flushes(&self) -> Option<u64> {
        Some(0)
    }
}

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    let push = Push::start(&options.folder_for("fairness")?).await?;
    let (flood, card) = (Arc::new(Mutex::new(Flood::prepare(push.node()).await?)), push.card());
    let push = Arc::new(Mutex::new(push));
    let dispatch = |label, flood| -> Box<dyn Contender> {
        Box::new(Dispatch { label, push: Arc::clone(&push), flood, card: card.clone() })
    };
    let mut contenders = vec![dispatch(ALONE, None), dispatch(FLOODED, Some(Arc::clone(&flood)))];
    let load = Load::new("task dispatched", AGENTS).at_rate(RATE);
    report.cases.push(rounds::run(&load, &mut contenders, &options).await?);
    drop(contenders);
    let case = &report.cases[0];
    let slow = case.p99_ratio(FLOODED, ALONE);
    report.goals.push(Goal::at_most("B17 p99 beside a flood to p99 alone", 2.0, slow));
    let made = flood.lock().await.made() as f64;
    report.figures.push(Figure::new("tasks of the flood", "tasks", made));
    let push = Arc::into_inner(push).context("somebody still works")?.into_inner();
    Box::new(push).stop().await?;
    Ok(report)
}
