//! A runner with its ledger: takes commands, runs containers that end or die, and reports until it is heard.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fastrand::Rng;
use serde_json::Value;
use skein_shared::agent::{self, Report};
use skein_shared::entity::{RunnerCommand, Signal};
use skein_shared::fence::Token;
use skein_shared::fleet;
use skein_shared::id::{EntityKey, InstanceId, Kind, Name};
use uuid::Uuid;

use super::clients::{Next, agent_name, ask_again, swarm};
use super::guests::Guests;
use super::history::{Call, Outcome};
use super::world::AGENTS;

/// What a runner says of an instance that is to have begun there.
pub const UNKNOWN: &str = "its runner knows nothing of it";
/// What it says of one that it cannot start again after a long sleep.
pub const NOT_AGAIN: &str = "the program is gone";
/// The signal that is reported of what is ended in its sleep.
const TERM: i32 = 15;

/// An instance in the ledger.
struct Held {
    agent: Name,
    swarm: Name,
    /// The highest of a command taken for it.
    token: Token,
    state: State,
    /// How often it waits yet before it ends.
    waits: u8,
}

#[derive(Clone, PartialEq)]
enum State {
    Running,
    /// It stands still.
    Frozen,
    /// Its processes were ended, and its files kept.
    Spilled,
    Ended(Report),
    /// Only what became of it is remembered.
    Forgotten(Report),
}

pub struct Runner {
    pub name: String,
    /// The node that it has a stream to.
    pub connected: Option<usize>,
    /// The node that was asked for one, unless it has begun anew or ended since.
    pub asked: Option<usize>,
    ledger: BTreeMap<String, Held>,
    reports: VecDeque<(String, Token, Report)>,
    /// The instances that its last registration names, with their tokens.
    named: BTreeMap<String, Token>,
    /// Those of which it says that they have ended.
    said: BTreeSet<String>,
    /// Its runs that wait, if any do.
    guests: Option<Guests>,
    /// Says which of those that slept for long it can start again.
    restarts: Rng,
}

impl State {
    fn is_live(&self) -> bool {
        matches!(self, State::Running | State::Frozen | State::Spilled)
    }

    fn as_str(&self) -> &'static str {
        match self {
            State::Running => "running",
            State::Frozen => "frozen",
            State::Spilled => "spilled",
            State::Ended(_) | State::Forgotten(_) => "ended",
        }
    }
}

pub fn group() -> EntityKey {
    EntityKey::fleet(&swarm("default"))
}

impl Runner {
    pub fn new(number: usize, guests: Option<Guests>, restarts: Rng) -> Self {
        Self {
            name: format!("runner-{number}"),
            connected: None,
            asked: None,
            ledger: BTreeMap::new(),
            reports: VecDeque::new(),
            named: BTreeMap::new(),
            said: BTreeSet::new(),
            guests,
            restarts,
        }
    }

    /// A sign of life.
    pub fn signal(&self) -> Signal {
        Signal::RunnerAlive { runner: self.name.clone(), instances: self.live().cloned().collect() }
    }

    /// What has not ended.
    pub fn live(&self) -> impl Iterator<Item = &String> {
        self.ledger.iter().filter(|(_, held)| held.state.is_live()).map(|(instance, _)| instance)
    }

    /// Takes a command as the real one does, and says after how long the container that it starts will end, in
    /// microseconds.
    pub fn command(
        &mut self,
        source: &EntityKey,
        command: RunnerCommand,
        rng: &mut Rng,
    ) -> Option<(String, u64)> {
        let (instance, token) = match &command {
            RunnerCommand::Start { instance, token, .. }
            | RunnerCommand::Freeze { instance, token }
            | RunnerCommand::Thaw { instance, token }
            | RunnerCommand::Spill { instance, token }
            | RunnerCommand::Restore { instance, token, .. }
            | RunnerCommand::Stop { instance, token, .. }
            | RunnerCommand::Forget { instance, token } => (instance.clone(), *token),
        };
        match (command, self.ledger.get_mut(&instance)) {
            (RunnerCommand::Start { .. }, Some(held)) if token <= held.token => {
                self.report_end(&instance, token)
            }
            (RunnerCommand::Start { agent, swarm, .. }, _) => {
                // An earlier start is ended first.
                self.ended(&instance, 143);
                return self.start(instance, token, (&agent, &swarm), rng);
            }
            (RunnerCommand::Forget { .. }, Some(held)) if token >= held.token => {
                if let State::Ended(end) = held.state.clone() {
                    (held.token, held.state) = (token, State::Forgotten(end));
                }
            }
            (RunnerCommand::Forget { .. }, _) => {}
            (RunnerCommand::Stop { .. }, None) => {
                let reason = "it was stopped before it was started".to_owned();
                self.is_not_here(source, instance, token, Report::StartFailed { reason, usage: None });
            }
            (_, None) => {
                let reason = Some(UNKNOWN.to_owned());
                let end = Report::Exited { code: None, signal: None, reason, usage: None };
                self.is_not_here(source, instance, token, end);
            }
            (_, Some(held)) if !held.state.is_live() => self.report_end(&instance, token),
            (RunnerCommand::Stop { .. }, Some(held)) if token >= held.token => {
                held.token = token;
                self.ended(&instance, 143);
            }
            (RunnerCommand::Freeze { .. }, Some(held)) if token >= held.token => {
                let frozen = if held.state == State::Spilled { State::Spilled } else { State::Frozen };
                self.turn(instance, token, frozen, Report::Frozen);
            }
            (RunnerCommand::Thaw { .. }, Some(held)) if token >= held.token => {
                self.turn(instance, token, State::Running, Report::Thawed);
            }
            // What runs on, or runs again, is not put to sleep.
            (RunnerCommand::Spill { .. }, Some(held)) if token >= held.token => match held.state {
                State::Running => self.turn(instance, token, State::Running, Report::Frozen),
                _ => self.turn(instance, token, State::Spilled, Report::Spilled),
            },
            (RunnerCommand::Restore { .. }, Some(held)) if token >= held.token => {
                let sleeps = held.state == State::Spilled;
                if sleeps && self.restarts.u8(0..2) == 0 {
                    self.is_not_started_again(instance, token);
                } else {
                    self.is_started_again(instance, token);
                }
            }
            // The word of a former owner.
            _ => {}
        }
        None
    }

    /// An instance stands still, sleeps or goes on.
    fn turn(&mut self, instance: String, token: Token, state: State, report: Report) {
        let Some(held) = self.ledger.get_mut(&instance) else { return };
        (held.token, held.state) = (token, state);
        if let Some(guests) = &self.guests {
            guests.freeze(&instance, held.state != State::Running);
        }
        self.reports.push_back((instance, token, report));
    }

    fn is_started_again(&mut self, instance: String, token: Token) {
        self.turn(instance.clone(), token, State::Running, Report::Restored { pid: Some(2) });
        if let Some(guests) = &self.guests {
            guests.go_on(&instance);
        }
    }

    fn is_not_started_again(&mut self, instance: String, token: Token) {
        let Some(held) = self.ledger.get_mut(&instance) else { return };
        let end = Report::StartFailed { reason: NOT_AGAIN.to_owned(), usage: None };
        (held.token, held.state) = (token, State::Ended(end.clone()));
        if let Some(guests) = &self.guests {
            guests.leave(&instance);
        }
        self.reports.push_back((instance, token, end));
    }

    fn is_not_here(&mut self, source: &EntityKey, instance: String, token: Token, end: Report) {
        let EntityKey { kind: Kind::Agent, swarm, name: Some(agent), .. } = source else { return };
        let (agent, swarm, state) = (agent.clone(), swarm.clone(), State::Ended(end.clone()));
        self.ledger.insert(instance.clone(), Held { agent, swarm, token, state, waits: 0 });
        self.reports.push_back((instance, token, end));
    }

    fn start(
        &mut self,
        instance: String,
        token: Token,
        (agent, swarm): (&str, &str),
        rng: &mut Rng,
    ) -> Option<(String, u64)> {
        let (Ok(agent), Ok(swarm)) = (Name::parse(agent), Name::parse(swarm)) else { return None };
        let waits = if self.guests.is_some() { rng.u8(0..3) } else { 0 };
        let mut held = Held { agent, swarm, token, state: State::Running, waits };
        if rng.u8(0..20) == 0 {
            let report = Report::StartFailed { reason: "no such image".to_owned(), usage: None };
            held.state = State::Ended(report.clone());
            self.ledger.insert(instance.clone(), held);
            self.reports.push_back((instance, token, report));
            return None;
        }
        self.ledger.insert(instance.clone(), held);
        self.reports.push_back((instance.clone(), token, Report::Started { pid: Some(1) }));
        Some((instance, rng.u64(200_000..5_000_000)))
    }

    /// What became of an instance, for whoever has commanded it since.
    fn report_end(&mut self, instance: &str, token: Token) {
        let Some(held) = self.ledger.get_mut(instance) else { return };
        let (State::Ended(end) | State::Forgotten(end)) = &held.state else { return };
        held.token = held.token.max(token);
        self.reports.push_back((instance.to_owned(), held.token, end.clone()));
    }

    /// A container has done its work: it ends, or waits for an event first. Whoever stands still does so later, in so
    /// many microseconds.
    pub fn is_through(&mut self, instance: &str, rng: &mut Rng) -> Option<u64> {
        let held = self.ledger.get_mut(instance).filter(|held| held.state.is_live())?;
        if held.state != State::Running {
            return Some(100_000);
        }
        let Some(guests) = self.guests.as_ref().filter(|_| held.waits > 0) else {
            self.ended(instance, 0);
            return None;
        };
        held.waits -= 1;
        let key = EntityKey::agent(&held.swarm, &held.agent);
        guests.wait(instance, key, Uuid::from_u128(rng.u128(..)));
        None
    }

    /// A container has ended, by itself or not.
    pub fn ended(&mut self, instance: &str, code: i32) {
        let Some(held) = self.ledger.get_mut(instance).filter(|held| held.state.is_live()) else {
            return;
        };
        if let Some(guests) = &self.guests {
            guests.leave(instance);
        }
        // What sleeps has no process that could end with a status.
        let (code, signal) = match held.state {
            State::Spilled => (None, Some(TERM)),
            _ => (Some(code), None),
        };
        let report = Report::Exited { code, signal, reason: None, usage: None };
        held.state = State::Ended(report.clone());
        self.reports.push_back((instance.to_owned(), held.token, report));
    }

    /// One of the containers that run.
    pub fn victim(&self, rng: &mut Rng) -> Option<String> {
        let running: Vec<&String> = self.live().collect();
        Some((*running.get(rng.usize(0..running.len().max(1)))?).clone())
    }

    pub fn ask(&mut self) -> Next {
        if self.connected.is_none() {
            return self.register();
        }
        let Some((instance, token, what)) = self.reports.front().cloned() else { return Next::Rest };
        let Some(held) = self.ledger.get(&instance) else {
            self.reports.pop_front();
            return Next::Rest;
        };
        let key = EntityKey::agent(&held.swarm, &held.agent);
        let report =
            agent::Command::Report { instance: InstanceId(instance), token, runner: self.name.clone(), what };
        ask_again(key, &report, Call::Report)
    }

    /// What the real runner says when its stream begins.
    fn register(&mut self) -> Next {
        let ended = self.ledger.iter().filter(|(_, held)| matches!(held.state, State::Ended(_)));
        self.said = ended.map(|(instance, _)| instance.clone()).collect();
        let known = self.ledger.iter().filter(|(_, held)| !matches!(held.state, State::Forgotten(_)));
        self.named = known.clone().map(|(instance, held)| (instance.clone(), held.token)).collect();
        let held = known.map(|(instance, held)| fleet::HeldInstance {
            instance: InstanceId(instance.clone()),
            swarm: held.swarm.clone(),
            agent: held.agent.clone(),
            state: held.state.as_str().to_owned(),
            token: held.token,
        });
        let registration = fleet::Registration {
            runner: self.name.clone(),
            identity: String::new(),
            slots: 2,
            labels: BTreeSet::new(),
            engines: BTreeSet::new(),
            agents: (0..AGENTS)
                .map(|number| fleet::Offer::new(&swarm("beta"), &agent_name(number)))
                .collect(),
            swarms: BTreeSet::new(),
            held: held.collect(),
        };
        ask_again(group(), &fleet::Command::Register(registration), Call::Register)
    }

    pub fn heard(&mut self, call: &Call, outcome: &Outcome) {
        match (call, outcome) {
            (Call::Register, Outcome::Ok(answer)) => {
                self.connected = self.asked;
                let stopped = answer["registered"]["stopped"].as_array().into_iter().flatten();
                for instance in stopped.filter_map(Value::as_str) {
                    // Unless it was started anew since.
                    if self.named.get(instance) >= self.ledger.get(instance).map(|held| &held.token) {
                        self.ended(instance, 137);
                    }
                }
                self.report_ends();
            }
            // A refusal is an answer too: nobody will ever want it.
            (Call::Report, Outcome::Ok(_) | Outcome::Fail(_)) => drop(self.reports.pop_front()),
            _ => {}
        }
    }

    /// What has ended and was not let go of, or was said to have ended, unless a report of it waits anyhow.
    fn report_ends(&mut self) {
        for (instance, held) in &self.ledger {
            let end = match &held.state {
                State::Ended(end) => end,
                State::Forgotten(end) if self.said.contains(instance) => end,
                _ => continue,
            };
            if !self.reports.iter().any(|(other, ..)| other == instance) {
                self.reports.push_back((instance.clone(), held.token, end.clone()));
            }
        }
    }
}
