//! What can be asked of a fleet, and what it answers.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::offer::Offer;
use super::state::{Bid, Place, Runner};
use crate::agent::Class;
use crate::fence::Token;
use crate::id::{InstanceId, Name};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// A runner connects, for the first time or again, and says what it holds.
    Register(Registration),
    /// A registered runner has one more stream, and says what it holds.
    Attach {
        runner: String,
        held: Vec<HeldInstance>,
    },
    /// The runner has ended what it ran, and goes.
    Leave {
        runner: String,
    },
    /// An agent wants a slot for an instance. A bid that waits already takes what is said of it now, and has waited
    /// as long.
    Bid {
        bid: Uuid,
        swarm: Name,
        agent: Name,
        instance: InstanceId,
        class: Class,
        /// Most slots of the agent at a time.
        scale: u32,
        #[serde(default)]
        needs: BTreeSet<String>,
        /// The runner on which the instance is frozen.
        #[serde(default)]
        affinity: Option<String>,
        /// The runner that has the agent's files. Another does if it has no room.
        #[serde(default)]
        prefers: Option<String>,
    },
    /// The bid is no longer wanted; a slot already given for it is free again.
    Withdraw {
        bid: Uuid,
        instance: InstanceId,
    },
    /// The instance ended, or is frozen: then it stays `held` by its runner.
    SlotFreed {
        instance: InstanceId,
        #[serde(default)]
        held: bool,
    },
    /// Limits how many slots a swarm has at a time; `None` lifts the limit. What runs beyond it goes on.
    Scale {
        swarm: Name,
        scale: Option<NonZeroU32>,
    },
    /// Gives the runner no new runs until it registers again.
    Drain {
        runner: String,
    },
    /// Whether a runner is registered and was not declared lost since; refused with `not_found` if it was, and with
    /// `already_exists` if another one has its name.
    Knows {
        runner: String,
        /// As it registers; of one that does not say it the name is enough.
        #[serde(default)]
        identity: String,
    },
    /// Whether any runner has a definition of an agent.
    IsOffered {
        /// Any, as a coordinator of an earlier release asks.
        #[serde(default)]
        swarm: Option<Name>,
        agent: Name,
    },
    /// Whether a runner has a definition of an agent; refused with `not_found` if it was declared lost.
    Offers {
        runner: String,
        agent: Offer,
    },
    /// Declares silent runners lost.
    Tick,
    List,
}

/// A runner's own description.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Registration {
    pub runner: String,
    /// Tells two runners of one name apart; of one that does not say it nothing is known.
    #[serde(default)]
    pub identity: String,
    pub slots: u32,
    #[serde(default)]
    pub labels: BTreeSet<String>,
    #[serde(default)]
    pub engines: BTreeSet<String>,
    /// Agents that it has definitions of.
    #[serde(default)]
    pub agents: BTreeSet<Offer>,
    /// Swarms that it serves; none means any.
    #[serde(default)]
    pub swarms: BTreeSet<Name>,
    #[serde(default)]
    pub held: Vec<HeldInstance>,
}

/// An instance in a runner's ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldInstance {
    pub instance: InstanceId,
    pub swarm: Name,
    pub agent: Name,
    /// As the runner names it, for people to read.
    pub state: String,
    pub token: Token,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Done,
    /// `session` rises with each registration of the runner. `stopped` are held instances that nobody knows.
    Registered {
        session: u64,
        stopped: Vec<InstanceId>,
    },
    Offered(bool),
    Overview(Box<Overview>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    pub runners: Vec<RunnerView>,
    pub places: Vec<Place>,
    /// Most slots of a swarm at a time, of those that have a limit.
    #[serde(default)]
    pub scales: BTreeMap<Name, NonZeroU32>,
    /// In the order in which they would be served.
    pub bids: Vec<BidView>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunnerView {
    #[serde(flatten)]
    pub runner: Runner,
    pub busy: u32,
    pub alive_until: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BidView {
    #[serde(flatten)]
    pub bid: Bid,
    /// The class that it has risen to by age.
    pub rank: Class,
}
