//! What time it is for a node.

use skein_coordinator::entity::Time;
use skein_shared::time::Timestamp;
use tokio::time::Instant;

use crate::sim::config::{Broken, Config};

/// Time that never goes back, as `entity/clock.rs` has it, and that on the wall, which goes on while the machine
/// sleeps.
pub struct Clock {
    pub(super) begun: Instant,
    wall: u64,
    /// For how long the machine had slept when it began, and for how long it has by now, milliseconds.
    had_slept: u64,
    pub slept: u64,
    /// It has no wall.
    broken: bool,
}

impl Clock {
    /// Of a process that starts now, with a wall that says this, on a machine that has slept for so long.
    pub(super) fn start(config: &Config, begun: Instant, wall: u64, slept: u64) -> Self {
        let broken = config.broken == Some(Broken::SchedulesHaveNoWall);
        Self { begun, wall, had_slept: slept, slept, broken }
    }

    pub(super) fn now(&self, now: Instant) -> Timestamp {
        Timestamp(self.wall) + (now - self.begun)
    }

    pub(super) fn time(&self, now: Instant) -> Time {
        let now = self.now(now);
        let slept = if self.broken { 0 } else { self.slept - self.had_slept };
        Time { now, wall: Timestamp(now.0 + slept) }
    }
}
