//! The only place that asks what time it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use skein_shared::id::{EntityKey, Kind};
use skein_shared::time::Timestamp;
use tokio::time::Instant;

use crate::sleep::Sleep;

/// Time that never goes back: the wall time at start and the monotonic time since. An entity never decides before it
/// did so last, whatever this says (`desk`). Of entities, schedules alone go by the wall.
///
/// While the machine sleeps it stands still, and a node by itself goes on from there: it has heard of nobody meanwhile.
/// In a cluster the others decide on: a node catches up with them, once nothing is in memory that would end by the
/// leap.
#[derive(Clone, Debug)]
pub struct Clock {
    started: Instant,
    base: Timestamp,
    sleep: Sleep,
    /// What is counted of the sleep, milliseconds.
    made_up: Arc<AtomicU64>,
}

impl Clock {
    /// Starts at the wall time.
    pub fn start() -> Self {
        Self::of(Sleep::of_this_machine())
    }

    /// Of a machine that sleeps so.
    pub(crate) fn of(sleep: Sleep) -> Self {
        Self { started: Instant::now(), base: wall(), sleep, made_up: Arc::default() }
    }

    /// The monotonic time.
    pub fn now(&self) -> Timestamp {
        let made_up = Duration::from_millis(self.made_up.load(Ordering::Relaxed));
        self.base + self.started.elapsed() + made_up
    }

    /// Counts for how long the machine has slept so far. Says whether it had slept since this was last done.
    pub fn catch_up(&self) -> bool {
        let slept = u64::try_from(self.sleep.total().as_millis()).unwrap_or(u64::MAX);
        self.made_up.fetch_max(slept, Ordering::Relaxed) < slept
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sleep::tests::told;

    #[tokio::test(start_paused = true)]
    async fn a_clock_stands_still_with_its_machine_until_it_catches_up() {
        const SECOND: Duration = Duration::from_secs(1);
        let (sleep, slept) = told();
        let clock = Clock::of(sleep);
        let (begun, other) = (clock.now(), clock.clone());
        tokio::time::advance(SECOND).await;
        slept.store(3600, Ordering::Relaxed);
        assert_eq!(clock.now(), begun + SECOND);
        assert!(clock.catch_up());
        assert_eq!(clock.now(), begun + SECOND * 3601);
        assert!(!other.catch_up(), "it is one clock for all");
        tokio::time::advance(SECOND).await;
        assert_eq!(other.now(), begun + SECOND * 3602);
    }
}
