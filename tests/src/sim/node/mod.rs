//! One coordinator of the simulation: the decisions of the real one, carried out over a network, a store and a clock
//! that are not.
//!
//! The steward keeps the leases ([`leases`]), a desk and a line decide and commit for each entity ([`desks`]), errands
//! find the owners of others ([`trips`]), lanes and timers carry out what entities want ([`pumps`]). What the shell of
//! the real node does between them is written down here again, and as little as possible.

mod clock;
mod desks;
mod leases;
mod pumps;
mod trips;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use serde_json::Value;
use skein_coordinator::cluster::living::Living;
use skein_coordinator::cluster::member::Member;
use skein_coordinator::cluster::steward::{Question, Steward, lives};
use skein_coordinator::cluster::table::Known;
use skein_coordinator::entity::line::Outcome;
use skein_coordinator::outbox::lanes::{Ended, Lanes, Name};
use skein_coordinator::store::redis::held::Slots;
use skein_coordinator::store::redis::lease::{Acquired, Kept, Written};
use skein_coordinator::store::redis::members::Said;
use skein_coordinator::store::redis::shard::Shard;
use skein_coordinator::store::redis::vigil::Vigil;
use skein_coordinator::store::{Batch, Fence, Mark, OutboxEntry, OutboxPlace, Version};
use skein_shared::Refusal;
use skein_shared::entity::{RunnerCommand, Signal};
use skein_shared::id::EntityKey;
use skein_shared::json::Json;
use skein_shared::time::Timestamp;
use tokio::time::Instant;
use uuid::Uuid;

use super::config::{Broken, Config};
use super::hosted::{Asked, Back, Found};
use super::store::Wanted;
use clock::Clock;
use desks::Desked;
use trips::{Gather, Rpc, Trip};

/// What happens to a node.
pub enum In {
    Look {
        turn: u64,
    },
    LeaveOver {
        turn: u64,
    },
    /// The process is asked to end.
    Resign,
    /// What the store said, or that it said nothing in time.
    Store {
        id: u64,
        answer: Option<Answer>,
    },
    Request(Box<Wish>),
    Peer {
        back: Back,
        key: EntityKey,
        call: Call,
    },
    PeerAnswer {
        rpc: u64,
        answer: Option<Reply>,
    },
    Begin {
        desk: u64,
    },
    Rested {
        desk: u64,
    },
    Again {
        trip: u64,
        turn: u64,
    },
    Lane {
        turn: u64,
        what: LaneIn,
    },
    Timers {
        turn: u64,
    },
    Observe(EntityKey, Signal),
}

/// What a client wants.
#[derive(Clone, Debug)]
pub struct Wish {
    pub client: usize,
    pub number: u64,
    pub key: EntityKey,
    pub id: Uuid,
    /// Whether it does something.
    pub changes: bool,
    /// Whether the client asks the same again if it hears nothing, and then has to get the same answer.
    pub repeated: bool,
    pub command: Json,
    pub timeout: Duration,
}

/// What happens to the lanes.
pub enum LaneIn {
    Look,
    Read { after: u64 },
    Try { lane: Name, entries: Vec<Arc<OutboxEntry>> },
    Gathered,
}

/// What nodes ask one another.
#[derive(Clone, Debug)]
pub enum Call {
    Ask {
        id: Uuid,
        keep: bool,
        command: Json,
    },
    /// What was decided in this life of the store.
    Deliver {
        run: u64,
        commands: Vec<(Mark, Json)>,
    },
}

#[derive(Clone, Debug)]
pub enum Reply {
    Asked(Result<Value, Refusal>, Version),
    Delivered(Vec<Result<(), Refusal>>),
    NotOwner { owner: String, epoch: u64 },
}

/// What a node asks of the store.
pub enum Ask {
    IsTheSame(u64),
    BeginAnew,
    Renew(Vec<(Shard, Fence)>),
    /// With those who have fallen silent.
    Beat(Member, Vec<(String, u64)>),
    Leases,
    Acquire(Vec<Wanted>, u64),
    Release(Vec<(Shard, Fence)>),
    /// A new connection for commits, after the old one was killed.
    Connect {
        kill: Option<u64>,
    },
    Commit {
        link: u64,
        batches: Vec<(Fence, Arc<Batch>)>,
    },
    /// If its shard is still held under this fence.
    Load(EntityKey, Fence),
    Timers(Vec<Shard>),
    Outbox {
        after: u64,
        shards: Vec<Shard>,
    },
    /// In this life of the store alone: the next one has the fences of its replica.
    TakeOut {
        run: u64,
        effects: Vec<(Fence, OutboxPlace)>,
    },
}

pub enum Answer {
    Same(bool),
    /// In which life the server is now.
    Anew(u64),
    Kept(Vec<Kept>),
    /// With what the clock of the store said, as with the leases.
    Members(Vec<Said>, u64),
    Leases(Vec<Written>, u64),
    Acquired(Vec<Acquired>),
    Link {
        run: u64,
        link: u64,
    },
    Commits(Vec<Outcome>),
    /// With the time of the last commit, and its batch.
    Loaded(Box<dyn Found>, Uuid),
    Timers(Vec<(EntityKey, Timestamp)>),
    Page(Vec<OutboxEntry>),
    TakenOut {
        all: bool,
    },
}

/// What a node does.
pub enum Out {
    Store {
        id: u64,
        ask: Ask,
    },
    Peer {
        to: String,
        rpc: u64,
        key: EntityKey,
        call: Call,
    },
    Reply {
        to: Back,
        reply: Reply,
    },
    Client {
        client: usize,
        number: u64,
        id: Uuid,
        outcome: Result<Value, Refusal>,
        version: Version,
    },
    Runner {
        runner: String,
        /// Whose command it is.
        source: EntityKey,
        command: RunnerCommand,
    },
    After {
        delay: Duration,
        input: In,
    },
    /// A batch was decided on the state that another one has left.
    Decided {
        batch: Uuid,
        on: Uuid,
    },
    /// A delivery took effect, by a commit.
    Applied {
        target: EntityKey,
        mark: Mark,
        batch: Uuid,
    },
    /// Something of the entity does not hold.
    Unsound {
        key: EntityKey,
        invariant: String,
    },
    /// What was in memory is given up, for the store has lost writes.
    Anew,
    /// The process ends, after everything was given up.
    Exit,
    Note(String),
}

/// What to do with an answer of the store.
enum Then {
    Steward(Question),
    Connect,
    Group,
    Load(EntityKey, Fence),
    Timers,
    /// With the shards as they were held when it was read.
    Read {
        turn: u64,
        held: BTreeMap<Shard, Fence>,
    },
    TakeOut {
        turn: u64,
        ended: Ended,
    },
    Nothing,
}

type Commit = (u64, Fence, Arc<Batch>);

/// The one task that commits: one group at a time, on one connection.
#[derive(Default)]
struct Writer {
    queue: VecDeque<Commit>,
    link: Option<u64>,
    last_link: Option<u64>,
    busy: Option<Vec<Commit>>,
}

/// The pump of timers.
struct Wakes {
    turn: u64,
    earliest: Timestamp,
    reading: bool,
    ticking: usize,
    failed: bool,
    later: Option<Timestamp>,
    /// Something was set meanwhile.
    again: bool,
}

pub struct Node {
    pub index: usize,
    pub me: Member,
    /// The life of the store that it relies on.
    pub run: u64,
    broken: Option<Broken>,
    look: Duration,
    rng: Rng,
    pub clock: Clock,
    now: Instant,
    outs: Vec<Out>,
    next: u64,
    thens: BTreeMap<u64, Then>,
    // Leases.
    slots: Slots,
    known: Known,
    steward: Steward,
    vigil: Vigil<Shard>,
    living: Living,
    had: BTreeMap<Shard, Fence>,
    /// The highest epoch that it has seen.
    pub(super) highest: u64,
    moved: bool,
    news: bool,
    turn: u64,
    in_round: bool,
    nudged: bool,
    resigning: bool,
    leaving: Option<BTreeSet<u64>>,
    // Entities.
    desks: BTreeMap<u64, Desked>,
    by_key: BTreeMap<EntityKey, u64>,
    loads: BTreeMap<EntityKey, Vec<Asked>>,
    writer: Writer,
    // Ways.
    trips: BTreeMap<u64, Trip>,
    rpcs: BTreeMap<u64, Rpc>,
    gathers: BTreeMap<u64, Gather>,
    // Pumps.
    lanes: Lanes,
    lanes_turn: u64,
    lanes_since: Instant,
    wakes: Wakes,
    /// Runners that have a stream to some node.
    pub connected: BTreeSet<String>,
}

impl Node {
    /// A process that starts now, with a wall clock that says this, on a machine that has slept for so long.
    pub fn new(
        config: &Config,
        index: usize,
        rng: Rng,
        (now, wall, slept): (Instant, u64, u64),
        run: u64,
    ) -> Self {
        let mut rng = rng;
        let name = format!("node-{index}");
        let me = Member::new(&name, Uuid::from_u128(rng.u128(..)), &name);
        Self {
            index,
            me,
            run,
            broken: config.broken,
            look: config.look,
            rng,
            clock: Clock::start(config, now, wall, slept),
            now,
            outs: Vec::new(),
            next: 0,
            thens: BTreeMap::new(),
            slots: Slots::default(),
            known: Known::default(),
            steward: Steward::new(config.lease, config.settle, now),
            vigil: Vigil::over_leases(),
            living: Living::new(lives(config.lease)),
            had: BTreeMap::new(),
            highest: 0,
            moved: false,
            news: false,
            turn: 0,
            in_round: false,
            nudged: false,
            resigning: false,
            leaving: None,
            desks: BTreeMap::new(),
            by_key: BTreeMap::new(),
            loads: BTreeMap::new(),
            writer: Writer::default(),
            trips: BTreeMap::new(),
            rpcs: BTreeMap::new(),
            gathers: BTreeMap::new(),
            lanes: Lanes::default(),
            lanes_turn: 0,
            lanes_since: now,
            wakes: Wakes {
                turn: 0,
                earliest: Timestamp::NEVER,
                reading: false,
                ticking: 0,
                failed: false,
                later: None,
                again: false,
            },
            connected: BTreeSet::new(),
        }
    }

    /// Begins to take part.
    pub fn start(&mut self) -> Vec<Out> {
        self.begin_round();
        self.restart_pumps();
        std::mem::take(&mut self.outs)
    }

    /// Takes a step at a moment of its own monotonic clock.
    pub fn on(&mut self, input: In, now: Instant) -> Vec<Out> {
        self.now = now;
        match input {
            In::Look { turn } if turn == self.turn && !self.in_round => self.begin_round(),
            In::LeaveOver { turn } if turn == self.turn && self.leaving.is_some() => self.left(),
            In::Look { .. } | In::LeaveOver { .. } => {}
            In::Resign => self.resign(),
            In::Store { id, answer } => self.answered(id, answer),
            In::Request(wish) => self.request(*wish),
            In::Peer { back, key, call } => self.peer(back, &key, call),
            In::PeerAnswer { rpc, answer } => self.peer_answered(rpc, answer),
            In::Begin { desk } => self.begin(desk),
            In::Rested { desk } => self.rested(desk),
            In::Again { trip, turn } => self.again(trip, turn),
            In::Lane { turn, what } if turn == self.lanes_turn => self.lane_in(what),
            In::Lane { .. } => {}
            In::Timers { turn } if turn == self.wakes.turn => self.look_at_timers(),
            In::Timers { .. } => {}
            In::Observe(key, signal) => self.observe(&key, &signal),
        }
        self.follow();
        std::mem::take(&mut self.outs)
    }

    fn answered(&mut self, id: u64, answer: Option<Answer>) {
        let Some(then) = self.thens.remove(&id) else { return };
        match (then, answer) {
            (Then::Steward(question), answer) => self.steward_answered(question, answer),
            (Then::Connect, Some(Answer::Link { run, link })) => self.connected_to(run, link),
            (Then::Connect, _) => self.group_failed("Redis cannot be reached"),
            (Then::Group, Some(Answer::Commits(outcomes))) => self.group_answered(outcomes),
            (Then::Group, _) => self.group_lost(),
            (Then::Load(key, fence), Some(Answer::Loaded(found, base))) => {
                self.loaded(&key, fence, found, base);
            }
            (Then::Load(key, _), _) => self.unloadable(&key),
            (Then::Timers, Some(Answer::Timers(timers))) => self.timers_are(timers),
            (Then::Timers, _) => self.timers_unknown(),
            (Then::Read { turn, held }, answer) if turn == self.lanes_turn => self.page_is(answer, &held),
            (Then::TakeOut { turn, ended }, answer) if turn == self.lanes_turn => {
                let all = matches!(answer, Some(Answer::TakenOut { all: true }));
                self.taken_out(if all { Ended::default() } else { ended });
            }
            (Then::Read { .. } | Then::TakeOut { .. } | Then::Nothing, _) => {}
        }
    }

    fn ask(&mut self, ask: Ask, then: Then) {
        let id = self.number();
        self.thens.insert(id, then);
        self.outs.push(Out::Store { id, ask });
    }

    fn after(&mut self, delay: Duration, input: In) {
        self.outs.push(Out::After { delay, input });
    }

    fn note(&mut self, what: impl Into<String>) {
        self.outs.push(Out::Note(what.into()));
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn uuid(&mut self) -> Uuid {
        Uuid::from_u128(self.rng.u128(..))
    }

    /// A little time in which others come along.
    fn moment(&mut self) -> Duration {
        Duration::from_micros(self.rng.u64(0..400))
    }

    /// The fence under which it may decide now.
    fn fence(&self, key: &EntityKey) -> Fence {
        let now = match self.broken {
            Some(Broken::NodeIgnoresItsLease) => self.clock.begun,
            _ => self.now,
        };
        self.slots.fence(Shard::of(key), now)
    }
}
