//! Skein's kernel in this process, over a Redis of its own; and the same commits without the kernel.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::{FuturesOrdered, FuturesUnordered};
use hdrhistogram::Histogram;
use skein_coordinator::entity::Clock;
use skein_coordinator::store::redis::{self, Options as Access, Redis};
use skein_coordinator::store::{Batch, Store, Version};
use skein_shared::entity::DocumentChange;
use skein_shared::id::EntityKey;
use skein_tests::redis::{EACH_SECOND, LASTING, Server};
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use super::embedded::{Embedded, Kernel, Task, take_down};
use crate::harness::contender::{Card, Contender, Durability, Metered, Pace, Plan, Work};
use crate::harness::load::{Timetable, histogram, nanoseconds};
use crate::probes::sqlite::{Recording, fresh};

/// Batches of one entity that a host has under way.
const UNDER_WAY: usize = 2;

/// When Redis flushes its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fsync {
    /// Before it answers.
    Always,
    EverySecond,
}

impl Fsync {
    fn class(self) -> Durability {
        match self {
            Fsync::Always => Durability::PowerCut,
            Fsync::EverySecond => Durability::Lazy,
        }
    }
}

/// A Redis with the store in it, kept as a node keeps it.
struct Place {
    server: Server,
    store: Arc<Redis>,
    _stop: DropGuard,
}

impl Place {
    async fn open(fsync: Fsync) -> Result<Self> {
        let (settings, durability) = match fsync {
            Fsync::Always => (LASTING, redis::Durability::Always),
            Fsync::EverySecond => (EACH_SECOND, redis::Durability::Everysec),
        };
        let server = Server::start_with(settings).await?;
        let access = Access { durability, ..Access::new(server.url(), "bench") };
        let store = Arc::new(Redis::open(&access, Clock::start().wall()).await?);
        let (keeper, stop) = (Arc::clone(&store), CancellationToken::new());
        let ends = stop.clone();
        tokio::spawn(async move { keeper.keep(ends).await });
        Ok(Self { server, store, _stop: stop.drop_guard() })
    }

    fn metered(&self) -> Metered {
        self.server.id().map_or(Metered::Myself, Metered::MyselfAnd)
    }
}

/// The kernel over Redis.
pub(crate) struct OverRedis {
    label: &'static str,
    fsync: Fsync,
    place: Place,
    kernel: Embedded,
}

impl OverRedis {
    /// # Errors
    /// When Redis does not start.
    pub(crate) async fn open(label: &'static str, folder: &Path, task: Task, fsync: Fsync) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let place = Place::open(fsync).await?;
        let kernel = Embedded::over(Kernel::over(folder, Arc::<Redis>::clone(&place.store))?, task)?;
        Ok(Self { label, fsync, place, kernel })
    }
}

#[async_trait]
impl Contender for OverRedis {
    fn card(&self) -> Card {
        Card { label: self.label, ..Card::skein(self.fsync.class(), self.place.metered()) }
    }

    async fn prepare(&mut self, in_flight: usize) -> Result<()> {
        self.kernel.prepare(in_flight).await
    }

    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        self.kernel.work(plan).await
    }
}

/// The very scripts that Skein's commits run, over the very keys, taken down from a run of Skein under the same load:
/// nothing is decided and no message is sent.
pub(crate) struct Scripts {
    label: &'static str,
    fsync: Fsync,
    task: Task,
    /// Commits of an operation, one after the other: whoever has it done waits for each of them.
    steps: usize,
    /// Batches under way at a time: as many as a host has, and no more than there are clients.
    under_way: usize,
    folder: PathBuf,
    place: Place,
    recording: Recording,
    next: usize,
    pass: u64,
    /// Where each entity stands: its version, and the batch that made it.
    standing: HashMap<EntityKey, (u64, Uuid)>,
}

impl Scripts {
    /// # Errors
    /// When Redis does not start.
    pub(crate) async fn open(
        label: &'static str,
        folder: &Path,
        (task, steps): (Task, usize),
        fsync: Fsync,
    ) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        Ok(Self {
            label,
            fsync,
            task,
            steps,
            under_way: UNDER_WAY,
            folder: folder.to_owned(),
            place: Place::open(fsync).await?,
            recording: Recording::default(),
            next: 0,
            pass: 0,
            standing: HashMap::new(),
        })
    }

    fn next_batch(&mut self) -> Result<Batch> {
        if self.next == self.recording.batches.len() {
            (self.next, self.pass) = (0, self.pass + 1);
        }
        let mut batch = self.recording.batches.get(self.next).context("nothing was taken down")?.clone();
        self.next += 1;
        let (version, last) = self.standing.entry(batch.key.clone()).or_default();
        (batch.expected, batch.after, batch.id) = (Version(*version), *last, Uuid::now_v7());
        (*version, *last) = (*version + 1, batch.id);
        for change in &mut batch.documents {
            let (DocumentChange::Put { key, .. } | DocumentChange::Delete { key }) = change;
            *key = fresh(key, self.pass);
        }
        Ok(batch)
    }
}

#[async_trait]
impl Contender for Scripts {
    fn card(&self) -> Card {
        Card::limit(self.label, self.fsync.class(), "Redis 7.0.15".to_owned(), self.place.metered())
    }

    async fn prepare(&mut self, in_flight: usize) -> Result<()> {
        self.record(in_flight, Pace::Closed).await
    }

    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        match plan.pace {
            Pace::Closed => self.work_at_once(plan).await,
            Pace::Open(rate) => self.work_when_due(plan, rate).await,
        }
    }
}

impl Scripts {
    /// Takes down what Skein commits under a load, to go on with that. The server stays what it is, as Skein's does:
    /// its log is as long, and is written anew as often.
    async fn record(&mut self, in_flight: usize, pace: Pace) -> Result<()> {
        let place = Place::open(self.fsync).await?;
        let store = Arc::<Redis>::clone(&place.store);
        let folder = self.folder.join(match pace {
            Pace::Closed => in_flight.to_string(),
            Pace::Open(_) => format!("{in_flight}-paced"),
        });
        std::fs::create_dir_all(&folder)?;
        self.recording = take_down(&folder, store, self.task, in_flight, pace).await?;
        self.under_way = UNDER_WAY.min(in_flight);
        (self.next, self.pass) = (0, self.pass + 1);
        Ok(())
    }

    /// How many operations a batch is worth.
    fn share(&self) -> f64 {
        self.recording.operations as f64 / self.recording.batches.len() as f64
    }

    /// Each as soon as there is room for it among those under way.
    async fn work_at_once(&mut self, plan: &Plan) -> Result<Work> {
        let (start, mut commits) = (Instant::now(), Vec::new());
        let mut under_way = FuturesOrdered::new();
        while start.elapsed() < plan.time {
            let batch = self.next_batch()?;
            let store = Arc::clone(&self.place.store);
            under_way.push_back(async move {
                let sent = Instant::now();
                store.commit(store.fence(&batch.key), Arc::new(batch)).await.map(|_| sent.elapsed())
            });
            if under_way.len() == self.under_way
                && let Some(took) = under_way.next().await
            {
                commits.push(took?);
            }
        }
        while let Some(took) = under_way.next().await {
            commits.push(took?);
        }
        let elapsed = start.elapsed();
        let operations = (commits.len() as f64 * self.share()) as u64;
        Ok(Work { operations, elapsed, latency: Some(self.latency(&commits)) })
    }

    /// What Skein commits at this pace, at this pace: the first step of some operations when they are due, and each
    /// further one as soon as the one before it is committed. More are under way at a time than a host has, up to as
    /// many operations as there are clients: batches are as they were taken down, and a host that is late would make
    /// larger ones.
    async fn work_when_due(&mut self, plan: &Plan, rate: f64) -> Result<Work> {
        self.record(plan.in_flight, plan.pace).await?;
        let together = self.share() * self.steps as f64;
        let room = ((plan.in_flight as f64 / together) as usize).max(1);
        let timetable = Timetable::new(plan, rate / together);
        let mut places = timetable.wake(1).pop().context("nobody is woken")?;
        let (mut under_way, mut latency, mut ended) = (FuturesUnordered::new(), histogram(), false);
        loop {
            let (due, step) = tokio::select! {
                biased;
                Some(done) = under_way.next() => match done? {
                    (due, step) if step == self.steps => {
                        latency.saturating_record(nanoseconds(Instant::elapsed(&due)));
                        continue;
                    }
                    next => next,
                },
                place = places.recv(), if !ended && under_way.len() < room => match place {
                    Some(place) => (timetable.due(place), 0),
                    None => {
                        ended = true;
                        continue;
                    }
                },
                else => break,
            };
            let (batch, store) = (self.next_batch()?, Arc::clone(&self.place.store));
            under_way.push(async move {
                let done = store.commit(store.fence(&batch.key), Arc::new(batch)).await;
                done.map(|_| (due, step + 1))
            });
        }
        let operations = (latency.len() as f64 * together) as u64;
        Ok(Work { operations, elapsed: timetable.start.elapsed(), latency: Some(latency) })
    }

    /// How long operations take: one that waits for a batch sends its next step with the one after those under way.
    fn latency(&self, commits: &[Duration]) -> Histogram<u64> {
        let mut latency = histogram();
        for first in 0..commits.len().saturating_sub((self.steps - 1) * self.under_way) {
            let steps = (0..self.steps).map(|step| commits[first + step * self.under_way]);
            latency.saturating_record(nanoseconds(steps.sum()));
        }
        latency
    }
}
