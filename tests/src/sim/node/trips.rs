//! The shell of `entity/routing.rs` and of `cluster/door.rs`: how requests find the owner of an entity, and answers the
//! way back.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use skein_coordinator::cluster::Route;
use skein_coordinator::entity::Request;
use skein_coordinator::entity::desk::delivery_id;
use skein_coordinator::entity::errand::{Errand, Next};
use skein_coordinator::outbox::lanes::Name;
use skein_coordinator::store::redis::shard::Shard;
use skein_coordinator::store::{Fence, Mark, OutboxEntry, Version};
use skein_shared::id::EntityKey;
use skein_shared::json::Json;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::desks::moving;
use super::{Call, In, Node, Out, Reply, Wish};
use crate::sim::config::Broken;
use crate::sim::hosted::{Asked, Back, Told, Way};

/// A client's request on its way to the owner.
pub(super) struct Trip {
    errand: Errand,
    wish: Wish,
    /// It rests until then, or until owners change.
    resting: Option<u64>,
    tries: u32,
}

/// A question to another node.
pub(super) struct Rpc {
    to: String,
    key: EntityKey,
    what: Asking,
}

enum Asking {
    Trip(u64),
    Deliveries(u64, usize),
}

/// Deliveries that are answered together.
pub(super) struct Gather {
    outcomes: Vec<Option<Result<(), Refusal>>>,
    to: Gathering,
}

enum Gathering {
    Lane { turn: u64, lane: Name, entries: Vec<Arc<OutboxEntry>> },
    Peer(Back),
}

/// A request whose answer is kept, or one that needs none.
fn request(id: Uuid, keep: bool, timeout: Duration) -> Request {
    Request { id, timeout, keep_reply: keep, changes: keep }
}

impl Node {
    fn route(&self, key: &EntityKey) -> Route {
        self.known.route(Shard::of(key), &self.me.id, self.fence(key) != Fence::NONE)
    }

    pub(super) fn request(&mut self, wish: Wish) {
        let trip = self.number();
        let errand = Errand::new(self.now + wish.timeout);
        self.trips.insert(trip, Trip { errand, wish, resting: None, tries: 0 });
        self.go(trip);
    }

    /// Asks the owner, whoever that is.
    fn go(&mut self, id: u64) {
        let new = self.uuid();
        let (broken, now) = (self.broken, self.now);
        let Some(trip) = self.trips.get_mut(&id) else { return };
        trip.tries += 1;
        if broken == Some(Broken::RepeatsAreNewRequests) && trip.tries > 1 {
            trip.wish.id = new;
        }
        let Wish { key, id: request_id, changes, repeated, command, timeout, .. } = trip.wish.clone();
        let wanted = Request { id: request_id, timeout, keep_reply: changes && repeated, changes };
        let may_be_done = trip.errand.may_be_done() && broken != Some(Broken::SentOnIsForgotten);
        let request = wanted.again(trip.errand.left(now), may_be_done);
        match self.route(&key) {
            Route::Here => {
                self.post(&key, vec![Asked { request, mark: None, command, way: Way::Trip(id) }]);
            }
            Route::There(member) => {
                let call = Call::Ask { id: request_id, keep: changes, command };
                self.call(member.id.clone(), key, call, Asking::Trip(id));
            }
            Route::Nowhere => self.trip_heard(id, Err(moving()), Version(0)),
        }
    }

    fn call(&mut self, to: String, key: EntityKey, call: Call, what: Asking) {
        let rpc = self.number();
        self.rpcs.insert(rpc, Rpc { to: to.clone(), key: key.clone(), what });
        self.outs.push(Out::Peer { to, rpc, key, call });
    }

    fn trip_heard(&mut self, id: u64, outcome: Result<Value, Refusal>, version: Version) {
        let now = self.now;
        let Some(trip) = self.trips.get_mut(&id) else { return };
        match trip.errand.heard(outcome, now) {
            Next::Done(outcome) => {
                let Wish { client, number, id: request, .. } = trip.wish;
                self.trips.remove(&id);
                self.outs.push(Out::Client { client, number, id: request, outcome, version });
            }
            Next::Again(pause) => {
                let turn = self.number();
                let pause = pause / 2 + pause * self.rng.u32(0..256) / 512;
                if let Some(trip) = self.trips.get_mut(&id) {
                    trip.resting = Some(turn);
                }
                self.after(pause, In::Again { trip: id, turn });
            }
        }
    }

    pub(super) fn again(&mut self, id: u64, turn: u64) {
        let Some(trip) = self.trips.get_mut(&id).filter(|trip| trip.resting == Some(turn)) else { return };
        trip.errand.slower();
        trip.resting = None;
        self.go(id);
    }

    /// Those who wait look again, and what was asked of somebody who is no longer the owner is given up.
    pub(super) fn owners_changed(&mut self) {
        let elsewhere =
            |rpc: &&Rpc| !matches!(self.route(&rpc.key), Route::There(member) if member.id == rpc.to);
        let given_up: Vec<u64> =
            self.rpcs.iter().filter(|(_, rpc)| elsewhere(rpc)).map(|(id, _)| *id).collect();
        for rpc in given_up {
            self.peer_answered(rpc, None);
        }
        let resting: Vec<u64> =
            self.trips.iter().filter(|(_, trip)| trip.resting.is_some()).map(|(id, _)| *id).collect();
        for id in resting {
            if let Some(trip) = self.trips.get_mut(&id) {
                trip.resting = None;
            }
            self.go(id);
        }
    }

    /// Something that another node has sent on. It goes no further.
    pub(super) fn peer(&mut self, back: Back, key: &EntityKey, call: Call) {
        if let Call::Deliver { run, .. } = call
            && run != self.run
            && self.broken != Some(Broken::FormerLivesAreDelivered)
        {
            let reply = Reply::NotOwner { owner: String::new(), epoch: 0 };
            return self.outs.push(Out::Reply { to: back, reply });
        }
        if self.route(key) != Route::Here {
            return self.not_owner(back, key);
        }
        match call {
            Call::Ask { id, keep, command } => {
                let request = request(id, keep, Request::TIMEOUT);
                self.post(key, vec![Asked { request, mark: None, command, way: Way::Peer(back) }]);
            }
            Call::Deliver { commands, .. } => self.deliver_here(key, commands, Gathering::Peer(back)),
        }
    }

    fn not_owner(&mut self, to: Back, key: &EntityKey) {
        let lease = self.known.lease(Shard::of(key));
        let known = lease.held && lease.owner != self.me.id;
        let owner = if known { lease.owner } else { String::new() };
        self.outs.push(Out::Reply { to, reply: Reply::NotOwner { owner, epoch: lease.epoch.0 } });
    }

    /// What another node said, or that it said nothing.
    pub(super) fn peer_answered(&mut self, rpc: u64, answer: Option<Reply>) {
        let Some(Rpc { key, what, .. }) = self.rpcs.remove(&rpc) else { return };
        if let Some(Reply::NotOwner { owner, epoch }) = &answer {
            self.news |= self.known.hint(Shard::of(&key), owner, *epoch);
            self.nudge();
        }
        match (what, answer) {
            (Asking::Trip(trip), Some(Reply::Asked(outcome, version))) => {
                self.trip_heard(trip, outcome, version);
            }
            (Asking::Trip(trip), answer) => {
                if answer.is_none()
                    && let Some(trip) = self.trips.get_mut(&trip)
                {
                    trip.errand.unanswered(Refusal::new(Code::Unknown, "another node did not answer"));
                }
                self.trip_heard(trip, Err(moving()), Version(0));
            }
            (Asking::Deliveries(gather, count), answer) => {
                let outcomes = match answer {
                    Some(Reply::Delivered(outcomes)) if outcomes.len() == count => outcomes,
                    _ => vec![Err(moving()); count],
                };
                for (place, outcome) in outcomes.into_iter().enumerate() {
                    self.gathered(gather, place, outcome);
                }
            }
        }
    }

    /// Hands over what one lane holds for an entity.
    pub(super) fn deliver(
        &mut self,
        key: &EntityKey,
        commands: Vec<(Mark, Json)>,
        (turn, lane, entries): (u64, Name, Vec<Arc<OutboxEntry>>),
    ) {
        let to = Gathering::Lane { turn, lane, entries };
        let count = commands.len();
        match self.route(key) {
            Route::Here => self.deliver_here(key, commands, to),
            Route::There(member) => {
                let gather = self.gather(count, to);
                self.call(
                    member.id.clone(),
                    key.clone(),
                    Call::Deliver { run: self.run, commands },
                    Asking::Deliveries(gather, count),
                );
            }
            Route::Nowhere => {
                let gather = self.gather(count, to);
                for place in 0..count {
                    self.gathered(gather, place, Err(moving()));
                }
            }
        }
    }

    fn gather(&mut self, count: usize, to: Gathering) -> u64 {
        let id = self.number();
        self.gathers.insert(id, Gather { outcomes: vec![None; count], to });
        id
    }

    fn deliver_here(&mut self, key: &EntityKey, commands: Vec<(Mark, Json)>, to: Gathering) {
        let gather = self.gather(commands.len(), to);
        let run = self.run;
        let asked = commands.into_iter().enumerate().map(|(place, (mark, command))| {
            let request = request(delivery_id(&mark), false, Request::TIMEOUT);
            let way = Way::Delivery { run, gather, place, mark: mark.clone() };
            Asked { request, mark: Some(mark), command, way }
        });
        let asked = asked.collect();
        self.post(key, asked);
    }

    fn gathered(&mut self, id: u64, place: usize, outcome: Result<(), Refusal>) {
        let Some(gather) = self.gathers.get_mut(&id) else { return };
        if let Some(slot) = gather.outcomes.get_mut(place) {
            *slot = Some(outcome);
        }
        if gather.outcomes.iter().any(Option::is_none) {
            return;
        }
        let Some(Gather { outcomes, to }) = self.gathers.remove(&id) else { return };
        let outcomes: Vec<_> = outcomes.into_iter().flatten().collect();
        match to {
            Gathering::Lane { turn, lane, entries } => self.tried(turn, lane, &entries, outcomes),
            Gathering::Peer(to) => self.outs.push(Out::Reply { to, reply: Reply::Delivered(outcomes) }),
        }
    }

    /// Gives an answer to whoever asked.
    pub(super) fn tell(&mut self, told: Told) {
        let Told { way, outcome, version } = told;
        match way {
            Way::Trip(trip) => self.trip_heard(trip, outcome, version),
            Way::Peer(to) => {
                let reply = match outcome {
                    Err(refusal) if refusal.code == Code::NotOwner => {
                        Reply::NotOwner { owner: String::new(), epoch: 0 }
                    }
                    outcome => Reply::Asked(outcome, version),
                };
                self.outs.push(Out::Reply { to, reply });
            }
            Way::Delivery { gather, place, .. } => self.gathered(gather, place, outcome.map(|_| ())),
            Way::Tick => self.ticked(outcome.is_ok()),
        }
    }
}
