//! What happened: events, as the store has them. The read side keeps only which batch mentions which subject.

use std::collections::BTreeSet;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql, params};
use serde_json::Value;
use skein_shared::id::{EntityKey, Name};
use skein_shared::json::Json;
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::tables::count;
use super::{Event, EventPage, ProjectionError};
use crate::store::pace::{Pace, Page};
use crate::store::sqlite::number::{signed, unsigned};
use crate::store::{EventRecord, Record, Store, StoreError, Version};

/// Records read from the store at once, at most: one may hold the events of a few hundred commands.
const RECORDS: usize = 100;
/// Bits of a position that number the events of one record.
const ORDINAL: u32 = 20;
/// Versions of an entity whose mentions lie together, and are forgotten together: without an index, and without a look
/// at any other.
pub(super) const ERA: u64 = 1000;
/// Eras that are forgotten at once: commits wait meanwhile.
pub(super) const OVER: usize = 20;
/// The newest mentions of a subject, era by era, each of which has them in their order.
pub(super) const NEWEST: &str = "
    SELECT mention.version FROM era CROSS JOIN mention ON mention.entity = era.entity AND mention.era = era.era
    WHERE era.entity = (SELECT number FROM entity WHERE key = ?1) AND mention.subject = ?2
    ORDER BY era.era DESC, mention.version DESC LIMIT ?3";
/// Forgets the mentions of an era.
pub(super) const FORGET: &str = "DELETE FROM mention WHERE entity = ?1 AND era = ?2";

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
    entity: i64,
    era: u64,
    subject: Subject,
    version: Version,
    at: Timestamp,
}

impl Mention {
    /// What the batch of a version mentions, each subject once.
    pub(super) fn all(
        entity: i64,
        version: Version,
        at: Timestamp,
        events: &[EventRecord],
    ) -> impl Iterator<Item = Self> {
        let subjects = events.iter().filter_map(|event| event.subject.as_deref()).map(Subject::new);
        let subjects: BTreeSet<Subject> = subjects.collect();
        let era = version.0 / ERA;
        subjects.into_iter().map(move |subject| Self { entity, era, subject, version, at })
    }
}

/// Writes mentions down; those that are there already stay.
pub(super) fn write(connection: &Connection, mut mentions: Vec<Mention>) -> rusqlite::Result<()> {
    mentions.sort_unstable();
    let mut begin = connection.prepare_cached(
        "INSERT INTO era (entity, era, at) VALUES (?1, ?2, ?3)
         ON CONFLICT DO UPDATE SET at = max(at, excluded.at)",
    )?;
    let mut mention = connection.prepare_cached(
        "INSERT OR IGNORE INTO mention (entity, era, subject, version) VALUES (?1, ?2, ?3, ?4)",
    )?;
    for group in mentions.chunk_by(|one, next| (one.entity, one.era) == (next.entity, next.era)) {
        let Some(last) = group.iter().max_by_key(|mention| mention.at) else { continue };
        begin.execute(params![last.entity, signed(last.era), signed(last.at.0)])?;
        for Mention { entity, era, subject, version, .. } in group {
            mention.execute(params![entity, signed(*era), subject, signed(version.0)])?;
        }
    }
    Ok(())
}

/// Forgets some eras as a whole: of those that ended before a moment, and those that the last so many batches of their
/// entity lie behind. Says whether there may be more of them.
pub(super) fn trim(connection: &Connection, before: Timestamp, per_entity: u64) -> rusqlite::Result<bool> {
    let mut over = connection.prepare_cached(
        "SELECT era.entity, era.era FROM era JOIN entity ON entity.number = era.entity
         WHERE era.at < ?1 OR (era.era + 1) * ?2 <= entity.reached - ?3 LIMIT ?4",
    )?;
    let bounds = [signed(before.0), signed(ERA), signed(per_entity), count(OVER)];
    let over = over.query_map(bounds, |row| Ok((row.get(0)?, row.get(1)?)))?;
    let over: Vec<(i64, i64)> = over.collect::<rusqlite::Result<_>>()?;
    let has_more = over.len() == OVER;
    let mut mentions = connection.prepare_cached(FORGET)?;
    let mut era = connection.prepare_cached("DELETE FROM era WHERE entity = ?1 AND era = ?2")?;
    for which in over {
        mentions.execute(which)?;
        era.execute(which)?;
    }
    Ok(has_more)
}

/// The newest batches of an entity that mention a subject, the newest first.
pub(super) fn mentions(
    connection: &Connection,
    key: &EntityKey,
    subject: &Subject,
    limit: usize,
) -> rusqlite::Result<Vec<Version>> {
    let mut statement = connection.prepare_cached(NEWEST)?;
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
    let (mut record, mut pace) = ((position >> ORDINAL).saturating_sub(1), Pace::up_to(RECORDS));
    loop {
        let read = pace.read(|count| store.records(record, count)).await.map_err(unreadable)?;
        let Page { things: records, is_full, pace: next } = read;
        pace = next;
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
        if !is_full {
            page.last = true;
            return Ok(page);
        }
    }
}

/// The events of a swarm in these records.
pub(super) fn of(records: Vec<Record>, swarm: &Name) -> Vec<Event> {
    let ours = records.into_iter().filter(|record| record.key.swarm == *swarm);
    ours.flat_map(unfold).map(Happened::read).collect()
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
