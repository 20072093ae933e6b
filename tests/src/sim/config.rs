//! What one run of the simulation is made of, all of it from its seed.

use std::time::Duration;

use fastrand::Rng;

/// A rule of the protocol that is broken on purpose, to see that the simulation finds the harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The store does not look at the fence of a commit.
    NoFenceInTheCommit,
    /// The store does not look at the version that a commit builds on.
    NoVersionInTheCommit,
    /// A lease that is taken begins at epoch 1 again.
    AcquireResetsEpoch,
    /// A node goes on deciding when its lease is over.
    NodeIgnoresItsLease,
    /// A commit leaves out which deliveries were taken in.
    MarksAreNotWritten,
    /// A commit leaves out the answers that are kept for repeats.
    RepliesAreNotKept,
    /// Answers are given before the commit.
    AnswerBeforeCommit,
    /// A commit leaves out when the entity wants to be woken.
    TimersAreNotWritten,
    /// Effects are taken out of the outbox before they are delivered.
    EffectsAreNotAwaited,
    /// A node keeps its memory when the store has lost writes.
    MemoryOutlivesTheStore,
    /// A node sends a request that was not answered again as a new one.
    RepeatsAreNewRequests,
    /// A node that has become the owner of what it had sent on does not look whether that was done.
    SentOnIsForgotten,
    /// What was decided before a failover is written after it.
    FormerLivesAreWritten,
    /// A node forgets which epochs it has seen when it asks for a lease.
    EpochsSeenAreForgotten,
    /// What was decided before a failover is taken in after it, from a node that has not heard of it.
    FormerLivesAreDelivered,
    /// Schedules go by the time that has passed for their node, and not by the wall.
    SchedulesHaveNoWall,
    /// Leases end by the clock of the store.
    LeasesEndByTheClockOfTheStore,
}

impl Broken {
    pub const ALL: [Self; 17] = [
        Self::NoFenceInTheCommit,
        Self::NoVersionInTheCommit,
        Self::AcquireResetsEpoch,
        Self::NodeIgnoresItsLease,
        Self::MarksAreNotWritten,
        Self::RepliesAreNotKept,
        Self::AnswerBeforeCommit,
        Self::TimersAreNotWritten,
        Self::EffectsAreNotAwaited,
        Self::MemoryOutlivesTheStore,
        Self::RepeatsAreNewRequests,
        Self::SentOnIsForgotten,
        Self::FormerLivesAreWritten,
        Self::EpochsSeenAreForgotten,
        Self::FormerLivesAreDelivered,
        Self::SchedulesHaveNoWall,
        Self::LeasesEndByTheClockOfTheStore,
    ];
}

/// How often something goes wrong: once in so many messages, or every so often on average. Zero is never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Of messages between clients and nodes, and between nodes: one in so many.
    pub drop: u32,
    pub duplicate: u32,
    pub late: u32,
    /// Of requests to the store: one in so many is not carried out, or its answer lost, or slow; or a commit refused.
    pub store_request_lost: u32,
    pub store_answer_lost: u32,
    pub store_slow: u32,
    pub store_refuses: u32,
    /// Milliseconds from one to the next.
    pub crash: u64,
    pub pause: u64,
    pub cut: u64,
    pub drain: u64,
    pub fail_over: u64,
    pub container_death: u64,
    /// All machines stand still for a while, and their walls go on.
    pub sleep: u64,
    /// The clock of the store is set.
    pub step: u64,
    /// Of tasks that a worker has: one in so many is lost with it, and noticed by the end of its lease.
    pub worker_death: u32,
    /// How far clocks may be off, milliseconds, and how much faster or slower they may run, parts in a thousand.
    pub offset: i64,
    pub rate: i64,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Config {
    pub seed: u64,
    pub broken: Option<Broken>,
    pub nodes: usize,
    pub lockers: usize,
    pub workers: usize,
    pub senders: usize,
    pub schedules: usize,
    pub runners: usize,
    /// Senders do not ask again when they hear nothing, and nobody keeps an answer for them.
    pub senders_ask_once: bool,
    /// Runs wait for events, are frozen and wake; their agents are defined anew and paused.
    pub waits: bool,
    /// How long faults happen, and how long everything may take to drain once they have ended, milliseconds.
    pub storm: u64,
    pub drain: u64,
    /// How long a client thinks between two operations, milliseconds.
    pub think: u64,
    pub lease: Duration,
    pub settle: Duration,
    /// How often leases are looked at.
    pub look: Duration,
    /// The clocks of the store's servers differ by more than a failover takes.
    pub clocks_apart: bool,
    pub faults: Faults,
}

impl Config {
    pub fn of(seed: u64, broken: Option<Broken>) -> Self {
        let mut rng = stream(seed, "config");
        let mut faults = Faults::default();
        let rare = |rng: &mut Rng, from: u32, to: u32| if rng.bool() { rng.u32(from..to) } else { 0 };
        faults.drop = rare(&mut rng, 8, 60);
        faults.duplicate = rare(&mut rng, 8, 60);
        faults.late = rare(&mut rng, 8, 60);
        faults.store_request_lost = rare(&mut rng, 30, 300);
        faults.store_answer_lost = rare(&mut rng, 30, 300);
        faults.store_slow = rare(&mut rng, 20, 200);
        faults.store_refuses = rare(&mut rng, 30, 300);
        let seldom = |rng: &mut Rng, from: u64, to: u64| if rng.bool() { rng.u64(from..to) } else { 0 };
        faults.crash = seldom(&mut rng, 4_000, 20_000);
        faults.pause = seldom(&mut rng, 3_000, 15_000);
        faults.cut = seldom(&mut rng, 3_000, 15_000);
        faults.drain = seldom(&mut rng, 5_000, 20_000);
        faults.container_death = seldom(&mut rng, 2_000, 20_000);
        // Lossy failovers change what may be promised, so most runs are without them.
        faults.fail_over = if rng.u32(0..4) == 0 { rng.u64(8_000..25_000) } else { 0 };
        // Leases are long, so most runs are without them.
        faults.worker_death = if rng.u32(0..4) == 0 { rng.u32(3..12) } else { 0 };
        faults.offset = if rng.bool() { rng.i64(0..5_000) } else { 0 };
        faults.rate = if rng.bool() { rng.i64(0..60) } else { 0 };
        let mut naps = stream(seed, "naps");
        faults.sleep = if naps.u32(0..4) == 3 { naps.u64(5_000..20_000) } else { 0 };
        // What a failover has dropped may have had higher epochs than a clock that was set back gives.
        let mut steps = stream(seed, "steps");
        let is_set = steps.u32(0..4) == 3 && faults.fail_over == 0;
        faults.step = if is_set { steps.u64(5_000..20_000) } else { 0 };
        let lease = Duration::from_millis(rng.u64(2_000..6_000));
        Self {
            seed,
            broken,
            nodes: rng.usize(1..5),
            lockers: rng.usize(0..4),
            workers: rng.usize(0..4),
            senders: rng.usize(0..3),
            schedules: rng.usize(0..3),
            runners: rng.usize(0..3),
            senders_ask_once: stream(seed, "asks once").u32(0..4) == 3,
            waits: stream(seed, "freezes").u32(0..3) == 1,
            storm: rng.u64(10_000..40_000),
            drain: 240_000,
            think: rng.u64(20..400),
            lease,
            settle: Duration::from_millis(rng.u64(1_000..6_000)),
            look: lease / 8,
            clocks_apart: false,
            faults,
        }
    }

    /// The same, in which the store often fails over, to servers whose clocks are behind.
    #[must_use]
    pub fn with_clocks_apart(self) -> Self {
        let often = Faults { fail_over: 8_000, ..self.faults };
        Self { clocks_apart: true, faults: often, ..self }
    }

    /// The same among several nodes whose store lasts, and has a clock that is set again and again.
    #[must_use]
    pub fn with_a_clock_that_is_set(self) -> Self {
        let often = Faults { step: 2_000, fail_over: 0, ..self.faults };
        Self { nodes: self.nodes.max(2), faults: often, ..self }
    }
}

/// Randomness of its own for each kind of fault, so that one more of a kind changes nothing about the others.
pub fn stream(seed: u64, salt: &str) -> Rng {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in salt.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    Rng::with_seed(hash)
}
