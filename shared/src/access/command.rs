//! What a swarm's access can be asked, and what it answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::state::{Client, Of, Revocation};
use crate::id::Name;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    AddClient(Box<Wish>),
    /// Its tokens hold no more. `until` is when the last of them has ended.
    RemoveClient {
        name: Name,
        by: String,
        until: Timestamp,
    },
    /// One client, with the digest of its secret.
    Client {
        name: Name,
    },
    Revoke {
        of: Of,
        by: String,
        until: Timestamp,
        /// When the token began that is given back, by the clock of whoever issued it; zero if none is.
        #[serde(default)]
        began: Timestamp,
        /// The agent that gives it back; none of an operator's, nor of nodes of before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        holder: Option<Uuid>,
    },
    /// What was revoked after this moment.
    Revoked {
        after: Timestamp,
    },
    Tick,
}

/// A client as it shall be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    pub name: Name,
    pub digest: String,
    /// A new agent if left out.
    #[serde(default)]
    pub agent: Option<Uuid>,
    pub agent_name: Name,
    pub role: String,
    #[serde(default)]
    pub scope: Option<String>,
    #[serde(default)]
    pub view: Option<String>,
    pub lifetime_s: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// As operators see it.
    Added(Value),
    Client(Option<Box<Client>>),
    Revocation(Value),
    Revoked(Vec<Revocation>),
    Done,
}
