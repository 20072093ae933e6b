//! What the channels can be asked, and what they answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::state::{Channel, Type};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    Create(Create),
    /// The lead's; the service checks it. By name, or by id.
    Delete {
        channel: String,
    },
    Post(Box<Post>),
    Read(Read),
    /// By name.
    List,
    /// How much is unread in all channels.
    Count {
        agent: Uuid,
    },
    /// Takes the unread mentions that have not woken the agent yet.
    ClaimMentions {
        agent: Uuid,
    },
    /// Retention has removed the messages up to this number.
    Trim {
        channel: Uuid,
        through: u64,
    },
    /// An agent is no member any more: a part of its marks goes.
    Forget {
        agent: Uuid,
    },
    /// Removes messages of deleted channels.
    Tick,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Create {
    /// A chosen id; else one derived from the request.
    pub id: Option<Uuid>,
    pub name: String,
    pub description: Option<String>,
    #[serde(rename = "type")]
    pub kind: Type,
    pub participants: Vec<Uuid>,
    pub creator: Option<Uuid>,
    /// Takes the next free of `name`, `name-2`, `name-3`, … instead of refusing a name that is taken.
    pub suffix: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Author {
    pub id: Uuid,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Post {
    /// `None` is a person.
    #[serde(default)]
    pub author: Option<Author>,
    /// Name, or id; without one the general channel.
    #[serde(default)]
    pub channel: Option<String>,
    pub content: String,
    #[serde(default)]
    pub reply_to: Option<Uuid>,
    #[serde(default)]
    pub mentions: Vec<Uuid>,
    /// Those among them who are no members, as the service has found: they are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strangers: Vec<Uuid>,
    /// Who gets a task when the content begins with `/task`: of those mentioned, or in a reply without mentions
    /// of those that the parent mentions, the ones that exist. The service reads both.
    #[serde(default)]
    pub assignees: Vec<Uuid>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Read {
    pub agent: Uuid,
    /// Name, or id; without one the unread messages of all channels.
    #[serde(default)]
    pub channel: Option<String>,
    /// The newest so many, of each channel; of all together no more than one answer holds.
    pub limit: u32,
    /// Only messages that came later.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// What that means in each channel: the number of its newest message that is not later. The service reads it
    /// from the messages, whose times are not kept in memory. A channel that is not named came later itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub after: BTreeMap<Uuid, u64>,
    #[serde(default)]
    pub unread_only: bool,
    #[serde(default)]
    pub mentions_only: bool,
    pub mark_as_read: bool,
}

impl Read {
    pub fn new(agent: Uuid) -> Self {
        Self {
            agent,
            channel: None,
            limit: 20,
            since: None,
            after: BTreeMap::new(),
            unread_only: false,
            mentions_only: false,
            mark_as_read: true,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The new channel as clients see it.
    Created(Value),
    Deleted {
        id: Uuid,
        name: String,
    },
    /// The message as clients see it, its channel's name, and the tasks that it made.
    Posted {
        channel: String,
        number: u64,
        message: Value,
        tasks: Vec<Uuid>,
    },
    /// What to fetch, and what stays unread; and how much was unread in these channels before anything was marked.
    Messages {
        batches: Vec<Batch>,
        total_unread: u64,
    },
    List(Vec<Channel>),
    Count {
        unread: u64,
        mentions: u64,
    },
    /// The mentions to wake for; their messages stay unread.
    Mentions(Vec<Batch>),
    /// Whether the agent has marks left.
    Forgot {
        more: bool,
    },
    Done,
}

/// Messages of one channel, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    pub channel: Uuid,
    pub name: String,
    /// [`super::message_key`] gives the documents' keys.
    pub numbers: Vec<u64>,
    /// Unread after this read.
    pub unread: u64,
    /// The agent's read mark after it: everything up to this number is read.
    pub mark: u64,
}
