//! What a bench found: rows by round, single figures, and goals with their verdicts.

use std::path::Path;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::contender::{Card, Contender, Durability, Role};
use super::machine::{Machine, Weather};
use super::meter::Reading;
use super::stats::{Interval, median};

/// Everything that one call of the program found.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    /// Seconds since the Unix epoch.
    pub at: u64,
    pub machine: Machine,
    pub benches: Vec<Report>,
}

impl Results {
    /// # Errors
    /// When the file is missing or no such file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is not a file of results", path.display()))
    }

    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
    }
}

/// What one bench found.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub name: String,
    /// What it does, in a sentence.
    pub about: String,
    pub cases: Vec<Case>,
    pub figures: Vec<Figure>,
    pub goals: Vec<Goal>,
    /// Peers that could not be had, and other things that a reader has to know.
    pub remarks: Vec<String>,
}

/// Contenders under one load.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Case {
    pub name: String,
    /// What one operation is.
    pub operation: String,
    pub rows: Vec<Row>,
    /// By round.
    pub weather: Vec<Weather>,
    /// Rounds that were run again because their two limit probes differed.
    pub discarded: u32,
}

impl Case {
    pub(crate) fn row(&self, label: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.label == label)
    }

    /// The ratio of two contenders' rates, paired by round.
    pub(crate) fn ratio(&self, label: &str, to: &str) -> Option<Interval> {
        let (row, to) = (self.row(label)?, self.row(to)?);
        Interval::of_ratio(&row.rates(), &to.rates())
    }

    /// The ratio of two contenders' median latencies, paired by round.
    pub(crate) fn latency_ratio(&self, label: &str, to: &str) -> Option<Interval> {
        self.ratio_of(label, to, |latency| latency.p50)
    }

    /// The ratio of the latencies of two contenders' slowest hundredth, paired by round.
    pub(crate) fn p99_ratio(&self, label: &str, to: &str) -> Option<Interval> {
        self.ratio_of(label, to, |latency| latency.p99)
    }

    fn ratio_of(&self, label: &str, to: &str, read: fn(&Latency) -> f64) -> Option<Interval> {
        let values = |row: &Row| -> Vec<f64> {
            row.rounds.iter().filter_map(|round| Some(read(&round.latency?))).collect()
        };
        Interval::of_ratio(&values(self.row(label)?), &values(self.row(to)?))
    }

    /// The ratio of two contenders' processor time for one operation, paired by round.
    pub(crate) fn cpu_ratio(&self, label: &str, to: &str) -> Option<Interval> {
        let times = |row: &Row| row.rounds.iter().map(|round| round.cpu_us).collect::<Vec<_>>();
        Interval::of_ratio(&times(self.row(label)?), &times(self.row(to)?))
    }
}

/// One contender's rounds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub label: String,
    pub role: Role,
    pub durability: Durability,
    pub version: String,
    pub rounds: Vec<Measured>,
    /// Of an open load at half of the measured ceiling, or of rounds at a fixed rate.
    pub latency: Option<Latency>,
}

impl Row {
    pub(crate) fn of(contender: &dyn Contender) -> Self {
        let Card { label, role, durability, version, .. } = contender.card();
        Self { label: label.to_owned(), role, durability, version, rounds: Vec::new(), latency: None }
    }

    /// Operations a second, by round.
    pub(crate) fn rates(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.rate).collect()
    }

    /// The medians over the rounds of what each says of its latencies.
    pub(crate) fn median_latency(&self) -> Option<Latency> {
        let of = |read: fn(&Latency) -> f64| self.counter(|round| round.latency.as_ref().map(read));
        let (p50, p90, p99) =
            (of(|latency| latency.p50)?, of(|latency| latency.p90)?, of(|latency| latency.p99)?);
        Some(Latency { rate: of(|latency| latency.rate)?, p50, p90, p99, max: of(|latency| latency.max)? })
    }

    /// The median of a counter over the rounds that have it.
    pub(crate) fn counter(&self, read: impl Fn(&Measured) -> Option<f64>) -> Option<f64> {
        median(&self.rounds.iter().filter_map(read).collect::<Vec<_>>())
    }
}

/// One slot; counters are by operation.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Operations a second.
    pub rate: f64,
    pub cpu_us: f64,
    pub bytes: f64,
    pub flushes: Option<f64>,
    pub allocations: Option<f64>,
    pub redis_calls: Option<f64>,
    /// Of a round at a fixed rate.
    #[serde(default)]
    pub latency: Option<Latency>,
}

impl Measured {
    pub(crate) fn new(rate: f64, used: &Reading) -> Self {
        Self {
            rate,
            cpu_us: used.cpu_us,
            bytes: used.bytes,
            flushes: used.flushes,
            allocations: used.allocations,
            redis_calls: used.redis_calls,
            latency: None,
        }
    }
}

/// Latencies of an open load, milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// Operations a second.
    pub rate: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
}

impl Latency {
    pub(crate) fn of(rate: f64, histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e6;
        Self { rate, p50: at(0.5), p90: at(0.9), p99: at(0.99), max: histogram.max() as f64 / 1e6 }
    }
}

/// A single figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub name: String,
    pub unit: String,
    pub value: Interval,
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, unit: impl Into<String>, value: f64) -> Self {
        Self { name: name.into(), unit: unit.into(), value: Interval::exactly(value) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// Something that is to be reached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Goal {
    pub text: String,
    pub bound: Bound,
    /// Missing when something that it needs could not be had.
    pub measured: Option<Interval>,
}

impl Goal {
    pub(crate) fn at_least(text: impl Into<String>, bound: f64, measured: Option<Interval>) -> Self {
        Self { text: text.into(), bound: Bound::AtLeast(bound), measured }
    }

    pub(crate) fn at_most(text: impl Into<String>, bound: f64, measured: Option<Interval>) -> Self {
        Self { text: text.into(), bound: Bound::AtMost(bound), measured }
    }

    /// Met when even the worse end of the interval reaches it.
    pub(crate) fn verdict(&self) -> Verdict {
        let Some(measured) = self.measured else { return Verdict::NotMeasured };
        let (worse, median, met): (f64, f64, fn(f64, f64) -> bool) = match self.bound {
            Bound::AtLeast(_) => (measured.low, measured.median, |value, bound| value >= bound),
            Bound::AtMost(_) => (measured.high, measured.median, |value, bound| value <= bound),
        };
        let (Bound::AtLeast(bound) | Bound::AtMost(bound)) = self.bound;
        match (met(worse, bound), met(median, bound)) {
            (true, _) => Verdict::Met,
            (false, true) => Verdict::Close,
            _ => Verdict::Missed,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Met,
    /// The median reaches it, the worse end of the interval does not.
    Close,
    Missed,
    NotMeasured,
}

impl Verdict {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Close => "close",
            Verdict::Missed => "MISSED",
            Verdict::NotMeasured => "not measured",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_by_the_worse_end_of_its_interval() {
        let measured = |low, median, high| Some(Interval { median, low, high });
        let verdict = |low, median, high| Goal::at_least("", 0.7, measured(low, median, high)).verdict();
        assert_eq!(verdict(0.71, 0.8, 0.9), Verdict::Met);
        assert_eq!(verdict(0.69, 0.8, 0.9), Verdict::Close);
        assert_eq!(verdict(0.5, 0.6, 0.9), Verdict::Missed);
        let most = |low, median, high| Goal::at_most("", 1.5, measured(low, median, high)).verdict();
        assert_eq!(most(1.0, 1.2, 1.5), Verdict::Met);
        assert_eq!(most(1.0, 1.2, 1.6), Verdict::Close);
        assert_eq!(Goal::at_most("", 1.0, None).verdict(), Verdict::NotMeasured);
    }
}
