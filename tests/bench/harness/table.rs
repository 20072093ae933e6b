//! Reports as tables for people.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::contender::Role;
use super::machine::Machine;
use super::report::{Bound, Case, Goal, Measured, Report, Row};
use super::stats::{Interval, median};

/// The machine's line.
pub(crate) fn machine(machine: &Machine) -> String {
    format!(
        "{} x {}, {} GiB, {}, {}; commit {}, {}",
        machine.processors,
        machine.model,
        machine.memory_gib,
        machine.kernel,
        machine.filesystem,
        machine.commit,
        machine.rustc
    )
}

/// A whole report.
pub(crate) fn report(report: &Report) -> String {
    let mut text = format!("\n{} — {}\n", report.name, report.about);
    for case in &report.cases {
        text += &format!("\n  {} ({}){}\n", case.name, case.operation, weather(case));
        text += &format!("{}\n", rows(case));
    }
    if !report.figures.is_empty() {
        let mut table = plain(&["figure", "value", "unit"]);
        for figure in &report.figures {
            table.add_row([figure.name.clone(), span(&figure.value), figure.unit.clone()]);
        }
        text += &format!("\n{table}\n");
    }
    if !report.goals.is_empty() {
        text += &format!("\n{}\n", goals(&report.goals));
    }
    for remark in &report.remarks {
        text += &format!("  ! {remark}\n");
    }
    text
}

fn weather(case: &Case) -> String {
    let of = |read: fn(&super::machine::Weather) -> f64| {
        median(&case.weather.iter().map(read).collect::<Vec<_>>()).unwrap_or_default()
    };
    let discarded =
        if case.discarded > 0 { format!(", {} rounds run again", case.discarded) } else { String::new() };
    format!(
        ", load {:.1}, flush {:.0} us, steal {:.1} %{discarded}",
        of(|w| w.load),
        of(|w| w.flush_us),
        of(|w| w.steal * 100.0)
    )
}

fn rows(case: &Case) -> Table {
    let mut table = plain(&[
        "contender",
        "durability",
        "rate/s",
        "Skein's ratio to it",
        "CPU us",
        "flushes",
        "bytes",
        "allocs",
        "Redis calls",
        "p50 ms",
        "p99 ms",
        "version",
    ]);
    let skein = case.rows.iter().find(|row| row.role == Role::Skein);
    for row in &case.rows {
        let ratio = match skein {
            Some(skein) if skein.label != row.label => {
                case.ratio(&skein.label, &row.label).map(|ratio| span(&ratio))
            }
            _ => None,
        };
        let counter = |read: fn(&Measured) -> Option<f64>| row.counter(read).map_or("-".to_owned(), number);
        let latency = |read: fn(&super::report::Latency) -> f64| {
            row.latency.as_ref().map_or("-".to_owned(), |latency| number(read(latency)))
        };
        table.add_row([
            row.label.clone(),
            row.durability.label().to_owned(),
            rate(row),
            ratio.unwrap_or_default(),
            counter(|m| Some(m.cpu_us)),
            counter(|m| m.flushes),
            counter(|m| Some(m.bytes)),
            counter(|m| m.allocations),
            counter(|m| m.redis_calls),
            latency(|l| l.p50),
            latency(|l| l.p99),
            row.version.clone(),
        ]);
    }
    table
}

fn rate(row: &Row) -> String {
    median(&row.rates()).map_or("-".to_owned(), number)
}

/// Goals with what was measured.
pub(crate) fn goals(goals: &[Goal]) -> Table {
    let mut table = plain(&["goal", "wanted", "measured (90 %)", "verdict"]);
    for goal in goals {
        let wanted = match goal.bound {
            Bound::AtLeast(bound) => format!(">= {}", number(bound)),
            Bound::AtMost(bound) => format!("<= {}", number(bound)),
        };
        let measured = goal.measured.as_ref().map_or("-".to_owned(), span);
        table.add_row([goal.text.clone(), wanted, measured, goal.verdict().label().to_owned()]);
    }
    table
}

/// An empty table whose later columns are numbers.
pub(crate) fn plain(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A median with its interval.
pub(crate) fn span(interval: &Interval) -> String {
    if interval.low == interval.high {
        return number(interval.median);
    }
    format!("{} [{} – {}]", number(interval.median), number(interval.low), number(interval.high))
}

/// Three significant digits, and no more than a reader needs.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        let shown: Vec<String> = [0.0, 0.0123, 0.7654, 12.34, 12345.6].into_iter().map(number).collect();
        assert_eq!(shown, ["0", "0.0123", "0.77", "12.3", "12346"]);
    }
}
