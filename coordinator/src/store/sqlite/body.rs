//! A document's body in its column: the changes it has had, one JSON object a line, oldest first.
//!
//! Appending a change needs no look at the body, which matters because one thread writes for everybody. Whoever
//! reads a body merges its lines.

use rusqlite::Row;
use rusqlite::types::Type;
use serde_json::{Map, Value};
use skein_shared::entity::DocumentChange;
use skein_shared::harness::merge;

use super::journal::Change;

/// The body as one object.
///
/// # Errors
/// When a line is no JSON.
pub(super) fn read(row: &Row<'_>, column: usize) -> rusqlite::Result<Value> {
    let mut body = Map::new();
    for line in row.get_ref(column)?.as_str()?.lines() {
        let change = serde_json::from_str(line)
            .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into()))?;
        merge(&mut body, change);
    }
    Ok(Value::Object(body))
}

/// What a document's changes add to its body; nothing if they leave it alone.
pub(super) fn lines(changes: &[Change]) -> Option<String> {
    let mut lines: Option<String> = None;
    for change in changes {
        let DocumentChange::Put { body: Some(body), .. } = change.get() else { continue };
        match &mut lines {
            Some(lines) => {
                lines.push('\n');
                lines.push_str(&body.to_string());
            }
            None => lines = Some(body.to_string()),
        }
    }
    lines
}
