//! What the profiles can be told, and what they answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::state::{Field, Latest, Source};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Texts of an agent were written anew.
    Changed {
        agent: Uuid,
        texts: BTreeMap<Field, Change>,
        source: Source,
        /// Who has changed them.
        by: Option<Uuid>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The latest versions of an agent's texts.
    Latest { agent: Uuid },
    /// Nothing is ever due.
    Tick,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub text: String,
    /// What it was until then. It becomes the first version of a text that has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

/// How texts of an agent come to be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    pub source: Source,
    /// The agent that changes them; a person and the swarm itself are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Edit {
    /// By the agent itself.
    pub fn own(agent: Uuid) -> Self {
        Self { source: Source::SelfEdit, by: Some(agent), reason: None }
    }

    /// By the swarm.
    pub fn system() -> Self {
        Self { source: Source::System, by: None, reason: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Done,
    Latest(BTreeMap<Field, Latest>),
}
