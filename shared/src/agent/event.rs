//! What happened to an agent.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::call::CallRecord;
use super::definition::{Defined, Terms};
use super::returned::Returned;
use super::state::{Class, Exit, Instance, Item, is_zero};
use super::waits::{Outcome, Party, WaitRecord};
use crate::fence::Token;
use crate::id::{InstanceId, Name};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Defined(Defined),
    Undefined,
    Enabled {
        enabled: bool,
    },
    Paused {
        paused: bool,
    },
    SwarmPaused {
        paused: bool,
        word: u64,
    },
    /// The most slots at a time by its operators' word; without a number the definition's hold.
    Scaled {
        scale: Option<NonZeroU32>,
    },
    Attached {
        instance: Instance,
        agent_id: Uuid,
    },
    /// The hand-made instance gave no sign of itself for long. It is attached again if it comes back.
    Forgotten {
        instance: InstanceId,
    },
    /// A run was asked for.
    Queued {
        instance: Instance,
        item: Item,
    },
    /// The instance bids for a slot; one whose wait is over is resuming from now on.
    Bid {
        instance: InstanceId,
        bid: Uuid,
        group: Name,
    },
    /// It got its first slot, and the runner is told to start it.
    Granted {
        instance: InstanceId,
        runner: String,
        token: Token,
        timeout_ms: u64,
        #[serde(default)]
        terms: Option<Terms>,
        at: Timestamp,
    },
    /// It goes back to the queue: its runner was lost before it started, or its bid is void.
    Requeued {
        instance: InstanceId,
        token: Option<Token>,
    },
    Started {
        instance: InstanceId,
        pid: Option<u32>,
        at: Timestamp,
    },
    DeadLettered(DeadLetter),
    /// What the dead letter holds was queued again, as this instance.
    Replayed {
        letter: Uuid,
        instance: InstanceId,
        at: Timestamp,
    },
    /// It has asked to be run again.
    RerunWanted {
        instance: InstanceId,
    },
    /// `depth` counts the callers above the run.
    Called {
        call: CallRecord,
        depth: usize,
        at: Timestamp,
    },
    /// The instance serves the call.
    CallRuns {
        call: Uuid,
        instance: InstanceId,
    },
    CallEnded {
        call: Uuid,
        value: Option<Returned>,
        error: Option<String>,
        at: Timestamp,
    },
    CallForgotten {
        call: Uuid,
    },
    /// The instance's call was not taken; `depth` counts as it does of one that was.
    CallRefused {
        call: Uuid,
        caller: InstanceId,
        target: Name,
        depth: usize,
        reason: String,
        at: Timestamp,
    },
    /// The instance calls the agent; of one that is hand-made that is a sign of life.
    CalleeNoted {
        instance: InstanceId,
        target: Name,
        #[serde(default)]
        at: Timestamp,
    },
    StatusSet {
        instance: InstanceId,
        text: String,
    },
    ValueReturned {
        instance: InstanceId,
        value: Returned,
    },
    WaitBegun(WaitRecord),
    WaitAcknowledged {
        wait: Uuid,
        by: Party,
    },
    /// The instance gets an event that came before it waited.
    Recalled {
        instance: InstanceId,
        receipt: Uuid,
    },
    /// The runner is told anew what the instance is to be: it has obeyed what a failover of the store has dropped.
    Overruled {
        instance: InstanceId,
        token: Token,
    },
    /// The runner is told to freeze the instance.
    Freezing {
        instance: InstanceId,
        token: Token,
    },
    Frozen {
        instance: InstanceId,
    },
    /// The runner is told to end the processes of a frozen instance and to keep its files.
    Spilling {
        instance: InstanceId,
        token: Token,
    },
    Spilled {
        instance: InstanceId,
    },
    /// The runner could not start the instance again later, so it stays frozen as it is.
    SpillRefused {
        instance: InstanceId,
    },
    /// The runner has started it again after a spill.
    Restored {
        instance: InstanceId,
        pid: Option<u32>,
    },
    WaitEnded {
        wait: Uuid,
        outcome: Outcome,
    },
    /// The instance waits for something else instead, and runs on until that wait begins.
    WaitDropped {
        wait: Uuid,
        token: Option<Token>,
        at: Timestamp,
    },
    /// It takes its bid to run on back and stays frozen, since its agent is paused.
    Held {
        instance: InstanceId,
    },
    /// The instance runs on after a wait. A token says that the runner is told to thaw it.
    Resumed {
        instance: InstanceId,
        token: Option<Token>,
        at: Timestamp,
    },
    /// The outcome goes to its client: with the answer to a question, or as the input of a run that is started again.
    WaitDelivered {
        wait: Uuid,
        #[serde(default)]
        asked: Option<Uuid>,
    },
    /// What was delivered has reached nobody.
    WaitUnread {
        wait: Uuid,
    },
    /// The runner is told to end the instance.
    Stopping {
        instance: InstanceId,
        token: Token,
        exit: Exit,
        #[serde(default)]
        at: Timestamp,
    },
    Ended {
        instance: InstanceId,
        exit: Exit,
        at: Timestamp,
    },
}

impl Event {
    /// The instance, call or wait that it is about.
    pub(super) fn subject(&self) -> Option<String> {
        match self {
            Event::Defined(_)
            | Event::Undefined
            | Event::Enabled { .. }
            | Event::Paused { .. }
            | Event::SwarmPaused { .. }
            | Event::Scaled { .. } => None,
            Event::Attached { instance, .. } | Event::Queued { instance, .. } => {
                Some(instance.id.to_string())
            }
            Event::DeadLettered(letter) => Some(letter.id.to_string()),
            Event::Replayed { letter, .. } => Some(letter.to_string()),
            Event::Called { call, .. } => Some(call.id.to_string()),
            Event::CallRuns { call, .. }
            | Event::CallEnded { call, .. }
            | Event::CallForgotten { call }
            | Event::CallRefused { call, .. } => Some(call.to_string()),
            Event::WaitBegun(wait) => Some(wait.id.to_string()),
            Event::WaitAcknowledged { wait, .. }
            | Event::WaitEnded { wait, .. }
            | Event::WaitDropped { wait, .. }
            | Event::WaitDelivered { wait, .. }
            | Event::WaitUnread { wait } => Some(wait.to_string()),
            Event::Bid { instance, .. }
            | Event::Granted { instance, .. }
            | Event::Requeued { instance, .. }
            | Event::Started { instance, .. }
            | Event::CalleeNoted { instance, .. }
            | Event::StatusSet { instance, .. }
            | Event::ValueReturned { instance, .. }
            | Event::Overruled { instance, .. }
            | Event::Freezing { instance, .. }
            | Event::Frozen { instance }
            | Event::Spilling { instance, .. }
            | Event::Spilled { instance }
            | Event::SpillRefused { instance }
            | Event::Restored { instance, .. }
            | Event::Held { instance }
            | Event::Forgotten { instance }
            | Event::Recalled { instance, .. }
            | Event::RerunWanted { instance }
            | Event::Resumed { instance, .. }
            | Event::Stopping { instance, .. }
            | Event::Ended { instance, .. } => Some(instance.to_string()),
        }
    }
}

/// An event that started nothing, kept with the reason so that it can be replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    pub id: Uuid,
    pub class: Class,
    pub source: String,
    pub receipt: Option<Uuid>,
    pub input: Value,
    /// How many runs of the same origin came before it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rerun: u32,
    pub reason: String,
    pub at: Timestamp,
}
