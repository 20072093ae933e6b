//! An agent with its fleet, and stand-ins for the rest of the world that answer at once or when told.

mod blobs;
mod calls;
mod letters;
mod many;
mod outlasting;
mod queue;
mod random;
mod reruns;
mod runs;
mod slices;
mod spill;
mod standing;
mod together;
mod unheard;
mod waits;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};
use uuid::Uuid;

use super::{Agent, Blob, CallStatus, Caller, Class, Command, Definition, Instance, Reply, Report, State};
use crate::blobs::Blobs;
use crate::code::{Code, Refusal};
use crate::entity::{Effect, RunnerCommand};
use crate::fence::Token;
use crate::fleet::{self, Fleet, Registration};
use crate::id::{EntityKey, InstanceId, Kind, Name};
use crate::testbed::Bench;
use crate::triggers::{Filter, FilterKind};

pub(super) struct World {
    pub(super) agent: Bench<Agent>,
    pub(super) fleet: Bench<Fleet>,
    pub(super) room: Bench<Blobs>,
    /// The runner does as it is told at once, and says so.
    pub(super) prompt_runner: bool,
    /// Locks, leases and triggers acknowledge at once.
    pub(super) prompt_acks: bool,
    /// What the runner was told, oldest first.
    pub(super) told: Vec<RunnerCommand>,
    /// What went to other entities but the fleet: kind or agent, and the command.
    pub(super) sent: Vec<(EntityKey, Value)>,
    seen: (usize, usize),
}

pub(super) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub(super) fn id(number: u128) -> Uuid {
    Uuid::from_u128(0xabc0_0000 + number)
}

pub(super) fn agent_filter(source_agent: Option<&str>) -> Filter {
    Filter {
        kind: FilterKind::AgentTrigger,
        source: None,
        event: None,
        matches: BTreeMap::new(),
        only: BTreeMap::new(),
        source_agent: source_agent.map(str::to_owned),
    }
}

pub(super) fn webhook_filter() -> Filter {
    Filter { kind: FilterKind::Webhook, ..agent_filter(None) }
}

pub(super) fn caller(agent: &str, chain: &[&str]) -> Caller {
    let instance = |agent: &str| InstanceId(format!("{agent}-0000000a"));
    let chain = chain.iter().map(|agent| (name(agent), instance(agent))).collect();
    Caller { agent: name(agent), instance: instance(agent), chain, depth: None }
}

pub(super) fn envelope() -> crate::triggers::Envelope {
    serde_json::from_value(json!({ "type": "webhook", "event": "push" })).unwrap()
}

impl World {
    /// An agent `worker` of the given scale with a runner of four slots.
    pub(super) fn new(scale: u32) -> Self {
        let mut world = Self::without_runner(Definition { scale, ..Definition::default() });
        world.register(4);
        world
    }

    pub(super) fn without_runner(definition: Definition) -> Self {
        let mut world = Self::undefined();
        world.must(Command::Define { definition, group: name("default") });
        world
    }

    pub(super) fn undefined() -> Self {
        Self {
            agent: Bench::new(EntityKey::agent(&name("s"), &name("worker"))),
            fleet: Bench::new(EntityKey::fleet(&name("default"))),
            room: Bench::new(EntityKey::of(Kind::Blobs, &name("s"))),
            prompt_runner: true,
            prompt_acks: true,
            told: Vec::new(),
            sent: Vec::new(),
            seen: (0, 0),
        }
    }

    pub(super) fn register(&mut self, slots: u32) {
        self.register_as("r1", slots);
    }

    pub(super) fn register_as(&mut self, runner: &str, slots: u32) {
        let registration = Registration {
            runner: runner.to_owned(),
            identity: String::new(),
            slots,
            labels: BTreeSet::new(),
            engines: BTreeSet::from(["docker".to_owned()]),
            agents: BTreeSet::from([fleet::Offer::new(&name("s"), &name("worker"))]),
            swarms: BTreeSet::new(),
            held: Vec::new(),
        };
        self.fleet.run(fleet::Command::Register(registration)).unwrap();
        self.settle();
    }

    pub(super) fn run(&mut self, command: Command) -> Result<Reply, Refusal> {
        let reply = self.agent.run(command);
        self.settle();
        reply
    }

    pub(super) fn must(&mut self, command: Command) -> Reply {
        self.run(command).unwrap()
    }

    pub(super) fn refused(&mut self, command: Command) -> Code {
        self.run(command).unwrap_err().code
    }

    /// Moves both clocks, keeping the runner alive.
    pub(super) fn advance(&mut self, seconds: u64) {
        let span = std::time::Duration::from_secs(seconds);
        let alive = crate::entity::Signal::RunnerAlive { runner: "r1".to_owned(), instances: Vec::new() };
        crate::entity::Entity::observe(&mut self.fleet.entity, &alive, self.fleet.now + span);
        self.fleet.advance(span);
        self.agent.advance(span);
        self.settle();
    }

    pub(super) fn manual(&mut self) -> InstanceId {
        match self.must(enqueue(Class::Manual)) {
            Reply::Queued { instance } => instance,
            other => panic!("not queued: {other:?}"),
        }
    }

    pub(super) fn call(&mut self, number: u128) -> Result<Reply, Refusal> {
        self.run(Command::Call {
            call: id(number),
            caller: caller("lead", &[]),
            context: "do it".to_owned(),
            noted: false,
        })
    }

    pub(super) fn call_status(&mut self, number: u128) -> (CallStatus, Option<String>) {
        let instance = caller("lead", &[]).instance;
        match self.must(Command::CheckCall { call: id(number), instance }) {
            Reply::Call(view) => (view.status, view.return_value.or(view.error_message)),
            other => panic!("no call: {other:?}"),
        }
    }

    pub(super) fn wait(&mut self, instance: &InstanceId, number: u128, filter: Filter) -> Reply {
        self.must(begin_wait(instance, number, filter))
    }

    /// The outcome of the instance's wait as its client gets it, by name.
    pub(super) fn outcome(&mut self, instance: &InstanceId, number: u128) -> Option<Value> {
        let wait = Some(id(number));
        let asked = id(number);
        match self.must(Command::CheckWait { instance: instance.clone(), wait, asked }) {
            Reply::Wait(view) => view.outcome.map(|outcome| serde_json::to_value(outcome).unwrap()),
            other => panic!("no wait: {other:?}"),
        }
    }

    pub(super) fn instance(&self, id: &InstanceId) -> &Instance {
        self.agent.entity.instances.get(id).unwrap_or_else(|| panic!("{id} is not live"))
    }

    pub(super) fn state(&self, id: &InstanceId) -> State {
        self.agent.entity.instances.get(id).map_or(State::Ended, |instance| instance.state)
    }

    /// How the instance ended.
    pub(super) fn end_of(&self, id: &InstanceId) -> (String, String) {
        let body = self.agent.body(&format!("instance/{id}")).unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&body["state"]), text(&body["exit"]["reason"]))
    }

    pub(super) fn token(&self, id: &InstanceId) -> Token {
        self.instance(id).token.unwrap()
    }

    pub(super) fn report(
        &mut self,
        instance: &InstanceId,
        token: Token,
        what: Report,
    ) -> Result<Reply, Refusal> {
        let (instance, runner) = (instance.clone(), "r1".to_owned());
        self.run(Command::Report { instance, token, runner, what })
    }

    pub(super) fn exit(&mut self, instance: &InstanceId, code: i32) {
        let token = self.token(instance);
        self.report(instance, token, exited(code)).unwrap();
    }

    /// What was sent to entities of the kind, by name of the command.
    pub(super) fn sent_to(&self, kind: Kind) -> Vec<String> {
        let to_kind = self.sent.iter().filter(|(key, _)| key.kind == kind);
        to_kind.map(|(_, command)| command_name(command)).collect()
    }

    pub(super) fn busy(&self) -> u32 {
        self.fleet.entity.busy("r1")
    }

    /// Carries effects to and fro until nothing moves.
    pub(super) fn settle(&mut self) {
        let mut pending = VecDeque::new();
        loop {
            pending.extend(self.agent.effects[self.seen.0..].iter().cloned());
            pending.extend(self.fleet.effects[self.seen.1..].iter().cloned());
            self.seen = (self.agent.effects.len(), self.fleet.effects.len());
            match pending.pop_front() {
                Some(effect) => self.deliver(effect),
                None => break,
            }
        }
        assert!(self.agent.restored() == self.agent.entity, "the agent's documents tell another state");
        assert!(self.fleet.restored() == self.fleet.entity, "the fleet's documents tell another state");
        let counted: BTreeSet<Uuid> = self.room.entity.held.keys().copied().collect();
        assert_eq!(&counted, self.agent.blobs(), "the agent keeps what is counted");
        let runs = self.agent.entity.instances.values().filter(|run| run.slot).map(|run| &run.id);
        let places =
            self.fleet.entity.places.values().filter(|place| place.slot).map(|place| &place.instance);
        assert_eq!(runs.collect::<Vec<_>>(), places.collect::<Vec<_>>(), "agent and fleet count alike");
    }

    fn deliver(&mut self, effect: Effect) {
        match effect {
            Effect::Entity { key, command } if key == self.fleet.key => {
                self.fleet.run(command.read().unwrap()).unwrap();
            }
            Effect::Entity { key, command } if key == self.agent.key => {
                self.agent.run(command.read().unwrap()).unwrap();
            }
            Effect::Entity { key, command } if key == self.room.key => {
                self.room.run(command.read().unwrap()).unwrap();
            }
            Effect::Entity { key, command } => {
                let command = command.value();
                if self.prompt_acks {
                    self.acknowledge(&command);
                }
                self.sent.push((key, command));
            }
            Effect::Runner { command, .. } => {
                self.told.push(command.clone());
                if self.prompt_runner {
                    self.obey(command);
                }
            }
            Effect::Slack { .. } => panic!("an agent tells people nothing by itself"),
        }
    }

    fn acknowledge(&mut self, command: &Value) {
        let wait = |field: &str| serde_json::from_value(command[field]["wait"].clone()).unwrap();
        let ack = match command_name(command).as_str() {
            "extend" if command["extend"]["over"] != true => Command::LocksExtended { wait: wait("extend") },
            "extend_lease" if command["extend_lease"]["over"] != true => {
                Command::LeasesExtended { wait: wait("extend_lease") }
            }
            "register" => Command::WaitRegistered { wait: wait("register") },
            _ => return,
        };
        self.agent.run(ack).unwrap();
    }

    fn obey(&mut self, command: RunnerCommand) {
        let (instance, token, what) = match command {
            RunnerCommand::Start { instance, token, .. } => {
                (instance, token, Report::Started { pid: Some(7) })
            }
            RunnerCommand::Freeze { instance, token } => (instance, token, Report::Frozen),
            RunnerCommand::Thaw { instance, token } => (instance, token, Report::Thawed),
            RunnerCommand::Spill { instance, token } => (instance, token, Report::Spilled),
            RunnerCommand::Restore { instance, token, .. } => {
                (instance, token, Report::Restored { pid: Some(8) })
            }
            RunnerCommand::Stop { instance, token, .. } => (instance, token, exited(143)),
            RunnerCommand::Forget { .. } => return,
        };
        let (instance, runner) = (InstanceId(instance), "r1".to_owned());
        // A late report may be refused, as in life.
        let _ = self.agent.run(Command::Report { instance, token, runner, what });
    }
}

/// What the runner was told, by the names of its commands.
pub(super) fn said(world: &World) -> Vec<&'static str> {
    let verb = |command: &RunnerCommand| match command {
        RunnerCommand::Start { .. } => "start",
        RunnerCommand::Freeze { .. } => "freeze",
        RunnerCommand::Thaw { .. } => "thaw",
        RunnerCommand::Spill { .. } => "spill",
        RunnerCommand::Restore { .. } => "restore",
        RunnerCommand::Stop { .. } => "stop",
        RunnerCommand::Forget { .. } => "forget",
    };
    world.told.iter().map(verb).collect()
}

pub(super) fn trigger(world: &mut World, wait: u128) {
    world.must(Command::Trigger { wait: id(wait), receipt: id(900 + wait), payload: envelope() });
}

pub(super) fn command_name(command: &Value) -> String {
    match command {
        Value::Object(fields) => fields.keys().next().cloned().unwrap_or_default(),
        other => other.as_str().unwrap_or_default().to_owned(),
    }
}

pub(super) fn exited(code: i32) -> Report {
    Report::Exited { code: Some(code), signal: None, reason: None, usage: None }
}

pub(super) fn enqueue(class: Class) -> Command {
    Command::Enqueue { class, source: "test".to_owned(), receipt: None, input: json!({ "prompt": "go" }) }
}

pub(super) fn begin_wait(instance: &InstanceId, number: u128, filter: Filter) -> Command {
    Command::BeginWait {
        instance: instance.clone(),
        wait: id(number),
        filter,
        timeout_ms: None,
        broadcast: false,
        look_back: false,
        asked: id(number),
    }
}
