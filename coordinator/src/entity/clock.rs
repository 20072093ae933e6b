//! The only place that asks what time it is.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use skein_shared::id::{EntityKey, Kind};
use skein_shared::time::Timestamp;
use tokio::time::Instant;

/// Time that never goes back: the wall time at start and the monotonic time since. An entity never decides before it did
/// so last, whatever this says (`desk`). Of entities, schedules alone go by the wall.
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

    /// Both.
    pub fn time(&self) -> Time {
        Time { now: self.now(), wall: self.wall() }
    }

    /// How long to sleep until `due` by this clock.
    pub fn until(&self, due: Timestamp) -> Duration {
        due.since(self.now())
    }
}

/// What time it is, for entities and on the wall.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    pub now: Timestamp,
    pub wall: Timestamp,
}

impl Time {
    /// By which an entity's timers are due. Schedules go by the wall, which is ahead once the machine has slept or its
    /// clock was put forward; where it is behind, they wait by themselves.
    pub(super) fn for_timers_of(self, key: &EntityKey) -> Timestamp {
        match key.kind {
            Kind::Schedules => self.now.max(self.wall),
            _ => self.now,
        }
    }
}

#[allow(clippy::disallowed_methods)] // this is the clock that everything else is given
fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
