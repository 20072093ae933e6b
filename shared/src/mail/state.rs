//! Whose inboxes and threads are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::id::Name;
use crate::time::Timestamp;

/// How long a thread is known in which nobody writes: as long as ended tasks are kept, unless settings say otherwise.
pub(super) const THREAD: Duration = Duration::from_secs(30 * 86_400);

/// The mail of a swarm.
#[derive(Clone, Debug, PartialEq)]
pub struct Mail {
    pub(super) swarm: Name,
    pub(super) addresses: BTreeMap<Uuid, Address>,
    /// Each inbox's address, by [`Mail::folded`].
    pub(super) of_inbox: BTreeMap<String, Uuid>,
    pub(super) threads: BTreeMap<Uuid, Thread>,
    /// When each thread is forgotten.
    pub(super) ends: BTreeSet<(Timestamp, Uuid)>,
}

/// An inbox at AgentMail whose mail is an agent's. It is its document's head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    pub id: Uuid,
    pub inbox: String,
    pub agent: Uuid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    pub created: Timestamp,
}

/// The newest task that came of a thread, and who had it when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    pub task: Uuid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Uuid>,
    pub at: Timestamp,
}

impl Address {
    pub(super) fn key(id: Uuid) -> String {
        format!("address/{id}")
    }

    /// As clients see it.
    pub fn view(&self) -> Value {
        json!({
            "id": self.id,
            "inboxId": self.inbox,
            "agentId": self.agent,
            "inboxEmail": self.email,
            "createdAt": self.created.iso(),
        })
    }
}

impl Mail {
    pub(super) fn of(swarm: &Name) -> Self {
        Self {
            swarm: swarm.clone(),
            addresses: BTreeMap::new(),
            of_inbox: BTreeMap::new(),
            threads: BTreeMap::new(),
            ends: BTreeSet::new(),
        }
    }

    /// Inboxes are named by addresses, in which large and small letters are one.
    pub(super) fn folded(inbox: &str) -> String {
        inbox.trim().to_lowercase()
    }

    /// What a thread is remembered by; its id has any length.
    pub(super) fn digest(thread: &str) -> Uuid {
        Uuid::new_v5(&Uuid::NAMESPACE_OID, thread.as_bytes())
    }

    pub(super) fn thread_key(digest: Uuid) -> String {
        format!("thread/{digest}")
    }

    pub(super) fn find(&self, inbox: &str) -> Option<&Address> {
        self.addresses.get(self.of_inbox.get(&Self::folded(inbox))?)
    }

    pub(super) fn insert(&mut self, address: Address) {
        self.of_inbox.insert(Self::folded(&address.inbox), address.id);
        self.addresses.insert(address.id, address);
    }

    pub(super) fn remove(&mut self, id: Uuid) {
        if let Some(address) = self.addresses.remove(&id) {
            self.of_inbox.remove(&Self::folded(&address.inbox));
        }
    }

    pub(super) fn insert_thread(&mut self, digest: Uuid, thread: Thread) {
        self.remove_thread(digest);
        self.ends.insert((thread.at + THREAD, digest));
        self.threads.insert(digest, thread);
    }

    pub(super) fn remove_thread(&mut self, digest: Uuid) {
        if let Some(thread) = self.threads.remove(&digest) {
            self.ends.remove(&(thread.at + THREAD, digest));
        }
    }
}
