//! B11: many schedules are made; a thousand a second come due; and a node comes back after five minutes in which
//! others did.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use hdrhistogram::Histogram;
use skein_coordinator::entity::hub::Subscription;
use skein_coordinator::entity::{Clock, Request, timers};
use skein_coordinator::outbox::pump;
use skein_coordinator::slack::Workspaces;
use skein_shared::id::{EntityKey, Kind};
use skein_shared::pool::Event as PoolEvent;
use skein_shared::schedules::{Command, Create, Reply, Schedules};
use skein_shared::time::Timestamp;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use super::Bench;
use crate::harness::report::{Figure, Goal, Latency, Report};
use crate::harness::stats::Interval;
use crate::options::Options;
use crate::skein::calls::Nobody;
use crate::skein::embedded::{Kernel, refused};

pub(super) const BENCH: Bench = Bench {
    name: "schedules_100k",
    about: "100,000 schedules: making them, 1,000 a second firing, and those of five minutes that were missed",
    run: |options| run(options).boxed(),
};

/// Schedules that are asked for at a time.
const AT_ONCE: usize = 1024;
/// From the first schedule to the first occurrence: all have to be there.
const LEAD: Duration = Duration::from_secs(20);
/// Between two occurrences while the node serves.
const EVERY: Duration = Duration::from_millis(1);
/// Between two occurrences that are missed: 50,000 of them take five minutes.
const EVERY_MISSED: Duration = Duration::from_millis(6);
/// The longest without a firing before the bench gives up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Records that are read at once.
const PAGE: usize = 1000;

async fn run(options: Options) -> Result<Report> {
    let total = if options.rounds < 5 { 10_000 } else { 100_000 };
    let served = total / 2;
    let folder = options.folder_for("skein")?;
    let mut report = Report::default();

    let node = Node::open(&folder)?;
    let plan = Plan { first: Clock::start().wall() + LEAD, served };
    let began = Instant::now();
    let schedules = node.create(&plan, total).await?;
    let rate = total as f64 / began.elapsed().as_secs_f64();
    ensure!(
        Clock::start().wall() < plan.first,
        "{rate:.0} schedules a second are too few to measure the rest"
    );
    report.figures.push(Figure::new("schedules made a second, 1,024 asked for at a time", "1/s", rate));

    let mut firings = Firings::of(&node.kernel);
    let mut late = Histogram::new(3)?;
    while firings.tasks.len() < served {
        for (schedule, at) in firings.next().await? {
            let number = *schedules.get(&schedule).context("it was never made")?;
            late.record(u64::try_from(at.since(plan.at(number)).as_nanos())?)?;
        }
    }
    let lateness = Latency::of(1.0 / EVERY.as_secs_f64(), &late);
    let bare = wheel(served).await?;
    for (whose, latency) in [("a task is there", lateness), ("a bare timer wheel fires", bare)] {
        report.figures.push(Figure::new(format!("late until {whose}, median"), "ms", latency.p50));
        report.figures.push(Figure::new(format!("late until {whose}, p99"), "ms", latency.p99));
    }

    let already = firings.tasks;
    node.close();
    tokio::time::sleep(plan.at(total - 1).since(Clock::start().wall())).await;
    let began = Instant::now();
    let node = Node::open(&folder)?;
    let mut firings = Firings { tasks: already, ..Firings::of(&node.kernel) };
    while firings.tasks.len() < total {
        firings.next().await?;
    }
    let caught_up = began.elapsed().as_secs_f64();
    let missed = total - served;
    report.figures.push(Figure::new(format!("{missed} missed ones made up for"), "s", caught_up));
    firings.nothing_twice().await?;
    ensure!(schedules.keys().all(|schedule| firings.tasks.contains_key(schedule)), "one never fired");
    node.close();

    report.remarks.push(
        "each occurrence made one task, before and after the restart, which the bench checks".to_owned(),
    );
    if total < 100_000 {
        report.remarks.push(format!("a first look, with {total} schedules; the goals are for 100,000"));
        return Ok(report);
    }
    report.goals.extend([
        Goal::at_least("B11 schedules made a second", 20_000.0, Some(Interval::exactly(rate))),
        Goal::at_most("B11 late, p99, ms", 50.0, Some(Interval::exactly(lateness.p99))),
    ]);
    Ok(report)
}

/// When each of them comes.
struct Plan {
    first: Timestamp,
    /// So many come while the node serves.
    served: usize,
}

impl Plan {
    fn at(&self, number: usize) -> Timestamp {
        let served = u32::try_from(number.min(self.served)).unwrap_or(u32::MAX);
        let missed = u32::try_from(number.saturating_sub(self.served)).unwrap_or(u32::MAX);
        self.first + (EVERY * served + EVERY_MISSED * missed)
    }
}

/// The kernel with its pumps.
struct Node {
    kernel: Kernel,
    pumps: DropGuard,
}

impl Node {
    fn open(folder: &std::path::Path) -> Result<Self> {
        let (kernel, stop) = (Kernel::open(folder)?, CancellationToken::new());
        tokio::spawn(pump::run(
            kernel.entities.clone(),
            Arc::new(Nobody),
            Workspaces::default(),
            stop.clone(),
        ));
        tokio::spawn(timers::pump(kernel.entities.clone(), stop.clone()));
        Ok(Self { kernel, pumps: stop.drop_guard() })
    }

    /// Nothing is told that it ends; what is under way is lost.
    fn close(self) {
        drop(self.pumps);
    }

    /// Makes the schedules. Gives their numbers by their ids.
    async fn create(&self, plan: &Plan, total: usize) -> Result<HashMap<Uuid, usize>> {
        let key = EntityKey::of(Kind::Schedules, &self.kernel.swarm);
        let create = |number: usize| {
            let (kernel, key) = (self.kernel.clone(), key.clone());
            let create = Create {
                one_time: true,
                run_at: Some(plan.at(number)),
                ..Create::new(format!("reminder {number}"), "Look whether the release is out")
            };
            tokio::spawn(async move {
                let request = Request::once(Uuid::now_v7());
                let command = Command::Create(Box::new(create));
                let reply =
                    kernel.entities.ask::<Schedules>(&key, request, command).await.map_err(refused)?;
                let Reply::Schedule(schedule) = reply else { bail!("it made no schedule: {reply:?}") };
                Ok((schedule["id"].as_str().context("a schedule has an id")?.parse()?, number))
            })
        };
        let made = stream::iter(0..total).map(create).buffer_unordered(AT_ONCE);
        made.map(|made| made?).try_collect().await
    }
}

/// The tasks that schedules have made, as their commits come.
struct Firings {
    kernel: Kernel,
    changes: Subscription,
    /// The last record that was read.
    position: u64,
    /// By schedule.
    tasks: HashMap<Uuid, Uuid>,
}

impl Firings {
    fn of(kernel: &Kernel) -> Self {
        let pool = EntityKey::of(Kind::Pool, &kernel.swarm);
        let changes = kernel.entities.hub().subscribe(pool.to_string());
        Self { kernel: kernel.clone(), changes, position: 0, tasks: HashMap::new() }
    }

    /// The schedules whose tasks are new, and when they were seen.
    async fn next(&mut self) -> Result<Vec<(Uuid, Timestamp)>> {
        loop {
            let new = self.read().await?;
            if !new.is_empty() {
                return Ok(new);
            }
            tokio::time::timeout(PATIENCE, self.changes.changed())
                .await
                .with_context(|| format!("nothing fires any more after {} tasks", self.tasks.len()))?;
        }
    }

    async fn read(&mut self) -> Result<Vec<(Uuid, Timestamp)>> {
        let records = self.kernel.entities.shared().store.records(self.position, PAGE).await?;
        let seen = Clock::start().wall();
        let mut new = Vec::new();
        for record in records {
            self.position = record.position;
            if record.key.kind != Kind::Pool {
                continue;
            }
            for event in record.events {
                let PoolEvent::Created(created) = event.body.read()? else { continue };
                let schedule = created.spec.schedule.context("only schedules make tasks here")?;
                let task = created.task;
                let before = self.tasks.insert(schedule, task);
                ensure!(
                    before.is_none_or(|before| before == task),
                    "{schedule} fired twice: {before:?}, {task}"
                );
                if before.is_none() {
                    new.push((schedule, seen));
                }
            }
        }
        Ok(new)
    }

    /// Reads what is still to come, and expects no second task of any schedule in it.
    async fn nothing_twice(&mut self) -> Result<()> {
        while !self.kernel.entities.shared().store.outbox(0, 1).await?.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let known = self.tasks.len();
        while !self.read().await?.is_empty() {}
        ensure!(self.tasks.len() == known, "more tasks than schedules");
        Ok(())
    }
}

/// As many occurrences on the runtime's own timer wheel, which does nothing else.
async fn wheel(count: usize) -> Result<Latency> {
    let (begin, mut sleepers) = (tokio::time::Instant::now() + Duration::from_secs(1), JoinSet::new());
    for number in 0..count {
        let due = begin + EVERY * u32::try_from(number)?;
        sleepers.spawn(async move {
            tokio::time::sleep_until(due).await;
            due.elapsed()
        });
    }
    let mut late = Histogram::new(3)?;
    while let Some(elapsed) = sleepers.join_next().await {
        late.record(u64::try_from(elapsed?.as_nanos())?)?;
    }
    Ok(Latency::of(1.0 / EVERY.as_secs_f64(), &late))
}
