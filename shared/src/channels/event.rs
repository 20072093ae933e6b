//! What happens in channels.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::command::Author;
use super::spans::Spans;
use super::state::Channel;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Created {
        channel: Channel,
        description: Option<String>,
        participants: Vec<Uuid>,
        creator: Option<Uuid>,
    },
    Deleted {
        channel: Uuid,
    },
    Posted(Box<Posted>),
    /// The agent was given these messages, unread until then.
    Marked {
        channel: Uuid,
        agent: Uuid,
        numbers: Spans,
    },
    /// Mentions up to each number woke the agent.
    Claimed {
        agent: Uuid,
        channels: Vec<(Uuid, u64)>,
        at: Timestamp,
    },
    /// The oldest messages are no longer kept, up to this number.
    Trimmed {
        channel: Uuid,
        through: u64,
    },
    /// What an agent that has left had read of these channels is forgotten.
    Forgotten {
        agent: Uuid,
        channels: Vec<Uuid>,
    },
    /// Messages of a deleted channel are gone, up to this number.
    Purged {
        channel: Uuid,
        through: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Posted {
    pub channel: Uuid,
    pub number: u64,
    pub id: Uuid,
    pub author: Option<Author>,
    pub content: String,
    pub reply_to: Option<Uuid>,
    pub mentions: Vec<Uuid>,
    pub at: Timestamp,
}
