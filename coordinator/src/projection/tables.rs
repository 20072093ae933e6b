//! The tables of the read side: how documents and events get into them, and how single ones are read.

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Map, Value};
use skein_shared::entity::DocumentChange;
use skein_shared::harness::merge;
use skein_shared::id::{EntityKey, Name};
use skein_shared::time::Timestamp;

use super::Event;
use crate::store::sqlite::number::{signed, unsigned};
use crate::store::{EventRecord, StoredDocument, Version};

pub(super) fn clear(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(
        "DELETE FROM document; DELETE FROM tag; DELETE FROM event;
         INSERT INTO text (text) VALUES ('delete-all');",
    )
}

/// Removes the documents of an entity.
pub(super) fn forget(connection: &Connection, key: &EntityKey) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("SELECT row FROM document WHERE entity = ?1")?;
    let rows = statement.query_map([key.to_string()], |row| row.get(0))?;
    let rows = rows.collect::<rusqlite::Result<Vec<i64>>>()?;
    rows.into_iter().try_for_each(|row| remove(connection, row))
}

/// Removes old documents that are not live, and old events.
pub(super) fn trim(
    connection: &Connection,
    archived_before: Timestamp,
    events_before: Timestamp,
) -> rusqlite::Result<()> {
    let mut statement =
        connection.prepare_cached("SELECT row FROM document WHERE live = 0 AND written < ?1")?;
    let rows = statement.query_map([signed(archived_before.0)], |row| row.get(0))?;
    let rows = rows.collect::<rusqlite::Result<Vec<i64>>>()?;
    rows.into_iter().try_for_each(|row| remove(connection, row))?;
    let mut statement = connection.prepare_cached("DELETE FROM event WHERE position < ?1")?;
    statement.execute([signed(first_position(events_before))])?;
    Ok(())
}

/// Puts a whole document, as the store has it.
pub(super) fn put(connection: &Connection, document: &StoredDocument) -> rusqlite::Result<()> {
    let stored = stored(connection, &document.key.to_string(), &document.document)?;
    if stored.as_ref().is_some_and(|stored| stored.version >= document.version) {
        return Ok(());
    }
    let body = document.body.as_object().cloned().unwrap_or_default();
    let key = (&document.key, document.document.as_str());
    write(
        connection,
        key,
        stored.as_ref(),
        document.live,
        document.version,
        document.at,
        &document.head.to_string(),
        &body,
    )
}

/// Follows a change of a document, unless the row has it already.
pub(super) fn change(
    connection: &Connection,
    key: &EntityKey,
    version: Version,
    at: Timestamp,
    change: &DocumentChange,
) -> rusqlite::Result<()> {
    let (DocumentChange::Put { key: document, .. } | DocumentChange::Delete { key: document }) = change;
    let stored = stored(connection, &key.to_string(), document)?;
    // An equal version is the same batch, which may write a document twice; a page has both writes, though,
    // and merging them again leads to the same body.
    if stored.as_ref().is_some_and(|stored| stored.version > version) {
        return Ok(());
    }
    match change {
        DocumentChange::Put { live, head, body, .. } => {
            let mut merged = stored.as_ref().map(|stored| stored.body.clone()).unwrap_or_default();
            if let Some(body) = body {
                merge(&mut merged, body.clone());
            }
            write(connection, (key, document), stored.as_ref(), *live, version, at, head.text(), &merged)
        }
        DocumentChange::Delete { .. } => match stored {
            Some(stored) => remove(connection, stored.row),
            None => Ok(()),
        },
    }
}

/// Writes down a batch's events; those that are there already stay as they are.
pub(super) fn record(
    connection: &Connection,
    key: &EntityKey,
    version: Version,
    at: Timestamp,
    events: &[EventRecord],
) -> rusqlite::Result<()> {
    for (ordinal, event) in (0_i64..).zip(events) {
        connection
            .prepare_cached(
                "INSERT OR IGNORE INTO event
                     (position, entity, swarm, version, ordinal, at, subject, kind, body)
                 VALUES (max(?1, 1 + coalesce((SELECT max(position) FROM event), 0)),
                     ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                signed(first_position(at)),
                key.to_string(),
                key.swarm.as_str(),
                signed(version.0),
                ordinal,
                signed(at.0),
                event.subject,
                event_name(&event.body.value()),
                event.body.text()
            ])?;
    }
    Ok(())
}

/// The position of the newest event; zero before the first.
pub(super) fn position(connection: &Connection) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached("SELECT coalesce(max(position), 0) FROM event")?;
    statement.query_row([], |row| row.get(0)).map(unsigned)
}

/// The first position of a millisecond.
fn first_position(at: Timestamp) -> u64 {
    at.0.saturating_mul(1024)
}

/// An event's name: its tag, or the only field of its object.
fn event_name(body: &Value) -> &str {
    let Value::Object(fields) = body else { return body.as_str().unwrap_or_default() };
    let tag = ["event", "type", "kind"].iter().find_map(|tag| fields.get(*tag)?.as_str());
    match (tag, fields.keys().next()) {
        (Some(tag), _) => tag,
        (None, Some(only)) if fields.len() == 1 => only,
        _ => "",
    }
}

/// A document's row as it is.
struct Stored {
    row: i64,
    version: Version,
    body: Map<String, Value>,
}

fn stored(connection: &Connection, entity: &str, document: &str) -> rusqlite::Result<Option<Stored>> {
    let mut statement = connection
        .prepare_cached("SELECT row, version, body FROM document WHERE entity = ?1 AND document = ?2")?;
    let read = |row: &Row<'_>| {
        Ok(Stored { row: row.get(0)?, version: Version(unsigned(row.get(1)?)), body: json(row, 2)? })
    };
    statement.query_row([entity, document], read).optional()
}

#[expect(clippy::too_many_arguments, reason = "they are the columns of the row")]
fn write(
    connection: &Connection,
    (key, document): (&EntityKey, &str),
    stored: Option<&Stored>,
    live: bool,
    version: Version,
    at: Timestamp,
    head: &str,
    body: &Map<String, Value>,
) -> rusqlite::Result<()> {
    let (document_type, id) = document.split_once('/').unwrap_or((document, ""));
    let json =
        serde_json::to_string(body).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let row: i64 = connection
        .prepare_cached(
            "INSERT INTO document
                 (entity, document, swarm, kind, type, id, live, version, written, head, body)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
             ON CONFLICT DO UPDATE
             SET live = ?7, version = ?8, written = ?9, head = ?10, body = ?11
             RETURNING row",
        )?
        .query_row(
            params![
                key.to_string(),
                document,
                key.swarm.as_str(),
                key.kind.as_str(),
                document_type,
                id,
                live,
                signed(version.0),
                signed(at.0),
                head,
                json
            ],
            |row| row.get(0),
        )?;
    write_tags(connection, row, stored.map(|stored| &stored.body), body)?;
    write_text(connection, row, document_type, stored.map(|stored| &stored.body), body)
}

/// Tags change seldom, so they are written only when they did.
fn write_tags(
    connection: &Connection,
    row: i64,
    before: Option<&Map<String, Value>>,
    body: &Map<String, Value>,
) -> rusqlite::Result<()> {
    if before.and_then(|before| before.get("tags")) == body.get("tags") {
        return Ok(());
    }
    connection.prepare_cached("DELETE FROM tag WHERE row = ?1")?.execute([row])?;
    let tags = body.get("tags").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    for tag in tags {
        connection
            .prepare_cached("INSERT OR IGNORE INTO tag (tag, row) VALUES (?1, ?2)")?
            .execute(params![tag, row])?;
    }
    Ok(())
}

/// So do texts, and putting one into the index costs as much as all else.
fn write_text(
    connection: &Connection,
    row: i64,
    document_type: &str,
    before: Option<&Map<String, Value>>,
    body: &Map<String, Value>,
) -> rusqlite::Result<()> {
    let before = before.and_then(|before| searchable(document_type, before));
    let after = searchable(document_type, body);
    if before == after {
        return Ok(());
    }
    if before.is_some() {
        connection.prepare_cached("DELETE FROM text WHERE rowid = ?1")?.execute([row])?;
    }
    if let Some((title, content)) = after {
        connection
            .prepare_cached("INSERT INTO text (rowid, title, content) VALUES (?1, ?2, ?3)")?
            .execute(params![row, title, content])?;
    }
    Ok(())
}

/// What the text search looks at in a document: a title, whose words weigh more, and the rest.
fn searchable(document_type: &str, body: &Map<String, Value>) -> Option<(String, String)> {
    let (title, content): (&[&str], &[&str]) = match document_type {
        "task" => (&["task"], &["output"]),
        "message" => (&[], &["content"]),
        "memory" => (&["name", "tags"], &["content"]),
        "epic" => (&["name"], &["goal", "description"]),
        _ => return None,
    };
    let texts = (gather(body, title), gather(body, content));
    (!texts.0.is_empty() || !texts.1.is_empty()).then_some(texts)
}

fn gather(body: &Map<String, Value>, fields: &[&str]) -> String {
    let texts: Vec<&str> = fields
        .iter()
        .filter_map(|field| body.get(*field))
        .flat_map(|value| match value {
            Value::Array(values) => values.iter().filter_map(Value::as_str).collect(),
            value => Vec::from_iter(value.as_str()),
        })
        .collect();
    texts.join("\n")
}

fn remove(connection: &Connection, row: i64) -> rusqlite::Result<()> {
    for statement in [
        "DELETE FROM text WHERE rowid = ?1",
        "DELETE FROM tag WHERE row = ?1",
        "DELETE FROM document WHERE row = ?1",
    ] {
        connection.prepare_cached(statement)?.execute([row])?;
    }
    Ok(())
}

pub(super) fn document(
    connection: &Connection,
    key: &EntityKey,
    document: &str,
) -> rusqlite::Result<Option<StoredDocument>> {
    let mut statement = connection.prepare_cached(
        "SELECT live, head, body, version, written FROM document WHERE entity = ?1 AND document = ?2",
    )?;
    let read = |row: &Row<'_>| {
        Ok(StoredDocument {
            key: key.clone(),
            document: document.to_owned(),
            live: row.get(0)?,
            head: json(row, 1)?,
            body: json(row, 2)?,
            version: Version(unsigned(row.get(3)?)),
            at: Timestamp(unsigned(row.get(4)?)),
        })
    };
    statement.query_row([&key.to_string(), document], read).optional()
}

pub(super) fn history(
    connection: &Connection,
    swarm: &Name,
    subject: &str,
    limit: usize,
) -> rusqlite::Result<Vec<Event>> {
    let mut statement = connection.prepare_cached(
        "SELECT position, entity, version, at, subject, kind, body FROM event
         WHERE swarm = ?1 AND subject = ?2 ORDER BY position DESC LIMIT ?3",
    )?;
    let rows = statement.query_map(params![swarm.as_str(), subject, count(limit)], event)?;
    let mut events = rows.collect::<rusqlite::Result<Vec<Event>>>()?;
    events.reverse();
    Ok(events)
}

pub(super) fn events(
    connection: &Connection,
    swarm: Option<&Name>,
    after: u64,
    limit: usize,
) -> rusqlite::Result<Vec<Event>> {
    let (after, limit) = (signed(after), count(limit));
    let Some(swarm) = swarm else {
        let mut statement = connection.prepare_cached(
            "SELECT position, entity, version, at, subject, kind, body FROM event
             WHERE position > ?1 ORDER BY position LIMIT ?2",
        )?;
        return statement.query_map([after, limit], event)?.collect();
    };
    let mut statement = connection.prepare_cached(
        "SELECT position, entity, version, at, subject, kind, body FROM event
         WHERE swarm = ?1 AND position > ?2 ORDER BY position LIMIT ?3",
    )?;
    statement.query_map(params![swarm.as_str(), after, limit], event)?.collect()
}

fn event(row: &Row<'_>) -> rusqlite::Result<Event> {
    let key: String = row.get(1)?;
    Ok(Event {
        position: unsigned(row.get(0)?),
        key: key.parse().map_err(|refusal: skein_shared::Refusal| unreadable(1, refusal))?,
        version: Version(unsigned(row.get(2)?)),
        at: Timestamp(unsigned(row.get(3)?)),
        subject: row.get(4)?,
        kind: row.get(5)?,
        body: json(row, 6)?,
    })
}

pub(super) fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

pub(super) fn json<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    serde_json::from_str(row.get_ref(column)?.as_str()?).map_err(|error| unreadable(column, error))
}

fn unreadable(column: usize, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
}
