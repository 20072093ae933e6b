//! B10: the next task is claimed by priority and tag, among a million and among a thousand; and one is sent past the
//! guard against duplicates, with as many old ones there.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::FutureExt;
use hdrhistogram::Histogram;
use skein_coordinator::entity::Clock;
use skein_shared::entity::{Changes, Ctx, Entity};
use skein_shared::fence::Epoch;
use skein_shared::id::{EntityKey, InstanceId, Kind, Name};
use skein_shared::pool::{self, Pool};
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::Bench;
use crate::harness::load::{histogram, nanoseconds};
use crate::harness::meter::heap;
use crate::harness::report::{Figure, Goal, Report};
use crate::harness::stats::Interval;
use crate::options::Options;
use crate::skein::embedded::{Agent, Kernel};
use crate::skein::fill::{Contents, fill, spec, tag};

pub(super) const BENCH: Bench = Bench {
    name: "pool_1m",
    about: "claim by priority and tag among 1,000,000 waiting tasks, beside 1,000",
    run: |options| run(options).boxed(),
};

/// Slots of the options that one round lasts: it takes many claims to know a 99th percentile.
const SLOTS: u32 = 4;
/// Decisions that are timed without a store.
const DECISIONS: usize = 20_000;
/// So many young tasks of one sender the guard against duplicates looks at, at most.
const GUARDED: usize = 50;

/// A pool of one size, served from a store.
struct Side {
    agent: Agent,
    random: fastrand::Rng,
    /// Nanoseconds of a claim, of this round.
    claims: Histogram<u64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    /// Nanoseconds of a decision alone.
    decision: Histogram<u64>,
    /// Microseconds of sending one, at the median.
    sending: f64,
    /// Bytes of the pool in memory.
    memory: f64,
}

async fn run(options: Options) -> Result<Report> {
    let large = if options.rounds < 5 { 100_000 } else { 1_000_000 };
    let mut report = Report::default();
    let mut many = Side::open(&options, large).await?;
    let mut few = Side::open(&options, 1000).await?;
    for _ in 0..options.rounds {
        let end = Instant::now() + options.slot * SLOTS;
        // One after the other: what disturbs the machine disturbs both.
        while Instant::now() < end {
            many.turn().await?;
            few.turn().await?;
        }
        many.end_round();
        few.end_round();
    }
    let us = |name: &str, value: Option<Interval>| {
        value.map(|value| Figure { name: name.to_owned(), unit: "us".to_owned(), value })
    };
    report.figures.extend(
        [
            us(&format!("claim among {large}, median"), Interval::of(&many.p50)),
            us("claim among 1000, median", Interval::of(&few.p50)),
            us(&format!("claim among {large}, p99"), Interval::of(&many.p99)),
            us("claim among 1000, p99", Interval::of(&few.p99)),
        ]
        .into_iter()
        .flatten(),
    );
    for (size, side) in [(large, &many), (1000, &few)] {
        let median = side.decision.value_at_quantile(0.5) as f64 / 1000.0;
        report.figures.push(Figure::new(format!("decision alone among {size}, median"), "us", median));
        let name = format!("send-task with its guard beside {size} old ones, decision alone, median");
        report.figures.push(Figure::new(name, "us", side.sending));
    }
    let alone =
        sendings(&mut Pool::empty(&EntityKey::of(Kind::Pool, &Name::parse("default")?)), Uuid::from_u128(1))?;
    report.figures.push(Figure::new("the same beside none", "us", alone));
    report.goals.push(Goal::at_most(
        "send-task with its guard to that beside no old tasks",
        1.5,
        Some(Interval::exactly(many.sending / alone)),
    ));
    let memory = many.memory / f64::from(1 << 20);
    report.figures.push(Figure::new(format!("memory of a pool of {large}"), "MiB", memory));
    report.goals.push(Goal::at_most(
        "B10 median to that among 1000",
        1.5,
        Interval::of_ratio(&many.p50, &few.p50),
    ));
    report.goals.push(Goal::at_most(
        "B10 p99 to that among 1000",
        3.0,
        Interval::of_ratio(&many.p99, &few.p99),
    ));
    if large < 1_000_000 {
        report.remarks.push(format!("a first look, with {large} tasks"));
    }
    Ok(report)
}

impl Side {
    async fn open(options: &Options, pending: usize) -> Result<Self> {
        let folder = options.folder_for(&format!("pool-{pending}"))?;
        let agent = Uuid::now_v7();
        let contents = Contents { members: 100, pending, leases: 0 };
        let before = heap()?;
        let mut pool = fill(&folder.join("store.db"), Clock::start().wall(), agent, &contents).await?;
        let memory = heap()? - before;
        let decision = decisions(&mut pool, agent)?;
        let sending = sendings(&mut pool, Uuid::from_u128(1))?;
        drop(pool);
        let kernel = Kernel::open(&folder)?;
        let agent = kernel.join(0).await?;
        kernel.entities.shared().projection.settled(Duration::from_secs(1800)).await;
        let random = fastrand::Rng::with_seed(11);
        let (p50, p99) = (Vec::new(), Vec::new());
        Ok(Self { agent, random, claims: histogram(), p50, p99, decision, sending, memory })
    }

    /// Claims the best task with one of two tags, ends it, and puts another one into its place.
    async fn turn(&mut self) -> Result<()> {
        let tags = vec![tag(&mut self.random), tag(&mut self.random)];
        let claim = pool::Command::ClaimNext {
            agent: self.agent.id,
            instance: self.agent.instance.clone(),
            managed: false,
            tags,
        };
        let began = Instant::now();
        let reply = self.agent.pool(claim).await?;
        self.claims.saturating_record(nanoseconds(began.elapsed()));
        let pool::Reply::Claimed { task: Some(task), redelivered: false } = reply else {
            bail!("no task was claimed: {reply:?}");
        };
        self.agent.complete(task.id).await?;
        self.agent.create(spec(&mut self.random)).await.map(|_| ())
    }

    fn end_round(&mut self) {
        self.p50.push(self.claims.value_at_quantile(0.5) as f64 / 1000.0);
        self.p99.push(self.claims.value_at_quantile(0.99) as f64 / 1000.0);
        self.claims.reset();
    }
}

/// Times the claim's decision and its effect on memory, without a store. Each task claimed is given back.
fn decisions(pool: &mut Pool, agent: Uuid) -> Result<Histogram<u64>> {
    let mut random = fastrand::Rng::with_seed(13);
    let mut times = histogram();
    let clock = Clock::start();
    for _ in 0..DECISIONS {
        let tags = vec![tag(&mut random), tag(&mut random)];
        let instance = InstanceId("bench".to_owned());
        let claim = pool::Command::ClaimNext { agent, instance, managed: false, tags };
        let began = Instant::now();
        let reply = decide(pool, clock.now(), &claim)?;
        times.saturating_record(nanoseconds(began.elapsed()));
        let pool::Reply::Claimed { task: Some(task), .. } = reply else { bail!("no task: {reply:?}") };
        decide(pool, clock.now(), &pool::Command::Release { agent, task: task.id })?;
    }
    Ok(times)
}

/// Times sending a task, at the median in microseconds, while the guard has as much to compare it with as it can have.
/// Each is cancelled again.
fn sendings(pool: &mut Pool, sender: Uuid) -> Result<f64> {
    let (start, mut times) = (Clock::start().now(), histogram());
    // Ids are made of the moment.
    let at = |number: usize| start + Duration::from_millis(number as u64);
    for number in 0..GUARDED {
        decide(pool, at(number), &send(sender, number))?;
    }
    for number in GUARDED..GUARDED + DECISIONS {
        let send = send(sender, number);
        let began = Instant::now();
        let reply = decide(pool, at(number), &send)?;
        times.saturating_record(nanoseconds(began.elapsed()));
        let pool::Reply::Created { task, .. } = reply else { bail!("no task: {reply:?}") };
        decide(pool, at(number), &pool::Command::Cancel { task: task.id, by: None, reason: None })?;
    }
    Ok(times.value_at_quantile(0.5) as f64 / 1000.0)
}

/// No two of them have a word in common.
fn send(sender: Uuid, number: usize) -> pool::Command {
    let words: Vec<String> = (0..15).map(|word| format!("part{number}of{word}")).collect();
    pool::Command::Create(Box::new(pool::Create {
        by: Some(sender),
        spec: pool::TaskSpec::new(words.join(" ")),
        target: pool::Target::Pool,
        rules: pool::Rules::Delegation { allow_duplicate: false },
        facts: Vec::new(),
    }))
}

fn decide(pool: &mut Pool, now: Timestamp, command: &pool::Command) -> Result<pool::Reply> {
    let mut ctx = Ctx::new(now, now, now, Epoch(1), Uuid::from_u128(1));
    let decision = pool.decide(command, &mut ctx).map_err(crate::skein::embedded::refused)?;
    for event in &decision.events {
        pool.apply(event, &mut Changes::default());
    }
    Ok(decision.reply)
}
