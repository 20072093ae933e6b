//! The only place that asks what time it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use skein_shared::time::Timestamp;
use tokio::time::Instant;

/// Time that never goes back: the wall time at start, or the last committed time if that is later, plus the
/// monotonic time since. Schedules alone read [`Clock::wall`].
#[derive(Clone, Debug)]
pub struct Clock {
    started: Instant,
    base: Timestamp,
    floor: Arc<AtomicU64>,
}

impl Clock {
    /// Starts at the wall time.
    pub fn start() -> Self {
        Self { started: Instant::now(), base: wall(), floor: Arc::default() }
    }

    /// The monotonic time. Never before a time given to [`Clock::not_before`].
    pub fn now(&self) -> Timestamp {
        let now = self.base + self.started.elapsed();
        now.max(Timestamp(self.floor.load(Ordering::Relaxed)))
    }

    /// The time that people have on their walls. It may jump.
    pub fn wall(&self) -> Timestamp {
        wall()
    }

    /// Learns of a committed time: this process must not decide at an earlier one.
    pub fn not_before(&self, committed: Timestamp) {
        self.floor.fetch_max(committed.0, Ordering::Relaxed);
    }

    /// How long to sleep until `due` by this clock.
    pub fn until(&self, due: Timestamp) -> Duration {
        due.since(self.now())
    }
}

#[allow(clippy::disallowed_methods)] // this is the clock that everything else is given
fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
