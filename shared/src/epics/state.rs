//! What the swarm's epics are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::id::Name;
use crate::time::Timestamp;
use crate::wire;

/// All epics of a swarm.
#[derive(Clone, Debug, PartialEq)]
pub struct Epics {
    pub(super) swarm: Name,
    pub(super) epics: BTreeMap<Uuid, Epic>,
    pub(super) ids: BTreeMap<String, Uuid>,
}

/// What the decisions about one epic need. It is its document's head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Epic {
    pub id: Uuid,
    pub name: String,
    pub status: Status,
    pub priority: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creator: Option<Uuid>,
    /// The agent that leads the epic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<Uuid>,
    pub created: Timestamp,
    pub updated: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Timestamp>,
    #[serde(default)]
    pub counts: Counts,
    /// Tasks that ended since the lead was last told, the newest of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub news: Vec<Uuid>,
    /// How many have ended before those, of which the lead was not told either.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unnamed: u32,
}

/// Set by people and agents; nothing moves it by itself, and any may follow any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Draft,
    Active,
    Paused,
    Completed,
    Cancelled,
}

/// The epic's tasks by what has become of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub completed: u32,
    pub failed: u32,
    pub in_progress: u32,
    pub pending: u32,
    pub unassigned: u32,
}

impl Counts {
    pub fn total(&self) -> u32 {
        self.completed + self.failed + self.in_progress + self.pending + self.unassigned
    }

    /// Per cent of the tasks that are completed, rounded; failed ones do not count as done.
    pub fn progress(&self) -> u32 {
        let total = u64::from(self.total());
        if total == 0 {
            return 0;
        }
        let rounded = (200 * u64::from(self.completed) + total) / (2 * total);
        u32::try_from(rounded).unwrap_or(100)
    }

    /// The count that a task of this status belongs to. Each status belongs to one, so that they add up.
    pub(super) fn of(&mut self, status: &str) -> &mut u32 {
        match status {
            "completed" => &mut self.completed,
            "failed" | "cancelled" | "superseded" => &mut self.failed,
            "in_progress" | "paused" => &mut self.in_progress,
            "unassigned" | "backlog" => &mut self.unassigned,
            // pending, offered, reviewing: somebody has it and has not begun.
            _ => &mut self.pending,
        }
    }

    /// The fields `taskStats` and `progress` of Agent Swarm's `EpicWithProgress`.
    pub(super) fn body(&self) -> Value {
        json!({
            "taskStats": {
                "total": self.total(),
                "completed": self.completed,
                "failed": self.failed,
                "inProgress": self.in_progress,
                "pending": self.pending,
                "unassigned": self.unassigned,
            },
            "progress": self.progress(),
        })
    }
}

impl Epic {
    pub(super) fn key(id: Uuid) -> String {
        format!("epic/{id}")
    }

    /// The fields of the body that the head knows.
    pub(super) fn body(&self) -> Value {
        let mut body = json!({
            "id": self.id,
            "name": self.name,
            "status": self.status,
            "priority": self.priority,
            "createdByAgentId": self.creator,
            "leadAgentId": self.lead,
            "channelId": self.channel,
            "createdAt": self.created.iso(),
            "lastUpdatedAt": self.updated.iso(),
            "startedAt": wire::iso(self.started),
            "completedAt": wire::iso(self.completed),
        });
        extend(&mut body, self.counts.body());
        body
    }
}

/// Whether there is nothing to write down.
pub(super) fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Adds the fields of `more`, nulls too, where both are objects.
pub(super) fn extend(body: &mut Value, more: Value) {
    if let (Value::Object(body), Value::Object(more)) = (body, more) {
        body.extend(more);
    }
}
