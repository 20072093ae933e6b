//! What a coordinator asks the runner that holds an instance, and what it gets. A question commands nothing: it is of
//! no entity, and nothing is written down for it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::id::InstanceId;

/// A question about one instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// Names the question: asked again, by whichever way, it is not done again.
    pub id: Uuid,
    pub instance: InstanceId,
    /// How long the answer is waited for, milliseconds.
    pub timeout_ms: u64,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Runs a transport tool inside the instance; answered with [`Outcome`](crate::transport::Outcome).
    Tool { name: String, arguments: Value },
    /// Reads what the instance has written, also after its end; answered with [`Lines`].
    Log(LogQuery),
}

/// Which part of an instance's log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogQuery {
    /// From where an earlier part ended; without it, the last lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Most lines.
    pub lines: u32,
    /// Only lines that match this regular expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grep: Option<String>,
    /// How long to wait for a line if there is none yet, milliseconds.
    #[serde(default)]
    pub wait_ms: u64,
}

/// A part of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lines {
    pub lines: Vec<String>,
    /// Where the next part begins.
    pub next: u64,
    /// The instance has ended and there is nothing behind `next`.
    pub over: bool,
}
