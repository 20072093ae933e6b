//! The nodes' places: starts, ends, clocks, and what nodes do.

use std::time::Duration;

use skein_shared::id::EntityKey;
use tokio::time::Instant;

use super::{BEGIN, Event, PEER_LIMIT, RESTART, World};
use crate::sim::clients::Role;
use crate::sim::config::{Config, stream};
use crate::sim::hosted::Back;
use crate::sim::network::Place;
use crate::sim::node::{Call, In, Node, Out, Reply};

impl World {
    pub(super) fn start_node(&mut self, index: usize) {
        let Config { faults, .. } = self.config;
        let clock = self.dice("clock");
        let offset = clock.i64(-faults.offset..=faults.offset);
        let rate = clock.i64(-faults.rate..=faults.rate);
        let rng = stream(self.ids.u64(..), "node");
        let run = self.store.run;
        let seat = &mut self.seats[index];
        if seat.node.is_some() {
            return;
        }
        seat.life += 1;
        (seat.began, seat.offset, seat.rate) = (self.now, offset, rate);
        let wall = (BEGIN + self.now / 1_000 + self.slept).saturating_add_signed(offset);
        let (local, slept) = (self.local(index), self.slept);
        self.trace
            .note(self.now, format_args!("node {index} starts, {offset} ms off, {rate} in a thousand wrong"));
        let mut node = Node::new(&self.config, index, rng, (local, wall, slept), run);
        let outs = node.start();
        self.seats[index].node = Some(node);
        self.carry_out(index, outs);
    }

    /// The node's own monotonic clock.
    pub(super) fn local(&self, index: usize) -> Instant {
        let seat = &self.seats[index];
        let span = self.now - seat.began;
        let rate = 1_000_u64.saturating_add_signed(seat.rate);
        self.start + Duration::from_micros(seat.began) + Duration::from_micros(span * rate / 1_000)
    }

    pub(super) fn stop_node(&mut self, index: usize) {
        let seat = &mut self.seats[index];
        seat.node = None;
        seat.life += 1;
        seat.paused_until = 0;
        self.end_streams(index);
    }

    /// Runners whose stream ended here connect anew, and say what they hold.
    pub(super) fn end_streams(&mut self, index: usize) {
        for waiting in &mut self.clients {
            if let Role::Runner(runner) = &mut waiting.client.role {
                runner.connected = runner.connected.filter(|node| *node != index);
                runner.asked = runner.asked.filter(|node| *node != index);
            }
        }
    }

    pub(super) fn node_in(&mut self, index: usize, life: u64, input: In) {
        let seat = &self.seats[index];
        if seat.life != life {
            return;
        }
        if seat.paused_until > self.now {
            return self.at(seat.paused_until, Event::Node { index, life, input });
        }
        let local = self.local(index);
        let (connected, slept) = (self.connected(), self.slept);
        let Some(node) = self.seats[index].node.as_mut() else { return };
        node.connected = connected;
        node.clock.slept = slept;
        let outs = node.on(input, local);
        self.carry_out(index, outs);
    }

    pub(super) fn carry_out(&mut self, index: usize, outs: Vec<Out>) {
        let life = self.seats[index].life;
        for out in outs {
            match out {
                Out::Store { id, ask } => self.ask_store((index, life, id), ask),
                Out::Peer { to, rpc, key, call } => {
                    let to = self
                        .seats
                        .iter()
                        .position(|seat| seat.node.as_ref().is_some_and(|node| node.me.id == to));
                    self.ask_peer(Back { node: index, life, rpc }, to, (key, call));
                }
                Out::Reply { to, reply } => self.reply(index, to, &reply),
                Out::Client { client, number, id, outcome, version } => {
                    self.answer_client(index, client, number, id, outcome, version);
                }
                Out::Runner { runner, source, command } => {
                    self.command_runner(index, &runner, (source, command));
                }
                Out::After { delay, input } => {
                    let rate = 1_000_u64.saturating_add_signed(self.seats[index].rate);
                    let delay =
                        u64::try_from(delay.as_micros()).unwrap_or(u64::MAX).saturating_mul(1_000) / rate;
                    self.after(delay, Event::Node { index, life, input });
                }
                Out::Decided { batch, on } => self.witness.decided(batch, on),
                Out::Applied { target, mark, batch } => self.witness.applied(&target, &mark, batch),
                Out::Unsound { key, invariant } => {
                    self.witness.broken.push(format!("invariants: {invariant} of {key} does not hold"));
                }
                Out::Anew => {
                    self.trace.note(self.now, format_args!("node {index} begins anew"));
                    self.end_streams(index);
                }
                Out::Exit => {
                    self.trace.note(self.now, format_args!("node {index} ends"));
                    if let Some(node) = &self.seats[index].node {
                        let id = node.me.id.clone();
                        self.store.primary.leave(&id);
                    }
                    self.stop_node(index);
                    self.after(RESTART, Event::Start { index });
                    return;
                }
                Out::Note(what) => self.trace.note(self.now, format_args!("node {index}: {what}")),
            }
        }
    }

    /// Whether all nodes know of the last failover.
    pub(super) fn are_up_to_date(&self) -> bool {
        self.seats.iter().filter_map(|seat| seat.node.as_ref()).all(|node| node.run == self.store.run)
    }

    pub(super) fn ask_peer(&mut self, back: Back, to: Option<usize>, (key, call): (EntityKey, Call)) {
        let Back { node: index, life, rpc } = back;
        let silence = Event::Node { index, life, input: In::PeerAnswer { rpc, answer: None } };
        let Some(to) = to else { return self.after(5_000, silence) };
        let (delays, clean) = self.network.carry(Place::Node(index), Place::Node(to), self.now);
        if let (Call::Ask { id, .. }, false) = (&call, clean) {
            self.muddy.insert(*id);
        }
        let target = self.seats[to].life;
        for delay in delays {
            let input = In::Peer { back, key: key.clone(), call: call.clone() };
            self.after(delay, Event::Node { index: to, life: target, input });
        }
        self.after(PEER_LIMIT, silence);
    }

    pub(super) fn reply(&mut self, from: usize, to: Back, reply: &Reply) {
        let Back { node: index, life, rpc } = to;
        let (delays, _) = self.network.carry(Place::Node(from), Place::Node(index), self.now);
        for delay in delays {
            let input = In::PeerAnswer { rpc, answer: Some(reply.clone()) };
            self.after(delay, Event::Node { index, life, input });
        }
    }
}
