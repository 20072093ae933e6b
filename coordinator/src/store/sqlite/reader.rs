//! The store's queries. Each runs within one read transaction.

use rusqlite::types::{Type, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, Rows, params};
use serde::de::DeserializeOwned;
use skein_shared::entity::LiveDocument;
use skein_shared::fence::Epoch;
use skein_shared::id::EntityKey;
use skein_shared::limits::REPLY_KEEP;
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::body;
use super::garbage::Garbage;
use super::journal::Place;
use super::number::{signed, unsigned};
use crate::store::{
    DeadLetter, Fence, LIVE_PAGE, LivePage, Loaded, Mark, OutboxEntry, Record, StoredDocument, StoredReply,
    Version,
};

/// A document that was read, or why it cannot be.
pub(super) type Found = Result<StoredDocument, Garbage>;

pub(super) fn load(connection: &Connection, key: &str) -> rusqlite::Result<Loaded> {
    let mut head =
        connection.prepare_cached("SELECT version, batch, at, sequence FROM entity WHERE key = ?1")?;
    let head = head.query_row([key], |row| {
        Ok(Loaded {
            version: Version(number(row, 0)?),
            batch: Uuid::from_bytes(row.get(1)?),
            at: Timestamp(number(row, 2)?),
            sequence: number(row, 3)?,
            ..Loaded::default()
        })
    });
    let Some(head) = head.optional()? else { return Ok(Loaded::default()) };
    Ok(Loaded {
        live: live(connection, key, "", LIVE_PAGE)?,
        marks: marks(connection, key)?,
        replies: replies(connection, key, head.at - REPLY_KEEP)?,
        timer: timer(connection, key)?,
        ..head
    })
}

pub(super) fn live_page(
    connection: &Connection,
    key: &str,
    after: &str,
    limit: usize,
) -> rusqlite::Result<LivePage> {
    let mut stands = connection.prepare_cached("SELECT version, batch FROM entity WHERE key = ?1")?;
    let stands = stands.query_row([key], |row| Ok((Version(number(row, 0)?), Uuid::from_bytes(row.get(1)?))));
    let (version, batch) = stands.optional()?.unwrap_or_default();
    Ok(LivePage { version, batch, documents: live(connection, key, after, limit)? })
}

/// The planner would rather read all of the entity's documents, of which most are archived.
fn live(
    connection: &Connection,
    key: &str,
    after: &str,
    limit: usize,
) -> rusqlite::Result<Vec<LiveDocument>> {
    let mut statement = connection.prepare_cached(
        "SELECT document, head FROM document INDEXED BY document_live
         WHERE entity = ?1 AND live = 1 AND document > ?2 ORDER BY document LIMIT ?3",
    )?;
    let rows = statement.query_map(params![key, after, count(limit)], |row| {
        Ok(LiveDocument { key: row.get(0)?, head: row.get(1)? })
    })?;
    rows.collect()
}

fn marks(connection: &Connection, key: &str) -> rusqlite::Result<Vec<Mark>> {
    let mut statement = connection
        .prepare_cached("SELECT source, epoch, sequence FROM mark WHERE entity = ?1 ORDER BY source")?;
    let rows = statement.query_map([key], |row| {
        Ok(Mark { source: entity(row, 0)?, epoch: Epoch(number(row, 1)?), sequence: number(row, 2)? })
    })?;
    rows.collect()
}

/// The replies since a moment, oldest first. Times rise with versions, so the walk back ends at the first earlier one.
fn replies(connection: &Connection, key: &str, since: Timestamp) -> rusqlite::Result<Vec<StoredReply>> {
    let mut statement = connection.prepare_cached(
        "SELECT record.at, record.replies FROM place CROSS JOIN record ON record.position = place.position
         WHERE place.entity = ?1 ORDER BY place.version DESC",
    )?;
    let mut rows = statement.query([key])?;
    let mut batches = Vec::new();
    while let Some(row) = rows.next()? {
        if number(row, 0)? < since.0 {
            break;
        }
        if row.get_ref(1)? != ValueRef::Null {
            batches.push(json::<Vec<StoredReply>>(row, 1)?);
        }
    }
    Ok(batches.into_iter().rev().flatten().collect())
}

fn timer(connection: &Connection, key: &str) -> rusqlite::Result<Option<Timestamp>> {
    let mut statement = connection.prepare_cached("SELECT due FROM timer WHERE entity = ?1")?;
    statement.query_row([key], |row| Ok(Timestamp(number(row, 0)?))).optional()
}

pub(super) fn document(
    connection: &Connection,
    key: &str,
    document: &str,
) -> rusqlite::Result<Option<Found>> {
    let mut statement = connection.prepare_cached(
        "SELECT entity, document, live, head, body, version, written FROM document
         WHERE entity = ?1 AND document = ?2",
    )?;
    statement.query_row([key, document], stored_document).optional()
}

pub(super) fn documents(
    connection: &Connection,
    after: Option<(EntityKey, String)>,
    limit: usize,
) -> rusqlite::Result<Vec<Found>> {
    let (entity, document) =
        after.map_or_else(Default::default, |(key, document)| (key.to_string(), document));
    let mut statement = connection.prepare_cached(
        "SELECT entity, document, live, head, body, version, written FROM document
         WHERE (entity, document) > (?1, ?2) ORDER BY entity, document",
    )?;
    page(statement.query([entity, document])?, limit)
}

pub(super) fn documents_of(
    connection: &Connection,
    key: &str,
    after: &str,
    limit: usize,
) -> rusqlite::Result<Vec<Found>> {
    let mut statement = connection.prepare_cached(
        "SELECT entity, document, live, head, body, version, written FROM document
         WHERE entity = ?1 AND document > ?2 ORDER BY document",
    )?;
    page(statement.query([key, after])?, limit)
}

/// So many documents that can be read, and those between them that cannot.
fn page(mut rows: Rows<'_>, limit: usize) -> rusqlite::Result<Vec<Found>> {
    let (mut page, mut sound) = (Vec::new(), 0);
    while sound < limit
        && let Some(row) = rows.next()?
    {
        let found = stored_document(row)?;
        sound += usize::from(found.is_ok());
        page.push(found);
    }
    Ok(page)
}

fn stored_document(row: &Row<'_>) -> rusqlite::Result<Found> {
    match sound_document(row) {
        Ok(document) => Ok(Ok(document)),
        Err(error) => Garbage::in_row(row, error).map(Err),
    }
}

fn sound_document(row: &Row<'_>) -> rusqlite::Result<StoredDocument> {
    Ok(StoredDocument {
        key: entity(row, 0)?,
        document: row.get(1)?,
        live: row.get(2)?,
        head: json(row, 3)?,
        body: body::read(row, 4)?,
        version: Version(number(row, 5)?),
        at: Timestamp(number(row, 6)?),
    })
}

pub(super) fn versions(connection: &Connection) -> rusqlite::Result<Vec<(EntityKey, Version)>> {
    let mut statement = connection.prepare_cached("SELECT key, version FROM entity ORDER BY key")?;
    let rows = statement.query_map([], |row| Ok((entity(row, 0)?, Version(number(row, 1)?))))?;
    rows.collect()
}

pub(super) fn records(connection: &Connection, after: u64, limit: usize) -> rusqlite::Result<Vec<Record>> {
    let mut statement = connection.prepare_cached(
        "SELECT position, entity, version, at, events FROM record
         WHERE position > ?1 AND events IS NOT NULL ORDER BY position LIMIT ?2",
    )?;
    let rows = statement.query_map(params![signed(after), count(limit)], |row| {
        Ok(Record {
            position: number(row, 0)?,
            key: entity(row, 1)?,
            version: Version(number(row, 2)?),
            at: Timestamp(number(row, 3)?),
            events: json(row, 4)?,
        })
    })?;
    rows.collect()
}

/// Versions come with the places that they are known to have; of the others the table knows.
pub(super) fn records_of(
    connection: &Connection,
    key: &EntityKey,
    versions: &[(Version, Option<Place>)],
) -> rusqlite::Result<Vec<Record>> {
    let entity = key.to_string();
    let mut place =
        connection.prepare_cached("SELECT position FROM place WHERE entity = ?1 AND version = ?2")?;
    let mut record = connection
        .prepare_cached("SELECT at, events FROM record WHERE position = ?1 AND events IS NOT NULL")?;
    let mut records = Vec::new();
    for (version, known) in versions {
        let position: Option<i64> = match known {
            Some(place) => Some(place.position),
            None => place.query_row(params![entity, signed(version.0)], |row| row.get(0)).optional()?,
        };
        let Some(position) = position else { continue };
        let read = |row: &Row<'_>| {
            Ok(Record {
                position: unsigned(position),
                key: key.clone(),
                version: *version,
                at: Timestamp(number(row, 0)?),
                events: json(row, 1)?,
            })
        };
        records.extend(record.query_row([position], read).optional()?);
    }
    records.sort_by_key(|record| record.version);
    Ok(records)
}

pub(super) fn history(
    connection: &Connection,
    key: &EntityKey,
    after: Version,
    limit: usize,
) -> rusqlite::Result<Vec<Record>> {
    let mut statement = connection.prepare_cached(
        "SELECT place.position, place.version, record.at, record.events
         FROM place CROSS JOIN record ON record.position = place.position
         WHERE place.entity = ?1 AND place.version > ?2 AND record.events IS NOT NULL
         ORDER BY place.version LIMIT ?3",
    )?;
    let rows = statement.query_map(params![key.to_string(), signed(after.0), count(limit)], |row| {
        Ok(Record {
            position: number(row, 0)?,
            key: key.clone(),
            version: Version(number(row, 1)?),
            at: Timestamp(number(row, 2)?),
            events: json(row, 3)?,
        })
    })?;
    rows.collect()
}

pub(super) fn last_position(connection: &Connection) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached("SELECT coalesce(max(position), 0) FROM record")?;
    statement.query_row([], |row| number(row, 0))
}

pub(super) fn timers(connection: &Connection, limit: usize) -> rusqlite::Result<Vec<(EntityKey, Timestamp)>> {
    let mut statement =
        connection.prepare_cached("SELECT entity, due FROM timer ORDER BY due, entity LIMIT ?1")?;
    let rows =
        statement.query_map([count(limit)], |row| Ok((entity(row, 0)?, Timestamp(number(row, 1)?))))?;
    rows.collect()
}

pub(super) fn outbox(
    connection: &Connection,
    after: u64,
    limit: usize,
) -> rusqlite::Result<Vec<OutboxEntry>> {
    let mut statement = connection.prepare_cached(
        "SELECT position, source, epoch, sequence, at, effect FROM outbox
         WHERE position > ?1 ORDER BY position LIMIT ?2",
    )?;
    let rows = statement.query_map(params![signed(after), count(limit)], outbox_entry)?;
    rows.collect()
}

pub(super) fn dead_letters(
    connection: &Connection,
    after: u64,
    limit: usize,
) -> rusqlite::Result<Vec<DeadLetter>> {
    let mut statement = connection.prepare_cached(
        "SELECT position, source, epoch, sequence, at, effect, reason, buried_at FROM dead_letter
         WHERE position > ?1 ORDER BY position LIMIT ?2",
    )?;
    let rows = statement.query_map(params![signed(after), count(limit)], |row| {
        Ok(DeadLetter {
            entry: outbox_entry(row)?,
            reason: row.get(6)?,
            buried_at: Timestamp(number(row, 7)?),
        })
    })?;
    rows.collect()
}

fn outbox_entry(row: &Row<'_>) -> rusqlite::Result<OutboxEntry> {
    Ok(OutboxEntry {
        position: number(row, 0)?,
        source: entity(row, 1)?,
        epoch: Epoch(number(row, 2)?),
        sequence: number(row, 3)?,
        at: Timestamp(number(row, 4)?),
        effect: json(row, 5)?,
        fence: Fence::NONE,
    })
}

fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(unsigned(row.get(column)?))
}

pub(super) fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

pub(super) fn entity(row: &Row<'_>, column: usize) -> rusqlite::Result<EntityKey> {
    let text = row.get_ref(column)?.as_str()?;
    text.parse().map_err(|refusal| unreadable(column, refusal))
}

pub(super) fn json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    serde_json::from_str(text).map_err(|error| unreadable(column, error))
}

fn unreadable(column: usize, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
}
