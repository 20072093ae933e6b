//! Two files of results beside each other: what rose, what fell.

use anyhow::Result;
use comfy_table::Table;

use super::report::{Case, Report, Results, Row};
use super::table::{number, plain};

/// A counter that rose by more than this is pointed out: less is noise.
pub(crate) const NOTABLE: f64 = 0.05;

/// One counter of one contender in both files.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    pub what: String,
    pub before: f64,
    pub now: f64,
}

impl Change {
    /// 0.1 is ten percent more.
    pub(crate) fn rise(&self) -> f64 {
        if self.before == 0.0 {
            if self.now == 0.0 { 0.0 } else { f64::INFINITY }
        } else {
            self.now / self.before - 1.0
        }
    }

    pub(crate) fn is_notable(&self) -> bool {
        self.rise() > NOTABLE
    }
}

/// All counters that both files have.
///
/// Rates are shown as ratios to the first limit probe, since the machine's own speed differs from day to day.
pub(crate) fn changes(before: &Results, now: &Results) -> Vec<Change> {
    let mut found = Vec::new();
    for report in &now.benches {
        let Some(earlier) = before.benches.iter().find(|earlier| earlier.name == report.name) else {
            continue;
        };
        in_report(earlier, report, &mut found);
    }
    found
}

fn in_report(before: &Report, now: &Report, found: &mut Vec<Change>) {
    for case in &now.cases {
        let Some(earlier) = before.cases.iter().find(|earlier| earlier.name == case.name) else { continue };
        for row in &case.rows {
            let Some(old) = earlier.row(&row.label) else { continue };
            let what = format!("{} / {} / {}", now.name, case.name, row.label);
            in_row((earlier, old), (case, row), &what, found);
        }
    }
    for figure in &now.figures {
        let Some(old) = before.figures.iter().find(|old| old.name == figure.name) else { continue };
        let what = format!("{} / {} ({})", now.name, figure.name, figure.unit);
        found.push(Change { what, before: old.value.median, now: figure.value.median });
    }
}

fn in_row(before: (&Case, &Row), now: (&Case, &Row), what: &str, found: &mut Vec<Change>) {
    type Counter = fn(&super::report::Measured) -> Option<f64>;
    let counters: [(&str, Counter); 5] = [
        ("CPU us", |m| Some(m.cpu_us)),
        ("flushes", |m| m.flushes),
        ("bytes", |m| Some(m.bytes)),
        ("allocations", |m| m.allocations),
        ("Redis calls", |m| m.redis_calls),
    ];
    for (name, read) in counters {
        if let (Some(before), Some(now)) = (before.1.counter(read), now.1.counter(read)) {
            found.push(Change { what: format!("{what}: {name}"), before, now });
        }
    }
    // Turned over, so that a rise is a loss as with the counters.
    if let (Some(before), Some(now)) = (share_of_limit(before), share_of_limit(now)) {
        found.push(Change { what: format!("{what}: limit/rate"), before: 1.0 / before, now: 1.0 / now });
    }
}

fn share_of_limit((case, row): (&Case, &Row)) -> Option<f64> {
    let limit = case.rows.iter().find(|row| row.role == super::contender::Role::Limit)?;
    if limit.label == row.label {
        return None;
    }
    case.ratio(&row.label, &limit.label).map(|ratio| ratio.median)
}

/// The changes as a table, the greatest rise first.
pub(crate) fn table(changes: &[Change]) -> Table {
    let mut sorted: Vec<&Change> = changes.iter().collect();
    sorted.sort_by(|one, other| other.rise().total_cmp(&one.rise()));
    let mut table = plain(&["what", "before", "now", "change"]);
    for change in sorted {
        let mark = if change.is_notable() { " !" } else { "" };
        let rise = format!("{:+.1} %{mark}", change.rise() * 100.0);
        table.add_row([change.what.clone(), number(change.before), number(change.now), rise]);
    }
    table
}

/// Prints the comparison, and says so when something rose.
///
/// # Errors
/// When the files have nothing in common.
pub(crate) fn print(before: &Results, now: &Results) -> Result<()> {
    let changes = changes(before, now);
    anyhow::ensure!(!changes.is_empty(), "the two files have no bench in common");
    println!("{}", table(&changes));
    let notable = changes.iter().filter(|change| change.is_notable()).count();
    println!("{notable} of {} figures rose by more than {:.0} %", changes.len(), NOTABLE * 100.0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rise_of_more_than_five_percent_is_notable() {
        let change = |before, now| Change { what: String::new(), before, now };
        assert!(change(100.0, 106.0).is_notable());
        assert!(!change(100.0, 104.0).is_notable());
        assert!(!change(100.0, 50.0).is_notable());
        assert!(change(0.0, 1.0).is_notable());
        assert!(!change(0.0, 0.0).is_notable());
    }
}
