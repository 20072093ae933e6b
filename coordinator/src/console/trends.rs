//! How this node fared in the last hour, kept in memory: what was counted every ten seconds.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a sample is taken.
pub const EVERY: Duration = Duration::from_secs(10);
/// Samples that are kept.
const KEPT: usize = 361;
/// What commits take, as the metrics count it.
const COMMIT: &str = "skein_entity_commit_seconds";

/// The samples. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Trends {
    samples: Arc<Mutex<VecDeque<Sample>>>,
}

/// What the metrics said at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sample {
    commits: f64,
    commands: f64,
    requests: f64,
    waiting: f64,
    unlisted: f64,
    effects: f64,
    memory: f64,
    /// How many commits took no longer than so many seconds.
    taken: BTreeMap<Bound, f64>,
}

/// Seconds, in an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Bound(u64);

/// What is charted, one value for each sample; the rates are of the time since the one before.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Lines {
    pub(super) commits: Vec<Option<f64>>,
    pub(super) commands: Vec<Option<f64>>,
    pub(super) requests: Vec<Option<f64>>,
    /// Milliseconds.
    pub(super) median: Vec<Option<f64>>,
    pub(super) slowest: Vec<Option<f64>>,
    pub(super) waiting: Vec<Option<f64>>,
    pub(super) unlisted: Vec<Option<f64>>,
    pub(super) effects: Vec<Option<f64>>,
    /// MiB.
    pub(super) memory: Vec<Option<f64>>,
}

impl Trends {
    /// Keeps what the metrics say now, in Prometheus' words.
    pub fn keep(&self, metrics: &str) {
        let mut samples = self.lock();
        samples.push_back(Sample::read(metrics));
        while samples.len() > KEPT {
            samples.pop_front();
        }
    }

    pub(super) fn lines(&self) -> Lines {
        let samples = self.lock();
        let mut lines = Lines::default();
        for (before, now) in samples.iter().zip(samples.iter().skip(1)) {
            // A counter never falls.
            let rate = |of: fn(&Sample) -> f64| Some((of(now) - of(before)).max(0.0) / EVERY.as_secs_f64());
            lines.commits.push(rate(|sample| sample.commits));
            lines.commands.push(rate(|sample| sample.commands));
            lines.requests.push(rate(|sample| sample.requests));
            lines.median.push(now.quantile(before, 0.5));
            lines.slowest.push(now.quantile(before, 0.99));
            lines.waiting.push(Some(now.waiting));
            lines.unlisted.push(Some(now.unlisted));
            lines.effects.push(Some(now.effects));
            lines.memory.push(Some(now.memory / 1_048_576.0));
        }
        lines
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Sample>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sample {
    fn read(metrics: &str) -> Self {
        let mut sample = Self::default();
        for line in metrics.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            let (name, labels) = name.split_once('{').unwrap_or((name, ""));
            match name {
                "skein_entity_commits_total" => sample.commits += value,
                "skein_entity_commands_total" => sample.commands += value,
                "skein_http_requests_total" => sample.requests += value,
                "skein_commands_in_flight" => sample.waiting = value,
                "skein_projection_lag" => sample.unlisted = value,
                "skein_outbox_effects" => sample.effects = value,
                "skein_memory_allocated_bytes" => sample.memory = value,
                _ if name.strip_suffix("_bucket") == Some(COMMIT) => {
                    if let Some(bound) = Bound::read(labels) {
                        sample.taken.insert(bound, value);
                    }
                }
                _ => {}
            }
        }
        sample
    }

    /// What so many of the commits since `before` took at most, milliseconds: the bound of the bucket that they are in.
    fn quantile(&self, before: &Sample, share: f64) -> Option<f64> {
        let since = |bound: &Bound, count: f64| count - before.taken.get(bound).copied().unwrap_or_default();
        let all = self.taken.last_key_value().map(|(bound, count)| since(bound, *count))?;
        if all < 1.0 {
            return None;
        }
        let enough = self.taken.iter().find(|(bound, count)| since(bound, **count) >= all * share);
        // Above the last bound nothing is known but that.
        let highest = || self.taken.keys().rev().find(|bound| bound.0 < u64::MAX).copied();
        let bound = enough.map(|(bound, _)| *bound).filter(|bound| bound.0 < u64::MAX).or_else(highest)?;
        Some(bound.0 as f64 / 1000.0)
    }
}

impl Bound {
    /// Reads the label `le`, in microseconds.
    fn read(labels: &str) -> Option<Self> {
        let (_, rest) = labels.split_once("le=\"")?;
        match rest.split('"').next()? {
            "+Inf" => Some(Self(u64::MAX)),
            seconds => Some(Self((seconds.parse::<f64>().ok()? * 1e6).round() as u64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(commits: u32, fast: u32, waiting: u32) -> String {
        format!(
            "# HELP skein_entity_commits_total x\nskein_entity_commits_total {commits}\n\
             skein_http_requests_total{{listener=\"http\",status=\"200\"}} 5\n\
             skein_http_requests_total{{listener=\"http\",status=\"404\"}} 2\n\
             skein_entity_commit_seconds_bucket{{le=\"0.001\"}} {fast}\n\
             skein_entity_commit_seconds_bucket{{le=\"0.01\"}} {commits}\n\
             skein_entity_commit_seconds_bucket{{le=\"+Inf\"}} {commits}\nskein_commands_in_flight {waiting}\nnonsense\n"
        )
    }

    #[test]
    fn rates_and_latencies_are_of_the_time_between_two_samples() {
        let trends = Trends::default();
        for metrics in [said(100, 100, 0), said(200, 190, 3), said(200, 190, 0)] {
            trends.keep(&metrics);
        }
        let lines = trends.lines();
        assert_eq!(lines.commits, [Some(10.0), Some(0.0)]);
        assert_eq!(lines.requests, [Some(0.0), Some(0.0)]);
        assert_eq!(lines.median, [Some(1.0), None]);
        assert_eq!(lines.slowest, [Some(10.0), None]);
        assert_eq!(lines.waiting, [Some(3.0), Some(0.0)]);
    }

    #[test]
    fn an_hour_is_kept() {
        let trends = Trends::default();
        for number in 0..2000 {
            trends.keep(&said(number, number, 0));
        }
        assert_eq!(trends.lines().commits.len(), KEPT - 1);
    }
}
