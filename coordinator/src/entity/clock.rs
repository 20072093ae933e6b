//! The only place that asks what time it is.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use skein_shared::time::Timestamp;
use tokio::time::Instant;

/// Time that never goes back: the wall time at start and the monotonic time since. An entity never decides before it did
/// so last, whatever this says (`desk`). Schedules alone read [`Clock::wall`].
#[derive(Clone, Debug)]
pub struct Clock {
    started: Instant,
    base: Timestamp,
}

impl Clock {
    /// Starts at the wall time.
    pub fn start() -> Self {
        Self { started: Instant::now(), base: wall() }
    }

    /// The monotonic time.
    pub fn now(&self) -> Timestamp {
        self.base + self.started.elapsed()
    }

    /// The time that people have on their walls. It may jump.
    pub fn wall(&self) -> Timestamp {
        wall()
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
