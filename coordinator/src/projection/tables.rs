//! The tables of the read side: how documents get into them.

use std::collections::HashMap;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;
use rusqlite::types::{Type, Value as Bound};
use rusqlite::{Connection, OptionalExtension, Row, ffi, params};
use serde_json::Value;
use skein_shared::id::EntityKey;
use skein_shared::json::{Fields, Json};
use skein_shared::time::Timestamp;

use super::changes::{Change, State};
use super::{recall, vectors};
use crate::store::sqlite::connection::DISPOSABLE_PAGE;
use crate::store::sqlite::number::{signed, unsigned};
use crate::store::{StoredDocument, Version};

/// Fields of a body that have a column of their own, in the order of the columns, and their columns' names.
pub(super) const COLUMNS: [(&str, &str); 6] = [
    ("status", "status"),
    ("priority", "priority"),
    ("lastUpdatedAt", "updated"),
    ("agentId", "agent"),
    ("epicId", "epic"),
    ("scheduleId", "schedule"),
];

/// Documents that are removed at once when they are old: commits wait meanwhile, and lists are as they were before.
pub(super) const OLD: usize = 2000;

const INDEXES: [&str; 6] = [
    "document_archived",
    "document_all",
    "document_status",
    "document_agent",
    "document_epic",
    "document_schedule",
];

/// Empties the tables, for a build. Documents are put in before most of their indexes are there.
pub(super) fn clear(connection: &Connection) -> rusqlite::Result<()> {
    for index in INDEXES {
        connection.execute_batch(&format!("DROP INDEX IF EXISTS {index}"))?;
    }
    connection.execute_batch(
        "DELETE FROM built; DELETE FROM document; DELETE FROM tag; DELETE FROM mention; DELETE FROM entity; DELETE FROM collection;
         DELETE FROM era; DELETE FROM learning; DELETE FROM vector;
         INSERT INTO text (text) VALUES ('delete-all');",
    )?;
    vectors::begin_generation(connection)
}

/// The same for a file that is damaged: an empty one is written over it, whatever its pages hold. Who reads it sees
/// either of them.
pub(super) fn overwrite(connection: &mut Connection) -> rusqlite::Result<()> {
    let empty = Connection::open_in_memory()?;
    empty.pragma_update(None, "page_size", DISPOSABLE_PAGE)?;
    empty.execute_batch(include_str!("schema.sql"))?;
    vectors::take_over_generation(&empty, connection)?;
    // Only where not even its first page can be read: readers notice by what that says that the tables are others.
    let is_headless = vectors::generation(connection).is_err();
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_RESET_DATABASE, is_headless)?;
    let written = Backup::new(&empty, connection).and_then(|backup| backup.step(-1));
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_RESET_DATABASE, false)?;
    if written? == StepResult::Done {
        return Ok(());
    }
    Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None))
}

pub(super) fn make_indexes(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(include_str!("indexes.sql"))
}

/// The numbers that stand for entities and collections, as they are given out.
#[derive(Default)]
pub(super) struct Numbers {
    entities: HashMap<EntityKey, Entity>,
    last_collection: i64,
}

struct Entity {
    number: i64,
    /// Of its documents' types, which are few.
    collections: Vec<(String, i64)>,
}

/// Where a document's row belongs.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    entity: i64,
    collection: i64,
    document: &'a str,
}

impl Numbers {
    /// Those that were given out before, and the versions of their entities.
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<(Self, HashMap<EntityKey, Version>)> {
        let mut versions = HashMap::new();
        let mut entities = HashMap::new();
        let mut statement = connection.prepare("SELECT key, number, reached FROM entity")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let key = key(row, 0)?;
            versions.insert(key.clone(), Version(unsigned(row.get(2)?)));
            entities.insert(key, Entity { number: row.get(1)?, collections: Vec::new() });
        }
        let last = "SELECT coalesce(max(number), 0) FROM collection";
        let last_collection = connection.query_row(last, [], |row| row.get(0))?;
        Ok((Self { entities, last_collection }, versions))
    }

    /// Writes down which version of an entity the tables have.
    pub(super) fn reached(
        &mut self,
        connection: &Connection,
        key: &EntityKey,
        version: Version,
    ) -> rusqlite::Result<()> {
        let number = self.entity(connection, key)?;
        connection
            .prepare_cached("UPDATE entity SET reached = ?2 WHERE number = ?1")?
            .execute(params![number, signed(version.0)])?;
        Ok(())
    }

    /// Every entity of which there may be rows.
    pub(super) fn entities(&self) -> impl Iterator<Item = &EntityKey> {
        self.entities.keys()
    }

    pub(super) fn entity(&mut self, connection: &Connection, key: &EntityKey) -> rusqlite::Result<i64> {
        self.known(connection, key).map(|entity| entity.number)
    }

    fn known(&mut self, connection: &Connection, key: &EntityKey) -> rusqlite::Result<&mut Entity> {
        if !self.entities.contains_key(key) {
            let number = count(self.entities.len() + 1);
            connection
                .prepare_cached("INSERT INTO entity (number, key, reached) VALUES (?1, ?2, 0)")?
                .execute(params![number, key.to_string()])?;
            self.entities.insert(key.clone(), Entity { number, collections: Vec::new() });
        }
        self.entities.get_mut(key).ok_or(rusqlite::Error::QueryReturnedNoRows)
    }

    pub(super) fn place<'a>(
        &mut self,
        connection: &Connection,
        key: &EntityKey,
        document: &'a str,
    ) -> rusqlite::Result<Place<'a>> {
        let document_type = type_of(document);
        let next = self.last_collection + 1;
        let known = self.known(connection, key)?;
        let entity = known.number;
        let found = known.collections.iter().find(|(name, _)| name == document_type);
        if let Some(&(_, collection)) = found {
            return Ok(Place { entity, collection, document });
        }
        let collection: i64 = connection
            .prepare_cached(
                "INSERT INTO collection (number, swarm, kind, type) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO UPDATE SET kind = kind RETURNING number",
            )?
            .query_row(params![next, key.swarm.as_str(), key.kind.as_str(), document_type], |row| {
                row.get(0)
            })?;
        known.collections.push((document_type.to_owned(), collection));
        self.last_collection = self.last_collection.max(collection);
        Ok(Place { entity, collection, document })
    }
}

/// A document's key up to its slash.
pub(super) fn type_of(document: &str) -> &str {
    document.split_once('/').map_or(document, |(document_type, _)| document_type)
}

/// Rows by their documents' keys, with the versions that last wrote them.
pub(super) type Rows = HashMap<String, (i64, Version)>;

/// The rows of an entity after one document and up to another; without that one, to the last.
pub(super) fn rows(
    connection: &Connection,
    entity: i64,
    after: &str,
    last: Option<&str>,
) -> rusqlite::Result<Rows> {
    let mut statement = connection.prepare_cached(
        "SELECT document, row, version FROM document WHERE entity = ?1 AND document > ?2 AND document <= ?3",
    )?;
    let last = last.unwrap_or("\u{10ffff}");
    let rows = statement.query_map(params![entity, after, last], |row| {
        Ok((row.get(0)?, (row.get(1)?, Version(unsigned(row.get(2)?)))))
    })?;
    rows.collect()
}

/// Removes all rows of an entity, some at a time: there may be a million.
pub(super) fn remove_all(connection: &Connection, entity: i64) -> rusqlite::Result<()> {
    let mut some = connection.prepare_cached("SELECT row FROM document WHERE entity = ?1 LIMIT ?2")?;
    loop {
        let rows = some.query_map(params![entity, count(OLD)], |row| row.get(0))?;
        let rows = rows.collect::<rusqlite::Result<Vec<i64>>>()?;
        let has_more = rows.len() == OLD;
        rows.into_iter().try_for_each(|row| remove(connection, row))?;
        if !has_more {
            return Ok(());
        }
    }
}

/// Removes some of the old documents that are not live. Says whether there may be more of them.
pub(super) fn trim(connection: &Connection, archived_before: Timestamp) -> rusqlite::Result<bool> {
    let mut statement =
        connection.prepare_cached("SELECT row FROM document WHERE live = 0 AND written < ?1 LIMIT ?2")?;
    let rows = statement.query_map([signed(archived_before.0), count(OLD)], |row| row.get(0))?;
    let rows = rows.collect::<rusqlite::Result<Vec<i64>>>()?;
    let has_more = rows.len() == OLD;
    rows.into_iter().try_for_each(|row| remove(connection, row))?;
    if !has_more {
        // Whoever has read the vectors reads all of them again after it.
        recall::trim(connection)?;
    }
    Ok(has_more)
}

/// Puts a whole document, as the store has it, where there is no row of it.
pub(super) fn put(
    connection: &Connection,
    place: Place<'_>,
    document: &StoredDocument,
) -> rusqlite::Result<()> {
    let body = Json::of(&document.body);
    let body = Fields::of(&body);
    insert(connection, place, document.live, document.version, document.at, &body)
}

/// Follows what happened to a document, unless the row has it already.
pub(super) fn change(connection: &Connection, place: Place<'_>, change: Change<'_>) -> rusqlite::Result<()> {
    let Change { version, at, state } = change;
    let stored = stored(connection, place)?;
    // An equal version is the last of these batches. A page that was read before has what they wrote, and
    // merging it again leads to the same body.
    if stored.as_ref().is_some_and(|stored| stored.version > version) {
        return Ok(());
    }
    let before = stored.as_ref().map(|stored| (stored.row, Fields::of(&stored.body)));
    let (live, body) = match state {
        State::Deleted => return before.map_or(Ok(()), |(row, _)| remove(connection, row)),
        State::Made { live, fields } => (live, fields),
        State::Merged { live, fields } => {
            let mut body = before.as_ref().map(|(_, fields)| fields.clone()).unwrap_or_default();
            body.merge(fields);
            (live, body)
        }
    };
    match before {
        Some((row, before)) => update(connection, place, (row, &before), live, version, at, &body),
        None => insert(connection, place, live, version, at, &body),
    }
}

/// A document's row as it is.
struct Stored {
    row: i64,
    version: Version,
    body: Json,
}

fn stored(connection: &Connection, place: Place<'_>) -> rusqlite::Result<Option<Stored>> {
    let mut statement = connection
        .prepare_cached("SELECT row, version, body FROM document WHERE entity = ?1 AND document = ?2")?;
    let read = |row: &Row<'_>| {
        Ok(Stored { row: row.get(0)?, version: Version(unsigned(row.get(1)?)), body: json(row, 2)? })
    };
    statement.query_row(params![place.entity, place.document], read).optional()
}

fn insert(
    connection: &Connection,
    place: Place<'_>,
    live: bool,
    version: Version,
    at: Timestamp,
    body: &Fields<'_>,
) -> rusqlite::Result<()> {
    let [status, priority, updated, agent, epic, schedule] = columns(body);
    connection
        .prepare_cached(
            "INSERT INTO document
                 (entity, collection, document, live, version, written,
                  status, priority, updated, agent, epic, schedule, body)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?
        .execute(params![
            place.entity,
            place.collection,
            place.document,
            live,
            signed(version.0),
            signed(at.0),
            status,
            priority,
            updated,
            agent,
            epic,
            schedule,
            text(&recall::shown(place.document, body))?
        ])?;
    let row = connection.last_insert_rowid();
    write_tags(connection, row, None, body)?;
    recall::write(connection, place.entity, place.document, row, None, body)
}

fn update(
    connection: &Connection,
    place: Place<'_>,
    (row, before): (i64, &Fields<'_>),
    live: bool,
    version: Version,
    at: Timestamp,
    body: &Fields<'_>,
) -> rusqlite::Result<()> {
    let [status, priority, updated, agent, epic, schedule] = columns(body);
    connection
        .prepare_cached(
            "UPDATE document SET live = ?2, version = ?3, written = ?4,
                 status = ?5, priority = ?6, updated = ?7, agent = ?8, epic = ?9, schedule = ?10, body = ?11
             WHERE row = ?1",
        )?
        .execute(params![
            row,
            live,
            signed(version.0),
            signed(at.0),
            status,
            priority,
            updated,
            agent,
            epic,
            schedule,
            text(&recall::shown(place.document, body))?
        ])?;
    write_tags(connection, row, Some(before), body)?;
    recall::write(connection, place.entity, place.document, row, Some(before), body)
}

fn text(body: &Fields<'_>) -> rusqlite::Result<String> {
    serde_json::to_string(body).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

/// The values of [`COLUMNS`].
fn columns(body: &Fields<'_>) -> [Bound; COLUMNS.len()] {
    COLUMNS.map(|(field, _)| body.read(field).map_or(Bound::Null, bound))
}

/// A value as `json_extract` gives it: arrays and objects are their JSON text.
pub(super) fn bound(value: Value) -> Bound {
    match value {
        Value::Null => Bound::Null,
        Value::Bool(truth) => Bound::Integer(i64::from(truth)),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Bound::Integer(integer),
            (None, Some(real)) => Bound::Real(real),
            (None, None) => Bound::Null,
        },
        Value::String(text) => Bound::Text(text),
        Value::Array(_) | Value::Object(_) => Bound::Text(value.to_string()),
    }
}

/// Tags change seldom, so they are written only when they did.
fn write_tags(
    connection: &Connection,
    row: i64,
    before: Option<&Fields<'_>>,
    body: &Fields<'_>,
) -> rusqlite::Result<()> {
    let before = before.and_then(|before| before.get("tags"));
    if before == body.get("tags") {
        return Ok(());
    }
    if before.is_some() {
        connection.prepare_cached("DELETE FROM tag WHERE row = ?1")?.execute([row])?;
    }
    let tags: Vec<Value> = body.read("tags").unwrap_or_default();
    for tag in tags.iter().filter_map(Value::as_str) {
        connection
            .prepare_cached("INSERT OR IGNORE INTO tag (tag, row) VALUES (?1, ?2)")?
            .execute(params![tag, row])?;
    }
    Ok(())
}

pub(super) fn remove(connection: &Connection, row: i64) -> rusqlite::Result<()> {
    recall::remove(connection, row)?;
    for statement in ["DELETE FROM tag WHERE row = ?1", "DELETE FROM document WHERE row = ?1"] {
        connection.prepare_cached(statement)?.execute([row])?;
    }
    Ok(())
}

pub(super) fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

pub(super) fn key(row: &Row<'_>, column: usize) -> rusqlite::Result<EntityKey> {
    let text = row.get_ref(column)?.as_str()?;
    text.parse().map_err(|refusal: skein_shared::Refusal| {
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(refusal))
    })
}

pub(super) fn json<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    serde_json::from_str(row.get_ref(column)?.as_str()?)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error)))
}
