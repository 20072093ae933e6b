//! What clients ask and hear, and what they do with a lock.

use std::time::Duration;

use serde_json::Value;
use skein_coordinator::store::Version;
use skein_shared::fence::Token;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::{CLIENT_LIMIT, Event, Open, REPEATS, World};
use crate::sim::clients::{Next, Phase, Role};
use crate::sim::history::{Call, Operation, Outcome, Write};
use crate::sim::network::Place;
use crate::sim::node::{In, Wish};

impl World {
    pub(super) fn client_next(&mut self, number: usize) {
        let phase = self.phase;
        let waiting = &mut self.clients[number];
        if waiting.open.is_some() {
            return;
        }
        match waiting.client.next(phase) {
            Next::Rest => {
                waiting.done = phase == Phase::Calm;
                self.guests_go_on(number);
                self.after(300_000, Event::Client { client: number });
            }
            Next::Done => {
                waiting.done = phase == Phase::Calm;
                self.after(1_000_000, Event::Client { client: number });
            }
            Next::Ask { key, command, changes, call } => {
                waiting.done = false;
                let id = Uuid::from_u128(self.ids.u128(..));
                waiting.number += 1;
                let timeout = Duration::from_micros(CLIENT_LIMIT);
                let repeated = !matches!(waiting.client.role, Role::Sender { once: true, .. });
                let wish = Wish {
                    client: number,
                    number: waiting.number,
                    key,
                    id,
                    changes,
                    repeated,
                    command,
                    timeout,
                };
                // One that does not know of the last failover answers as of what that has dropped.
                if self.failovers == 0 || self.are_up_to_date() {
                    self.floors.insert(id, self.witness.floor(&wish.key));
                }
                self.trace.note(self.now, format_args!("client {number} asks {id}: {call:?}"));
                self.history.push(Operation {
                    client: number,
                    call,
                    request: id,
                    invoked: self.now,
                    returned: u64::MAX,
                    outcome: Outcome::Unknown,
                });
                let operation = self.history.len() - 1;
                self.clients[number].open = Some(Open { operation, wish: wish.clone(), repeats: 0 });
                self.send(number, wish);
            }
        }
    }

    pub(super) fn send(&mut self, client: usize, wish: Wish) {
        let node = self.any_node(client);
        let (mut delays, clean) = self.network.carry(Place::Clients, Place::Node(node), self.now);
        if !clean {
            self.muddy.insert(wish.id);
        }
        if !wish.repeated {
            delays.truncate(1);
        }
        let number = wish.number;
        for delay in delays {
            let wish = Box::new(wish.clone());
            self.after(delay, Event::Knock { client, number, node, wish });
        }
        self.after(CLIENT_LIMIT, Event::GiveUp { client, number });
    }

    pub(super) fn any_node(&mut self, client: usize) -> usize {
        let count = self.seats.len();
        let client = &mut self.clients[client].client;
        let node = client.rng.usize(0..count);
        if let Role::Runner(runner) = &mut client.role {
            runner.asked = Some(node);
        }
        node
    }

    pub(super) fn knock(&mut self, client: usize, number: u64, node: usize, wish: Box<Wish>) {
        let life = self.seats[node].life;
        if self.seats[node].node.is_some() {
            return self.after(0, Event::Node { index: node, life, input: In::Request(wish) });
        }
        let refusal = Refusal::new(Code::Unavailable, "nobody listens there");
        self.after(1_000, Event::Told { client, number, outcome: Err(refusal) });
    }

    pub(super) fn answer_client(
        &mut self,
        node: usize,
        client: usize,
        number: u64,
        id: Uuid,
        outcome: Result<Value, Refusal>,
        version: Version,
    ) {
        if let (Some(open), Some(floor)) = (&self.clients[client].open, self.floors.get(&id))
            && open.wish.id == id
            && was_decided(&outcome)
        {
            self.witness.told(&open.wish.key, version, *floor);
        }
        let (delays, _) = self.network.carry(Place::Node(node), Place::Clients, self.now);
        for delay in delays {
            self.after(delay, Event::Told { client, number, outcome: outcome.clone() });
        }
    }

    pub(super) fn client_told(&mut self, client: usize, number: u64, outcome: Result<Value, Refusal>) {
        let waiting = &self.clients[client];
        if waiting.number != number {
            return;
        }
        let Some(open) = &waiting.open else { return };
        let muddy = open.repeats > 0 || self.muddy.contains(&open.wish.id);
        match outcome {
            Ok(answer) => self.close(client, Outcome::Ok(answer)),
            Err(refusal) if is_passing(refusal.code) => {
                if refusal.code == Code::Unknown {
                    self.muddy.insert(open.wish.id);
                }
                self.repeat(client);
            }
            Err(_) if muddy => self.close(client, Outcome::Unknown),
            Err(refusal) => self.close(client, Outcome::Fail(refusal.code)),
        }
    }

    pub(super) fn client_gives_up(&mut self, client: usize, number: u64) {
        let waiting = &self.clients[client];
        if let Some(open) = &waiting.open
            && waiting.number == number
        {
            self.muddy.insert(open.wish.id);
            self.repeat(client);
        }
    }

    /// The same request again, through another node perhaps, unless the client asks once.
    pub(super) fn repeat(&mut self, client: usize) {
        let calm = self.phase == Phase::Calm;
        let waiting = &mut self.clients[client];
        let Some(open) = &mut waiting.open else { return };
        if !open.wish.repeated {
            return self.close(client, Outcome::Unknown);
        }
        open.repeats += 1;
        // In a storm some give up, and never know.
        // Of a change of mind nobody gives up: a late one would come after the next.
        let call = &self.history[open.operation].call;
        let insists = matches!(waiting.client.role, Role::Sender { .. } | Role::Ringer(_))
            || matches!(call, Call::Pause { .. } | Call::Redefine { .. });
        if !calm && !insists && open.repeats > REPEATS {
            return self.close(client, Outcome::Unknown);
        }
        waiting.number += 1;
        open.wish.number = waiting.number;
        let wish = open.wish.clone();
        let number = wish.number;
        let delay = self.clients[client].client.rng.u64(10_000..500_000);
        let node = self.any_node(client);
        self.after(delay, Event::Knock { client, number, node, wish: Box::new(wish) });
        self.after(CLIENT_LIMIT, Event::GiveUp { client, number });
    }

    pub(super) fn close(&mut self, client: usize, outcome: Outcome) {
        let Some(open) = self.clients[client].open.take() else { return };
        let operation = &mut self.history[open.operation];
        operation.outcome = outcome.clone();
        if outcome != Outcome::Unknown {
            operation.returned = self.now;
        }
        let call = operation.call.clone();
        let told = match &outcome {
            Outcome::Ok(_) => "done",
            Outcome::Fail(code) => code.as_str(),
            Outcome::Unknown => "unknown",
        };
        self.trace.note(self.now, format_args!("client {client} hears of {}: {told}", open.wish.id));
        self.trace.detail(format_args!("{outcome:?}"));
        self.clients[client].client.heard(&call, &outcome);
        self.guests_go_on(client);
        if let (Call::Acquire { key, .. }, Outcome::Ok(answer)) = (&call, &outcome)
            && let Some(token) = answer["acquired"]["token"].as_str()
        {
            self.guarded_writes(client, key, token);
        }
        // In the calm nobody has to leave room for faults.
        let most = if self.phase == Phase::Calm { 100 } else { u64::MAX };
        let think = self.config.think.min(most) * 1_000;
        let delay = self.clients[client].client.rng.u64(0..think * 2 + 1);
        self.after(delay, Event::Client { client });
    }

    /// Whoever has a lock writes what it guards, sooner or later.
    pub(super) fn guarded_writes(&mut self, client: usize, key: &str, token: &str) {
        for _ in 0..2 {
            let delay = self.clients[client].client.rng.u64(0..3_000_000);
            let write = Write { key: key.to_owned(), client, token: token.to_owned() };
            self.after(delay, Event::Write(write));
        }
    }

    /// The resource refuses tokens that are lower than the highest that it has seen.
    pub(super) fn resource_write(&mut self, write: Write) {
        let Ok(token) = write.token.parse::<Token>() else { return };
        let highest = self.resource.entry(write.key.clone()).or_insert(token);
        if token >= *highest {
            *highest = token;
            self.writes.push(write);
        }
    }
}

/// Whether an entity has decided this, be it a refusal.
fn was_decided(outcome: &Result<Value, Refusal>) -> bool {
    !matches!(outcome, Err(refusal) if is_passing(refusal.code))
}

fn is_passing(code: Code) -> bool {
    matches!(code, Code::NotOwner | Code::Unavailable | Code::Overloaded | Code::Unknown | Code::Internal)
}
