//! Follows events: what each changes in memory, and which documents it writes.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use super::event::Event;
use super::state::{Bid, Fleet, Limit, Place, Runner};
use crate::agent::Class;
use crate::entity::Changes;
use crate::id::{InstanceId, Name};
use crate::limits;
use crate::time::{Iso, Timestamp};

impl Fleet {
    pub(super) fn follow(&mut self, event: &Event, changes: &mut Changes) {
        match event {
            Event::Registered(runner) => {
                self.alive_until.insert(runner.name.clone(), runner.registered + limits::RUNNER_LEASE);
                self.put_runner(runner.clone(), changes);
            }
            Event::Draining { runner } => {
                if let Some(mut runner) = self.runners.get(runner).cloned() {
                    runner.draining = true;
                    self.put_runner(runner, changes);
                }
            }
            Event::Awaited { runner, until } => {
                self.alive_until.insert(runner.clone(), *until);
            }
            Event::Lost { runner, at, left } => self.lose(runner, *at, *left, changes),
            Event::BidPlaced(bid) => self.put_bid(bid, changes),
            Event::BidWithdrawn { bid } | Event::Refused { bid } => {
                self.remove_bid(*bid, changes);
            }
            Event::Granted { bid, runner } => self.grant(*bid, runner, changes),
            Event::Held { instance } => {
                if let Some(mut place) = self.places.get(instance).cloned() {
                    place.slot = false;
                    self.put_place(place, changes);
                }
            }
            Event::Scaled { swarm, scale } => self.set_scale(swarm, *scale, changes),
            Event::Left { instance } => self.remove_place(instance, changes),
        }
    }

    fn put_runner(&mut self, runner: Runner, changes: &mut Changes) {
        let body = json!({
            "runner": runner.name, "slots": runner.slots, "labels": runner.labels, "engines": runner.engines,
            "agents": runner.agents, "swarms": runner.swarms,
            "state": if runner.draining { "draining" } else { "ready" },
            "registeredAt": runner.registered.iso(), "lostAt": null,
        });
        changes.put(format!("runner/{}", runner.name), &runner, Some(body.into()));
        self.runners.insert(runner.name.clone(), runner);
    }

    fn lose(&mut self, runner: &str, at: Timestamp, left: bool, changes: &mut Changes) {
        for place in self.places_on(runner) {
            self.remove_place(&place.instance, changes);
        }
        self.alive_until.remove(runner);
        if let Some(lost) = self.runners.remove(runner) {
            let state = if left { "left" } else { "lost" };
            let body = json!({ "state": state, "lostAt": at.iso() });
            changes.archive(format!("runner/{runner}"), &lost, Some(body.into()));
        }
    }

    fn put_bid(&mut self, bid: &Bid, changes: &mut Changes) {
        let Bid { id, swarm, agent, instance, class, needs, affinity, at, .. } = bid;
        let body = BidBody { bid: *id, swarm, agent, instance, class: *class, needs, affinity, at: Iso(*at) };
        changes.put_with(format_args!("bid/{id}"), bid, &body);
        self.bids.insert(bid.id, bid.clone());
    }

    fn remove_bid(&mut self, bid: Uuid, changes: &mut Changes) -> Option<Bid> {
        let removed = self.bids.remove(&bid)?;
        changes.delete(format!("bid/{bid}"));
        Some(removed)
    }

    fn grant(&mut self, bid: Uuid, runner: &str, changes: &mut Changes) {
        let Some(bid) = self.remove_bid(bid, changes) else { return };
        let place = Place {
            resumed: self.places.contains_key(&bid.instance),
            instance: bid.instance,
            swarm: bid.swarm,
            agent: bid.agent,
            runner: runner.to_owned(),
            slot: true,
            bid: bid.id,
        };
        self.put_place(place, changes);
    }

    fn put_place(&mut self, place: Place, changes: &mut Changes) {
        let Place { instance, swarm, agent, runner, slot, .. } = &place;
        let body = PlaceBody { instance, swarm, agent, runner, slot: *slot };
        changes.put_with(format_args!("place/{instance}"), &place, &body);
        self.set_place(place);
    }

    /// Notes a place, in the stead of the one that the instance had.
    pub(super) fn set_place(&mut self, place: Place) {
        self.slots.take(&place);
        if let Some(before) = self.places.get(&place.instance) {
            self.slots.free(before);
        }
        self.places.insert(place.instance.clone(), place);
    }

    fn set_scale(&mut self, swarm: &Name, scale: Option<NonZeroU32>, changes: &mut Changes) {
        let key = format!("scale/{swarm}");
        match scale {
            Some(scale) => {
                changes.put(key, &Limit { scale }, Some(json!({ "swarm": swarm, "scale": scale }).into()));
                self.scales.insert(swarm.clone(), scale);
            }
            None => {
                changes.delete(key);
                self.scales.remove(swarm);
            }
        }
    }

    fn remove_place(&mut self, instance: &InstanceId, changes: &mut Changes) {
        if let Some(place) = self.places.remove(instance) {
            self.slots.free(&place);
            changes.delete(format!("place/{instance}"));
        }
    }
}

/// What clients read of a bid.
#[derive(Serialize)]
struct BidBody<'a> {
    bid: Uuid,
    swarm: &'a Name,
    agent: &'a Name,
    instance: &'a InstanceId,
    class: Class,
    needs: &'a BTreeSet<String>,
    affinity: &'a Option<String>,
    at: Iso,
}

/// What clients read of a slot that was given.
#[derive(Serialize)]
struct PlaceBody<'a> {
    instance: &'a InstanceId,
    swarm: &'a Name,
    agent: &'a Name,
    runner: &'a str,
    slot: bool,
}
