//! Which of its times a schedule has fired for.
//!
//! They rise with the wall clock, so mostly the latest of them says it of all. Where one was missed it cannot be told
//! whether nobody served the schedules or the clock is ahead. So what fires from there on stands apart: should the
//! clock be set back, the times between have not fired.

use serde::{Deserialize, Serialize};

use super::state::Schedule;
use crate::time::Timestamp;

/// Most stretches that stand apart. If there are more, what lies before the earliest of them counts as fired.
const APART: usize = 8;

/// Nominal times that fired one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stretch {
    first: Timestamp,
    last: Timestamp,
}

impl Schedule {
    pub(super) fn has_fired(&self, nominal: Timestamp) -> bool {
        self.fired.is_some_and(|fired| nominal <= fired) || self.stretch_with(nominal).is_some()
    }

    /// The first time after `wall` that has not fired, of those that `next` names after another time.
    pub(super) fn first_open(
        &self,
        wall: Timestamp,
        next: impl Fn(Timestamp) -> Option<Timestamp>,
    ) -> Option<Timestamp> {
        let mut after = wall.max(self.fired.unwrap_or(Timestamp::ZERO));
        loop {
            let nominal = next(after)?;
            let Some(stretch) = self.stretch_with(nominal) else { return Some(nominal) };
            after = stretch.last;
        }
    }

    /// Notes that it fired for `nominal`, which was `missed` or has come in time.
    pub(super) fn note_fired(&mut self, nominal: Timestamp, missed: bool) {
        let later = self.apart.partition_point(|stretch| stretch.last < nominal);
        if self.leapt {
            self.apart.insert(later, Stretch { first: nominal, last: nominal });
        } else if let Some(before) = later.checked_sub(1) {
            self.apart[before].last = nominal;
        } else {
            self.fired = Some(nominal);
        }
        self.leapt = missed;
        if self.apart.len() > APART {
            self.fired = Some(self.apart.remove(0).last);
        }
    }

    fn stretch_with(&self, nominal: Timestamp) -> Option<&Stretch> {
        self.apart.iter().find(|stretch| (stretch.first..=stretch.last).contains(&nominal))
    }
}
