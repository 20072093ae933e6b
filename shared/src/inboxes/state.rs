//! What the swarm's inboxes hold.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::id::Name;
use crate::limits;
use crate::time::Timestamp;

/// A message that was handed out and neither answered nor delegated in this time is unread again, a notice read.
pub(super) const PROCESSING: Duration = Duration::from_secs(30 * 60);
/// How long a delivery is known, and whose a thread is. No provider repeats an event for longer.
pub(super) const SEEN: Duration = limits::EFFECT_EXPIRY;

/// All open messages of a swarm.
#[derive(Clone, Debug, PartialEq)]
pub struct Inboxes {
    pub(super) swarm: Name,
    pub(super) messages: BTreeMap<Uuid, Message>,
    /// Deliveries that may come again, by their key's digest.
    pub(super) seen: BTreeMap<Uuid, Seen>,
    /// Who has had the newest message of a thread in Slack, by the thread's digest.
    pub(super) threads: BTreeMap<Uuid, Owner>,
    /// The number of the latest message: the order in which they came.
    pub(super) last: u64,
    /// Who leads, as the pool has said last: it alone reads what people write.
    pub(super) lead: Option<Uuid>,
    /// What ends by itself, by when: the next wake must not cost a walk through everything.
    pub(super) ends: BTreeSet<(Timestamp, End)>,
}

/// What ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    /// The time that an agent has for a message.
    Processing(Uuid),
    /// The memory of a delivery.
    Seen(Uuid),
    /// The memory of whose a thread is.
    Thread(Uuid),
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
    /// The swarm's own word about what can be seen elsewhere: it gives way to what people say.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub notice: bool,
}

/// What has become of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Unread,
    Processing,
    /// A notice that was handed out: nobody waits for an answer to it.
    Read,
    Responded,
    Delegated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Slack,
    Agentmail,
    /// The swarm itself, about something that needs the agent.
    System,
}

/// A delivery that was taken: a repeat leads to the same message.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Seen {
    pub message: Uuid,
    pub at: Timestamp,
}

/// Whose a thread is, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Owner {
    pub agent: Uuid,
    pub at: Timestamp,
}

impl Message {
    fn end(&self) -> Option<(Timestamp, End)> {
        (self.status == Status::Processing).then(|| (self.since + PROCESSING, End::Processing(self.id)))
    }

    pub(super) fn key(id: Uuid) -> String {
        format!("message/{id}")
    }
}

impl Inboxes {
    /// The document that names who leads.
    pub(super) const LEAD: &str = "lead/last";

    /// Takes the message in, or its new status.
    pub(super) fn insert(&mut self, message: Message) {
        self.remove(message.id);
        if let Some(end) = message.end() {
            self.ends.insert(end);
        }
        self.messages.insert(message.id, message);
    }

    pub(super) fn remove(&mut self, id: Uuid) -> Option<Message> {
        let before = self.messages.remove(&id)?;
        if let Some(end) = before.end() {
            self.ends.remove(&end);
        }
        Some(before)
    }

    pub(super) fn insert_seen(&mut self, digest: Uuid, seen: Seen) {
        self.remove_seen(digest);
        self.ends.insert((seen.at + SEEN, End::Seen(digest)));
        self.seen.insert(digest, seen);
    }

    pub(super) fn remove_seen(&mut self, digest: Uuid) {
        if let Some(before) = self.seen.remove(&digest) {
            self.ends.remove(&(before.at + SEEN, End::Seen(digest)));
        }
    }

    pub(super) fn insert_thread(&mut self, digest: Uuid, owner: Owner) {
        self.remove_thread(digest);
        self.ends.insert((owner.at + SEEN, End::Thread(digest)));
        self.threads.insert(digest, owner);
    }

    pub(super) fn remove_thread(&mut self, digest: Uuid) {
        if let Some(before) = self.threads.remove(&digest) {
            self.ends.remove(&(before.at + SEEN, End::Thread(digest)));
        }
    }

    pub(super) fn thread_key(digest: Uuid) -> String {
        format!("thread/{digest}")
    }

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
