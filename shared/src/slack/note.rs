//! What the swarm itself tells people in a thread.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::mrkdwn;

/// Longest note, characters: beyond that Slack shows only a part.
const LONGEST: usize = 3900;

/// A message for a thread. It is sent at least once, and Slack has it once: its id goes with it, where programs see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub id: Uuid,
    pub channel: String,
    pub thread: String,
    /// In Slack's markup.
    pub text: String,
    /// The agent under whose name it is shown; the app's own without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// If a note of this id is there, it is written anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub edits: bool,
}

/// A thread of a channel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(String, String)", into = "(String, String)")]
pub struct Thread {
    pub channel: String,
    pub ts: String,
}

impl From<(String, String)> for Thread {
    fn from((channel, ts): (String, String)) -> Self {
        Self { channel, ts }
    }
}

impl From<Thread> for (String, String) {
    fn from(thread: Thread) -> Self {
        (thread.channel, thread.ts)
    }
}

impl Thread {
    /// The thread that a task's or a message's fields name.
    pub fn of(fields: &Map<String, Value>) -> Option<Self> {
        let text = |field: &str| fields.get(field)?.as_str().map(str::to_owned);
        Some(Self { channel: text("slackChannelId")?, ts: text("slackThreadTs")? })
    }

    /// A note of the thread. `about` and `what` make its id: the same again is the same note.
    pub fn note(&self, about: Uuid, what: &str, markdown: &str) -> Note {
        let mut words: String = markdown.chars().take(LONGEST).collect();
        if words.len() < markdown.len() {
            words.push('…');
        }
        Note {
            id: Uuid::new_v5(&about, what.as_bytes()),
            channel: self.channel.clone(),
            thread: self.ts.clone(),
            text: mrkdwn(&words),
            name: None,
            edits: false,
        }
    }
}
