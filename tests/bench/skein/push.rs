//! Agents that wait for work, and tasks that are given to them at a steady rate.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use futures::{TryStreamExt, stream};
use serde_json::json;
use skein_coordinator::auth::Role as Rights;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::fleet::{Agent, Node};
use crate::harness::contender::{Card, Contender, Durability, Pace, Plan, Work};
use crate::harness::load::{Timetable, histogram, nanoseconds};

/// Leads that create tasks, each on its own connection: one slow answer delays no other.
const SENDERS: usize = 16;
/// A task that did not come by then is lost.
const LOST: Duration = Duration::from_secs(30);

/// A node with waiting workers.
pub(crate) struct Push {
    node: Node,
    senders: Vec<Agent>,
    workers: Arc<Vec<uuid::Uuid>>,
    waiting: JoinSet<Result<()>>,
    arrived: mpsc::UnboundedReceiver<Arrived>,
    arrives: mpsc::UnboundedSender<Arrived>,
    flushes: u64,
    slots: u64,
}

/// A task of a slot, by its place in the timetable, at its agent.
struct Arrived {
    slot: u64,
    place: u64,
    at: Instant,
}

impl Push {
    /// The node on which everything happens.
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// # Errors
    /// When the node does not start.
    pub(crate) async fn start(folder: &Path) -> Result<Self> {
        let node = Node::start(folder).await?;
        let mut senders = Vec::new();
        for number in 0..SENDERS {
            senders.push(node.agent(Rights::Worker, &format!("sender-{number}")).await?);
        }
        let (arrives, arrived) = mpsc::unbounded_channel();
        let (workers, waiting) = (Arc::default(), JoinSet::new());
        Ok(Self { node, senders, workers, waiting, arrived, arrives, flushes: 0, slots: 0 })
    }

    /// Waits for all tasks of a slot and says how late each was.
    async fn collect(&mut self, slot: u64, timetable: Timetable) -> Result<Work> {
        let mut latency = histogram();
        while latency.len() < timetable.count {
            let arrived = timeout(LOST, self.arrived.recv()).await.context("a task did not arrive")?;
            let Some(Arrived { slot: of, place, at }) = arrived else { bail!("all workers ended") };
            if of == slot {
                latency.saturating_record(nanoseconds(at.duration_since(timetable.due(place))));
            }
        }
        let elapsed = timetable.start.elapsed();
        Ok(Work { operations: timetable.count, elapsed, latency: Some(latency) })
    }
}

#[async_trait]
impl Contender for Push {
    fn card(&self) -> Card {
        Card::skein(Durability::PowerCut, self.node.metered())
    }

    async fn prepare(&mut self, in_flight: usize) -> Result<()> {
        let workers = self.node.workers(in_flight).await?;
        self.workers = Arc::new(workers.iter().map(|worker| worker.id).collect());
        for worker in workers {
            self.waiting.spawn(work(worker, self.arrives.clone()));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.flushes = self.node.counter("skein_store_flushes_total").await?;
        Ok(())
    }

    /// Sends each task at its time, whatever became of those before.
    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        let Pace::Open(rate) = plan.pace else { bail!("tasks are pushed at a steady rate") };
        self.slots += 1;
        let (slot, timetable) = (self.slots, Timetable::new(plan, rate));
        let mut senders = JoinSet::new();
        for (mut sender, mut places) in self.senders.drain(..).zip(timetable.wake(SENDERS)) {
            let workers = Arc::clone(&self.workers);
            senders.spawn(async move {
                while let Some(place) = places.recv().await {
                    // Another worker in each slot, so that all of them get their turn.
                    let worker = workers[((slot * 7919 + place) as usize) % workers.len()];
                    let text = format!("dispatch {slot} {place}");
                    let task = json!({ "task": text, "agentId": worker, "allowDuplicate": true });
                    sender.call("send-task", &task).await?;
                }
                anyhow::Ok(sender)
            });
        }
        let work = self.collect(slot, timetable).await;
        let sent = stream::unfold(senders, |mut senders| async move {
            let sender = senders.join_next().await?;
            Some((sender.map_err(anyhow::Error::from).and_then(|sender| sender), senders))
        });
        self.senders = sent.try_collect().await?;
        self.flushes = self.node.counter("skein_store_flushes_total").await?;
        work
    }

    fn flushes(&self) -> Option<u64> {
        Some(self.flushes)
    }

    async fn stop(mut self: Box<Self>) -> Result<()> {
        self.waiting.shutdown().await;
        self.node.stop().await
    }
}

/// A worker's life: it waits for a task, and completes it.
async fn work(mut worker: Agent, arrives: mpsc::UnboundedSender<Arrived>) -> Result<()> {
    loop {
        let (polled, at) = worker.call_heard("poll-task", &json!({})).await?;
        let task = &polled["task"];
        let Some(text) = task["task"].as_str() else { continue };
        let mut words = text.split(' ').skip(1).map(str::parse);
        let (Some(slot), Some(place)) = (words.next(), words.next()) else {
            bail!("no task of ours: {text}")
        };
        arrives.send(Arrived { slot: slot?, place: place?, at: at.into() })?;
        let end = json!({ "taskId": task["id"], "status": "completed", "output": "done" });
        worker.call("store-progress", &end).await?;
    }
}
