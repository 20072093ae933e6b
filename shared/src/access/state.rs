//! What a swarm's access is.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::id::Name;
use crate::time::Timestamp;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Access {
    pub(super) clients: BTreeMap<Name, Client>,
    pub(super) revoked: BTreeMap<Of, Revocation>,
    /// When the newest of all revocations was made; each has a moment of its own.
    pub(super) newest: Timestamp,
}

/// A program that fetches tokens with a secret of its own. It is its document's head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    pub id: Uuid,
    pub name: Name,
    /// SHA-256 of the secret, which has 256 bits of chance: to hash it slowly would only slow its owner down.
    pub digest: String,
    /// The agent that its tokens are for.
    pub agent: Uuid,
    pub agent_name: Name,
    pub role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<String>,
    /// The life of its tokens, seconds.
    pub lifetime_s: u64,
    pub created: Timestamp,
}

impl Client {
    pub(super) fn key(name: &Name) -> String {
        format!("client/{name}")
    }

    /// As operators see it.
    pub(super) fn body(&self) -> Value {
        json!({
            "client": self.name,
            "id": self.id,
            "agentId": self.agent,
            "agent": self.agent_name,
            "role": self.role,
            "scope": self.scope,
            "view": self.view,
            "lifetime": format!("{}s", self.lifetime_s),
            "createdAt": self.created.iso(),
        })
    }
}

/// What is revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    /// The token of this id, those that continue it, and those that were made narrower from it; or all of a client; or
    /// those of a worker that were handed on before.
    Token(Uuid),
    /// All of an agent that were issued before.
    Agent(Uuid),
    /// All of the swarm's agents that were issued before.
    Everyone,
}

impl fmt::Display for Of {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Of::Token(id) => write!(f, "token-{id}"),
            Of::Agent(id) => write!(f, "agent-{id}"),
            Of::Everyone => f.write_str("everyone"),
        }
    }
}

/// It is its document's head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    pub of: Of,
    /// Tokens issued at this moment or before hold no more.
    pub at: Timestamp,
    /// When the last of them has ended by itself, and this may be forgotten: by the time of who keeps it.
    pub until: Timestamp,
    /// Who revoked.
    pub by: String,
    /// The agent that gave the token back, if one did and this was written since it is noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Uuid>,
}

impl Revocation {
    pub(super) fn key(of: Of) -> String {
        format!("revocation/{of}")
    }

    pub(super) fn body(&self) -> Value {
        json!({ "of": self.of.to_string(), "at": self.at.iso(), "until": self.until.iso(), "by": self.by })
    }
}
