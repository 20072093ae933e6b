//! What one batch writes at once. Its documents, its place and its marks follow ([`super::fold`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, params};
use skein_shared::fence::Epoch;
use skein_shared::id::EntityKey;
use uuid::Uuid;

use super::blobs;
use super::journal::{Entry, Journal, Table, Waiting};
use super::number::{signed, unsigned};
use crate::store::{Batch, CommitError, Fence, TimerChange, Version};

/// Effects of one batch that an outbox position has room for.
const EFFECTS: usize = 1 << 16;

/// A batch with its JSON written out. The caller's task does that, so that the writer only writes.
pub(super) struct Prepared {
    key: String,
    batch: Arc<Batch>,
    entry: Entry,
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
        Self::written_out(batch)
            .map_err(|error| CommitError::Failed(format!("not writable as JSON: {error}")))
    }

    fn written_out(batch: Arc<Batch>) -> serde_json::Result<Self> {
        let entry = Entry::new(&batch)?;
        let effects = batch.outbox.iter().map(|entry| serde_json::to_string(&entry.effect));
        let effects = effects.collect::<serde_json::Result<_>>()?;
        let events = (!batch.events.is_empty()).then(|| serde_json::to_string(&batch.events)).transpose()?;
        let replies =
            (!batch.replies.is_empty()).then(|| serde_json::to_string(&batch.replies)).transpose()?;
        let mut prepared =
            Self { key: batch.key.to_string(), batch, entry, events, replies, effects, bytes: 0 };
        prepared.bytes = prepared.weigh();
        Ok(prepared)
    }

    fn weigh(&self) -> usize {
        let texts = [&self.events, &self.replies].into_iter().flatten().chain(&self.effects);
        texts.map(String::len).sum::<usize>() + self.entry.documents.len() + self.entry.seen.len()
    }
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

/// What commits of one group have written that is not in the journal before the group is committed.
#[derive(Default)]
pub(super) struct Group<'a> {
    heads: HashMap<&'a EntityKey, (Version, Uuid)>,
    /// In their order, with the positions of their records; a repeat of what was committed already is not among them.
    written: Vec<(&'a Prepared, i64)>,
}

impl Group<'_> {
    /// How many parts it adds to the journal at most.
    pub(super) fn parts(&self) -> usize {
        self.written.iter().map(|(prepared, _)| 1 + prepared.batch.documents.len()).sum()
    }

    /// Tells the journal what was committed.
    pub(super) fn take_in(self, journal: &mut Journal) {
        for (prepared, position) in self.written {
            journal.take_in(&prepared.batch, position, prepared.entry.sequence, prepared.bytes);
        }
    }
}

/// Writes one batch within the open transaction.
pub(super) fn apply<'a>(
    connection: &Connection,
    (waiting, table): (&Mutex<Waiting>, Table),
    group: &mut Group<'a>,
    epoch: Epoch,
    prepared: &'a Prepared,
) -> Result<Version, Stop> {
    let Prepared { key, batch, .. } = prepared;
    let version = Version(batch.expected.0 + 1);
    let (actual, last) = match group.heads.get(&batch.key) {
        Some(head) => *head,
        None => head(connection, waiting, &batch.key, key)?,
    };
    if (actual, last) == (version, batch.id) {
        return Ok(version);
    }
    if (actual, last) != (batch.expected, batch.after) {
        return Err(Stop::Answer(CommitError::Conflict { actual }));
    }
    // The only one that may refuse: nothing of the batch is written before it.
    blobs::apply(connection, key, batch)?;
    let position = write_record(connection, prepared, version)?;
    prepared.entry.append(connection, table, position, key, batch)?;
    write_timer(connection, prepared)?;
    write_outbox(connection, prepared, epoch, position)?;
    group.heads.insert(&batch.key, (version, batch.id));
    group.written.push((prepared, position));
    Ok(version)
}

/// Where an entity stands, by the commits that wait or by the table.
fn head(
    connection: &Connection,
    waiting: &Mutex<Waiting>,
    entity: &EntityKey,
    key: &str,
) -> rusqlite::Result<(Version, Uuid)> {
    let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner).head(entity);
    if let Some(head) = waiting {
        return Ok((head.version, head.batch));
    }
    let mut statement = connection.prepare_cached("SELECT version, batch FROM entity WHERE key = ?1")?;
    let stored = statement
        .query_row([key], |row| Ok((Version(unsigned(row.get(0)?)), Uuid::from_bytes(row.get(1)?))))
        .optional()?;
    Ok(stored.unwrap_or((Version(0), Uuid::nil())))
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
