//! Tasks and members as answers show them. Answers are kept for their repeats and pass from node to node, so what a
//! task does not have is left out.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::state::{Member, Pool, Status, Task, is_default};
use crate::id::InstanceId;
use crate::time::Timestamp;

/// A task as the pool knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskView {
    pub id: Uuid,
    pub status: Status,
    pub priority: u8,
    pub creator: Option<Uuid>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub agent: Option<Uuid>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub offered_to: Option<Uuid>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub instance: Option<InstanceId>,
    pub attempt: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub generation: u32,
    /// End of the lease, the offer or the reservation.
    #[serde(default, skip_serializing_if = "is_default")]
    pub until: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub depends_on: Vec<Uuid>,
    /// Dependencies that are not completed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unmet: Vec<Uuid>,
    /// Dependencies that never will be.
    #[serde(default, skip_serializing_if = "is_default")]
    pub blocked_by: Vec<Uuid>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub epic: Option<Uuid>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub schedule: Option<Uuid>,
    pub created: Timestamp,
    pub updated: Timestamp,
}

impl Task {
    pub fn view(&self, id: Uuid) -> TaskView {
        TaskView {
            id,
            status: self.status,
            priority: self.priority,
            creator: self.creator,
            agent: self.agent,
            offered_to: self.offered_to,
            instance: self.instance.clone(),
            attempt: self.attempt,
            generation: self.generation,
            until: self.until,
            depends_on: self.dependencies.iter().map(|d| d.task).collect(),
            unmet: self.unmet(),
            blocked_by: self.broken(),
            epic: self.epic,
            schedule: self.schedule,
            created: self.created,
            updated: self.updated,
        }
    }
}

/// A member as the pool knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberView {
    pub id: Uuid,
    pub name: String,
    pub lead: bool,
    pub managed: bool,
    pub offline: bool,
    pub max_tasks: u32,
    /// Tasks in progress.
    pub current: usize,
    pub empty_polls: u32,
}

impl Pool {
    pub(super) fn member_view(&self, id: Uuid, member: &Member) -> MemberView {
        MemberView {
            id,
            name: member.name.clone(),
            lead: member.lead,
            managed: member.managed,
            offline: member.offline,
            max_tasks: member.max_tasks,
            current: self.active(id),
            empty_polls: member.empty_polls,
        }
    }
}
