//! Runners, and the containers that end or die on them.

use std::collections::BTreeSet;

use fastrand::Rng;
use skein_shared::entity::{RunnerCommand, Signal};
use skein_shared::id::EntityKey;

use super::{BEAT, Event, World};
use crate::sim::clients::{Client, Role, tasks};
use crate::sim::network::Place;
use crate::sim::node::In;
use crate::sim::runner::{Runner, group};

impl World {
    pub(super) fn runner(&mut self, client: usize) -> Option<(&mut Runner, &mut Rng)> {
        match &mut self.clients[client].client {
            Client { role: Role::Runner(runner), rng } => Some((runner, rng)),
            _ => None,
        }
    }

    pub(super) fn connected(&self) -> BTreeSet<String> {
        let runners = self.runners.iter().filter(|(_, client)| {
            matches!(&self.clients[**client].client.role, Role::Runner(runner) if runner.connected.is_some())
        });
        runners.map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn command_runner(&mut self, node: usize, runner: &str, command: (EntityKey, RunnerCommand)) {
        let Some(&client) = self.runners.get(runner) else { return };
        let (delays, _) = self.network.carry(Place::Node(node), Place::Clients, self.now);
        if delays.is_empty()
            && let Some((runner, _)) = self.runner(client)
        {
            // The stream broke; the runner makes a new one, and says what it holds.
            runner.connected = None;
        }
        for delay in delays {
            self.after(delay, Event::Command { client, command: command.clone() });
        }
    }

    pub(super) fn command(&mut self, client: usize, (source, command): (EntityKey, RunnerCommand)) {
        self.trace.note(self.now, format_args!("client {client} is commanded: {command:?}"));
        let Some((runner, rng)) = self.runner(client) else { return };
        if let Some((instance, lasts)) = runner.command(&source, command, rng) {
            self.after(lasts, Event::Ended { client, instance });
        }
    }

    pub(super) fn container_is_through(&mut self, client: usize, instance: String) {
        let Some((runner, rng)) = self.runner(client) else { return };
        if let Some(later) = runner.is_through(&instance, rng) {
            self.after(later, Event::Ended { client, instance });
        }
    }

    /// Runs that have waited go on, until they are through.
    pub(super) fn guests_go_on(&mut self, client: usize) {
        let Role::Guests(guests) = &self.clients[client].client.role else { return };
        for instance in guests.gone_on() {
            let has = |runner: &&usize| match &self.clients[**runner].client.role {
                Role::Runner(runner) => runner.live().any(|live| *live == instance),
                _ => false,
            };
            let Some(&runner) = self.runners.values().find(has) else { continue };
            let lasts = self.clients[client].client.rng.u64(100_000..2_000_000);
            self.after(lasts, Event::Ended { client: runner, instance });
        }
    }

    pub(super) fn container_ends(&mut self, client: usize, instance: &str, code: i32) {
        if let Some((runner, _)) = self.runner(client) {
            runner.ended(instance, code);
        }
    }

    pub(super) fn container_death(&mut self) {
        let clients: Vec<usize> = self.runners.values().copied().collect();
        for client in clients {
            let victim = self.runner(client).and_then(|(runner, rng)| runner.victim(rng));
            if let Some(instance) = victim {
                self.trace.note(self.now, format_args!("the container of {instance} dies"));
                self.container_ends(client, &instance, 137);
            }
        }
        self.soon("container death", self.config.faults.container_death, Event::ContainerDeath);
    }

    pub(super) fn beat(&mut self) {
        let living: Vec<String> = self.living().into_iter().map(|instance| instance.0).collect();
        if !living.is_empty() {
            let alive = Signal::RunnerAlive { runner: "of the workers".to_owned(), instances: living };
            self.observe(&tasks(), &alive);
        }
        let clients: Vec<usize> = self.runners.values().copied().collect();
        for client in clients {
            let Some((runner, _)) = self.runner(client) else { continue };
            if runner.connected.is_some() {
                let signal = runner.signal();
                self.observe(&group(), &signal);
            }
        }
        self.after(BEAT, Event::Beat);
    }

    /// A sign of life, on the streams to all nodes.
    fn observe(&mut self, key: &EntityKey, signal: &Signal) {
        for index in 0..self.seats.len() {
            let life = self.seats[index].life;
            let (delays, _) = self.network.carry(Place::Clients, Place::Node(index), self.now);
            for delay in delays {
                let input = In::Observe(key.clone(), signal.clone());
                self.after(delay, Event::Node { index, life, input });
            }
        }
    }
}
