//! What the swarm's channels are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::GENERAL;
use super::spans::Spans;
use crate::id::Name;
use crate::time::Timestamp;

/// All channels of a swarm.
#[derive(Clone, Debug, PartialEq)]
pub struct Channels {
    pub(super) swarm: Name,
    pub(super) channels: BTreeMap<Uuid, Channel>,
    pub(super) ids: BTreeMap<String, Uuid>,
    /// By channel and agent.
    pub(super) marks: BTreeMap<(Uuid, Uuid), Mark>,
    /// Deleted channels whose messages are still to be removed.
    pub(super) purges: BTreeMap<Uuid, Purge>,
}

/// A channel: its document's head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Channel {
    pub id: Uuid,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: Type,
    /// The number of the newest message, and so how many there have been.
    pub last: u64,
    /// Messages up to this number are no longer kept.
    #[serde(default)]
    pub forgotten: u64,
    /// When the newest message came.
    pub last_at: Timestamp,
    pub created: Timestamp,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Type {
    #[default]
    Public,
    Dm,
}

/// What an agent has read of a channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mark {
    /// Everything up to this number is read.
    pub read: u64,
    /// What else is not unread: above the mark the agent's own messages, and those that it read out of their turn.
    #[serde(alias = "own", skip_serializing_if = "Spans::is_empty")]
    pub seen: Spans,
    /// The latest messages that mention the agent, read or not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mentions: Vec<u64>,
    /// Mentions up to this number have woken the agent once …
    pub claimed: u64,
    /// … at this time.
    pub claimed_at: Timestamp,
}

/// Messages of a deleted channel that are still there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Purge {
    pub next: u64,
    pub last: u64,
}

impl Mark {
    /// Runs of numbers that are known to be read above the mark. Past them the lowest run is forgotten: rather
    /// is a message unread once more than never shown.
    pub(super) const RUNS: usize = 256;
    /// As many mentions as a read returns.
    pub const MENTIONS: usize = 50;

    pub(super) fn mentioned(&mut self, number: u64) {
        self.mentions.push(number);
        let over = self.mentions.len().saturating_sub(Self::MENTIONS);
        self.mentions.drain(..over);
    }

    /// Notes what was read, or what the agent said itself.
    pub(super) fn see(&mut self, numbers: &Spans) {
        self.seen.add_all(numbers);
        self.seen.keep_above(self.read);
        while self.seen.first() == Some(self.read + 1) {
            self.read = self.seen.pop_lowest().unwrap_or(self.read);
        }
        while self.seen.runs() > Self::RUNS {
            self.seen.pop_lowest();
        }
    }

    /// What is no longer kept counts as read, and mentions nobody.
    pub(super) fn pass(&mut self, forgotten: u64) {
        if forgotten > self.read {
            self.read = forgotten;
            self.see(&Spans::default());
        }
        self.mentions.retain(|number| *number > forgotten);
    }

    /// How many of the messages up to `last` are unread.
    pub fn unread(&self, last: u64) -> u64 {
        last.saturating_sub(self.read).saturating_sub(self.seen.count())
    }

    pub(super) fn is_unread(&self, number: u64) -> bool {
        number > self.read && !self.seen.contains(number)
    }
}

impl Channel {
    pub(super) fn key(id: Uuid) -> String {
        format!("channel/{id}")
    }

    pub(super) fn general() -> Self {
        Self {
            id: GENERAL,
            name: "general".to_owned(),
            kind: Type::Public,
            last: 0,
            forgotten: 0,
            last_at: Timestamp::ZERO,
            created: Timestamp::ZERO,
        }
    }

    /// The shape `Channel` of Agent Swarm, as far as the head knows it.
    pub fn body(&self) -> Value {
        json!({
            "id": self.id,
            "name": self.name,
            "type": self.kind,
            "participants": [],
            "createdAt": self.created.iso(),
        })
    }
}

impl Channels {
    /// What an agent has read of the messages that are kept.
    pub(super) fn mark(&self, channel: &Channel, agent: Uuid) -> Mark {
        let mut mark = self.marks.get(&(channel.id, agent)).cloned().unwrap_or_default();
        mark.pass(channel.forgotten);
        mark
    }

    pub(super) fn mark_key(channel: Uuid, agent: Uuid) -> String {
        format!("mark/{channel}/{agent}")
    }

    pub(super) fn purge_key(channel: Uuid) -> String {
        format!("purge/{channel}")
    }
}
