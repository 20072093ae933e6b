//! What the settings can be asked, and what they answer.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::repos::RepoSpec;
use super::state::{Held, Place, Sealed, Setting};
use crate::caller::Caller;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Makes a setting, or changes the one in its place. The lead may anywhere, an agent for itself.
    Set(Box<Set>),
    /// The same may.
    Delete {
        by: Caller,
        id: Uuid,
    },
    /// Settings as they stand, by key.
    List(Wanted),
    /// For each key the narrowest of what there is for all, for the agent and for the repository.
    Resolve {
        #[serde(default)]
        agent: Option<Uuid>,
        #[serde(default)]
        repo: Option<Uuid>,
        #[serde(default)]
        key: Option<String>,
    },
    /// Puts secrets that were sealed anew in the place of those that they were made of.
    Reseal(Vec<Exchange>),
    /// All repositories, by name.
    Repos,
    /// The lead may.
    AddRepo {
        by: Caller,
        repo: RepoSpec,
    },
    /// Changes what is given. The lead may.
    ChangeRepo {
        by: Caller,
        id: Uuid,
        repo: RepoSpec,
    },
    /// The lead may.
    RemoveRepo {
        by: Caller,
        id: Uuid,
    },
    Tick,
}

impl Command {
    /// Who asks for it, where the service says whether that is the lead.
    pub(super) fn by(&mut self) -> Option<&mut Caller> {
        match self {
            Self::Set(set) => Some(&mut set.by),
            Self::Delete { by, .. }
            | Self::AddRepo { by, .. }
            | Self::ChangeRepo { by, .. }
            | Self::RemoveRepo { by, .. } => Some(by),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Set {
    pub by: Caller,
    pub place: Place,
    pub value: Held,
    #[serde(default)]
    pub description: Option<String>,
}

/// Which settings a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// `global`, `agent` or `repo`.
    #[serde(default)]
    pub scope: Option<String>,
    /// Of this agent or repository.
    #[serde(default)]
    pub of: Option<Uuid>,
    #[serde(default)]
    pub key: Option<String>,
}

impl Wanted {
    pub(super) fn includes(&self, place: &Place) -> bool {
        let Place { key, scope } = place;
        self.scope.as_deref().is_none_or(|wanted| wanted == scope.as_str())
            && self.of.is_none_or(|wanted| scope.id() == Some(wanted))
            && self.key.as_ref().is_none_or(|wanted| wanted == key)
    }
}

/// A secret, and the same secret under another key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    pub id: Uuid,
    pub before: Sealed,
    pub after: Sealed,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The setting as clients see it, its secret masked, and whether it is new.
    Set {
        setting: Value,
        new: bool,
    },
    Deleted(Place),
    Settings(Vec<Setting>),
    /// How many secrets were exchanged; others had changed meanwhile.
    Resealed(usize),
    /// As clients see it; of one that is removed, as it was.
    Repo(Value),
    Repos(Vec<Value>),
    Done,
}
