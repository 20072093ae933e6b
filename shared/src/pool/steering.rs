//! What was said to whoever works on a task, until its agent has it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use super::event::Event;
use super::state::Pool;
use crate::entity::Changes;
use crate::time::Timestamp;

/// The topic that changes when there is something for the agent to take.
pub fn steering(agent: Uuid) -> String {
    format!("{agent}/steering")
}

/// A message that was taken, and that nobody has heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untold {
    pub message: Uuid,
    pub task: Uuid,
    /// When it was said.
    pub since: Timestamp,
}

/// What waits, by task, in the order in which it was said.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Steering {
    waiting: BTreeMap<Uuid, BTreeSet<(Timestamp, Uuid)>>,
}

/// The head of what waits.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Head {
    #[serde(rename = "k")]
    task: Uuid,
    #[serde(rename = "b")]
    since: Timestamp,
}

impl Steering {
    pub(super) fn restore(&mut self, message: Uuid, head: &Head) {
        self.waiting.entry(head.task).or_default().insert((head.since, message));
    }

    /// What waits for the agent of a task, in the order in which it was said: when, and its id.
    pub(super) fn of(&self, task: Uuid) -> impl Iterator<Item = (Timestamp, Uuid)> + '_ {
        self.waiting.get(&task).into_iter().flatten().copied()
    }

    /// When the next message about a task counts as said: after those before it, though it comes in the same moment.
    pub(super) fn next(&self, task: Uuid, now: Timestamp) -> Timestamp {
        let last = self.waiting.get(&task).and_then(BTreeSet::last);
        last.map_or(now, |&(last, _)| now.max(Timestamp(last.0 + 1)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn follow(&mut self, event: &Event, changes: &mut Changes) {
        match event {
            Event::Steered { task, message, by, text, since } => {
                let head = Head { task: *task, since: *since };
                let body = json!({
                    "id": message, "taskId": task, "fromAgentId": by, "content": text, "createdAt": since.iso(),
                });
                changes.create(key(*message), &head, body);
                self.restore(*message, &head);
            }
            Event::SteeringTaken { task, messages, agent, since } => {
                let body = json!({ "agentId": agent, "deliveredAt": since.iso() });
                self.let_go(*task, |message| messages.contains(&message), &body, changes);
            }
            Event::SteeringReturned { task, messages } => {
                for &(since, message) in messages {
                    let head = Head { task: *task, since };
                    let body = json!({ "agentId": null, "deliveredAt": null });
                    changes.put(key(message), &head, Some(body.into()));
                    self.restore(message, &head);
                }
            }
            _ => {}
        }
    }

    /// The task has ended, and nobody will take what waits.
    pub(super) fn give_up(&mut self, task: Uuid, changes: &mut Changes) {
        self.let_go(task, |_| true, &json!({ "missed": true }), changes);
    }

    fn let_go(
        &mut self,
        task: Uuid,
        gone: impl Fn(Uuid) -> bool,
        body: &serde_json::Value,
        changes: &mut Changes,
    ) {
        let Some(waiting) = self.waiting.get_mut(&task) else { return };
        waiting.retain(|&(since, message)| {
            let gone = gone(message);
            if gone {
                changes.archive(key(message), &Head { task, since }, Some(body.clone().into()));
            }
            !gone
        });
        if waiting.is_empty() {
            self.waiting.remove(&task);
        }
    }
}

impl Pool {
    /// The topics of agents that have something to take after the event.
    pub(super) fn steered(&self, event: &Event) -> Option<String> {
        let agent = match event {
            Event::Steered { task, .. } | Event::SteeringReturned { task, .. } => {
                self.tasks.get(*task)?.agent?
            }
            Event::Started { task, agent, .. } if self.steering.of(*task).next().is_some() => *agent,
            _ => return None,
        };
        Some(steering(agent))
    }
}

fn key(message: Uuid) -> String {
    format!("steering/{message}")
}
