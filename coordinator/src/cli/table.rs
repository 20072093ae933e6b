//! Prints rows: a table for people, one JSON object a line for programs.

use std::io::{self, Write};

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

/// Longest cell of a table, characters; `--json` shows the whole.
const CELL: usize = 80;

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
    writeln!(out, "{}", table(rows, columns))
}

/// One document: its fields below one another.
pub(super) fn print_document(document: &Value, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        return writeln!(out, "{document}");
    }
    write!(out, "{}", fields(document))
}

fn fields(document: &Value) -> String {
    let there = document.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    there.map(|(field, value)| format!("{field}: {}\n", plain(&text(value)))).collect()
}

fn table(rows: &[Value], columns: &[Column]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(columns.iter().map(|(heading, _)| *heading));
    for row in rows {
        table.add_row(columns.iter().map(|(_, places)| {
            let value = places
                .iter()
                .map(|place| place.split('.').fold(row, |row, field| &row[field]))
                .find(|value| !value.is_null());
            cut(&value.map(text).unwrap_or_default())
        }));
    }
    table
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

/// A cell is one line.
fn cut(text: &str) -> String {
    let text = plain(text).replace('\t', " ");
    let mut line = text.lines().next().unwrap_or_default().chars();
    let mut shown: String = line.by_ref().take(CELL).collect();
    if line.next().is_some() || text.lines().nth(1).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_others_wrote_gives_a_terminal_no_orders() {
        let document = json!({"reason": "a\u{1b}]0;title\u{7}\n\tb\r\u{9b}2J\u{7f}", "at": null, "n": 7});
        assert_eq!(fields(&document), "reason: a]0;title\n\tb2J\nn: 7\n");
    }

    #[test]
    fn cells_are_single_lines_that_a_terminal_can_bear() {
        let rows = [
            json!({"name": "a\u{1b}[31m", "tags": ["x", "y"], "late": null, "early": 7, "text": "one\ntwo"}),
        ];
        let shown = table(
            &rows,
            &[("NAME", &["name"]), ("TAGS", &["tags"]), ("N", &["late", "early"]), ("TEXT", &["text"])],
        )
        .to_string();
        assert!(!shown.contains('\u{1b}'));
        for part in ["NAME", "a[31m", "x, y", "7", "one…"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
    }
}
