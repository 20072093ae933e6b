//! Lets what somebody waits for go first: while a large entity is loaded, a build of the read side stands still,
//! for both read the same store, and nobody works until the entity is there.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(super) struct Gate {
    /// Those who go first.
    holders: Mutex<usize>,
    open: Condvar,
}

impl Gate {
    /// Closes the gate until the guard is dropped.
    pub(super) fn hold(self: Arc<Self>) -> Hold {
        *self.lock() += 1;
        Hold(self)
    }

    /// Waits until nobody holds the gate.
    pub(super) fn pass(&self) {
        drop(self.open.wait_while(self.lock(), |holders| *holders > 0));
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody goes first.
#[must_use]
pub struct Hold(Arc<Gate>);

impl Drop for Hold {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.open.notify_all();
    }
}
