//! What the swarm's inboxes hold.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::time::Timestamp;

/// All open messages of a swarm.
#[derive(Clone, Debug, PartialEq)]
pub struct Inboxes {
    pub(super) messages: BTreeMap<Uuid, Message>,
    /// Deliveries that may come again, by their key's digest.
    pub(super) seen: BTreeMap<Uuid, Seen>,
    /// The number of the latest message: the order in which they came.
    pub(super) last: u64,
}

/// An open message: its document's head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    pub id: Uuid,
    pub agent: Uuid,
    pub number: u64,
    pub status: Status,
    /// When it got this status.
    pub since: Timestamp,
}

/// What has become of a message. (Agent Swarm also knows `read`, which nothing sets.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Unread,
    Processing,
    Responded,
    Delegated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Slack,
    Agentmail,
}

/// A delivery that was taken: a repeat leads to the same message.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Seen {
    pub message: Uuid,
    pub at: Timestamp,
}

impl Message {
    pub(super) fn key(id: Uuid) -> String {
        format!("message/{id}")
    }
}

impl Inboxes {
    pub(super) fn seen_key(digest: Uuid) -> String {
        format!("seen/{digest}")
    }

    /// What a delivery's key is remembered by; the keys of providers have any length.
    pub(super) fn digest(key: &str) -> Uuid {
        Uuid::new_v5(&Uuid::NAMESPACE_OID, key.as_bytes())
    }

    pub(super) fn of(&self, agent: Uuid, status: Status) -> impl Iterator<Item = &Message> {
        self.messages.values().filter(move |message| message.agent == agent && message.status == status)
    }
}
