//! What the swarm's questions are.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::command::Ask;
use crate::id::Name;
use crate::limits::QUESTION_KEEP;
use crate::time::Timestamp;

/// All questions of a swarm: those that are open, and what came of the last ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Questions {
    pub(super) swarm: Name,
    pub(super) open: BTreeMap<Uuid, Open>,
    pub(super) settled: BTreeMap<Uuid, Settled>,
    /// When the time of each is over: an open one's for its answer, a settled one's for being kept.
    pub(super) ends: BTreeSet<(Timestamp, Uuid)>,
    /// Who leads, as the pool has said last. Whoever asks may have looked before that.
    pub(super) lead: Option<Uuid>,
}

/// What has become of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Open,
    Answered,
    Declined,
    Withdrawn,
    Expired,
}

/// A question that waits for its answer: what decides whether one fits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Open {
    pub agent: Uuid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    pub expires: Timestamp,
}

/// A question that is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Settled {
    pub state: State,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    pub at: Timestamp,
}

/// A document's head: that of an open question has no state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Head {
    Settled(Settled),
    Open(Open),
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            State::Open => "open",
            State::Answered => "answered",
            State::Declined => "declined",
            State::Withdrawn => "withdrawn",
            State::Expired => "expired",
        }
    }
}

impl Settled {
    pub(super) fn kept_until(&self) -> Timestamp {
        self.at + QUESTION_KEEP
    }
}

impl Ask {
    /// The task that waits for the answer.
    pub(super) fn waiting(&self) -> Option<Uuid> {
        self.task.or(self.at_work)
    }

    /// As clients see it, with nulls for what is absent.
    pub(super) fn body(&self, id: Uuid, at: Timestamp, expires: Timestamp) -> Value {
        json!({
            "id": id,
            "status": State::Open,
            "agentId": self.agent,
            "agentName": self.name,
            "instance": self.instance,
            "taskId": self.waiting(),
            "question": self.question,
            "choices": self.choices,
            "askedAt": at.iso(),
            "expiresAt": expires.iso(),
        })
    }
}

impl Questions {
    /// The document that names who leads.
    pub(super) const LEAD: &str = "lead/last";

    pub(super) fn of(swarm: &Name) -> Self {
        Self {
            swarm: swarm.clone(),
            open: BTreeMap::new(),
            settled: BTreeMap::new(),
            ends: BTreeSet::new(),
            lead: None,
        }
    }

    pub(super) fn insert_open(&mut self, id: Uuid, question: Open) {
        self.ends.insert((question.expires, id));
        self.open.insert(id, question);
    }

    /// It is over, whether it was open until now or is read back.
    pub(super) fn insert_settled(&mut self, id: Uuid, settled: Settled) {
        self.remove(id);
        self.ends.insert((settled.kept_until(), id));
        self.settled.insert(id, settled);
    }

    pub(super) fn remove(&mut self, id: Uuid) {
        if let Some(open) = self.open.remove(&id) {
            self.ends.remove(&(open.expires, id));
        }
        if let Some(settled) = self.settled.remove(&id) {
            self.ends.remove(&(settled.kept_until(), id));
        }
    }
}
