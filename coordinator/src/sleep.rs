//! For how long the machine has slept. The monotonic clock stands still in a suspend, and other machines go on.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Two clocks that are read within such a time are read at one moment.
const AT_ONCE: Duration = Duration::from_millis(1);

/// Counts it from when this was made.
#[derive(Clone)]
pub(crate) struct Sleep {
    so_far: Arc<dyn Fn() -> Duration + Send + Sync>,
    before: Duration,
}

impl Sleep {
    pub(crate) fn of_this_machine() -> Self {
        Self::of(since_boot)
    }

    /// Of a machine that has slept for so long in all.
    fn of(so_far: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let before = so_far();
        Self { so_far: Arc::new(so_far), before }
    }

    /// For how long it has slept since.
    pub(crate) fn total(&self) -> Duration {
        (self.so_far)().saturating_sub(self.before)
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("total", &self.total()).finish_non_exhaustive()
    }
}

/// What the two clocks are apart is the time in which the machine slept.
fn since_boot() -> Duration {
    loop {
        let (awake, all) = (read(ClockId::Monotonic), read(ClockId::Boottime));
        // A process that waits for the processor in between has not slept.
        if read(ClockId::Monotonic).saturating_sub(awake) < AT_ONCE {
            return all.saturating_sub(awake);
        }
    }
}

fn read(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// The sleep of a machine that has slept for so many seconds.
    pub(crate) fn told() -> (Sleep, Arc<AtomicU64>) {
        let slept = Arc::new(AtomicU64::new(0));
        let so_far = Arc::clone(&slept);
        (Sleep::of(move || Duration::from_secs(so_far.load(Ordering::Relaxed))), slept)
    }

    #[test]
    fn a_machine_that_is_awake_does_not_sleep() {
        let sleep = Sleep::of_this_machine();
        for _ in 0..1000 {
            assert!(sleep.total() < AT_ONCE, "{sleep:?}");
        }
    }

    #[test]
    fn what_a_machine_had_slept_before_does_not_count() {
        let (sleep, slept) = told();
        slept.store(3600, Ordering::Relaxed);
        let sleep = Sleep { before: sleep.total(), ..sleep };
        assert_eq!(sleep.total(), Duration::ZERO);
        slept.store(3660, Ordering::Relaxed);
        assert_eq!(sleep.total(), Duration::from_secs(60));
    }
}
