//! What happened to the triggers of a swarm.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::command::{Incoming, Rejected};
use super::filter::Filter;
use crate::id::{InstanceId, Name};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// An event from outside was taken in and handed on.
    Received {
        incoming: Incoming,
        at: Timestamp,
        /// The receipt that this one repeats on request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replay_of: Option<Uuid>,
        outcome: Outcome,
    },
    /// A genuine request could not be read.
    Rejected {
        rejected: Rejected,
        at: Timestamp,
    },
    /// An agent did not take the run that an event asked for.
    Refused {
        receipt: Uuid,
        agent: Name,
        reason: String,
    },
    /// An agent takes a run that it had refused.
    TakenUp {
        receipt: Uuid,
        agent: Name,
    },
    /// An agent gave an event back, and it went on to others of the same name.
    HandedOn {
        receipt: Uuid,
        agent: Name,
        wait: Uuid,
        outcome: Outcome,
    },
    WaitRegistered {
        wait: Uuid,
        agent: Name,
        instance: InstanceId,
        filter: Filter,
        registered_at: Timestamp,
        deadline: Timestamp,
        broadcast: bool,
    },
    WaitEnded {
        wait: Uuid,
        reason: WaitEnd,
    },
    Subscribed {
        agent: Name,
        filters: Vec<Filter>,
    },
    /// All agents of the swarm are paused, or not any more.
    Paused {
        paused: bool,
        word: u64,
    },
    /// Receipts that nobody needs any more.
    Trimmed {
        receipts: Vec<Uuid>,
    },
}

/// What an event led to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub resumed: Vec<Resumption>,
    /// Agents whose subscription starts a run.
    pub started: Vec<Name>,
    /// The swarm hears what was said or written: none of its agents had asked for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub heard: bool,
    /// It was said by somebody who says too much at a time, so the swarm does not hear it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub limited: bool,
}

impl Outcome {
    /// How many have the event from it.
    pub fn matched(&self) -> usize {
        self.resumed.len() + self.started.len() + usize::from(self.heard)
    }
}

/// A waiting instance that gets an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumption {
    pub agent: Name,
    pub instance: InstanceId,
    pub wait: Uuid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitEnd {
    /// The agent ended it.
    Cancelled,
    /// The instance began another wait.
    Superseded,
    /// Its deadline is long past and the agent has not been heard of.
    Overdue,
}
