//! What a fleet remembers: runners, who has a place on them, and the bids that wait.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::agent::Class;
use crate::id::{InstanceId, Name};
use crate::time::Timestamp;

/// The runners of one group.
#[derive(Clone, Debug)]
pub struct Fleet {
    pub(super) group: Name,
    pub(super) runners: BTreeMap<String, Runner>,
    pub(super) places: BTreeMap<InstanceId, Place>,
    pub(super) bids: BTreeMap<Uuid, Bid>,
    /// Until when each runner counts as alive: memory, moved on by heartbeats.
    pub(super) alive_until: BTreeMap<String, Timestamp>,
}

/// A machine, or a part of one, that runs instances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Runner {
    pub name: String,
    pub slots: u32,
    pub labels: BTreeSet<String>,
    pub engines: BTreeSet<String>,
    /// Agents that it has definitions of; none means any.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub agents: BTreeSet<Name>,
    /// Swarms that it serves; none means any.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub swarms: BTreeSet<Name>,
    /// Rises with each registration.
    pub session: u64,
    /// Takes no new runs; those it has may go on and resume.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    pub registered: Timestamp,
}

/// An instance on a runner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Place {
    pub instance: InstanceId,
    pub swarm: Name,
    pub agent: Name,
    pub runner: String,
    /// It takes a slot; a frozen instance does not.
    pub slot: bool,
    /// The bid that the slot was given for.
    pub bid: Uuid,
    /// It was frozen there before that bid, and stays if the bid is withdrawn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumed: bool,
}

/// A wish for a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bid {
    pub id: Uuid,
    pub swarm: Name,
    pub agent: Name,
    pub instance: InstanceId,
    pub class: Class,
    /// Most slots of the agent at a time.
    pub scale: u32,
    /// Labels or engines that the runner must have.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub needs: BTreeSet<String>,
    /// The one runner that will do: the instance is frozen there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<String>,
    pub at: Timestamp,
}
