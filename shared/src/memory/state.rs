//! What the memory knows without reading.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::command::{Remember, Scope, Source};

/// The memory of a swarm.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    pub(super) learnings: BTreeMap<Uuid, Learning>,
    /// Learnings by what they say and whom they say it to. What came from a file that has a path is known by that
    /// instead.
    pub(super) contents: BTreeMap<Uuid, Uuid>,
    /// Those that make room for new ones; their ids begin with their time.
    pub(super) passing: BTreeSet<Uuid>,
    /// Learnings by the file that they came from.
    pub(super) files: BTreeMap<Uuid, File>,
}

/// What is known of a learning.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Learning {
    pub head: Head,
    /// The model that it has a vector of, or that gave none.
    pub embedded: Option<Uuid>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Head {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Uuid>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub passing: bool,
}

/// The head of a vector's document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Embedded {
    pub model: Uuid,
}

/// The learnings of one file of one agent, in the order of its pieces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct File {
    pub memories: Vec<Uuid>,
}

impl Head {
    pub(super) fn of(learning: &Remember) -> Self {
        Self {
            content: learning.file_path().is_none().then(|| content(learning)),
            passing: matches!(learning.source, Source::TaskCompletion | Source::SessionSummary),
        }
    }
}

/// The same for texts that differ in case and white space alone, of the same owner and for the same readers.
fn content(learning: &Remember) -> Uuid {
    let scope = match learning.scope {
        Scope::Agent => "agent",
        Scope::Swarm => "swarm",
    };
    let mut said = scope.to_owned();
    for word in learning.content.split_whitespace() {
        said.push(' ');
        said.extend(word.chars().flat_map(char::to_lowercase));
    }
    Uuid::new_v5(&learning.agent.unwrap_or(Uuid::NAMESPACE_OID), said.as_bytes())
}

impl Memory {
    pub(super) fn new() -> Self {
        Self {
            learnings: BTreeMap::new(),
            contents: BTreeMap::new(),
            passing: BTreeSet::new(),
            files: BTreeMap::new(),
        }
    }

    /// What a file is known by; paths have any length.
    pub(super) fn file(agent: Option<Uuid>, path: &str) -> Uuid {
        Uuid::new_v5(&agent.unwrap_or(Uuid::NAMESPACE_OID), path.as_bytes())
    }

    pub(super) fn file_key(file: Uuid) -> String {
        format!("file/{file}")
    }

    pub(super) fn vector_key(memory: Uuid) -> String {
        format!("vector/{memory}")
    }

    /// Knows a learning from here on.
    pub(super) fn know(&mut self, memory: Uuid, head: Head) {
        if let Some(content) = head.content {
            self.contents.insert(content, memory);
        }
        if head.passing {
            self.passing.insert(memory);
        }
        self.learnings.insert(memory, Learning { head, embedded: None });
    }

    /// Knows a learning no more.
    pub(super) fn unknow(&mut self, memory: Uuid) {
        let Some(Learning { head, .. }) = self.learnings.remove(&memory) else { return };
        if let Some(content) = head.content {
            self.contents.remove(&content);
        }
        self.passing.remove(&memory);
    }
}
