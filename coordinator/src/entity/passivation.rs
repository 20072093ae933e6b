//! Lets entities that nobody asks leave memory.
//!
//! An entity leaves when nothing of it is in work, which is known for certain: a command takes its permit and
//! enters the mailbox in one step, under the directory's lock, and keeps the permit until it is answered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use skein_shared::id::Kind;
use skein_shared::time::Timestamp;
use tokio_util::sync::CancellationToken;

use super::Entities;

/// An entity without a command for this long leaves memory. Loading one costs a read of its live heads, so
/// this is long against that and short against a day in which most agents sleep.
pub const IDLE: Duration = Duration::from_secs(5 * 60);

/// What the directory has to know of a host without asking it.
#[derive(Debug)]
pub(super) struct Vitals {
    pub(super) kind: Kind,
    /// Since when the entity counts as served: its grace periods begin here.
    pub(super) serving_since: Timestamp,
    deadline: AtomicBool,
}

impl Vitals {
    pub(super) fn new(kind: Kind, serving_since: Timestamp, deadline: bool) -> Self {
        Self { kind, serving_since, deadline: AtomicBool::new(deadline) }
    }

    pub(super) fn note(&self, deadline: bool) {
        self.deadline.store(deadline, Ordering::Release);
    }

    /// Whether something of the entity ends by itself at some time.
    pub(super) fn has_deadline(&self) -> bool {
        self.deadline.load(Ordering::Acquire)
    }

    /// Whether the entity knows who is alive from heartbeats that are written nowhere.
    pub(super) fn watches_life(&self) -> bool {
        matches!(self.kind, Kind::Pool | Kind::Fleet)
    }

    /// Whether leaving would lose something: with a lease to watch, whoever watches it stays.
    pub(super) fn must_stay(&self) -> bool {
        self.watches_life() && self.has_deadline()
    }
}

/// Sends away what was idle for `idle`, until `stop`.
pub async fn sweep(entities: Entities, idle: Duration, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(idle / 5) => {}
        }
        let left = entities.passivate(idle);
        if left > 0 {
            tracing::debug!(entities = left, "idle entities left memory");
        }
    }
}
