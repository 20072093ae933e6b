//! Whether somebody is there for a session: a request of its is under way, or the stream on which it is told things.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// Shared by all that belongs to one session.
#[derive(Clone, Debug, Default)]
pub(super) struct Attended(Arc<Mutex<Presence>>);

#[derive(Debug)]
struct Presence {
    requests: usize,
    left: Instant,
}

impl Default for Presence {
    fn default() -> Self {
        Self { requests: 0, left: Instant::now() }
    }
}

/// A request that is under way until this is dropped.
#[derive(Debug)]
pub(super) struct Present(Attended);

impl Attended {
    pub(super) fn enter(&self) -> Present {
        self.presence().requests += 1;
        Present(self.clone())
    }

    pub(super) fn is_attended(&self) -> bool {
        self.left().is_none()
    }

    /// Since when nobody is there.
    pub(super) fn left(&self) -> Option<Instant> {
        let presence = self.presence();
        (presence.requests == 0).then_some(presence.left)
    }

    fn presence(&self) -> MutexGuard<'_, Presence> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut presence = self.0.presence();
        presence.requests = presence.requests.saturating_sub(1);
        presence.left = Instant::now();
    }
}
