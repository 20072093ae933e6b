//! What one batch does to the tables.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;
use skein_shared::entity::DocumentChange;
use skein_shared::fence::Epoch;

use super::number::{signed, unsigned};
use crate::store::{Batch, CommitError, Fence, TimerChange, Version};

/// Effects of one batch that an outbox position has room for.
const EFFECTS: usize = 1 << 16;
/// A body of more bytes is joined, so that changes do not pile up in it.
const LONG: i64 = 8 * 1024;
/// How seldom the length of a body is looked at, in versions of its entity.
const LOOK: i64 = 16;

/// A batch with its JSON written out. The caller's task does that, so that the writer only writes.
pub(super) struct Prepared {
    key: String,
    batch: Arc<Batch>,
    /// What each document's body gets, in the order of the documents.
    bodies: Vec<Option<String>>,
    events: Option<String>,
    replies: Option<String>,
    effects: Vec<String>,
    /// Roughly how much is written.
    pub(super) bytes: usize,
}

impl Prepared {
    pub(super) fn new(batch: Arc<Batch>) -> Result<Self, CommitError> {
        if batch.outbox.len() >= EFFECTS {
            let count = batch.outbox.len();
            return Err(CommitError::Failed(format!("a batch may have {EFFECTS} effects, not {count}")));
        }
        let bodies = batch.documents.iter().map(body).collect::<Result<_, _>>()?;
        let effects = batch.outbox.iter().map(|entry| json(&entry.effect)).collect::<Result<_, _>>()?;
        let events = (!batch.events.is_empty()).then(|| json(&batch.events)).transpose()?;
        let replies = (!batch.replies.is_empty()).then(|| json(&batch.replies)).transpose()?;
        let mut prepared =
            Self { key: batch.key.to_string(), batch, bodies, events, replies, effects, bytes: 0 };
        prepared.bytes = prepared.weigh();
        Ok(prepared)
    }

    fn weigh(&self) -> usize {
        let texts = self.bodies.iter().chain([&self.events, &self.replies]).flatten().chain(&self.effects);
        texts.map(String::len).sum()
    }
}

fn body(change: &DocumentChange) -> Result<Option<String>, CommitError> {
    match change {
        DocumentChange::Put { body: Some(body), .. } => json(body).map(Some),
        DocumentChange::Put { body: None, .. } | DocumentChange::Delete { .. } => Ok(None),
    }
}

fn json(value: &impl serde::Serialize) -> Result<String, CommitError> {
    serde_json::to_string(value)
        .map_err(|error| CommitError::Failed(format!("not writable as JSON: {error}")))
}

/// Why a request changed nothing.
pub(super) enum Stop {
    /// A definite answer.
    Answer(CommitError),
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Stop::Sqlite(error)
    }
}

/// The fence as the file has it.
pub(super) fn stored_fence(connection: &Connection) -> rusqlite::Result<Fence> {
    let mut statement = connection.prepare_cached("SELECT epoch, nonce FROM fence")?;
    statement.query_row([], |row| {
        let (epoch, nonce): (i64, i64) = (row.get(0)?, row.get(1)?);
        Ok(Fence { epoch: Epoch(unsigned(epoch)), nonce: nonce.cast_unsigned() })
    })
}

/// Writes one batch within the open transaction.
pub(super) fn apply(connection: &Connection, epoch: Epoch, prepared: &Prepared) -> Result<Version, Stop> {
    let Prepared { key, batch, .. } = prepared;
    let version = Version(batch.expected.0 + 1);
    match head(connection, key)? {
        Some((actual, last)) if actual == version && last == *batch.id.as_bytes() => return Ok(version),
        found => {
            let actual = found.map_or(Version(0), |(actual, _)| actual);
            if actual != batch.expected {
                return Err(Stop::Answer(CommitError::Conflict { actual }));
            }
        }
    }
    write_documents(connection, prepared, version)?;
    write_head(connection, prepared, version)?;
    write_marks(connection, prepared)?;
    write_timer(connection, prepared)?;
    let position = write_record(connection, prepared, version)?;
    write_outbox(connection, prepared, epoch, position)?;
    Ok(version)
}

fn head(connection: &Connection, key: &str) -> rusqlite::Result<Option<(Version, [u8; 16])>> {
    let mut statement = connection.prepare_cached("SELECT version, batch FROM entity WHERE key = ?1")?;
    statement.query_row([key], |row| Ok((Version(unsigned(row.get(0)?)), row.get(1)?))).optional()
}

fn write_documents(connection: &Connection, prepared: &Prepared, version: Version) -> rusqlite::Result<()> {
    let (key, at) = (&prepared.key, signed(prepared.batch.at.0));
    let version = signed(version.0);
    for (change, body) in prepared.batch.documents.iter().zip(&prepared.bodies) {
        let DocumentChange::Put { key: document, live, head, .. } = change else {
            connection
                .prepare_cached("DELETE FROM document WHERE entity = ?1 AND document = ?2")?
                .execute([key, change.key()])?;
            continue;
        };
        let Some(body) = body else {
            connection
                .prepare_cached(
                    "INSERT INTO document (entity, document, live, version, written, head, body)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, '{}')
                     ON CONFLICT DO UPDATE SET live = ?3, version = ?4, written = ?5, head = ?6",
                )?
                .execute(params![key, document, live, version, at, head.text()])?;
            continue;
        };
        connection
            .prepare_cached(
                "INSERT INTO document (entity, document, live, version, written, head, body)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                 ON CONFLICT DO UPDATE SET live = ?3, version = ?4, written = ?5, head = ?6,
                     body = body || char(10) || ?7",
            )?
            .execute(params![key, document, live, version, at, head.text(), body])?;
        if version % LOOK == 0 {
            join_changes(connection, key, document)?;
        }
    }
    Ok(())
}

/// Writes a long body anew as one object.
fn join_changes(connection: &Connection, key: &str, document: &str) -> rusqlite::Result<()> {
    let size: i64 = connection
        .prepare_cached("SELECT octet_length(body) FROM document WHERE entity = ?1 AND document = ?2")?
        .query_row([key, document], |row| row.get(0))?;
    if size <= LONG {
        return Ok(());
    }
    let body: Value = connection
        .prepare_cached("SELECT body FROM document WHERE entity = ?1 AND document = ?2")?
        .query_row([key, document], |row| super::body::read(row, 0))?;
    connection
        .prepare_cached("UPDATE document SET body = ?3 WHERE entity = ?1 AND document = ?2")?
        .execute(params![key, document, body.to_string()])?;
    Ok(())
}

fn write_head(connection: &Connection, prepared: &Prepared, version: Version) -> rusqlite::Result<()> {
    let batch = &prepared.batch;
    let sequence = batch.outbox.iter().map(|entry| entry.sequence).max().unwrap_or(0);
    connection
        .prepare_cached(
            "INSERT INTO entity (key, version, batch, at, sequence) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT DO UPDATE
             SET version = ?2, batch = ?3, at = ?4, sequence = max(sequence, ?5)",
        )?
        .execute(params![
            prepared.key,
            signed(version.0),
            batch.id.as_bytes(),
            signed(batch.at.0),
            signed(sequence)
        ])?;
    Ok(())
}

/// Moves marks on; one that lies behind the stored one is left out.
fn write_marks(connection: &Connection, prepared: &Prepared) -> rusqlite::Result<()> {
    for mark in &prepared.batch.seen {
        connection
            .prepare_cached(
                "INSERT INTO mark (entity, source, epoch, sequence, at) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT DO UPDATE SET epoch = ?3, sequence = ?4, at = ?5
                 WHERE (?3, ?4) > (epoch, sequence)",
            )?
            .execute(params![
                prepared.key,
                mark.source.to_string(),
                signed(mark.epoch.0),
                signed(mark.sequence),
                signed(prepared.batch.at.0)
            ])?;
    }
    Ok(())
}

fn write_timer(connection: &Connection, prepared: &Prepared) -> rusqlite::Result<()> {
    match prepared.batch.timer {
        TimerChange::Keep => {}
        TimerChange::Set(due) => {
            connection
                .prepare_cached("INSERT OR REPLACE INTO timer (entity, due) VALUES (?1, ?2)")?
                .execute(params![prepared.key, signed(due.0)])?;
        }
        TimerChange::Clear => {
            connection
                .prepare_cached("DELETE FROM timer WHERE entity = ?1")?
                .execute(params![prepared.key])?;
        }
    }
    Ok(())
}

/// Writes the batch's record and gives its position.
fn write_record(connection: &Connection, prepared: &Prepared, version: Version) -> rusqlite::Result<i64> {
    connection
        .prepare_cached(
            "INSERT INTO record (entity, version, at, events, replies) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            prepared.key,
            signed(version.0),
            signed(prepared.batch.at.0),
            prepared.events,
            prepared.replies
        ])?;
    Ok(connection.last_insert_rowid())
}

fn write_outbox(
    connection: &Connection,
    prepared: &Prepared,
    epoch: Epoch,
    record: i64,
) -> rusqlite::Result<()> {
    let first = record * EFFECTS as i64;
    for ((entry, effect), position) in prepared.batch.outbox.iter().zip(&prepared.effects).zip(first..) {
        connection
            .prepare_cached(
                "INSERT INTO outbox (position, source, epoch, sequence, at, effect)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                position,
                prepared.key,
                signed(epoch.0),
                signed(entry.sequence),
                signed(prepared.batch.at.0),
                effect
            ])?;
    }
    Ok(())
}
