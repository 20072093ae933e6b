//! Who gets a slot, and where.

use std::cmp::Reverse;
use std::num::NonZeroU32;

use uuid::Uuid;

use super::draft::Draft;
use crate::agent;
use crate::fleet::Reply;
use crate::fleet::event::Event;
use crate::fleet::state::Bid;
use crate::id::{InstanceId, Name};

impl Draft<'_> {
    pub(super) fn place(&mut self, bid: Bid) -> Reply {
        let known = self.fleet.places.get(&bid.instance);
        if known.is_some_and(|place| place.bid == bid.id) {
            return Reply::Done;
        }
        if let Some(waiting) = self.fleet.bids.get(&bid.id) {
            let renewed = Bid { at: waiting.at, ..bid };
            if *waiting != renewed {
                self.push(Event::BidPlaced(renewed));
            }
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

    pub(super) fn scale(&mut self, swarm: &Name, scale: Option<NonZeroU32>) -> Reply {
        if self.fleet.scales.get(swarm).copied() != scale {
            self.push(Event::Scaled { swarm: swarm.clone(), scale });
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
        let full = self.fleet.runners.keys().all(|runner| self.fleet.free(runner) == 0);
        if full || self.fleet.bids.is_empty() {
            return;
        }
        let ordered: Vec<Uuid> =
            self.fleet.ordered_bids(self.now()).into_iter().map(|(_, bid)| bid.id).collect();
        for id in ordered {
            let Some(bid) = self.fleet.bids.get(&id) else { continue };
            let Some(runner) = self.room_for(bid) else { continue };
            let (swarm, agent) = (bid.swarm.clone(), bid.agent.clone());
            self.push(Event::Granted { bid: id, runner: runner.clone() });
            self.tell(&swarm, &agent, &agent::Command::Granted { bid: id, runner });
        }
    }

    /// The runner that has a slot for the bid, if the scales of its agent and its swarm and a runner allow.
    fn room_for(&self, bid: &Bid) -> Option<String> {
        let fleet = &self.fleet;
        let placed = fleet.places.get(&bid.instance).is_some_and(|place| place.slot);
        let of_agent = fleet.slots.of_agent(&bid.swarm, &bid.agent);
        if placed || of_agent >= bid.scale || fleet.is_at_scale(&bid.swarm) {
            return None;
        }
        if let Some(runner) = &bid.affinity {
            return (fleet.free(runner) > 0).then(|| runner.clone());
        }
        let suiting = fleet.runners.values().filter(|runner| runner.suits(bid));
        let free = suiting.map(|runner| {
            let has_its_files = bid.prefers.as_ref() == Some(&runner.name);
            (!has_its_files, Reverse(fleet.free(&runner.name)), &runner.name)
        });
        // Else the emptiest runner; of equals the first by name, so that a replay chooses the same.
        free.filter(|(_, Reverse(free), _)| *free > 0).min().map(|(.., name)| name.clone())
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
