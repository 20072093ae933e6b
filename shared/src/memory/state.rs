//! What the memory knows without reading.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The memory of a swarm.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Learnings by the file that they came from.
    pub(super) files: BTreeMap<Uuid, File>,
}

/// The learnings of one file of one agent, in the order of its pieces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct File {
    pub memories: Vec<Uuid>,
}

impl Memory {
    /// What a file is known by; paths have any length.
    pub(super) fn file(agent: Option<Uuid>, path: &str) -> Uuid {
        Uuid::new_v5(&agent.unwrap_or(Uuid::NAMESPACE_OID), path.as_bytes())
    }

    pub(super) fn file_key(file: Uuid) -> String {
        format!("file/{file}")
    }
}
