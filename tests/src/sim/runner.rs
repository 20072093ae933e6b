//! A runner with its ledger: takes commands, runs containers that end or die, and reports until it is heard.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fastrand::Rng;
use serde_json::Value;
use skein_shared::agent::{self, Report};
use skein_shared::entity::{RunnerCommand, Signal};
use skein_shared::fence::Token;
use skein_shared::fleet;
use skein_shared::id::{EntityKey, InstanceId, Name};

use super::clients::{Next, ask_again, swarm};
use super::history::{Call, Outcome};

/// An instance in the ledger.
struct Held {
    agent: Name,
    swarm: Name,
    token: Token,
    running: bool,
}

pub struct Runner {
    pub name: String,
    /// The node that it has a stream to.
    pub connected: Option<usize>,
    /// The node that was asked for one, unless it has begun anew or ended since.
    pub asked: Option<usize>,
    ledger: BTreeMap<String, Held>,
    /// The highest token seen of each instance, whether it is still held or not.
    tokens: BTreeMap<String, Token>,
    reports: VecDeque<(String, Token, Report)>,
    /// How often a container of each instance was started.
    pub starts: BTreeMap<String, u32>,
}

pub fn group() -> EntityKey {
    EntityKey::fleet(&swarm("default"))
}

impl Runner {
    pub fn new(number: usize) -> Self {
        Self {
            name: format!("runner-{number}"),
            connected: None,
            asked: None,
            ledger: BTreeMap::new(),
            tokens: BTreeMap::new(),
            reports: VecDeque::new(),
            starts: BTreeMap::new(),
        }
    }

    /// A sign of life.
    pub fn signal(&self) -> Signal {
        Signal::RunnerAlive { runner: self.name.clone(), instances: self.ledger.keys().cloned().collect() }
    }

    /// Takes a command, and says after how long the container that it starts will end, in microseconds.
    pub fn command(&mut self, command: RunnerCommand, rng: &mut Rng) -> Option<(String, u64)> {
        let (instance, token) = match &command {
            RunnerCommand::Start { instance, token, .. }
            | RunnerCommand::Freeze { instance, token }
            | RunnerCommand::Thaw { instance, token }
            | RunnerCommand::Stop { instance, token, .. }
            | RunnerCommand::Forget { instance, token } => (instance.clone(), *token),
        };
        let starts = matches!(command, RunnerCommand::Start { .. });
        let is_old = |seen: &Token| token < *seen || (starts && token == *seen);
        let runs = self.ledger.get(&instance).is_some_and(|held| held.running);
        if self.tokens.get(&instance).is_some_and(is_old) {
            return None;
        }
        // An earlier start is ended first.
        if starts && runs {
            self.ended(&instance, 143);
        }
        self.tokens.insert(instance.clone(), token);
        match command {
            RunnerCommand::Start { agent, swarm, .. } => {
                let (Ok(agent), Ok(swarm)) = (Name::parse(&agent), Name::parse(&swarm)) else { return None };
                if rng.u8(0..20) == 0 {
                    let report = Report::StartFailed { reason: "no such image".to_owned() };
                    self.ledger.insert(instance.clone(), Held { agent, swarm, token, running: false });
                    self.reports.push_back((instance, token, report));
                    return None;
                }
                *self.starts.entry(instance.clone()).or_default() += 1;
                self.ledger.insert(instance.clone(), Held { agent, swarm, token, running: true });
                self.reports.push_back((instance.clone(), token, Report::Started { pid: Some(1) }));
                Some((instance, rng.u64(200_000..5_000_000)))
            }
            RunnerCommand::Stop { .. } => {
                if let Some(held) = self.ledger.get_mut(&instance) {
                    held.token = token;
                }
                self.ended(&instance, 143);
                None
            }
            RunnerCommand::Forget { .. } => {
                if !runs {
                    self.ledger.remove(&instance);
                }
                None
            }
            RunnerCommand::Freeze { .. } | RunnerCommand::Thaw { .. } => None,
        }
    }

    /// A container has ended, by itself or not.
    pub fn ended(&mut self, instance: &str, code: i32) {
        let Some(held) = self.ledger.get_mut(instance).filter(|held| held.running) else { return };
        held.running = false;
        let report = Report::Exited { code: Some(code), signal: None, reason: None };
        self.reports.push_back((instance.to_owned(), held.token, report));
    }

    /// One of the containers that run.
    pub fn victim(&self, rng: &mut Rng) -> Option<String> {
        let running: Vec<&String> =
            self.ledger.iter().filter(|(_, held)| held.running).map(|(instance, _)| instance).collect();
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
    fn register(&self) -> Next {
        let held = self.ledger.iter().map(|(instance, held)| fleet::HeldInstance {
            instance: InstanceId(instance.clone()),
            swarm: held.swarm.clone(),
            agent: held.agent.clone(),
            state: if held.running { "running" } else { "ended" }.to_owned(),
            token: held.token,
        });
        let registration = fleet::Registration {
            runner: self.name.clone(),
            slots: 2,
            labels: BTreeSet::new(),
            engines: BTreeSet::new(),
            agents: BTreeSet::new(),
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
                    self.ledger.remove(instance);
                }
            }
            // A refusal is an answer too: nobody will ever want it.
            (Call::Report, Outcome::Ok(_) | Outcome::Fail(_)) => drop(self.reports.pop_front()),
            _ => {}
        }
    }
}
