//! A call to an agent, as it remembers it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::returned::Returned;
use crate::id::{InstanceId, Name};
use crate::limits;
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    Pending,
    Running,
    Completed,
    Error,
}

/// A call to this agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    pub id: Uuid,
    pub status: CallStatus,
    pub caller: Name,
    pub caller_instance: InstanceId,
    /// The instance that serves it, or will.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callee: Option<InstanceId>,
    /// The callers of whoever serves it on account of this call, oldest first; empty while that is a run of its own,
    /// which has them itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<(Name, InstanceId)>,
    /// How many of these are on top of each other at most, where some are side by side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<usize>,
    /// When it fails for want of an end, or, after its end, when it is forgotten. Waits of the callee move it.
    pub until: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Returned>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl CallStatus {
    pub fn is_over(self) -> bool {
        matches!(self, CallStatus::Completed | CallStatus::Error)
    }
}

impl CallRecord {
    pub fn is_over(&self) -> bool {
        self.status.is_over()
    }

    /// When it ended, once it has.
    pub(super) fn ended(&self) -> Option<Timestamp> {
        self.is_over().then(|| self.until - limits::CALL_KEEP)
    }

    /// How many callers are above whoever serves it on account of this call; none while that is a run of its own.
    pub(super) fn depth(&self) -> usize {
        self.depth.unwrap_or(self.chain.len())
    }
}
