//! What happened: events, as the store has them. The read side keeps only which batch mentions which subject.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql, params};
use serde_json::Value;
use skein_shared::id::{EntityKey, Name};
use skein_shared::json::Json;
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::tables::count;
use super::{Event, EventPage, ProjectionError};
use crate::store::sqlite::number::{signed, unsigned};
use crate::store::{EventRecord, Record, Store, StoreError, Version};

/// Records read from the store at once: one may hold the events of a few hundred commands.
const RECORDS: usize = 100;
/// Bits of a position that number the events of one record.
const ORDINAL: u32 = 20;

/// What an event is about, as short as it can be written: most are ids.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Id(Uuid),
    Text(String),
}

impl Subject {
    pub(super) fn new(text: &str) -> Self {
        match Uuid::try_parse(text) {
            Ok(id) if text.len() == 36 => Self::Id(id),
            _ => Self::Text(text.to_owned()),
        }
    }

    /// The subjects of a batch, each once.
    pub(super) fn all(events: &[EventRecord]) -> Vec<Self> {
        let mut all: Vec<Self> =
            events.iter().filter_map(|event| event.subject.as_deref()).map(Self::new).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

impl ToSql for Subject {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Id(id) => ValueRef::Blob(id.as_bytes()),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

/// That a batch of an entity has events about a subject. Ordered as the table is.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mention {
    pub(super) entity: i64,
    pub(super) subject: Subject,
    pub(super) version: Version,
    pub(super) at: Timestamp,
}

/// Writes mentions down; those that are there already stay.
pub(super) fn write(connection: &Connection, mut mentions: Vec<Mention>) -> rusqlite::Result<()> {
    mentions.sort_unstable();
    let mut statement = connection.prepare_cached(
        "INSERT OR IGNORE INTO mention (entity, subject, version, at) VALUES (?1, ?2, ?3, ?4)",
    )?;
    for Mention { entity, subject, version, at } in &mentions {
        statement.execute(params![entity, subject, signed(version.0), signed(at.0)])?;
    }
    Ok(())
}

pub(super) fn trim(connection: &Connection, before: Timestamp) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM mention WHERE at < ?1")?.execute([signed(before.0)])?;
    Ok(())
}

/// The newest batches of an entity that mention a subject, the newest first.
pub(super) fn mentions(
    connection: &Connection,
    key: &EntityKey,
    subject: &Subject,
    limit: usize,
) -> rusqlite::Result<Vec<Version>> {
    let mut statement = connection.prepare_cached(
        "SELECT version FROM mention
         WHERE entity = (SELECT number FROM entity WHERE key = ?1) AND subject = ?2
         ORDER BY version DESC LIMIT ?3",
    )?;
    let rows = statement.query_map(params![key.to_string(), subject, count(limit)], |row| {
        Ok(Version(unsigned(row.get(0)?)))
    })?;
    rows.collect()
}

/// The newest events of these batches about a subject, oldest first.
pub(super) async fn about(
    store: &dyn Store,
    key: &EntityKey,
    subject: &str,
    versions: Vec<Version>,
    limit: usize,
) -> Result<Vec<Event>, ProjectionError> {
    let records = store.records_of(key, versions).await.map_err(unreadable)?;
    let mut events: Vec<Event> = records
        .into_iter()
        .flat_map(unfold)
        .filter(|happened| happened.subject.as_deref() == Some(subject))
        .map(Happened::read)
        .collect();
    events.drain(..events.len().saturating_sub(limit));
    Ok(events)
}

/// The events after a position, of one swarm or of all.
pub(super) async fn after(
    store: &dyn Store,
    swarm: Option<&Name>,
    position: u64,
    limit: usize,
) -> Result<EventPage, ProjectionError> {
    let mut page = EventPage { events: Vec::new(), next: position, last: false };
    // The record of the position again: the position may be in the middle of it.
    let mut record = (position >> ORDINAL).saturating_sub(1);
    loop {
        let records = store.records(record, RECORDS).await.map_err(unreadable)?;
        let is_last = records.len() < RECORDS;
        for found in records {
            record = found.position;
            if swarm.is_some_and(|swarm| found.key.swarm != *swarm) {
                page.next = page.next.max(end(record));
                continue;
            }
            for happened in unfold(found).filter(|happened| happened.position > position) {
                if page.events.len() == limit {
                    return Ok(page);
                }
                page.next = happened.position;
                page.events.push(happened.read());
            }
            page.next = page.next.max(end(record));
        }
        if is_last {
            page.last = true;
            return Ok(page);
        }
    }
}

/// The last position that a record's events can have.
pub(super) fn end(record: u64) -> u64 {
    ((record + 1) << ORDINAL) - 1
}

/// An event whose text is not read yet.
struct Happened {
    position: u64,
    key: EntityKey,
    version: Version,
    at: Timestamp,
    subject: Option<String>,
    body: Json,
}

fn unfold(record: Record) -> impl Iterator<Item = Happened> {
    let Record { position, key, version, at, events } = record;
    events.into_iter().zip(position << ORDINAL..).map(move |(EventRecord { subject, body }, position)| {
        Happened { position, key: key.clone(), version, at, subject, body }
    })
}

impl Happened {
    fn read(self) -> Event {
        let Self { position, key, version, at, subject, body } = self;
        let body = body.value();
        Event { position, key, version, at, subject, kind: name(&body).to_owned(), body }
    }
}

/// An event's name: its tag, or the only field of its object.
fn name(body: &Value) -> &str {
    let Value::Object(fields) = body else { return body.as_str().unwrap_or_default() };
    let tag = ["event", "type", "kind"].iter().find_map(|tag| fields.get(*tag)?.as_str());
    match (tag, fields.keys().next()) {
        (Some(tag), _) => tag,
        (None, Some(only)) if fields.len() == 1 => only,
        _ => "",
    }
}

pub(super) fn unreadable(error: StoreError) -> ProjectionError {
    ProjectionError(error.to_string())
}
