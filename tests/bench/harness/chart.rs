//! Reports as drawings: each case's rates beside its first limit, with the rounds' spread.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::contender::Role;
use super::report::{Case, Report};
use super::stats::Interval;

const WIDTH: u32 = 900;
const BAR: u32 = 26;
const HEAD: u32 = 46;

/// One bar: a share of the limit.
struct Bar {
    label: String,
    role: Role,
    share: Interval,
}

/// Draws a report into one SVG file.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn draw(report: &Report, path: &Path) -> Result<()> {
    let cases: Vec<(&Case, Vec<Bar>)> =
        report.cases.iter().map(|case| (case, bars(case))).filter(|(_, bars)| !bars.is_empty()).collect();
    if cases.is_empty() {
        return Ok(());
    }
    let height: u32 = cases.iter().map(|(_, bars)| HEAD + BAR * bars.len() as u32).sum::<u32>() + HEAD;
    let area = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE).map_err(failed)?;
    let title = format!("{}: rates as shares of the first limit", report.name);
    area.draw(&Text::new(title, (12, 12), ("sans-serif", 18))).map_err(failed)?;
    let mut top = HEAD as i32;
    for (case, bars) in &cases {
        draw_case(&area, case, bars, top)?;
        top += (HEAD + BAR * bars.len() as u32) as i32;
    }
    area.present().map_err(failed)?;
    Ok(())
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("the chart cannot be drawn: {error}")
}

fn bars(case: &Case) -> Vec<Bar> {
    let Some(limit) = case.rows.iter().find(|row| row.role == Role::Limit) else { return Vec::new() };
    let bar = |row: &super::report::Row| {
        let share = case.ratio(&row.label, &limit.label)?;
        Some(Bar { label: format!("{} ({})", row.label, row.durability.label()), role: row.role, share })
    };
    case.rows.iter().filter_map(bar).collect()
}

fn draw_case(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    case: &Case,
    bars: &[Bar],
    top: i32,
) -> Result<()> {
    const LEFT: i32 = 300;
    let text = ("sans-serif", 14);
    let heading = format!("{} ({})", case.name, case.operation);
    area.draw(&Text::new(heading, (12, top + 6), text)).map_err(failed)?;
    let widest = bars.iter().map(|bar| bar.share.high).fold(1.0, f64::max);
    let scale = f64::from(WIDTH as i32 - LEFT - 130) / widest;
    let x = |share: f64| LEFT + (share * scale) as i32;
    for (bar, y) in bars.iter().zip((top + 28..).step_by(BAR as usize)) {
        let colour = match bar.role {
            Role::Limit => RGBColor(176, 176, 176),
            Role::Peer => RGBColor(120, 150, 190),
            Role::Skein => RGBColor(214, 108, 48),
        };
        area.draw(&Text::new(bar.label.clone(), (12, y + 3), text)).map_err(failed)?;
        area.draw(&Rectangle::new([(LEFT, y), (x(bar.share.median), y + 18)], colour.filled()))
            .map_err(failed)?;
        let spread = [(x(bar.share.low), y + 9), (x(bar.share.high), y + 9)];
        area.draw(&PathElement::new(spread, BLACK)).map_err(failed)?;
        let share = format!("{:.0} %", bar.share.median * 100.0);
        area.draw(&Text::new(share, (x(bar.share.high) + 8, y + 3), text)).map_err(failed)?;
    }
    Ok(())
}
