//! Prints rows: a table for people, one JSON object a line for programs.

use std::fmt::Display;
use std::io::{self, Write};

use comfy_table::{Table, presets};
use serde_json::Value;

use super::CliError;

/// Longest cell of a table, characters; `--json` shows the whole.
const CELL: usize = 80;
/// What is left at least of the last column where a terminal is narrow.
const LEAST: usize = 20;
/// Characters around a cell.
const AROUND: usize = 2;

/// A column: its heading, and where its value is in the row, with dots into objects. Of several places the first that
/// holds one counts.
pub(super) type Column = (&'static str, &'static [&'static str]);

pub(super) fn print(rows: &[Value], columns: &[Column], json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        for row in rows {
            writeln!(out, "{row}")?;
        }
        return Ok(());
    }
    let room = Table::new().width().map(usize::from);
    writeln!(out, "{}", table(rows, columns, room))
}

/// One document: its fields below one another.
pub(super) fn print_document(document: &Value, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        return writeln!(out, "{document}");
    }
    write!(out, "{}", fields(document))
}

/// A text as it is, which may be for a file or another program. Not by `println!`, which panics where nobody reads.
pub(super) fn print_text(text: &str) -> Result<(), CliError> {
    Ok(writeln!(io::stdout().lock(), "{text}")?)
}

/// Something for whoever sits at the terminal. Not by `eprintln!`, which panics where nobody can be told.
pub(super) fn note(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

fn fields(document: &Value) -> String {
    let there = document.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    there.map(|(field, value)| format!("{field}: {}\n", plain(&text(value)))).collect()
}

/// No cell is broken into lines: what an id was broken into nobody can copy. The last column, most often a text, is cut
/// to what room a terminal has.
fn table(rows: &[Value], columns: &[Column], room: Option<usize>) -> Table {
    let mut cells: Vec<Vec<String>> = rows.iter().map(|row| cells_of(row, columns)).collect();
    if let Some(room) = room {
        let wide = |place: usize| cells.iter().map(|row| row[place].chars().count()).max().unwrap_or(0);
        let headed = |(place, (heading, _)): (usize, &Column)| wide(place).max(heading.len()) + AROUND;
        let last = columns.len().saturating_sub(1);
        let others: usize = columns.iter().enumerate().take(last).map(headed).sum();
        let left = room.saturating_sub(others + AROUND).max(LEAST);
        for cell in cells.iter_mut().filter_map(|row| row.last_mut()) {
            *cell = shortened(cell, left);
        }
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(columns.iter().map(|(heading, _)| *heading));
    table.add_rows(cells);
    table
}

fn cells_of(row: &Value, columns: &[Column]) -> Vec<String> {
    let cell = |(_, places): &Column| {
        let value = places
            .iter()
            .map(|place| place.split('.').fold(row, |row, field| &row[field]))
            .find(|value| !value.is_null());
        cut(&value.map(text).unwrap_or_default())
    };
    columns.iter().map(cell).collect()
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(", "),
        value => value.to_string(),
    }
}

/// A text of others, without the characters that a terminal would obey. Its lines stay.
pub(super) fn plain(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control() || matches!(letter, '\n' | '\t')).collect()
}

/// The same where each line says one thing, so that no text adds lines of its own.
pub(super) fn plain_line(text: &str) -> String {
    plain(text).replace(['\n', '\t'], " ")
}

/// A cell is one line.
fn cut(text: &str) -> String {
    let text = plain(text).replace('\t', " ");
    let line = text.lines().next().unwrap_or_default();
    let whole = if text.lines().nth(1).is_some() { format!("{line}…") } else { line.to_owned() };
    shortened(&whole, CELL)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_others_wrote_gives_a_terminal_no_orders() {
        let document = json!({"reason": "a\u{1b}]0;title\u{7}\n\tb\r\u{9b}2J\u{7f}", "at": null, "n": 7});
        assert_eq!(fields(&document), "reason: a]0;title\n\tb2J\nn: 7\n");
        assert_eq!(plain_line("a\u{1b}[2J\nb\tc"), "a[2J b c");
    }

    #[test]
    fn cells_are_single_lines_that_a_terminal_can_bear() {
        let rows = [
            json!({"name": "a\u{1b}[31m", "tags": ["x", "y"], "late": null, "early": 7, "text": "one\ntwo"}),
        ];
        let shown = table(
            &rows,
            &[("NAME", &["name"]), ("TAGS", &["tags"]), ("N", &["late", "early"]), ("TEXT", &["text"])],
            None,
        )
        .to_string();
        assert!(!shown.contains('\u{1b}'));
        for part in ["NAME", "a[31m", "x, y", "7", "one…"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
    }

    #[test]
    fn a_narrow_terminal_breaks_no_id() {
        let (id, text) = ("01a217e8-a7d8-71fc-abb6-52c854f1a91a", "word ".repeat(12));
        let rows = [json!({"id": id, "agent": id, "text": text})];
        let columns: &[Column] = &[("ID", &["id"]), ("AGENT", &["agent"]), ("TEXT", &["text"])];
        let lines = |room| table(&rows, columns, Some(room)).to_string();
        for room in [120, 40] {
            let shown = lines(room);
            assert_eq!(shown.lines().count(), 2, "{shown}");
            assert_eq!(shown.matches(id).count(), 2, "{shown}");
        }
        assert!(lines(120).lines().all(|line| line.chars().count() <= 120), "{}", lines(120));
        assert!(lines(120).contains('…'));
    }
}
