//! Waiting for anything to change: tasks, messages, calls, triggers, locks.
//!
//! The cursor is a position in the swarm's events, so nothing that happens between two calls is lost.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use skein_shared::Refusal;
use skein_shared::id::Kind;

use super::Service;
use super::lists::unreadable;
use crate::auth::{Principal, Right, policy};
use crate::entity::hub::Subscription;
use crate::projection::Event;

/// Something that can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    Tasks,
    Messages,
    Calls,
    Triggers,
    Locks,
}

impl Topic {
    pub const ALL: [Topic; 5] = [Topic::Tasks, Topic::Messages, Topic::Calls, Topic::Triggers, Topic::Locks];

    pub fn as_str(self) -> &'static str {
        match self {
            Topic::Tasks => "tasks",
            Topic::Messages => "messages",
            Topic::Calls => "calls",
            Topic::Triggers => "triggers",
            Topic::Locks => "locks",
        }
    }

    fn of(kind: Kind) -> Option<Topic> {
        match kind {
            Kind::Pool => Some(Topic::Tasks),
            Kind::Channels | Kind::Inboxes => Some(Topic::Messages),
            Kind::Agent => Some(Topic::Calls),
            Kind::Triggers => Some(Topic::Triggers),
            Kind::Lockspace => Some(Topic::Locks),
            Kind::Fleet | Kind::Schedules | Kind::Epics | Kind::Memory => None,
        }
    }
}

/// What changed since the cursor.
#[derive(Clone, Debug)]
pub struct Changes {
    pub changed: Vec<Value>,
    /// Where the next wait goes on.
    pub cursor: u64,
    pub timed_out: bool,
}

/// What a caller waits for.
#[derive(Clone, Debug)]
pub struct Awaited {
    /// Empty for all.
    pub topics: BTreeSet<Topic>,
    /// Only changes of these tasks, calls, channels, locks; empty for all.
    pub subjects: BTreeSet<String>,
    /// `None` begins now.
    pub cursor: Option<u64>,
}

impl Awaited {
    fn wants(&self, topic: Topic) -> bool {
        self.topics.is_empty() || self.topics.contains(&topic)
    }
}

impl Service {
    /// Waits until something happened after the cursor, at most for `patience`.
    pub async fn wait(
        &self,
        who: &Principal,
        awaited: Awaited,
        patience: Duration,
    ) -> Result<Changes, Refusal> {
        policy::require(who, Right::Read)?;
        let mut cursor = match awaited.cursor {
            Some(cursor) => cursor,
            None => self.now_position(),
        };
        let topics = self.wake_topics(who, &awaited).await?;
        let position = std::sync::Mutex::new(cursor);
        let look = || async {
            let after = *position.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let (found, next) = self.changes_after(who, &awaited, after).await?;
            *position.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = next;
            Ok((!found.is_empty()).then_some(found))
        };
        let found = self.until(who, topics, patience, look).await?;
        cursor = cursor.max(*position.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        Ok(Changes { timed_out: found.is_none(), changed: found.unwrap_or_default(), cursor })
    }

    /// What wakes the waiter: the named things, else itself, the pool, whose new tasks have no name yet, the
    /// channels and the locks held now. Any other thing that comes into being later is seen when it is asked
    /// again.
    async fn wake_topics(&self, who: &Principal, awaited: &Awaited) -> Result<Vec<Subscription>, Refusal> {
        let mut topics: BTreeSet<String> = awaited.subjects.clone();
        topics.extend([who.agent.to_string(), who.instance.to_string()]);
        if awaited.subjects.is_empty() && awaited.wants(Topic::Tasks) {
            topics.insert(who.entity(Kind::Pool).to_string());
        }
        if awaited.subjects.is_empty() && awaited.wants(Topic::Messages) {
            let channels = self.list_channels(who).await?;
            topics.extend(channels.iter().filter_map(|channel| channel["id"].as_str()).map(str::to_owned));
        }
        if awaited.subjects.is_empty() && awaited.wants(Topic::Locks) {
            topics.extend(self.held_locks(who).await?.into_iter().map(|lock| lock.key));
        }
        Ok(topics.into_iter().map(|topic| self.entities.hub().subscribe(topic)).collect())
    }

    /// Events reach the read side after the wake-up: whoever was woken must not look too soon.
    async fn settle(&self, who: &Principal, awaited: &Awaited) -> Result<(), Refusal> {
        for topic in Topic::ALL.into_iter().filter(|topic| awaited.wants(*topic)) {
            let keys = match topic {
                Topic::Tasks => vec![who.entity(Kind::Pool)],
                Topic::Messages => vec![who.entity(Kind::Channels), who.entity(Kind::Inboxes)],
                Topic::Calls => vec![who.own_agent()],
                Topic::Triggers => vec![who.entity(Kind::Triggers)],
                Topic::Locks => vec![who.entity(Kind::Lockspace)],
            };
            for key in keys {
                self.freshness(&key).await?;
            }
        }
        Ok(())
    }

    /// Events of interest after a position, and the position of the last one looked at.
    async fn changes_after(
        &self,
        who: &Principal,
        awaited: &Awaited,
        mut after: u64,
    ) -> Result<(Vec<Value>, u64), Refusal> {
        const SHOWN: usize = 50;
        const PAGE: usize = 500;
        let mut changed = Vec::new();
        self.settle(who, awaited).await?;
        loop {
            let events = self.projection().events(Some(&who.swarm), after, PAGE).await.map_err(unreadable)?;
            let last = events.len() < PAGE;
            for event in events {
                after = event.position;
                if let Some(change) = of_interest(awaited, &event) {
                    changed.push(change);
                }
                if changed.len() == SHOWN {
                    return Ok((changed, after));
                }
            }
            if last || !changed.is_empty() {
                return Ok((changed, after));
            }
        }
    }

    /// The position that an event of this moment would have (1,024 to a millisecond).
    fn now_position(&self) -> u64 {
        self.clock().now().millis().saturating_mul(1024)
    }
}

fn of_interest(awaited: &Awaited, event: &Event) -> Option<Value> {
    let topic = Topic::of(event.key.kind)?;
    if !awaited.wants(topic) {
        return None;
    }
    let subject = event.subject.as_deref()?;
    if !awaited.subjects.is_empty() && !awaited.subjects.contains(subject) {
        return None;
    }
    let mut change =
        json!({ "topic": topic.as_str(), "id": subject, "event": event.kind, "at": event.at.iso() });
    if let Some(name) = &event.key.name {
        change["agent"] = json!(name);
    }
    Some(change)
}
