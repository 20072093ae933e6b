//! Sets of message numbers, written as few runs.

use serde::{Deserialize, Serialize};

/// Numbers, as runs without a gap: ascending, and never two that touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Run>", into = "Vec<Run>")]
pub struct Spans(Vec<Run>);

/// In JSON one number, or the first and the last of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Run {
    One(u64),
    Many(u64, u64),
}

impl Run {
    fn new(first: u64, last: u64) -> Self {
        if first == last { Self::One(first) } else { Self::Many(first, last) }
    }

    fn first(self) -> u64 {
        let (Self::One(first) | Self::Many(first, _)) = self;
        first
    }

    fn last(self) -> u64 {
        let (Self::One(last) | Self::Many(_, last)) = self;
        last
    }
}

impl From<Vec<Run>> for Spans {
    fn from(runs: Vec<Run>) -> Self {
        let mut spans = Self::default();
        for run in runs {
            spans.add(run.first(), run.last());
        }
        spans
    }
}

impl From<Spans> for Vec<Run> {
    fn from(spans: Spans) -> Self {
        spans.0
    }
}

impl FromIterator<u64> for Spans {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        let mut spans = Self::default();
        for number in numbers {
            spans.add(number, number);
        }
        spans
    }
}

impl Spans {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many numbers there are.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|run| run.last() - run.first() + 1).sum()
    }

    pub fn contains(&self, number: u64) -> bool {
        let run = self.0.partition_point(|run| run.last() < number);
        self.0.get(run).is_some_and(|run| run.first() <= number)
    }

    pub(super) fn first(&self) -> Option<u64> {
        self.0.first().map(|run| run.first())
    }

    pub(super) fn last(&self) -> Option<u64> {
        self.0.last().map(|run| run.last())
    }

    pub(super) fn runs(&self) -> usize {
        self.0.len()
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        for run in &other.0 {
            self.add(run.first(), run.last());
        }
    }

    /// The numbers above `low` and up to `high` that are not in it, the highest first.
    pub(super) fn missing(&self, low: u64, high: u64) -> impl Iterator<Item = u64> + '_ {
        let ends = std::iter::once(high + 1).chain(self.0.iter().rev().map(|run| run.first()));
        let starts = self.0.iter().rev().map(|run| run.last()).chain(std::iter::once(low));
        ends.zip(starts).flat_map(move |(end, start)| (start.max(low) + 1..end.min(high + 1)).rev())
    }

    /// Takes out what does not lie above this number.
    pub(super) fn keep_above(&mut self, number: u64) {
        self.0.retain(|run| run.last() > number);
        if let Some(lowest) = self.0.first_mut() {
            *lowest = Run::new(lowest.first().max(number + 1), lowest.last());
        }
    }

    /// Takes out the lowest run, and says where it ended.
    pub(super) fn pop_lowest(&mut self) -> Option<u64> {
        let last = self.0.first()?.last();
        self.0.remove(0);
        Some(last)
    }

    fn add(&mut self, first: u64, last: u64) {
        let from = self.0.partition_point(|run| run.last() + 1 < first);
        let to = self.0.partition_point(|run| run.first() <= last + 1);
        let touched = &self.0[from..to];
        let first = touched.first().map_or(first, |run| run.first().min(first));
        let last = touched.last().map_or(last, |run| run.last().max(last));
        self.0.splice(from..to, [Run::new(first, last)]);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn runs_are_short_in_json_and_single_numbers_are_what_they_were() {
        let spans: Spans = [9, 3, 1, 2, 7].into_iter().collect();
        assert_eq!(serde_json::to_value(&spans).unwrap(), json!([[1, 3], 7, 9]));
        let stored: Spans = serde_json::from_value(json!([1, 2, 3, 7, 9])).unwrap();
        assert_eq!(stored, spans);
    }

    proptest! {
        #[test]
        fn spans_are_the_set_of_their_numbers(numbers in prop::collection::vec(1u64..40, 0..60), above in 0u64..40) {
            let mut spans: Spans = numbers.iter().copied().collect();
            let mut set: BTreeSet<u64> = numbers.into_iter().collect();
            spans.keep_above(above);
            set.retain(|number| *number > above);
            prop_assert_eq!(spans.count(), set.len() as u64);
            prop_assert!((0..42).all(|number| spans.contains(number) == set.contains(&number)));
            prop_assert_eq!((spans.first(), spans.last()), (set.first().copied(), set.last().copied()));
            let missing: Vec<u64> = (above + 1..=40).rev().filter(|number| !set.contains(number)).collect();
            prop_assert_eq!(spans.missing(above, 40).collect::<Vec<u64>>(), missing);
            let runs = set.iter().filter(|&&number| !set.contains(&(number - 1))).count();
            prop_assert_eq!(spans.runs(), runs);
        }
    }
}
