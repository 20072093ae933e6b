//! What an agent remembers: the heads of its live instances, queue items, calls and waits.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::fence::Token;
use crate::id::{InstanceId, Name};
use crate::limits;
use crate::time::Timestamp;
use super::Filter;

/// The agent with everything of it that is not over.
#[derive(Clone, Debug, PartialEq)]
pub struct Agent {
    pub(super) swarm: Name,
    pub(super) name: Name,
    pub(super) defined: Option<Defined>,
    pub(super) instances: BTreeMap<InstanceId, Instance>,
    pub(super) queue: BTreeMap<InstanceId, Item>,
    pub(super) calls: BTreeMap<Uuid, CallRecord>,
    pub(super) waits: BTreeMap<Uuid, WaitRecord>,
}

/// The definition with the runner group whose fleet gives the slots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Defined {
    pub definition: Definition,
    pub group: Name,
}

/// What an agent may do. Fields left out have the product's defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Definition {
    pub enabled: bool,
    /// Most slots at a time; 0 takes no work.
    pub scale: u32,
    /// Longest run, without the time spent waiting.
    pub timeout_ms: u64,
    /// Most items that wait behind the ones that bid for a slot.
    pub work_queue: usize,
    pub max_waiting: usize,
    pub max_call_depth: u32,
    /// Of `wait_for_trigger` without a time-out of its own.
    pub wait_timeout_ms: u64,
    /// Between asking a process to end and killing it.
    pub grace_ms: u64,
    /// What a runner must offer: its labels or engines.
    pub needs: BTreeSet<String>,
    /// Stops the runs that an instance called for when the instance ends.
    pub cancel_children: bool,
}

impl Default for Definition {
    fn default() -> Self {
        Self {
            enabled: true,
            scale: 1,
            timeout_ms: 3_600_000,
            work_queue: limits::WORK_QUEUE,
            max_waiting: limits::MAX_WAITING,
            max_call_depth: limits::CALL_DEPTH,
            wait_timeout_ms: 1_800_000,
            grace_ms: 10_000,
            needs: BTreeSet::new(),
            cancel_children: false,
        }
    }
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    pub timeout_ms: u64,
    /// Time spent in waits that are over; the run's limit does not count it.
    #[serde(default, skip_serializing_if = "is_zero_u64")]
    pub waited_ms: u64,
    /// The call that it was started for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Uuid>,
    /// Its callers, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<(Name, InstanceId)>,
    /// The latest wait, until the next one begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<String>,
    /// Agents that it has called.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub callees: BTreeSet<Name>,
    /// How it is going to end once it has stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Exit>,
}

/// How an instance ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub end: End,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    pub reason: String,
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
    /// What the run gets. The head holds it since the start command carries it.
    pub input: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    Pending,
    Running,
    Completed,
    Error,
}

/// A call to this agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    pub id: Uuid,
    pub status: CallStatus,
    pub caller: Name,
    pub caller_instance: InstanceId,
    /// The instance that serves it, or will.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callee: Option<InstanceId>,
    /// When it fails for want of an end, or, after its end, when it is forgotten. Waits of the callee move it.
    pub until: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A wait for a trigger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitRecord {
    pub id: Uuid,
    pub instance: InstanceId,
    pub filter: Filter,
    pub registered: Timestamp,
    pub deadline: Timestamp,
    #[serde(default, skip_serializing_if = "is_false")]
    pub broadcast: bool,
    /// Whose acknowledgement is still out.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unacknowledged: BTreeSet<Party>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub delivered: bool,
}

/// Who must be ready before an instance may be frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Party {
    Locks,
    Leases,
    Triggers,
}

/// What a wait came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Triggered { payload: Value },
    WaitTimeout,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_zero_u64(number: &u64) -> bool {
    *number == 0
}
