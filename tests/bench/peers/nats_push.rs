//! NATS JetStream with consumers that wait: messages are published to each of them at a steady rate.

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use futures::FutureExt;
use tokio::task::JoinSet;

use super::Peer;
use super::nats::{Nats, Push, Sync};
use crate::harness::contender::{Card, Contender, Pace, Plan, Work};
use crate::harness::load::{Timetable, histogram, nanoseconds};
use crate::options::Options;

/// Every message is flushed before it is acknowledged.
pub(crate) const ALWAYS: Peer =
    Peer { name: "NATS always", start: |options| start(options, Sync::Always).boxed() };

/// As NATS comes: messages are flushed every two minutes.
pub(crate) const LAZY: Peer = Peer { name: "NATS lazy", start: |options| start(options, Sync::Lazy).boxed() };

struct Pushed {
    nats: Nats,
    sync: Sync,
    push: Option<Push>,
}

async fn start(options: Options, sync: Sync) -> Result<Box<dyn Contender>> {
    Ok(Box::new(Pushed { nats: Nats::start(&options, sync).await?, sync, push: None }))
}

#[async_trait]
impl Contender for Pushed {
    fn card(&self) -> Card {
        self.nats.card(self.sync)
    }

    async fn prepare(&mut self, in_flight: usize) -> Result<()> {
        self.push = Some(Push::open(&self.nats, in_flight).await?);
        Ok(())
    }

    /// Publishes each message at its time, whatever became of those before.
    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        let (Pace::Open(rate), Some(push)) = (plan.pace, &self.push) else {
            bail!("messages are pushed at a steady rate to consumers that wait")
        };
        let timetable = Timetable::new(plan, rate);
        let mut places = timetable.wake(1).pop().context("there is one client")?;
        let mut dispatched = JoinSet::new();
        while let Some(place) = places.recv().await {
            let (push, worker) = (push.clone(), place as usize % plan.in_flight);
            dispatched.spawn(async move {
                let late = timetable.due(place).elapsed();
                push.dispatch(worker).await.map(|took| late + took)
            });
        }
        let mut latency = histogram();
        while let Some(took) = dispatched.join_next().await {
            latency.saturating_record(nanoseconds(took??));
        }
        let elapsed = timetable.start.elapsed();
        Ok(Work { operations: timetable.count, elapsed, latency: Some(latency) })
    }

    async fn stop(self: Box<Self>) -> Result<()> {
        self.nats.stop().await
    }
}
