//! Whether answers may pass to the instance, and how many it is owed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// Closed while the instance is frozen.
#[derive(Default)]
pub(super) struct Gate {
    held: watch::Sender<bool>,
    /// Nothing new is asked either.
    shut: AtomicBool,
    owed: watch::Sender<usize>,
}

impl Gate {
    pub(super) fn hold(&self) {
        self.held.send_replace(true);
    }

    /// For good: who is behind it is being ended.
    pub(super) fn shut(&self) {
        self.shut.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Relaxed)
    }

    pub(super) fn release(&self) {
        self.held.send_replace(false);
    }

    pub(super) fn is_held(&self) -> bool {
        *self.held.borrow()
    }

    /// Returns as soon as answers may pass.
    pub(super) async fn open(&self) {
        // The sender is `self`, so the channel cannot close.
        let _ = self.held.subscribe().wait_for(|held| !held).await;
    }

    /// Returns when no answer is owed.
    pub(super) async fn answered(&self) {
        let _ = self.owed.subscribe().wait_for(|owed| *owed == 0).await;
    }

    /// Counts a request until its answer has been written.
    pub(super) fn owe(self: &Arc<Self>) -> Owed {
        self.owed.send_modify(|owed| *owed += 1);
        Owed(Arc::clone(self))
    }
}

/// A request whose answer is not yet written.
pub(super) struct Owed(Arc<Gate>);

impl Drop for Owed {
    fn drop(&mut self) {
        self.0.owed.send_modify(|owed| *owed = owed.saturating_sub(1));
    }
}
