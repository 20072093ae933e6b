//! Which life of which server this process has to do with.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use tokio::sync::{Notify, watch};
use xxhash_rust::xxh3::xxh3_64;

/// What is said of a server that is not the one whose leases this process has.
pub(super) const REPLACED: &str =
    "Redis was restarted or replaced by a replica, so writes that it had acknowledged may be gone";

/// One life of one server. When it changes, writes that were acknowledged may be gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// New at each start of the server.
    pub run: String,
    /// New when a replica becomes the primary.
    pub replication: String,
}

impl Generation {
    /// Tells it apart from others in what nodes say to one another. Never 0.
    pub(super) fn number(&self) -> u64 {
        xxh3_64(format!("{} {}", self.run, self.replication).as_bytes()).max(1)
    }
}

/// The life on which this process relies, and the store that it found there.
pub(super) struct Reliance {
    generation: RwLock<Generation>,
    number: AtomicU64,
    /// Of the store, for ever.
    pub(super) store: String,
    doubts: Notify,
    /// Whether somebody has doubted since it was last looked at.
    is_doubted: AtomicBool,
    /// Counts the lives after the first.
    lives: watch::Sender<u64>,
}

impl Reliance {
    pub(super) fn new(generation: Generation, store: String) -> Self {
        Self {
            number: AtomicU64::new(generation.number()),
            generation: RwLock::new(generation),
            store,
            doubts: Notify::new(),
            is_doubted: AtomicBool::new(false),
            lives: watch::Sender::new(0),
        }
    }

    pub(super) fn generation(&self) -> Generation {
        self.generation.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of the life.
    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Relies on another life from now on.
    pub(super) fn begin(&self, generation: Generation) {
        self.number.store(generation.number(), Ordering::Release);
        *self.generation.write().unwrap_or_else(PoisonError::into_inner) = generation;
        self.lives.send_modify(|count| *count += 1);
    }

    /// Changes when it relies on another life.
    pub(super) fn lives(&self) -> watch::Receiver<u64> {
        self.lives.subscribe()
    }

    /// Says that the server is another one, before the next look at it is due.
    pub(super) fn doubt(&self) {
        self.is_doubted.store(true, Ordering::Release);
        self.doubts.notify_one();
    }

    /// Whether somebody doubts; from now on nobody does.
    pub(super) fn end_doubt(&self) -> bool {
        self.is_doubted.swap(false, Ordering::AcqRel)
    }

    /// Returns once somebody doubts.
    pub(super) async fn doubted(&self) {
        self.doubts.notified().await;
    }
}
