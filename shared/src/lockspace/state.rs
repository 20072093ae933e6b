//! The locks of a swarm in memory, with their indexes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::command::LockView;
use crate::entity::Ctx;
use crate::fence::Token;
use crate::id::{InstanceId, Name};
use crate::limits;
use crate::time::Timestamp;

/// A canonical key; the map and its indexes share one copy.
pub(super) type Key = Arc<str>;

/// The locks of one swarm: exclusive, each with a time to live and a fencing token.
#[derive(Debug, Default, PartialEq)]
pub struct Lockspace {
    pub(super) settings: Settings,
    /// The newest token that was ever granted here.
    pub(super) last_token: Option<Token>,
    pub(super) locks: BTreeMap<Key, Lock>,
    by_holder: BTreeMap<InstanceId, BTreeSet<Key>>,
    by_expiry: BTreeSet<(Timestamp, Key)>,
    edges: BTreeMap<InstanceId, Edge>,
    edges_by_age: BTreeSet<(Timestamp, InstanceId)>,
    /// Until when the locks of each holder that waits last at least. Nobody stops what runs in the instance before it
    /// is frozen, and what that takes or renews then must not end in its sleep. One for each instance that waits.
    waits: BTreeMap<InstanceId, Timestamp>,
    waits_by_end: BTreeSet<(Timestamp, InstanceId)>,
}

/// What a swarm may choose about its locks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Time to live of a lock that asks for none.
    pub default_ttl_ms: u64,
    /// The longest that a lock may ask for.
    pub max_ttl_ms: u64,
    /// Locks that one instance may hold at a time. More than one makes deadlocks possible.
    pub locks_per_holder: usize,
    /// Off, two spellings of one URI are two locks, as in the original.
    pub normalize_keys: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let (default_ttl_ms, max_ttl_ms) = (millis(limits::LOCK_TTL), millis(limits::LOCK_TTL_MAX));
        Self { default_ttl_ms, max_ttl_ms, locks_per_holder: 1, normalize_keys: true }
    }
}

/// A held lock; also the head of its document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lock {
    pub holder: InstanceId,
    pub agent: Name,
    pub token: Token,
    pub since: Timestamp,
    pub expires: Timestamp,
    #[serde(rename = "ttl")]
    pub ttl_ms: u64,
}

impl Lock {
    /// When the lock ends for this owner. After a start or takeover a lock outlives its time by as long as a
    /// runner has to reconnect (or by its own time to live, if that is shorter): until then the holder had
    /// nobody to refresh it with. A whole time to live would let a dead holder block others for a day.
    pub(super) fn ends(&self, ctx: &Ctx) -> Timestamp {
        ctx.grace(self.expires, Duration::from_millis(self.ttl_ms).min(limits::RUNNER_LEASE))
    }

    pub(super) fn is_live(&self, ctx: &Ctx) -> bool {
        ctx.now < self.ends(ctx)
    }

    pub(super) fn view(&self, key: &str, ctx: &Ctx) -> LockView {
        LockView {
            key: key.to_owned(),
            holder: self.holder.clone(),
            agent: self.agent.clone(),
            token: self.token,
            held_since: self.since,
            expires_at: self.ends(ctx),
            ttl_ms: self.ttl_ms,
        }
    }
}

/// The lock that a holder last failed to get; also the head of its document. It is the memory of a try and
/// not a wait in a queue, so it counts only for [`limits::LOCK_WAITING`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Edge {
    pub key: String,
    pub at: Timestamp,
}

impl Edge {
    /// How long an edge is kept. Twice as long as it counts, so that an agent that tries again and again
    /// replaces its edge once a minute instead of also having it swept.
    const KEEP: Duration = Duration::from_secs(2 * limits::LOCK_WAITING.as_secs());

    pub(super) fn is_fresh(&self, now: Timestamp) -> bool {
        now < self.at + limits::LOCK_WAITING
    }
}

impl Lockspace {
    pub(super) fn held_by(&self, holder: &InstanceId) -> impl Iterator<Item = (&Key, &Lock)> {
        let keys = self.by_holder.get(holder).into_iter().flatten();
        keys.filter_map(|key| self.locks.get_key_value(key))
    }

    /// Locks whose time has come, earliest first.
    pub(super) fn due(&self, now: Timestamp) -> impl Iterator<Item = (&Key, &Lock)> {
        let keys = self.by_expiry.iter().take_while(move |(expires, _)| *expires <= now);
        keys.filter_map(|(_, key)| self.locks.get_key_value(key))
    }

    pub(super) fn edge(&self, holder: &InstanceId) -> Option<&Edge> {
        self.edges.get(holder)
    }

    /// Holders whose last failed try is too old to keep.
    pub(super) fn stale_edges(&self, now: Timestamp) -> impl Iterator<Item = &InstanceId> {
        self.edges_by_age.iter().take_while(move |(at, _)| *at + Edge::KEEP <= now).map(|(_, holder)| holder)
    }

    pub(super) fn insert_lock(&mut self, key: &str, lock: Lock) {
        self.remove_lock(key);
        let key: Key = key.into();
        self.by_holder.entry(lock.holder.clone()).or_default().insert(key.clone());
        self.by_expiry.insert((lock.expires, key.clone()));
        self.locks.insert(key, lock);
    }

    pub(super) fn remove_lock(&mut self, key: &str) -> Option<Lock> {
        let (key, lock) = self.locks.remove_entry(key)?;
        if let Some(keys) = self.by_holder.get_mut(&lock.holder) {
            keys.remove(&key);
            if keys.is_empty() {
                self.by_holder.remove(&lock.holder);
            }
        }
        self.by_expiry.remove(&(lock.expires, key));
        Some(lock)
    }

    pub(super) fn insert_edge(&mut self, holder: &InstanceId, edge: Edge) {
        self.remove_edge(holder);
        self.edges_by_age.insert((edge.at, holder.clone()));
        self.edges.insert(holder.clone(), edge);
    }

    /// Whether there was one.
    pub(super) fn remove_edge(&mut self, holder: &InstanceId) -> bool {
        let Some(edge) = self.edges.remove(holder) else { return false };
        self.edges_by_age.remove(&(edge.at, holder.clone()));
        true
    }

    /// When a lock ends that the holder takes or renews now: after its time to live, and not during a wait.
    pub(super) fn lasts(&self, holder: &InstanceId, ttl_ms: u64, ctx: &Ctx) -> Timestamp {
        let own = ctx.now + Duration::from_millis(ttl_ms);
        self.wait_of(holder).map_or(own, |until| own.max(until))
    }

    pub(super) fn wait_of(&self, holder: &InstanceId) -> Option<Timestamp> {
        self.waits.get(holder).copied()
    }

    /// Holders that nobody has told of the end of their wait in its time.
    pub(super) fn stale_waits(&self, now: Timestamp) -> impl Iterator<Item = &InstanceId> {
        self.waits_by_end.iter().take_while(move |(until, _)| *until <= now).map(|(_, holder)| holder)
    }

    pub(super) fn insert_wait(&mut self, holder: &InstanceId, until: Timestamp) {
        self.remove_wait(holder);
        self.waits_by_end.insert((until, holder.clone()));
        self.waits.insert(holder.clone(), until);
    }

    /// Whether there was one.
    pub(super) fn remove_wait(&mut self, holder: &InstanceId) -> bool {
        let Some(until) = self.waits.remove(holder) else { return false };
        self.waits_by_end.remove(&(until, holder.clone()));
        true
    }

    /// The most locks that any instance holds.
    pub(super) fn most_held(&self) -> usize {
        self.by_holder.values().map(BTreeSet::len).max().unwrap_or(0)
    }

    pub(super) fn earliest(&self) -> Option<Timestamp> {
        let lock = self.by_expiry.first().map(|(expires, _)| *expires);
        let edge = self.edges_by_age.first().map(|(at, _)| *at + Edge::KEEP);
        let wait = self.waits_by_end.first().map(|(until, _)| *until);
        lock.into_iter().chain(edge).chain(wait).min()
    }

    /// The first broken invariant, by name.
    pub(super) fn broken(&self) -> Option<String> {
        if self.most_held() > self.settings.locks_per_holder {
            return Some("lockspace.one_lock_per_holder".to_owned());
        }
        let tokens: BTreeSet<Token> = self.locks.values().map(|lock| lock.token).collect();
        if tokens.len() != self.locks.len() {
            return Some("lockspace.tokens_are_unique".to_owned());
        }
        if tokens.last().copied() > self.last_token {
            return Some("lockspace.tokens_rise".to_owned());
        }
        let indexed = self.locks.iter().all(|(key, lock)| {
            self.by_expiry.contains(&(lock.expires, key.clone()))
                && self.by_holder.get(&lock.holder).is_some_and(|keys| keys.contains(key))
        });
        let held: usize = self.by_holder.values().map(BTreeSet::len).sum();
        if !indexed || held != self.locks.len() || self.by_expiry.len() != self.locks.len() {
            return Some("lockspace.every_lock_is_indexed".to_owned());
        }
        let edges = self.edges.iter().all(|(h, edge)| self.edges_by_age.contains(&(edge.at, h.clone())));
        if !edges || self.edges_by_age.len() != self.edges.len() {
            return Some("lockspace.every_edge_is_indexed".to_owned());
        }
        let waits = self.waits.iter().all(|(h, until)| self.waits_by_end.contains(&(*until, h.clone())));
        if !waits || self.waits_by_end.len() != self.waits.len() {
            return Some("lockspace.every_wait_is_indexed".to_owned());
        }
        let short = |(_, lock): &(&Key, &Lock)| {
            self.waits.get(&lock.holder).is_some_and(|until| lock.expires < *until)
        };
        if self.locks.iter().any(|lock| short(&lock)) {
            return Some("lockspace.no_lock_ends_in_a_wait".to_owned());
        }
        None
    }
}
