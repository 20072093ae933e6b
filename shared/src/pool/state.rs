//! The pool as it stands in memory: the heads of its members and of its live tasks.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::command::Join;
use super::dependency::Dependency;
use super::ends::Ends;
use super::guard::{Recent, Sketch};
use super::heads::Heads;
use super::idle::Idle;
use super::index::{Deadlines, Gathering, Indexes};
use super::standing::Standing;
use super::steering::Steering;
use super::tag::Tag;
use crate::forge::Subject;
use crate::id::{InstanceId, Name};
use crate::limits;
use crate::slack::Thread;
use crate::time::Timestamp;

/// Where a task stands (spec: Agent Swarm 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Backlog,
    Unassigned,
    Offered,
    Reviewing,
    Pending,
    InProgress,
    Paused,
    Completed,
    Failed,
    Cancelled,
}

impl Status {
    /// In the order of a task's life, which is that of their numbers in packed heads.
    pub const ALL: [Status; 10] = [
        Status::Backlog,
        Status::Unassigned,
        Status::Offered,
        Status::Reviewing,
        Status::Pending,
        Status::InProgress,
        Status::Paused,
        Status::Completed,
        Status::Failed,
        Status::Cancelled,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Status::Backlog => "backlog",
            Status::Unassigned => "unassigned",
            Status::Offered => "offered",
            Status::Reviewing => "reviewing",
            Status::Pending => "pending",
            Status::InProgress => "in_progress",
            Status::Paused => "paused",
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::Cancelled => "cancelled",
        }
    }

    pub fn is_terminal(self) -> bool {
        matches!(self, Status::Completed | Status::Failed | Status::Cancelled)
    }

    pub fn is_offer(self) -> bool {
        matches!(self, Status::Offered | Status::Reviewing)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Completed,
    Failed,
    Cancelled,
}

impl Outcome {
    pub fn status(self) -> Status {
        match self {
            Outcome::Completed => Status::Completed,
            Outcome::Failed => Status::Failed,
            Outcome::Cancelled => Status::Cancelled,
        }
    }
}

/// Where a task came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    #[default]
    Mcp,
    Slack,
    Api,
    Github,
    Gitlab,
    Linear,
    Sentry,
    Webhook,
    Agentmail,
    System,
    Schedule,
}

/// The head of a task: what decisions need. Its texts are in the body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    #[serde(rename = "s")]
    pub status: Status,
    #[serde(rename = "p")]
    pub priority: u8,
    /// Agents claim by these. Written out, so that a stored head means the same whoever reads it.
    #[serde(rename = "t", default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none", with = "short_id")]
    pub creator: Option<Uuid>,
    #[serde(rename = "a", default, skip_serializing_if = "Option::is_none", with = "short_id")]
    pub agent: Option<Uuid>,
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none", with = "short_id")]
    pub offered_to: Option<Uuid>,
    /// The instance that works on it, while it is in progress.
    #[serde(rename = "i", default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<InstanceId>,
    /// A runner watches that instance.
    #[serde(rename = "m", default, skip_serializing_if = "is_default")]
    pub managed: bool,
    /// How often it was started.
    #[serde(rename = "n", default, skip_serializing_if = "is_default")]
    pub attempt: u32,
    /// How often it lost its agent.
    #[serde(rename = "g", default, skip_serializing_if = "is_default")]
    pub generation: u32,
    /// End of the lease, the offer or the reservation, whichever the status has. An offer that waits for other tasks
    /// has its end once it can be accepted.
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    #[serde(rename = "b")]
    pub created: Timestamp,
    #[serde(rename = "u")]
    pub updated: Timestamp,
    #[serde(rename = "d", default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<Dependency>,
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none", with = "short_id")]
    pub epic: Option<Uuid>,
    #[serde(rename = "k", default, skip_serializing_if = "Option::is_none", with = "short_id")]
    pub schedule: Option<Uuid>,
    /// Hash of the progress text: a repeat within minutes is no news.
    #[serde(rename = "h", default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<u32>,
    /// Its instance has reported since it started, so the hand-over has arrived.
    #[serde(rename = "r", default, skip_serializing_if = "is_default")]
    pub reported: bool,
    /// Nobody reported on it for long since it started: the lead was told, and whoever comes to lead is, too.
    #[serde(rename = "z", default, skip_serializing_if = "is_default")]
    pub stalled: bool,
    /// It tells the lead of others' work: for whoever leads, and in the backlog while nobody does.
    #[serde(rename = "f", default, skip_serializing_if = "is_default")]
    pub news: bool,
    /// The thread in Slack that it came from, where people are told of it.
    #[serde(rename = "w", default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<Thread>,
    /// What it has to do with a forge. What came from Slack has nothing.
    #[serde(rename = "v", default, skip_serializing_if = "Option::is_none")]
    pub forge: Option<ForgeLink>,
}

/// What a task has to do with an issue or a request at a forge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForgeLink {
    /// The swarm was asked for it as a whole.
    Asked(Subject),
    /// It belongs to the work on it: an answer to a comment, or what an agent made of another task about it.
    Part(Subject),
    /// It brings news of it, and keeps no more of them coming.
    News(Subject),
}

impl ForgeLink {
    pub fn subject(&self) -> &Subject {
        match self {
            ForgeLink::Asked(subject) | ForgeLink::Part(subject) | ForgeLink::News(subject) => subject,
        }
    }
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Ids without hyphens: four bytes less for each in every head.
mod short_id {
    use serde::{Deserialize, Deserializer, Serializer};
    use uuid::Uuid;

    #[allow(clippy::ref_option, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(id: &Option<Uuid>, serializer: S) -> Result<S::Ok, S::Error> {
        match id {
            Some(id) => serializer.collect_str(id.as_simple()),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Uuid>, D::Error> {
        Option::<Uuid>::deserialize(deserializer)
    }
}

/// Which promise about time a task is under. Each has its own period, by which a new owner must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Term {
    /// In progress, watched by a runner.
    Runner,
    /// In progress without a runner, or paused: kept while the agent makes calls.
    Agent,
    Offer,
    /// Pending, kept for the agent that lost it.
    Return,
    /// In progress without a report.
    Report,
}

impl Term {
    /// Those of [`Task::term`].
    pub(super) const ALL: [Term; 4] = [Term::Runner, Term::Agent, Term::Offer, Term::Return];

    pub(super) fn period(self) -> Duration {
        match self {
            Term::Runner => limits::TASK_LEASE_RUNNER,
            Term::Agent => limits::TASK_LEASE_AGENT,
            Term::Offer => limits::OFFER,
            Term::Return => limits::TASK_RETURN,
            Term::Report => limits::TASK_STALL,
        }
    }

    pub(super) fn lease(managed: bool) -> Term {
        if managed { Term::Runner } else { Term::Agent }
    }
}

impl Task {
    /// Every dependency is completed.
    pub fn is_ready(&self) -> bool {
        self.dependencies.iter().all(Dependency::is_done)
    }

    pub(super) fn term(&self) -> Option<Term> {
        self.until?;
        Some(match self.status {
            Status::InProgress => Term::lease(self.managed),
            Status::Paused => Term::Agent,
            // Nobody sees an offer, or can accept it, before its dependencies are completed.
            Status::Offered | Status::Reviewing if self.is_ready() => Term::Offer,
            Status::Pending => Term::Return,
            _ => return None,
        })
    }

    /// When it counts as stalled. One that sleeps for long has said so by its lease.
    pub(super) fn report_due(&self) -> Option<Timestamp> {
        let started = self.status == Status::InProgress && !self.stalled;
        let due = self.updated + limits::TASK_STALL;
        started.then(|| self.until.map_or(due, |until| due.max(until)))
    }

    /// When somebody ought to have claimed it, or when it is to be said again that nobody did.
    pub(super) fn claim_due(&self) -> Timestamp {
        self.until.unwrap_or(self.updated + limits::TASK_UNCLAIMED)
    }

    pub fn unmet(&self) -> Vec<Uuid> {
        self.dependencies.iter().filter(|d| !d.is_done()).map(|d| d.task).collect()
    }

    pub fn broken(&self) -> Vec<Uuid> {
        self.dependencies.iter().filter(|d| d.is_broken()).map(|d| d.task).collect()
    }
}

/// The head of a member. Role, capabilities, description and texts decide nothing and are in the body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    #[serde(rename = "n")]
    pub name: String,
    #[serde(rename = "l", default, skip_serializing_if = "is_default")]
    pub lead: bool,
    #[serde(rename = "x")]
    pub max_tasks: u32,
    /// How many tasks it may have in progress just now: more than `max_tasks` only while those last that
    /// it had when its capacity was lowered.
    #[serde(rename = "y")]
    pub ceiling: u32,
    #[serde(rename = "m", default, skip_serializing_if = "is_default")]
    pub managed: bool,
    #[serde(rename = "z", default, skip_serializing_if = "is_default")]
    pub empty_polls: u32,
    #[serde(rename = "f", default, skip_serializing_if = "is_default")]
    pub offline: bool,
}

impl Member {
    /// Whoever joins, as it stands at first.
    pub(super) fn of(join: &Join, max_tasks: u32) -> Self {
        Self {
            name: join.name.clone(),
            lead: join.lead,
            max_tasks,
            ceiling: max_tasks,
            managed: join.managed,
            empty_polls: 0,
            offline: false,
        }
    }
}

/// A swarm's members and live tasks.
#[derive(Clone, Debug)]
pub struct Pool {
    pub(super) swarm: Name,
    pub(super) members: BTreeMap<Uuid, Member>,
    pub(super) names: BTreeMap<String, Uuid>,
    pub(super) lead: Option<Uuid>,
    pub(super) tasks: Heads,
    pub(super) indexes: Indexes,
    /// Those of tasks that are being restored.
    pub(super) gathering: Gathering,
    /// When what ends. Signs of life move it and are not written down, so a copy may be earlier.
    pub(super) deadlines: Deadlines,
    /// When which started task ought to have had a report.
    pub(super) reports: Deadlines,
    /// Agents that have work to begin and do nothing. Memory, as signs of life are.
    pub(super) idle: Idle,
    /// What was said about which task and has not reached its agent, oldest first.
    pub(super) steering: Steering,
    /// What the duplicate guard compares with: a cache, which after a restart may hold more, never less.
    pub(super) recent: Recent,
    /// Who waits for work. Memory, as signs of life are.
    pub(super) standing: Standing,
    /// How what ended lately did. Memory as well: whoever serves the pool next begins anew.
    pub(super) ends: Ends,
}

/// Equal in everything that is committed. Names, the lead and the indexes follow from members and tasks.
impl PartialEq for Pool {
    fn eq(&self, other: &Self) -> bool {
        self.swarm == other.swarm
            && self.members == other.members
            && self.tasks == other.tasks
            && self.names == other.names
            && self.lead == other.lead
            && self.indexes == other.indexes
            && self.steering == other.steering
    }
}

impl Pool {
    pub(super) fn new(swarm: Name) -> Self {
        Self {
            swarm,
            members: BTreeMap::new(),
            names: BTreeMap::new(),
            lead: None,
            tasks: Heads::default(),
            indexes: Indexes::default(),
            gathering: Gathering::default(),
            deadlines: Deadlines::default(),
            reports: Deadlines::default(),
            idle: Idle::default(),
            steering: Steering::default(),
            recent: Recent::default(),
            standing: Standing::default(),
            ends: Ends::default(),
        }
    }

    /// A live task's head.
    pub fn task(&self, id: Uuid) -> Option<Task> {
        self.tasks.get(id)
    }

    pub fn member(&self, id: Uuid) -> Option<&Member> {
        self.members.get(&id)
    }

    pub fn lead(&self) -> Option<Uuid> {
        self.lead
    }

    /// Number of tasks that an agent has in progress.
    pub fn active(&self, agent: Uuid) -> usize {
        self.indexes.active(agent)
    }

    pub(super) fn take_member(&mut self, id: Uuid, member: Member) {
        self.names.insert(member.name.clone(), id);
        if member.lead {
            self.lead = Some(id);
        }
        self.members.insert(id, member);
    }

    /// Takes a task without its places in the tree and the indexes, which it gets once all tasks are there, and without
    /// its sketch, which is made of its text.
    pub(super) fn restore_task(&mut self, id: Uuid, task: &Task) {
        if let Some(creator) = task.creator {
            self.recent.add(creator, task.created, id, Sketch::default());
        }
        self.promise(id, task);
        self.gathering.add(id, task);
        self.tasks.restore(id, task);
    }

    /// Puts a task in and into every index.
    pub(super) fn enter(&mut self, id: Uuid, task: &Task) {
        self.indexes.add(id, task);
        self.promise(id, task);
        self.tasks.insert(id, task);
    }

    /// Notes when what is to have happened to a task.
    pub(super) fn promise(&mut self, id: Uuid, task: &Task) {
        self.deadlines.set(id, task.term(), task.until);
        self.reports.set(id, Some(Term::Report), task.report_due());
    }

    /// Takes a task out of memory and of every index.
    pub(super) fn remove(&mut self, id: Uuid) -> Option<Task> {
        let task = self.tasks.remove(id)?;
        self.indexes.remove(id, &task);
        self.deadlines.set(id, None, None);
        self.reports.set(id, None, None);
        Some(task)
    }
}
