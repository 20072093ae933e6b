//! Lets entities that nobody asks leave memory.
//!
//! An entity leaves when nothing of it is in work, which is known for certain: a command takes its permit and
//! enters the mailbox in one step, under the directory's lock, and keeps the permit until it is answered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use skein_shared::entity::Entity;
use skein_shared::time::Timestamp;
use tokio_util::sync::CancellationToken;

use super::Entities;

/// An entity without a command for this long leaves memory. Loading one costs a read of its live heads, so
/// this is long against that and short against a day in which most agents sleep.
pub const IDLE: Duration = Duration::from_secs(5 * 60);

/// What the directory has to know of a host without asking it.
#[derive(Debug)]
pub(super) struct Vitals {
    /// Since when the entity counts as served: its grace periods begin here.
    pub(super) serving_since: Timestamp,
    deadline: AtomicBool,
    watches: AtomicBool,
    alarm: AtomicBool,
}

impl Vitals {
    pub(super) fn new<E: Entity>(serving_since: Timestamp, entity: &E) -> Self {
        let [deadline, watches, alarm] = std::array::from_fn(|_| AtomicBool::default());
        let vitals = Self { serving_since, deadline, watches, alarm };
        vitals.note(entity, entity.alarm().as_deref());
        vitals
    }

    pub(super) fn note<E: Entity>(&self, entity: &E, alarm: Option<&str>) {
        self.deadline.store(entity.next_wake().is_some(), Ordering::Release);
        self.watches.store(entity.watches(), Ordering::Release);
        self.alarm.store(alarm.is_some(), Ordering::Release);
    }

    /// Whether something of the entity ends by itself at some time.
    pub(super) fn has_deadline(&self) -> bool {
        self.deadline.load(Ordering::Acquire)
    }

    /// Whether it knows signs of life that are written nowhere.
    pub(super) fn watches(&self) -> bool {
        self.watches.load(Ordering::Acquire)
    }

    /// Whether leaving would lose something: what it knows alone, or the alarm that it raises while it is here.
    pub(super) fn must_stay(&self) -> bool {
        self.watches() || self.alarm.load(Ordering::Acquire)
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
