//! The newest ends. A pool lets go of a task that ends, and what became of it is looked up by the service, outside of
//! any decision. What ends between that look and the decision which builds on it is known from here.

use std::collections::VecDeque;

use uuid::Uuid;

use super::creation::{Asked, Fact};
use crate::fence::Epoch;
use crate::time::Timestamp;

/// So many are kept. A look takes a few milliseconds, in which no pool ends as many.
const KEPT: usize = 1024;

/// How the tasks ended that did lately, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends {
    newest: VecDeque<Fact>,
    /// How many there were since it began to count, with those that are forgotten by now.
    count: u64,
    since: Timestamp,
}

impl Ends {
    /// Whoever has served the pool until then knew of others.
    pub(super) fn begin(&mut self, since: Timestamp) {
        *self = Self { since, ..Self::default() };
    }

    pub(super) fn note(&mut self, end: Fact) {
        if self.newest.len() >= KEPT {
            self.newest.pop_front();
        }
        self.newest.push_back(end);
        self.count += 1;
    }

    pub(super) fn of(&self, task: Uuid) -> Option<Fact> {
        self.newest.iter().rev().find(|end| end.task == task).copied()
    }

    /// The present moment, for whoever is asked what had ended by then.
    pub(super) fn moment(&self, epoch: Epoch) -> Asked {
        Asked { epoch, since: self.since, ends: self.count }
    }

    /// Whether all ends after that moment are among these.
    pub(super) fn reach_back_to(&self, moment: Asked, epoch: Epoch) -> bool {
        let forgotten = self.count - self.newest.len() as u64;
        (moment.epoch, moment.since) == (epoch, self.since) && forgotten <= moment.ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::state::Outcome;

    const EPOCH: Epoch = Epoch(7);

    fn end(number: usize) -> Fact {
        let task = Uuid::from_u128(number as u128);
        Fact { outcome: Some(Outcome::Completed), ..Fact::unknown(task) }
    }

    #[test]
    fn of_too_many_ends_the_oldest_are_forgotten_and_that_is_known() {
        let mut ends = Ends::default();
        ends.note(end(0));
        let moment = ends.moment(EPOCH);
        for number in 1..=KEPT {
            ends.note(end(number));
        }
        assert_eq!((ends.of(end(0).task), ends.of(end(1).task)), (None, Some(end(1))));
        assert!(ends.reach_back_to(moment, EPOCH), "what was forgotten had ended by then");
        ends.note(end(KEPT + 1));
        assert_eq!((ends.of(end(1).task), ends.of(end(KEPT + 1).task)), (None, Some(end(KEPT + 1))));
        assert!(!ends.reach_back_to(moment, EPOCH));
    }

    #[test]
    fn what_somebody_else_knew_is_not_known() {
        let mut ends = Ends::default();
        let moment = ends.moment(EPOCH);
        assert!(ends.reach_back_to(moment, EPOCH) && !ends.reach_back_to(moment, Epoch(8)));
        ends.begin(Timestamp(1));
        assert!(!ends.reach_back_to(moment, EPOCH) && ends.reach_back_to(ends.moment(EPOCH), EPOCH));
    }
}
