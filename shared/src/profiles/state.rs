//! What is known of each text's latest version.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The latest versions of all members' texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profiles {
    pub(super) agents: BTreeMap<Uuid, BTreeMap<Field, Latest>>,
}

/// The texts that have versions, by the names that clients know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Field {
    ClaudeMd,
    SoulMd,
    IdentityMd,
    SetupScript,
    ToolsMd,
}

/// Who or what has changed a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    SelfEdit,
    /// The lead has changed it for the agent.
    LeadCoaching,
    /// A program or a person has, and says nothing more.
    Api,
    /// The text that a member starts with.
    System,
    /// A session of the agent has at its end what its files say.
    SessionSync,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latest {
    pub id: Uuid,
    pub version: u32,
    /// Of the text: another text has another one.
    pub digest: Uuid,
}

impl Latest {
    /// Whether the version has this text.
    pub fn says(&self, text: &str) -> bool {
        self.digest == digest(text)
    }
}

/// Tells texts apart without keeping them.
pub(super) fn digest(text: &str) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes())
}
