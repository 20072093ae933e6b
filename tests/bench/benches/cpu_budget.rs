//! B21: what the commonest verbs cost, held against a budget that is kept in the repository.
//!
//! These figures do not depend on how busy the machine is, so they show what a change costs.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use futures::FutureExt;
use serde::{Deserialize, Serialize};

use super::Bench;
use crate::harness::compare::{Change, NOTABLE};
use crate::harness::machine::Machine;
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
    /// Processor time is compared only on the same one.
    processor: String,
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

    /// Every figure that both have.
    fn compare(&self, now: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        for (verb, counters) in &now.verbs {
            for (counter, now_value) in counters {
                let comparable = counter != CPU || self.processor == now.processor;
                let before = self.verbs.get(verb).and_then(|counters| counters.get(counter));
                if let (true, Some(&before)) = (comparable, before) {
                    changes.push(Change { what: format!("{verb}: {counter}"), before, now: *now_value });
                }
            }
        }
        changes
    }
}

fn counters(cost: &Cost) -> [(&'static str, f64); 4] {
    [(CPU, cost.cpu_us), ("flushes", cost.flushes), ("bytes", cost.bytes), ("allocations", cost.allocations)]
}

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    // By verb and counter, a value for each round.
    let mut found: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for _ in 0..options.rounds {
        for (verb, cost) in verbs::measure(options.folder_for("verbs")?).await? {
            for (counter, value) in counters(&cost) {
                found.entry((verb, counter)).or_default().push(value);
            }
        }
    }
    let mut now = Budget { processor: Machine::look(&options.folder).model, verbs: BTreeMap::new() };
    for ((verb, counter), values) in &found {
        let value = Interval::of(values).context("there were rounds")?;
        report.figures.push(Figure {
            name: format!("{verb}: {counter}"),
            unit: "an operation".to_owned(),
            value,
        });
        // As many digits as mean something, so that a new budget is a small change of the file.
        let rounded = (value.median * 10.0).round() / 10.0;
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
    if budget.processor != now.processor {
        let remark = format!("processor time is not compared: the budget is of {}", budget.processor);
        report.remarks.push(remark);
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
        Budget { processor: processor.to_owned(), verbs: BTreeMap::from([("claim".to_owned(), counters)]) }
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
    fn processor_time_is_not_compared_between_processors() {
        assert_eq!(risen(&budget("one", 100.0, 1000.0), &budget("other", 900.0, 1000.0)), 0.0);
    }

    #[test]
    fn the_budget_of_the_repository_names_twelve_verbs() {
        assert_eq!(Budget::read().expect("a budget").verbs.len(), 12);
    }
}
