//! What a fleet remembers: runners, who has a place on them, and the bids that wait.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::offer::Offer;
use super::slots::Slots;
use crate::agent::Class;
use crate::cow_map::CowMap;
use crate::id::{InstanceId, Name};
use crate::time::Timestamp;

/// A bid rises one class for each of these that it has waited, so that none starves.
pub const AGEING: Duration = Duration::from_secs(60);

/// The runners of one group.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    pub(crate) runners: BTreeMap<String, Runner>,
    pub(crate) places: CowMap<InstanceId, Place>,
    /// What the places take.
    pub(super) slots: Slots,
    pub(crate) bids: CowMap<Uuid, Bid>,
    /// Most slots of a swarm at a time, of those that have a limit.
    pub(crate) scales: BTreeMap<Name, NonZeroU32>,
    /// Until when each runner counts as alive: memory, moved on by heartbeats.
    pub(crate) alive_until: BTreeMap<String, Timestamp>,
}

/// A machine, or a part of one, that runs instances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Runner {
    pub name: String,
    /// Tells it from another one of its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub identity: String,
    pub slots: u32,
    pub labels: BTreeSet<String>,
    pub engines: BTreeSet<String>,
    /// Agents that it has definitions of.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub agents: BTreeSet<Offer>,
    /// Swarms that it serves; none means any.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub swarms: BTreeSet<Name>,
    /// Rises with each registration.
    pub session: u64,
    /// Takes no new runs; those it has may go on and resume.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    pub registered: Timestamp,
    /// Slots in use beyond `slots` when it registered with fewer than before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overhang: u32,
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

/// The limit of a swarm, as it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Limit {
    pub(super) scale: NonZeroU32,
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
    /// The runner that has the agent's files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefers: Option<String>,
    pub at: Timestamp,
}

/// Two fleets are equal when their documents are; who was heard of lately is memory.
impl PartialEq for Fleet {
    fn eq(&self, other: &Self) -> bool {
        self.runners == other.runners
            && self.places == other.places
            && self.bids == other.bids
            && self.scales == other.scales
    }
}

impl Runner {
    pub fn offers(&self, swarm: Option<&Name>, agent: &Name) -> bool {
        self.agents.iter().any(|offer| offer.is_of(swarm, agent))
    }

    /// Whether a new run may go there, slots aside.
    pub fn suits(&self, bid: &Bid) -> bool {
        !self.draining
            && (self.swarms.is_empty() || self.swarms.contains(&bid.swarm))
            && self.offers(Some(&bid.swarm), &bid.agent)
            && bid.needs.iter().all(|need| self.labels.contains(need) || self.engines.contains(need))
    }
}

impl Fleet {
    pub(crate) fn busy(&self, runner: &str) -> u32 {
        self.slots.on(runner)
    }

    /// Slots that a runner has left; none if it is not here.
    pub(crate) fn free(&self, runner: &str) -> u32 {
        self.runners.get(runner).map_or(0, |known| known.slots.saturating_sub(self.busy(runner)))
    }

    /// Whether the swarm has as many slots as it may have.
    pub(crate) fn is_at_scale(&self, swarm: &Name) -> bool {
        self.scales.get(swarm).is_some_and(|scale| self.slots.of_swarm(swarm) >= scale.get())
    }

    pub(crate) fn places_on(&self, runner: &str) -> Vec<Place> {
        self.places.values().filter(|place| place.runner == runner).cloned().collect()
    }

    /// The bids in the order in which they are served: by the class that they have risen to, then by age.
    pub(crate) fn ordered_bids(&self, now: Timestamp) -> Vec<(Class, &Bid)> {
        let mut bids: Vec<_> =
            self.bids.values().map(|bid| (bid.class.aged(now.since(bid.at), AGEING), bid)).collect();
        bids.sort_by_key(|(rank, bid)| (*rank, bid.at, bid.id));
        bids
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}
