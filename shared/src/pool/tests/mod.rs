//! Each rule of the pool by example, and all of them under random commands.

mod claiming;
mod dependencies;
mod finishing;
mod forges;
mod hearing;
mod leases;
mod mailing;
mod members;
mod neglect;
mod news;
mod random;
mod sending;
mod standing;
mod steering;
mod untaken;
mod working;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::*;
use crate::code::Code;
use crate::id::{InstanceId, Name};
use crate::testbed::Bench;

pub(super) const LEAD: Uuid = Uuid::from_u128(0xa0);
pub(super) const ANN: Uuid = Uuid::from_u128(0xa1);
pub(super) const BOB: Uuid = Uuid::from_u128(0xa2);

/// A swarm with a lead and two workers.
pub(super) struct Swarm(pub(super) Bench<Pool>);

impl Swarm {
    pub(super) fn empty() -> Self {
        let swarm = Name::parse("default").unwrap();
        Self(Bench::new(EntityKey::of(Kind::Pool, &swarm)))
    }

    pub(super) fn new() -> Self {
        let mut swarm = Self::empty();
        for (agent, name) in [(LEAD, "lead"), (ANN, "ann"), (BOB, "bob")] {
            swarm.0.run(Command::Join(join(agent, name, agent == LEAD))).unwrap();
        }
        // What others heard of that is no part of what a test does.
        swarm.0.effects.clear();
        swarm
    }

    pub(super) fn run(&mut self, command: Command) -> Result<Reply, Refusal> {
        self.0.run(command)
    }

    pub(super) fn refused(&mut self, command: Command) -> Code {
        self.0.run(command).unwrap_err().code
    }

    /// Creates a task without rules, and gives its id.
    pub(super) fn task(&mut self, target: Target) -> Uuid {
        self.create(TaskSpec::new("do it"), target)
    }

    pub(super) fn create(&mut self, spec: TaskSpec, target: Target) -> Uuid {
        let create = Create { by: Some(LEAD), spec, target, rules: Rules::Plain, facts: Vec::new() };
        created(self.run(Command::Create(Box::new(create))))
    }

    pub(super) fn assigned(&mut self, agent: Uuid) -> Uuid {
        self.task(Target::Assign { agent: Some(agent) })
    }

    pub(super) fn poll(&mut self, agent: Uuid) -> (Option<TaskView>, bool, Vec<TaskView>) {
        match self.run(poll(agent, false)).unwrap() {
            Reply::Polled { task, redelivered, offers, .. } => (task, redelivered, offers),
            other => panic!("{other:?}"),
        }
    }

    /// Polls as an instance that a runner watches.
    pub(super) fn poll_managed(&mut self, agent: Uuid) -> Option<TaskView> {
        let command = Command::Poll { agent, instance: instance(agent), managed: true, last: false };
        match self.run(command).unwrap() {
            Reply::Polled { task, .. } => task,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn finish(&mut self, task: Uuid, by: Uuid, finish: Finish) -> Result<Reply, Refusal> {
        let report = Progress { finish: Some(finish), ..report(task, by) };
        self.run(Command::Progress(Box::new(report)))
    }

    pub(super) fn say(&mut self, task: Uuid, by: Uuid, text: &str) -> Result<Reply, Refusal> {
        let report = Progress { progress: Some(text.to_owned()), ..report(task, by) };
        self.run(Command::Progress(Box::new(report)))
    }

    /// The tasks that come of what people say, write or do.
    pub(super) fn heard(&mut self, command: Command) -> Vec<Uuid> {
        match self.run(command).unwrap() {
            Reply::Heard { tasks } => tasks,
            other => panic!("{other:?}"),
        }
    }

    /// The one task that comes of it, and what it shows.
    pub(super) fn heard_one(&mut self, command: Command) -> (Uuid, Map<String, Value>) {
        let tasks = self.heard(command);
        let [task] = tasks[..] else { panic!("{tasks:?}") };
        (task, self.body(task))
    }

    pub(super) fn status(&self, task: Uuid) -> Status {
        self.head(task).status
    }

    pub(super) fn head(&self, task: Uuid) -> Task {
        serde_json::from_value(self.0.head(&format!("task/{task}")).unwrap().clone()).unwrap()
    }

    pub(super) fn body(&self, task: Uuid) -> Map<String, Value> {
        self.0.body(&format!("task/{task}")).unwrap().clone()
    }

    pub(super) fn member(&self, agent: Uuid) -> Map<String, Value> {
        self.0.body(&format!("member/{agent}")).unwrap().clone()
    }

    /// Commands sent to entities of a kind, by name.
    pub(super) fn sent(&self, kind: Kind) -> Vec<Value> {
        let sent = |effect: &crate::entity::Effect| match effect {
            crate::entity::Effect::Entity { key, command } if key.kind == kind => Some(command.value()),
            _ => None,
        };
        self.0.effects.iter().filter_map(sent).collect()
    }
}

pub(super) fn join(agent: Uuid, name: &str, lead: bool) -> Join {
    Join {
        agent,
        name: name.to_owned(),
        lead,
        role: None,
        capabilities: Vec::new(),
        description: None,
        max_tasks: None,
        managed: false,
        texts: None,
    }
}

pub(super) fn instance(agent: Uuid) -> InstanceId {
    InstanceId(format!("i-{}", agent.as_u128()))
}

pub(super) fn poll(agent: Uuid, last: bool) -> Command {
    Command::Poll { agent, instance: instance(agent), managed: false, last }
}

pub(super) fn claim(agent: Uuid, task: Uuid) -> Command {
    Command::Claim { agent, instance: instance(agent), managed: false, task }
}

pub(super) fn report(task: Uuid, by: Uuid) -> Progress {
    Progress {
        task,
        by: Some(by),
        instance: Some(instance(by)),
        managed: false,
        progress: None,
        finish: None,
        cost: None,
        about: None,
    }
}

pub(super) fn completed(output: &str) -> Finish {
    Finish::Completed { output: Some(output.to_owned()) }
}

/// The tasks that the pool wants to know about, and when it has asked.
pub(super) fn needed(reply: Result<Reply, Refusal>) -> (Vec<Uuid>, Option<Asked>) {
    match reply.unwrap() {
        Reply::NeedFacts { tasks, asked } => (tasks, asked),
        other => panic!("{other:?}"),
    }
}

pub(super) fn created(reply: Result<Reply, Refusal>) -> Uuid {
    match reply.unwrap() {
        Reply::Created { task, .. } => task.id,
        other => panic!("{other:?}"),
    }
}
