//! What an agent remembers: the heads of its live instances, queue items, calls and waits.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::call::CallRecord;
use super::definition::{Defined, Definition, Standing, Terms};
use super::finished::Finished;
use super::index::Index;
use super::returned::Returned;
use super::waits::WaitRecord;
use crate::cow_map::CowMap;
use crate::fence::Token;
use crate::id::{EntityKey, InstanceId, Name};
use crate::limits;
use crate::time::Timestamp;

/// The agent with everything of it that is not over.
#[derive(Clone, Debug, PartialEq)]
pub struct Agent {
    pub(super) swarm: Name,
    pub(super) name: Name,
    pub(super) defined: Option<Defined>,
    pub(super) instances: CowMap<InstanceId, Instance>,
    pub(super) queue: CowMap<InstanceId, Item>,
    /// Those that are not over.
    pub(super) calls: CowMap<Uuid, CallRecord>,
    pub(super) finished: Finished,
    pub(super) waits: CowMap<Uuid, WaitRecord>,
    pub(super) standing: Standing,
    /// The runner on which its latest run began: what that has left in its work folder is there.
    pub(super) files: Option<String>,
    /// Dead letters that can be replayed.
    pub(super) letters: CowMap<Uuid, Letter>,
    /// How many instances and calls name each blob.
    pub(super) blobs: CowMap<Uuid, u32>,
    pub(super) index: Index,
}

/// Why a run is wanted, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    Resumed,
    Call,
    Manual,
    Webhook,
    Schedule,
}

impl Class {
    pub(super) const ALL: [Class; 5] =
        [Class::Resumed, Class::Call, Class::Manual, Class::Webhook, Class::Schedule];

    /// The class that a wish has after waiting: it rises one class for each whole `step`. In the highest the oldest
    /// comes first, so that none starves, however many runs wait for events and wake.
    pub fn aged(self, waited: Duration, step: Duration) -> Class {
        let steps = waited.as_millis() / step.as_millis().max(1);
        let rank = (self as usize).saturating_sub(usize::try_from(steps).unwrap_or(usize::MAX));
        Self::ALL[rank]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// In the work queue, or bidding for its first slot.
    Queued,
    /// A runner was told to start it.
    Starting,
    Running,
    /// Waits for a trigger and still has its slot; for a hand-made instance, the whole wait.
    Waiting,
    /// The runner was told to freeze it.
    Freezing,
    /// Frozen, without a slot.
    Frozen,
    /// Its wait is over; it bids for a slot to run on.
    Resuming,
    /// The runner was told to end it.
    Stopping,
    Ended,
}

/// One run of the agent, or one hand-made token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    pub id: InstanceId,
    pub state: State,
    /// No runner watches it, so it is never frozen, bids for nothing and ends by its own word.
    #[serde(default, skip_serializing_if = "is_false")]
    pub external: bool,
    pub class: Class,
    pub since: Timestamp,
    /// The runner group whose fleet its slot comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<String>,
    /// Of the last command to the runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// Of the last start; reports with lower ones come from an attempt that is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_token: Option<Token>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bid: Option<Uuid>,
    /// It has one of the fleet's slots.
    #[serde(default, skip_serializing_if = "is_false")]
    pub slot: bool,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// When its runner was told to start it: what came since then came in its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// Its limit, as it was defined at the start.
    #[serde(default, skip_serializing_if = "is_zero_u64")]
    pub timeout_ms: u64,
    /// What else was defined for it then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Terms>,
    /// Time spent in waits that are over; the run's limit does not count it.
    #[serde(default, skip_serializing_if = "is_zero_u64")]
    pub waited_ms: u64,
    /// The call that it was started for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Uuid>,
    /// Its callers, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<(Name, InstanceId)>,
    /// How many of them are on top of each other at most, where some are side by side: whoever serves several calls has
    /// the callers of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<usize>,
    /// The latest wait, until the next one begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<Returned>,
    /// Agents that it has called.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub callees: BTreeSet<Name>,
    /// Earlier events that it got by looking back.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub recalled: BTreeSet<Uuid>,
    /// How it is going to end once it has stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Exit>,
    /// What became of its processes, if it has slept for long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spill: Option<Spill>,
    /// What it was started with, of a run that may be run again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// How many runs of the same origin came before it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rerun: u32,
    /// It has asked to be run again once it is done.
    #[serde(default, skip_serializing_if = "is_false")]
    pub again: bool,
}

/// What becomes of the processes of a frozen run that sleeps for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spill {
    /// The runner was told to end them and to keep the files.
    Ordered,
    /// They have ended. It stays so until the runner has started the run again.
    Done,
    /// The runner could not start them again, and lets them sleep on.
    Refused,
}

/// Why the first of several runs was wanted, and what each of them is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    pub source: String,
    pub input: Input,
}

/// The head of a dead letter, whose body has the whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    pub reason: String,
    pub at: Timestamp,
}

/// Exit status with which a run asks to be run again.
pub const RERUN: i32 = 42;

/// How an instance ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub end: End,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    pub reason: String,
    /// What its model was used for, as far as the program says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// What a run's model was used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens that the model read, from its cache too.
    pub input_tokens: u64,
    /// Tokens that it wrote.
    pub output_tokens: u64,
    pub turns: u64,
    /// Millionths of a US dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    Completed,
    Error,
    Killed,
}

/// A run that was asked for and has not started. It goes when the runner says that the run has, so that a
/// start lost on the way can be made again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    pub instance: InstanceId,
    /// Order of arrival.
    pub number: u64,
    pub class: Class,
    pub source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Uuid>,
    pub at: Timestamp,
    /// The head holds it since the start command carries it.
    pub input: Input,
}

/// What a run gets. It may be large and is shared, so that a copy of the agent costs little.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Value", into = "Value")]
pub struct Input(Arc<Value>);

impl Input {
    pub fn get(&self) -> &Value {
        &self.0
    }
}

impl From<Value> for Input {
    fn from(value: Value) -> Self {
        Self(Arc::new(value))
    }
}

impl From<Input> for Value {
    fn from(input: Input) -> Self {
        Arc::unwrap_or_clone(input.0)
    }
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            State::Queued => "queued",
            State::Starting => "starting",
            State::Running => "running",
            State::Waiting => "waiting",
            State::Freezing => "freezing",
            State::Frozen => "frozen",
            State::Resuming => "resuming",
            State::Stopping => "stopping",
            State::Ended => "ended",
        }
    }

    /// In a wait, or on the way back from one: time that no limit counts.
    pub fn is_waiting(self) -> bool {
        matches!(self, State::Waiting | State::Freezing | State::Frozen | State::Resuming)
    }
}

impl Instance {
    /// A run that is queued.
    pub(super) fn new(id: InstanceId, class: Class, since: Timestamp) -> Self {
        Self {
            id,
            state: State::Queued,
            external: false,
            class,
            since,
            group: None,
            runner: None,
            token: None,
            first_token: None,
            bid: None,
            slot: false,
            attempts: 0,
            granted: None,
            started: None,
            timeout_ms: 0,
            terms: None,
            waited_ms: 0,
            call: None,
            chain: Vec::new(),
            depth: None,
            wait: None,
            returned: None,
            callees: BTreeSet::new(),
            recalled: BTreeSet::new(),
            stop: None,
            spill: None,
            origin: None,
            rerun: 0,
            again: false,
        }
    }

    /// The run that an item of the queue stands for. What nobody waits for the one end of may be run again.
    pub(super) fn of(item: &Item) -> Self {
        let repeats = matches!(item.class, Class::Manual | Class::Schedule);
        let origin = repeats.then(|| Origin { source: item.source.clone(), input: item.input.clone() });
        Self { origin, ..Self::new(item.instance.clone(), item.class, item.at) }
    }

    /// How many callers are above it by its own start.
    pub(super) fn depth(&self) -> usize {
        self.depth.unwrap_or(self.chain.len())
    }

    /// Whether the last sign of life of a hand-made instance is so old that a call of it is to be written down as one.
    pub fn is_fading(&self, now: Timestamp) -> bool {
        self.external && now >= self.since + limits::HAND_MADE_NEWS
    }

    /// A slot that it has or bids for: what the agent's scale counts.
    pub fn is_active(&self) -> bool {
        self.slot || self.bid.is_some()
    }

    /// Its state as people see it.
    pub fn shown(&self) -> &'static str {
        match (self.state, self.spill) {
            (State::Frozen, Some(Spill::Done)) => "spilled",
            (state, _) => state.as_str(),
        }
    }

    /// Whether its runner was told to start it again after a long sleep and has not said that it did: until then it has
    /// not heard what woke it, as far as anybody knows. What is ended in its sleep has no wait any more.
    pub(super) fn begins_again(&self) -> bool {
        let is_told = matches!(self.state, State::Running | State::Stopping) && self.wait.is_some();
        is_told && self.spill == Some(Spill::Done)
    }

    /// When its run ends for taking too long. Time spent waiting does not count.
    pub fn run_deadline(&self) -> Option<Timestamp> {
        let runs = matches!(self.state, State::Starting | State::Running) && !self.external;
        let started = self.started.filter(|_| runs)?;
        Some(started + Duration::from_millis(self.timeout_ms.saturating_add(self.waited_ms)))
    }
}

impl Agent {
    /// # Panics
    /// When the key names no agent; keys are parsed before they get here.
    pub(super) fn of(key: &EntityKey) -> Self {
        Self {
            swarm: key.swarm.clone(),
            name: key.name.clone().expect("an agent's key has its name"),
            defined: None,
            instances: CowMap::default(),
            queue: CowMap::default(),
            calls: CowMap::default(),
            finished: Finished::default(),
            waits: CowMap::default(),
            standing: Standing::default(),
            files: None,
            letters: CowMap::default(),
            blobs: CowMap::default(),
            index: Index::default(),
        }
    }

    /// The definition, or what a hand-made instance of an undefined agent goes by.
    pub(super) fn limits(&self) -> Definition {
        self.defined.as_ref().map(|defined| defined.definition.clone()).unwrap_or_default()
    }

    /// The terms of an instance, which outlive the definition. One that no runner has started goes by what holds now.
    pub(super) fn terms_of(&self, instance: &Instance) -> Terms {
        instance.terms.unwrap_or_else(|| Terms::from(&self.limits()))
    }

    /// Instances that no runner watches can serve calls by waiting for them.
    pub(super) fn has_external(&self) -> bool {
        self.instances.values().any(|instance| instance.external)
    }

    /// Whether it takes work, by its definition and by the word of its operators.
    pub(super) fn is_enabled(&self) -> bool {
        let defined = self.defined.as_ref().is_some_and(|defined| defined.definition.enabled);
        defined && !self.standing.disabled
    }

    /// Most slots at a time that the agent is to have: what its operators have said goes over its definition.
    pub(super) fn wanted_scale(&self) -> u32 {
        let usual = self.defined.as_ref().map_or(1, |defined| defined.definition.scale);
        self.standing.scale.map_or(usual, NonZeroU32::get)
    }

    /// Most slots that the agent may have at a time, once it may start what it has.
    pub(super) fn scale(&self) -> usize {
        if self.is_enabled() { self.wanted_scale() as usize } else { 0 }
    }

    /// Whether it starts runs. With a scale of 0 it is as good as disabled.
    pub(super) fn takes_work(&self) -> bool {
        self.scale() > 0
    }

    /// Whether somebody serves its calls: its runs, or hand-made instances beside a scale of 0.
    pub(super) fn serves_calls(&self) -> bool {
        self.takes_work() || (self.is_enabled() && self.has_external())
    }

    /// Most runs that may have or seek a slot now.
    pub(super) fn openings(&self) -> usize {
        if self.standing.is_paused() { 0 } else { self.scale() }
    }

    pub(super) fn by_bid(&self, bid: Uuid) -> Option<&Instance> {
        self.instances.values().find(|instance| instance.bid == Some(bid))
    }

    /// An instance as it works now. Its callers are those of its own start and of every call that it serves: for which
    /// of these it makes a call nobody can tell.
    pub(super) fn at_work(&self, instance: &Instance) -> Instance {
        let mut shown = instance.clone();
        for call in self.calls_at(&instance.id) {
            let served = self.calls.get(&call).into_iter().flat_map(|call| &call.chain);
            let others: Vec<_> = served.filter(|caller| !shown.chain.contains(caller)).cloned().collect();
            shown.chain.extend(others);
        }
        shown.depth = Some(self.depth_of(instance)).filter(|depth| *depth != shown.chain.len());
        shown
    }

    /// How many callers are above an instance: the callers of calls that it serves side by side are not above each
    /// other.
    pub(super) fn depth_of(&self, instance: &Instance) -> usize {
        let served = self.calls_at(&instance.id).into_iter().filter_map(|call| self.calls.get(&call));
        served.map(CallRecord::depth).fold(instance.depth(), usize::max)
    }

    /// Calls that `instance` serves or will serve, and that are not over.
    pub(super) fn calls_at(&self, instance: &InstanceId) -> Vec<Uuid> {
        self.index.served_by(instance).collect()
    }

    /// Items whose runs were not told to start.
    pub(super) fn queued(&self) -> impl Iterator<Item = &Item> {
        self.queue.values().filter(|item| {
            self.instances.get(&item.instance).is_some_and(|instance| instance.state == State::Queued)
        })
    }
}

pub(super) fn is_false(flag: &bool) -> bool {
    !flag
}

pub(super) fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_zero_u64(number: &u64) -> bool {
    *number == 0
}
