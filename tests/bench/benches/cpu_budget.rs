//! B21: what the commonest verbs cost, held against a budget that is kept in the repository.
//!
//! These figures do not depend on how busy the machine is, so they show what a change costs.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use futures::FutureExt;
use serde::{Deserialize, Serialize};

use super::Bench;
use crate::harness::compare::{Change, NOTABLE};
use crate::harness::machine::{Machine, Weather};
use crate::harness::report::{Figure, Goal, Report};
use crate::harness::stats::Interval;
use crate::harness::table::number;
use crate::options::Options;
use crate::skein::verbs::{self, Cost};

pub(super) const BENCH: Bench = Bench {
    name: "cpu_budget",
    about: "CPU, flushes, bytes and allocations of the twelve commonest verbs, one at a time",
    run: |options| run(options).boxed(),
};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/bench/budget.json");
const CPU: &str = "CPU us";

/// What each verb may cost, by the counter's name.
#[derive(Debug, Serialize, Deserialize)]
struct Budget {
    /// Processor time is compared only on the same one,
    processor: String,
    /// and only when nothing else used it: whoever shares it finds its caches cold.
    calm: bool,
    verbs: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Budget {
    fn read() -> Result<Self> {
        let text = std::fs::read_to_string(FILE).with_context(|| format!("{FILE} cannot be read"))?;
        serde_json::from_str(&text).with_context(|| format!("{FILE} is no budget"))
    }

    fn write(&self) -> Result<()> {
        std::fs::write(FILE, serde_json::to_string_pretty(self)? + "\n")
            .with_context(|| format!("{FILE} cannot be written"))
    }

    /// Every figure that both have and that can be compared.
    fn compare(&self, now: &Self) -> Vec<Change> {
        let cpu = self.why_not_cpu(now).is_none();
        let mut changes = Vec::new();
        for (verb, counters) in &now.verbs {
            for (counter, value) in counters.iter().filter(|(counter, _)| cpu || *counter != CPU) {
                let before = self.verbs.get(verb).and_then(|counters| counters.get(counter));
                let what = format!("{verb}: {counter}");
                changes.extend(before.map(|&before| Change { what, before, now: *value }));
            }
        }
        changes
    }

    /// Why processor time cannot be compared, if it cannot.
    fn why_not_cpu(&self, now: &Self) -> Option<String> {
        match (self.processor == now.processor, self.calm, now.calm) {
            (false, ..) => Some(format!("the budget is of another processor, {}", self.processor)),
            (_, false, _) => Some("the budget was taken on a busy machine".to_owned()),
            (_, _, false) => Some("the machine is busy".to_owned()),
            _ => None,
        }
    }
}

/// Whether there is a processor for each that wants one.
fn is_calm(options: &Options) -> Result<bool> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Weather::look(&options.folder)?.load <= processors as f64)
}

fn counters(cost: &Cost) -> [(&'static str, f64); 4] {
    [(CPU, cost.cpu_us), ("flushes", cost.flushes), ("bytes", cost.bytes), ("allocations", cost.allocations)]
}

/// Whatever else a machine does adds to processor time; nothing takes from it.
fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    let calm = is_calm(&options)?;
    // By verb and counter, a value for each round.
    let mut found: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for _ in 0..options.rounds * 2 {
        for (verb, cost) in verbs::measure(options.folder_for("verbs")?).await? {
            for (counter, value) in counters(&cost) {
                found.entry((verb, counter)).or_default().push(value);
            }
        }
    }
    let processor = Machine::look(&options.folder).model;
    let mut now = Budget { processor, calm: calm && is_calm(&options)?, verbs: BTreeMap::new() };
    for ((verb, counter), values) in &found {
        let value = Interval::of(values).context("there were rounds")?;
        report.figures.push(Figure {
            name: format!("{verb}: {counter}"),
            unit: "an operation".to_owned(),
            value,
        });
        // As many digits as mean something, so that a new budget is a small change of the file.
        let kept = if *counter == CPU { least(values) } else { value.median };
        let rounded = (kept * 10.0).round() / 10.0;
        now.verbs.entry((*verb).to_owned()).or_default().insert((*counter).to_owned(), rounded);
    }
    if options.update {
        now.write()?;
        report.remarks.push("this is the budget now".to_owned());
        return Ok(report);
    }
    judge(&Budget::read()?, &now, &mut report);
    Ok(report)
}

fn judge(budget: &Budget, now: &Budget, report: &mut Report) {
    if let Some(why) = budget.why_not_cpu(now) {
        report.remarks.push(format!("processor time is not compared: {why}"));
    }
    let changes = budget.compare(now);
    let risen: Vec<&Change> = changes.iter().filter(|change| change.is_notable()).collect();
    for change in &risen {
        let remark = format!(
            "{} ROSE by {:.1} %: from {} to {}",
            change.what,
            change.rise() * 100.0,
            number(change.before),
            number(change.now)
        );
        eprintln!("    {remark}");
        report.remarks.push(remark);
    }
    let text = format!("B21 figures of {} that rose by over {:.0} %", changes.len(), NOTABLE * 100.0);
    report.goals.push(Goal::at_most(text, 0.0, Some(Interval::exactly(risen.len() as f64))));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(processor: &str, cpu: f64, bytes: f64) -> Budget {
        let counters = BTreeMap::from([(CPU.to_owned(), cpu), ("bytes".to_owned(), bytes)]);
        Budget { processor: processor.to_owned(), calm: true, verbs: BTreeMap::from([("claim".to_owned(), counters)]) }
    }

    fn risen(before: &Budget, now: &Budget) -> f64 {
        let mut report = Report::default();
        judge(before, now, &mut report);
        report.goals[0].measured.expect("measured").median
    }

    #[test]
    fn what_rises_by_over_five_percent_is_told() {
        let before = budget("one", 100.0, 1000.0);
        assert_eq!(risen(&before, &budget("one", 104.0, 1000.0)), 0.0);
        assert_eq!(risen(&before, &budget("one", 106.0, 2000.0)), 2.0);
    }

    #[test]
    fn processor_time_is_not_compared_between_processors_or_on_a_busy_one() {
        let before = budget("one", 100.0, 1000.0);
        assert_eq!(risen(&before, &budget("other", 900.0, 1000.0)), 0.0);
        assert_eq!(risen(&before, &Budget { calm: false, ..budget("one", 900.0, 1000.0) }), 0.0);
        assert_eq!(risen(&before, &Budget { calm: false, ..budget("one", 900.0, 1100.0) }), 1.0);
    }

    #[test]
    fn the_budget_of_the_repository_names_twelve_verbs() {
        assert_eq!(Budget::read().expect("a budget").verbs.len(), 12);
    }
}
