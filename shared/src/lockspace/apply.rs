//! How events change the locks and their documents.
//!
//! Live documents: `lock/<canonical key>`, `edge/<holder>`, `wait/<holder>`, `meta/token` (the newest token) and
//! `meta/settings`. A lock that ends leaves no document; its history is in the events.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::event::Event;
use super::state::{Edge, Lock, Lockspace};
use crate::entity::{Changes, Corrupt, LiveDocument};
use crate::fence::Token;
use crate::id::InstanceId;
use crate::time::Timestamp;

/// The head of `meta/token`. Locks end and leave nothing, so the newest token needs a document of its own.
#[derive(Serialize, Deserialize)]
struct LastToken {
    last: Token,
}

/// The head of `wait/<holder>`.
#[derive(Serialize, Deserialize)]
struct Wait {
    until: Timestamp,
}

impl Lockspace {
    pub(super) fn apply_event(&mut self, event: &Event, changes: &mut Changes) {
        match event {
            Event::Acquired { key, raw, holder, agent, token, at, expires, ttl_ms } => {
                self.drop_edge(holder, changes);
                self.last_token = Some(*token);
                changes.put("meta/token", &LastToken { last: *token }, None);
                let lock = Lock {
                    holder: holder.clone(),
                    agent: agent.clone(),
                    token: *token,
                    since: *at,
                    expires: *expires,
                    ttl_ms: *ttl_ms,
                };
                changes.put(document(key), &lock, Some(body(key, raw, &lock).into()));
                self.insert_lock(key, lock);
            }
            Event::Refreshed { key, at, expires, ttl_ms } => {
                let holder = self.locks.get(key.as_str()).map(|lock| lock.holder.clone());
                if let Some(holder) = holder {
                    self.drop_edge(&holder, changes);
                }
                self.change(key, changes, |lock| {
                    (lock.since, lock.expires, lock.ttl_ms) = (*at, *expires, *ttl_ms);
                });
            }
            Event::Kept { key, expires, ttl_ms } => {
                self.change(key, changes, |lock| (lock.expires, lock.ttl_ms) = (*expires, *ttl_ms));
            }
            Event::Extended { key, expires } | Event::Shortened { key, expires } => {
                self.change(key, changes, |lock| lock.expires = *expires);
            }
            Event::Released { key, .. } | Event::Expired { key, .. } => {
                self.remove_lock(key);
                changes.delete(document(key));
            }
            Event::EdgeNoted { holder, key, at } => self.note_edge(holder, key, *at, changes),
            Event::EdgesDropped { holders } => {
                for holder in holders {
                    self.drop_edge(holder, changes);
                }
            }
            Event::WaitNoted { holder, until } => {
                self.insert_wait(holder, *until);
                changes.put(format!("wait/{holder}"), &Wait { until: *until }, None);
            }
            Event::WaitsDropped { holders } => {
                for holder in holders {
                    if self.remove_wait(holder) {
                        changes.delete(format!("wait/{holder}"));
                    }
                }
            }
            Event::Configured { settings } => {
                self.settings = settings.clone();
                changes.put("meta/settings", settings, None);
            }
        }
    }

    pub(super) fn restore_document(&mut self, document: &LiveDocument) -> Result<(), Corrupt> {
        match document.split() {
            ("lock", key) => self.insert_lock(key, document.read()?),
            ("edge", holder) => self.insert_edge(&InstanceId(holder.to_owned()), document.read()?),
            ("wait", holder) => {
                self.insert_wait(&InstanceId(holder.to_owned()), document.read::<Wait>()?.until);
            }
            ("meta", "token") => self.last_token = Some(document.read::<LastToken>()?.last),
            ("meta", "settings") => self.settings = document.read()?,
            _ => return Err(document.corrupt("a lockspace has no such document")),
        }
        Ok(())
    }

    fn change(&mut self, key: &str, changes: &mut Changes, change: impl FnOnce(&mut Lock)) {
        let Some(mut lock) = self.remove_lock(key) else { return };
        change(&mut lock);
        let body = json!({ "heldSince": lock.since.iso(), "expiresAt": lock.expires.iso() });
        changes.put(document(key), &lock, Some(body.into()));
        self.insert_lock(key, lock);
    }

    fn note_edge(&mut self, holder: &InstanceId, key: &str, at: Timestamp, changes: &mut Changes) {
        let edge = Edge { key: key.to_owned(), at };
        changes.put(format!("edge/{holder}"), &edge, None);
        self.insert_edge(holder, edge);
    }

    fn drop_edge(&mut self, holder: &InstanceId, changes: &mut Changes) {
        if self.remove_edge(holder) {
            changes.delete(format!("edge/{holder}"));
        }
    }
}

fn document(key: &str) -> String {
    format!("lock/{key}")
}

fn body(key: &str, raw: &str, lock: &Lock) -> Value {
    json!({
        "resourceKey": key,
        "raw": raw,
        "holder": lock.holder,
        "agent": lock.agent,
        "token": lock.token,
        "heldSince": lock.since.iso(),
        "expiresAt": lock.expires.iso(),
    })
}
