//! A document's body in its column: the changes it has had, one JSON object a line, oldest first.
//!
//! Appending a change needs no look at the body, which matters because one thread writes for everybody. Whoever
//! reads a body merges its lines.

use rusqlite::Row;
use rusqlite::types::Type;
use serde_json::{Map, Value};
use skein_shared::harness::merge;

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
