//! Medians of paired ratios with an interval.

use serde::{Deserialize, Serialize};

/// How often the rounds are drawn anew for the interval.
const DRAWS: usize = 2000;

/// A median and the interval that holds it in 90 of 100 draws.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Interval {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// A figure that was taken once.
    pub(crate) fn exactly(value: f64) -> Self {
        Self { median: value, low: value, high: value }
    }

    /// The median of values by round, with a bootstrap interval. The draws are seeded: the same values give the
    /// same interval. `None` without values.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut random = fastrand::Rng::with_seed(7);
        let mut medians: Vec<f64> = Vec::with_capacity(DRAWS);
        for _ in 0..DRAWS {
            let draw: Vec<f64> = (0..values.len()).map(|_| values[random.usize(..values.len())]).collect();
            medians.push(median(&draw)?);
        }
        medians.sort_by(f64::total_cmp);
        Some(Self {
            median: median(values)?,
            low: medians[DRAWS / 20],
            high: medians[DRAWS - 1 - DRAWS / 20],
        })
    }

    /// The interval of `values[i] / to[i]`.
    pub(crate) fn of_ratio(values: &[f64], to: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> = values.iter().zip(to).map(|(value, to)| value / to).collect();
        Self::of(&ratios)
    }
}

/// The middle value; the mean of the middle two of an even count.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_is_between_the_middle_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn ratios_are_paired_by_round() {
        // The machine halves its speed from round to round; the ratio stays.
        let interval = Interval::of_ratio(&[80.0, 40.0, 20.0], &[100.0, 50.0, 25.0]).expect("values");
        assert_eq!(interval, Interval::exactly(0.8));
    }

    #[test]
    fn the_interval_holds_the_median_and_widens_with_noise() {
        let calm = Interval::of(&[1.0, 1.01, 0.99, 1.0, 1.0]).expect("values");
        let noisy = Interval::of(&[0.5, 1.5, 1.0, 2.0, 0.7]).expect("values");
        assert!(calm.low <= calm.median && calm.median <= calm.high);
        assert!(noisy.high - noisy.low > calm.high - calm.low);
        assert_eq!(Interval::of(&[0.5, 1.5, 1.0]), Interval::of(&[0.5, 1.5, 1.0]), "seeded");
    }
}
