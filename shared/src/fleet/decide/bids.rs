//! Who gets a slot, and where.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::draft::Draft;
use crate::agent;
use crate::fleet::Reply;
use crate::fleet::event::Event;
use crate::fleet::state::{Bid, Fleet};
use crate::id::{InstanceId, Name};

impl Draft<'_> {
    pub(super) fn place(&mut self, bid: Bid) -> Reply {
        let known = self.fleet.places.get(&bid.instance);
        let granted = known.is_some_and(|place| place.bid == bid.id);
        if granted || self.fleet.bids.contains_key(&bid.id) {
            return Reply::Done;
        }
        let there = known.map(|place| &place.runner) == bid.affinity.as_ref();
        if bid.affinity.is_some() && !there {
            self.refuse(&bid);
            return Reply::Done;
        }
        let earlier = self.fleet.bids.values().find(|other| other.instance == bid.instance);
        if let Some(earlier) = earlier.map(|earlier| earlier.id) {
            self.push(Event::BidWithdrawn { bid: earlier });
        }
        self.push(Event::BidPlaced(bid));
        Reply::Done
    }

    pub(super) fn withdraw(&mut self, bid: Uuid, instance: &InstanceId) -> Reply {
        if self.fleet.bids.contains_key(&bid) {
            self.push(Event::BidWithdrawn { bid });
            return Reply::Done;
        }
        // The grant crossed the withdrawal: take it back.
        let granted = self.fleet.places.get(instance).filter(|place| place.bid == bid && place.slot);
        if let Some(resumed) = granted.map(|place| place.resumed) {
            self.vacate(instance, resumed);
        }
        Reply::Done
    }

    pub(super) fn slot_freed(&mut self, instance: &InstanceId, held: bool) -> Reply {
        match self.fleet.places.get(instance) {
            None => {}
            Some(place) if held && !place.slot => {}
            Some(_) => self.vacate(instance, held),
        }
        Reply::Done
    }

    /// Grants every bid that fits, the most urgent first. One that does not fit holds up no other.
    pub(super) fn grant(&mut self) {
        let mut room = Room::of(&self.fleet);
        let ordered: Vec<Bid> =
            self.fleet.ordered_bids(self.now()).into_iter().map(|(_, bid)| bid.clone()).collect();
        for bid in ordered {
            let Some(runner) = room.take(&self.fleet, &bid) else { continue };
            self.push(Event::Granted { bid: bid.id, runner: runner.clone() });
            let command = agent::Command::Granted { bid: bid.id, runner };
            self.tell(&bid.swarm, &bid.agent, &command);
        }
    }

    /// The runner that the instance is frozen on is not here any more.
    pub(super) fn refuse(&mut self, bid: &Bid) {
        let runner = bid.affinity.as_deref().unwrap_or_default();
        let reason = format!("runner lost: {runner}");
        self.tell(&bid.swarm, &bid.agent, &agent::Command::GrantLost { bid: bid.id, reason });
    }

    fn vacate(&mut self, instance: &InstanceId, held: bool) {
        let instance = instance.clone();
        self.push(if held { Event::Held { instance } } else { Event::Left { instance } });
    }
}

/// What is free while bids are gone through.
struct Room {
    free: BTreeMap<String, u32>,
    used: BTreeMap<(Name, Name), u32>,
}

impl Room {
    fn of(fleet: &Fleet) -> Self {
        let mut free: BTreeMap<String, u32> =
            fleet.runners.values().map(|runner| (runner.name.clone(), runner.slots)).collect();
        let mut used: BTreeMap<(Name, Name), u32> = BTreeMap::new();
        for place in fleet.places.values().filter(|place| place.slot) {
            if let Some(free) = free.get_mut(&place.runner) {
                *free = free.saturating_sub(1);
            }
            *used.entry((place.swarm.clone(), place.agent.clone())).or_default() += 1;
        }
        Self { free, used }
    }

    /// Takes a slot for the bid, if its agent's scale and a runner allow.
    fn take(&mut self, fleet: &Fleet, bid: &Bid) -> Option<String> {
        let placed = fleet.places.get(&bid.instance);
        let used = self.used.entry((bid.swarm.clone(), bid.agent.clone())).or_default();
        if placed.is_some_and(|place| place.slot) || *used >= bid.scale {
            return None;
        }
        let free = &self.free;
        let has_room = |name: &String| free.get(name).is_some_and(|free| *free > 0);
        let runner = match &bid.affinity {
            Some(runner) => Some(runner.clone()).filter(has_room)?,
            None => {
                let suiting = fleet.runners.values().filter(|r| r.suits(bid) && has_room(&r.name));
                // The emptiest runner; of equals the first by name, so that a replay chooses the same.
                suiting.map(|r| (std::cmp::Reverse(free.get(&r.name)), &r.name)).min()?.1.clone()
            }
        };
        *used += 1;
        if let Some(free) = self.free.get_mut(&runner) {
            *free -= 1;
        }
        Some(runner)
    }
}
