//! A document's body in its column: what it was changed by, one JSON object for each fold, a line each, oldest first.
//!
//! Appending a change needs no look at the body, which matters because one thread writes for everybody. Whoever
//! reads a body merges its lines.

use std::borrow::Cow;

use rusqlite::Row;
use rusqlite::types::Type;
use serde_json::{Map, Value};
use skein_shared::entity::DocumentChange;
use skein_shared::json::merge;
use skein_shared::json::{Fields, Json};

use super::journal::Change;

/// The body as one object.
///
/// # Errors
/// When a line is no JSON.
pub(super) fn read(row: &Row<'_>, column: usize) -> rusqlite::Result<Value> {
    let mut body = Map::new();
    let lines = row.get_ref(column)?.as_str()?.split('\n');
    for line in lines.filter(|line| !line.is_empty()) {
        let change = serde_json::from_str(line)
            .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into()))?;
        merge(&mut body, change);
    }
    Ok(Value::Object(body))
}

/// The line that a document's changes together add to its body; nothing if they leave it alone. A null stays in it, for
/// the field may stand in an earlier line.
pub(super) fn line(changes: &[Change]) -> Option<Cow<'_, Json>> {
    Fields::joined(changes.iter().filter_map(|change| match change.get() {
        DocumentChange::Put { body, .. } => body.as_ref(),
        DocumentChange::Delete { .. } => None,
    }))
}
