//! Runners come, drain and go.

use std::collections::BTreeMap;

use super::draft::Draft;
use crate::agent;
use crate::code::{Code, Refusal};
use crate::entity::{Effect, RunnerCommand};
use crate::fence::Token;
use crate::fleet::event::Event;
use crate::fleet::state::{Bid, Runner};
use crate::fleet::{HeldInstance, Registration, Reply};
use crate::id::InstanceId;
use crate::limits;

/// Between asking a stray instance to end and killing it, milliseconds.
const GRACE_MS: u64 = 10_000;

impl Draft<'_> {
    /// Takes a runner in and compares ledgers: what nobody knows here is stopped there. Of what is placed there the
    /// agents are told whether it was there, since they know what the runner was told; what it knows nothing of it
    /// says.
    pub(super) fn register(&mut self, registration: &Registration) -> Result<Reply, Refusal> {
        let name = &registration.runner;
        if name.is_empty() {
            return Err(Refusal::new(
                Code::InvalidArgument,
                "a runner needs a name; set one and register again",
            ));
        }
        self.must_be_the_same(name, &registration.identity)?;
        let session = self.next_session(name);
        self.compare_ledgers(name, &registration.held);
        self.push(Event::Registered(Runner {
            name: name.clone(),
            identity: registration.identity.clone(),
            slots: registration.slots,
            labels: registration.labels.clone(),
            engines: registration.engines.clone(),
            agents: registration.agents.clone(),
            swarms: registration.swarms.clone(),
            session,
            draining: false,
            registered: self.now(),
            overhang: self.fleet.busy(name).saturating_sub(registration.slots),
        }));
        let stopped = self.stop_strays(registration);
        Ok(Reply::Registered { session, stopped })
    }

    /// One that took another's place would end what the other runs, and the other would end what it runs in turn.
    ///
    /// # Errors
    /// `already_exists` while a runner of another identity has the name.
    pub(super) fn must_be_the_same(&self, name: &str, identity: &str) -> Result<(), Refusal> {
        let known = self.fleet.runners.get(name).map_or("", |known| known.identity.as_str());
        if known == identity || known.is_empty() || identity.is_empty() {
            return Ok(());
        }
        let lease = limits::RUNNER_LEASE.as_secs();
        Err(Refusal::new(
            Code::AlreadyExists,
            format!(
                "another runner is called `{name}`, with a data folder of its own; give this one another name. If that one is gone for good, its name is free {lease} seconds after it was heard of last"
            ),
        ))
    }

    /// What was lost with a stream of a runner nobody notices but by what the runner holds.
    pub(super) fn attach(&mut self, runner: &str, held: &[HeldInstance]) -> Result<Reply, Refusal> {
        self.known(runner)?;
        self.compare_ledgers(runner, held);
        Ok(Reply::Done)
    }

    fn compare_ledgers(&mut self, runner: &str, held: &[HeldInstance]) {
        let seen: BTreeMap<&InstanceId, Token> =
            held.iter().map(|held| (&held.instance, held.token)).collect();
        self.tell_agents(&self.fleet.places_on(runner), |instances| agent::Command::RunnerHolds {
            runner: runner.to_owned(),
            held: instances.into_iter().map(|id| (id.clone(), seen.get(&id).copied())).collect(),
        });
    }

    /// What was granted to it and never got there starts elsewhere at once.
    pub(super) fn leave(&mut self, runner: &str) -> Result<Reply, Refusal> {
        self.known(runner)?;
        self.lose(runner.to_owned(), true);
        Ok(Reply::Done)
    }

    /// # Errors
    /// `not_found` for a runner that is not registered, or was declared lost since.
    pub(super) fn known(&self, runner: &str) -> Result<&Runner, Refusal> {
        self.fleet.runners.get(runner).ok_or_else(|| {
            Refusal::new(
                Code::NotFound,
                format!("no runner `{runner}` is registered, or it was declared lost; list the runners for their names, or register again"),
            )
        })
    }

    pub(super) fn drain(&mut self, runner: &str) -> Result<Reply, Refusal> {
        if !self.known(runner)?.draining {
            self.push(Event::Draining { runner: runner.to_owned() });
        }
        Ok(Reply::Done)
    }

    /// Declares silent runners lost. After a takeover each first gets its lease time to be heard again.
    pub(super) fn tick(&mut self) -> Reply {
        let now = self.now();
        let silent = self.fleet.alive_until.iter().filter(|(_, until)| **until <= now);
        let silent: Vec<_> = silent.map(|(runner, until)| (runner.clone(), *until)).collect();
        for (runner, until) in silent {
            let until = self.ctx.grace(until, limits::RUNNER_LEASE);
            if until > now {
                self.push(Event::Awaited { runner, until });
            } else {
                self.lose(runner, false);
            }
        }
        Reply::Done
    }

    fn lose(&mut self, runner: String, left: bool) {
        let places = self.fleet.places_on(&runner);
        self.push(Event::Lost { runner: runner.clone(), at: self.now(), left });
        self.tell_agents(&places, |instances| agent::Command::RunnerLost {
            runner: runner.clone(),
            instances,
        });
        self.refuse_bids_without_place(&runner);
    }

    /// Bids to resume on the runner, of instances that are there no more.
    fn refuse_bids_without_place(&mut self, runner: &str) {
        let void = |bid: &&Bid| {
            bid.affinity.as_deref() == Some(runner) && !self.fleet.places.contains_key(&bid.instance)
        };
        let void: Vec<Bid> = self.fleet.bids.values().filter(void).cloned().collect();
        for bid in void {
            self.push(Event::Refused { bid: bid.id });
            self.refuse(&bid);
        }
    }

    fn stop_strays(&mut self, registration: &Registration) -> Vec<InstanceId> {
        let here = |held: &&HeldInstance| {
            let place = self.fleet.places.get(&held.instance);
            place.is_some_and(|place| place.runner == registration.runner)
        };
        let strays: Vec<_> = registration.held.iter().filter(|held| !here(held)).collect();
        for stray in &strays {
            let command = RunnerCommand::Stop {
                instance: stray.instance.to_string(),
                // Its own: one of this fleet's epoch could be higher than that of its agent's next start there.
                token: stray.token,
                reason: "the instance was given up while its runner was away".to_owned(),
                grace_ms: GRACE_MS,
            };
            self.send(Effect::Runner { runner: registration.runner.clone(), command });
        }
        strays.into_iter().map(|stray| stray.instance.clone()).collect()
    }

    /// Rises even over a loss of the runner, since the clock does.
    fn next_session(&self, runner: &str) -> u64 {
        let last = self.fleet.runners.get(runner).map_or(0, |runner| runner.session);
        self.now().millis().max(last + 1)
    }
}
