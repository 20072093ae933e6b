//! What has happened in a pool.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::command::{Join, Profile};
use super::creation::TaskSpec;
use super::dependency::Dependency;
use super::guard::Sketch;
use super::state::{Outcome, Status, is_default};
use crate::costs::Cost;
use crate::id::InstanceId;
use crate::time::Timestamp;

/// A fact, in the past tense. `at` is the pool's time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Joined {
        join: Join,
        max_tasks: u32,
        at: Timestamp,
    },
    Left {
        agent: Uuid,
        at: Timestamp,
    },
    WentOffline {
        agent: Uuid,
        at: Timestamp,
    },
    CameBack {
        agent: Uuid,
        managed: bool,
        at: Timestamp,
    },
    /// A member that had joined as a worker leads from now on.
    TookLead {
        agent: Uuid,
        at: Timestamp,
    },
    CapacitySet {
        agent: Uuid,
        max_tasks: u32,
        at: Timestamp,
    },
    Described {
        agent: Uuid,
        profile: Profile,
        at: Timestamp,
    },
    PolledEmpty {
        agent: Uuid,
        at: Timestamp,
    },

    Created(Box<Created>),
    /// An agent began to work: polled, claimed or resumed.
    Started {
        task: Uuid,
        agent: Uuid,
        instance: InstanceId,
        managed: bool,
        attempt: u32,
        until: Timestamp,
        at: Timestamp,
    },
    Reviewed {
        task: Uuid,
        at: Timestamp,
    },
    Accepted {
        task: Uuid,
        agent: Uuid,
        at: Timestamp,
    },
    Rejected {
        task: Uuid,
        reason: Option<String>,
        at: Timestamp,
    },
    Released {
        task: Uuid,
        at: Timestamp,
    },
    Parked {
        task: Uuid,
        at: Timestamp,
    },
    Unparked {
        task: Uuid,
        at: Timestamp,
    },
    /// News that had waited in the backlog are for the agent that leads now.
    PassedOn {
        task: Uuid,
        agent: Uuid,
        at: Timestamp,
    },
    Progressed {
        task: Uuid,
        text: String,
        /// The instance that works on it said so itself: the hand-over has arrived.
        reported: bool,
        until: Timestamp,
        at: Timestamp,
    },
    /// The instance that works on it gave a sign of itself that is no news otherwise.
    Reported {
        task: Uuid,
        until: Timestamp,
        at: Timestamp,
    },
    Finished {
        task: Uuid,
        outcome: Outcome,
        output: Option<String>,
        reason: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<Cost>,
        at: Timestamp,
    },
    Paused {
        task: Uuid,
        until: Timestamp,
        at: Timestamp,
    },
    SessionNoted {
        task: Uuid,
        session: String,
        at: Timestamp,
    },
    EpicSet {
        task: Uuid,
        epic: Option<Uuid>,
        at: Timestamp,
    },
    /// Something was said to whoever works on the task.
    Steered {
        task: Uuid,
        message: Uuid,
        by: Option<Uuid>,
        text: String,
        since: Timestamp,
    },
    /// It went with an answer to the agent.
    SteeringTaken {
        task: Uuid,
        messages: Vec<Uuid>,
        agent: Uuid,
        since: Timestamp,
    },
    /// That answer has reached nobody, and the next one takes it along.
    SteeringReturned {
        task: Uuid,
        messages: Vec<(Timestamp, Uuid)>,
    },
    /// A started task has had no report for long, though its agent lives.
    Stalled {
        task: Uuid,
        since: Timestamp,
    },
    /// A task of the pool could be claimed for long, and nobody took it. It is looked at again then.
    Unclaimed {
        task: Uuid,
        again: Timestamp,
    },
    /// Work waited for an agent for long, and it did nothing. No document changes: the next owner says it anew.
    Unbegun {
        agent: Uuid,
        again: Timestamp,
    },
    /// They last longer, over a wait of the instance and once it has ended.
    LeasesExtended {
        instance: InstanceId,
        tasks: Vec<Uuid>,
        until: Timestamp,
        at: Timestamp,
    },
    /// The wait is over for which they were extended.
    LeasesShortened {
        instance: InstanceId,
        tasks: Vec<Uuid>,
        until: Timestamp,
        at: Timestamp,
    },
    /// The agent of a started task is gone.
    LeaseLost {
        task: Uuid,
        generation: u32,
        to: Return,
        reason: String,
        at: Timestamp,
    },
    /// The agent that had lost it did not come back for it.
    ReservationEnded {
        task: Uuid,
        at: Timestamp,
    },
    OfferExpired {
        task: Uuid,
        at: Timestamp,
    },
    /// Its agent or offeree has left or went offline.
    Withdrawn {
        task: Uuid,
        at: Timestamp,
    },
    /// An owner began to serve at `since`, and has put off what it could not have heard of. No document
    /// changes: the next owner says it anew.
    Served {
        since: Timestamp,
    },
}

/// A task as it was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Created {
    pub task: Uuid,
    pub by: Option<Uuid>,
    pub spec: TaskSpec,
    pub status: Status,
    pub agent: Option<Uuid>,
    pub offered_to: Option<Uuid>,
    pub dependencies: Vec<Dependency>,
    /// End of the offer.
    pub until: Option<Timestamp>,
    /// For the guard. It follows from the text, so the record of the event does without it.
    #[serde(skip)]
    pub sketch: Option<Sketch>,
    /// It tells the lead of others' work.
    #[serde(default, skip_serializing_if = "is_default")]
    pub news: bool,
    pub at: Timestamp,
}

/// Where a task goes whose agent is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Return {
    /// Kept for the same agent until then.
    SameAgent {
        until: Timestamp,
    },
    /// It has lost its agent too often: the lead decides.
    Lead {
        lead: Uuid,
    },
    Pool,
}

impl Event {
    pub(super) fn subject(&self) -> Option<String> {
        match self {
            Event::Created(created) => Some(created.task.to_string()),
            Event::LeasesExtended { instance, .. } | Event::LeasesShortened { instance, .. } => {
                Some(instance.to_string())
            }
            _ => self.task().or_else(|| self.agent()).map(|id| id.to_string()),
        }
    }

    /// About what is said to whoever works on a task, and not about the task itself.
    pub(super) fn is_steering(&self) -> bool {
        matches!(self, Event::Steered { .. } | Event::SteeringTaken { .. } | Event::SteeringReturned { .. })
    }

    /// The live task that the event changes, for events of exactly one.
    pub(super) fn task(&self) -> Option<Uuid> {
        match self {
            Event::Started { task, .. }
            | Event::Reviewed { task, .. }
            | Event::Accepted { task, .. }
            | Event::Rejected { task, .. }
            | Event::Released { task, .. }
            | Event::Parked { task, .. }
            | Event::Unparked { task, .. }
            | Event::PassedOn { task, .. }
            | Event::Progressed { task, .. }
            | Event::Reported { task, .. }
            | Event::Finished { task, .. }
            | Event::Paused { task, .. }
            | Event::SessionNoted { task, .. }
            | Event::EpicSet { task, .. }
            | Event::Steered { task, .. }
            | Event::SteeringTaken { task, .. }
            | Event::SteeringReturned { task, .. }
            | Event::Stalled { task, .. }
            | Event::Unclaimed { task, .. }
            | Event::LeaseLost { task, .. }
            | Event::ReservationEnded { task, .. }
            | Event::OfferExpired { task, .. }
            | Event::Withdrawn { task, .. } => Some(*task),
            _ => None,
        }
    }

    pub(super) fn agent(&self) -> Option<Uuid> {
        match self {
            Event::Joined { join, .. } => Some(join.agent),
            Event::Left { agent, .. }
            | Event::WentOffline { agent, .. }
            | Event::CameBack { agent, .. }
            | Event::TookLead { agent, .. }
            | Event::CapacitySet { agent, .. }
            | Event::Described { agent, .. }
            | Event::Unbegun { agent, .. }
            | Event::PolledEmpty { agent, .. } => Some(*agent),
            _ => None,
        }
    }

    /// When it happened to its task.
    pub(super) fn at(&self) -> Option<Timestamp> {
        match self {
            Event::Started { at, .. }
            | Event::Reviewed { at, .. }
            | Event::Accepted { at, .. }
            | Event::Rejected { at, .. }
            | Event::Released { at, .. }
            | Event::Parked { at, .. }
            | Event::Unparked { at, .. }
            | Event::PassedOn { at, .. }
            | Event::Progressed { at, .. }
            | Event::Reported { at, .. }
            | Event::Finished { at, .. }
            | Event::Paused { at, .. }
            | Event::SessionNoted { at, .. }
            | Event::EpicSet { at, .. }
            | Event::LeaseLost { at, .. }
            | Event::ReservationEnded { at, .. }
            | Event::OfferExpired { at, .. }
            | Event::Withdrawn { at, .. } => Some(*at),
            _ => None,
        }
    }

    /// The status that a task has after the event, where the event sets one.
    pub fn status(&self) -> Option<(Uuid, Status)> {
        Some(match self {
            Event::Created(created) => (created.task, created.status),
            Event::Started { task, .. } => (*task, Status::InProgress),
            Event::Reviewed { task, .. } => (*task, Status::Reviewing),
            Event::Accepted { task, .. } | Event::PassedOn { task, .. } => (*task, Status::Pending),
            Event::Paused { task, .. } => (*task, Status::Paused),
            Event::Parked { task, .. } => (*task, Status::Backlog),
            Event::Finished { task, outcome, .. } => (*task, outcome.status()),
            Event::LeaseLost { task, to: Return::SameAgent { .. } | Return::Lead { .. }, .. } => {
                (*task, Status::Pending)
            }
            Event::LeaseLost { task, to: Return::Pool, .. }
            | Event::Rejected { task, .. }
            | Event::Released { task, .. }
            | Event::Unparked { task, .. }
            | Event::ReservationEnded { task, .. }
            | Event::OfferExpired { task, .. }
            | Event::Withdrawn { task, .. } => (*task, Status::Unassigned),
            _ => return None,
        })
    }
}
