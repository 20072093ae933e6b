//! Faults by script: each commit takes the next one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

use crate::store::CommitError;

/// What happens to one commit.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It is applied, but the answer is lost: the caller sees an unknown outcome.
    AnswerLost,
    /// It never arrives, and the caller sees an unknown outcome all the same.
    RequestLost,
    /// It is refused, for certain.
    Refused,
    /// It arrives when the gate opens.
    Slow(Gate),
    /// It is applied, and no document can be read from then on, until [`Faults::let_read`].
    ThenUnreadable,
}

/// The faults still to come.
#[derive(Clone, Default)]
pub struct Faults {
    script: Arc<Mutex<VecDeque<Fault>>>,
    unreadable: Arc<AtomicBool>,
}

impl Faults {
    /// Adds a fault for a commit after those that have one already.
    pub fn push(&self, fault: Fault) {
        self.script.lock().unwrap_or_else(PoisonError::into_inner).push_back(fault);
    }

    /// How many are still to come.
    pub fn left(&self) -> usize {
        self.script.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Documents can be read again.
    pub fn let_read(&self) {
        self.unreadable.store(false, Ordering::Relaxed);
    }

    pub(super) fn refuse_reads(&self) {
        self.unreadable.store(true, Ordering::Relaxed);
    }

    pub(super) fn are_reads_refused(&self) -> bool {
        self.unreadable.load(Ordering::Relaxed)
    }

    pub(super) fn next(&self) -> Option<Fault> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

pub(super) fn unknown() -> CommitError {
    CommitError::Unknown("the script lost the message".to_owned())
}

/// Holds commits up until it is opened, and lets them through in the order in which they came.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Semaphore>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }
}

impl Gate {
    pub fn open(&self) {
        self.0.close();
    }

    pub(super) async fn passed(&self) {
        // There is never a permit, so waiting ends only by opening.
        let _ = self.0.acquire().await;
    }
}
