//! Brings what waits in the journal to its tables. The journal's rows go with the transaction that writes the last of
//! what they hold.

use rusqlite::{Connection, params};
use skein_shared::entity::DocumentChange;
use skein_shared::id::EntityKey;

use super::body;
use super::garbage::Garbage;
use super::journal::{Journal, Part, Place, Table, Unfolded, Waiting};
use super::number::signed;

/// A body of more bytes is joined, so that changes do not pile up in it.
const LONG: i64 = 8 * 1024;
/// How seldom the length of a body is looked at, in versions of its entity.
const LOOK: u64 = 16;

/// Writes all that waits, within the open transaction.
pub(super) fn whole(connection: &Connection, waiting: &Waiting) -> rusqlite::Result<()> {
    for journal in [&waiting.old, &waiting.young] {
        for one in journal.parts() {
            part(connection, journal, &one)?;
        }
        heads(connection, journal)?;
    }
    Table::Even.empty(connection)?;
    Table::Odd.empty(connection)
}

/// Writes one part.
pub(super) fn part(connection: &Connection, journal: &Journal, part: &Part) -> rusqlite::Result<()> {
    match part {
        Part::Document(key, name) => document(connection, journal, key, name),
        Part::Places(key, range) => write_places(connection, key, &journal.places(key)[range.clone()]),
    }
}

/// Writes what is left once all parts are in their tables, and empties the journal's table.
pub(super) fn finish(connection: &Connection, journal: &Journal, table: Table) -> rusqlite::Result<()> {
    heads(connection, journal)?;
    table.empty(connection)
}

fn heads(connection: &Connection, journal: &Journal) -> rusqlite::Result<()> {
    for (key, unfolded) in journal.entities() {
        let key = key.to_string();
        write_head(connection, &key, unfolded)?;
        write_marks(connection, &key, unfolded)?;
    }
    Ok(())
}

fn write_head(connection: &Connection, key: &str, unfolded: &Unfolded) -> rusqlite::Result<()> {
    let head = unfolded.head;
    connection
        .prepare_cached(
            "INSERT INTO entity (key, version, batch, at, sequence) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT DO UPDATE
             SET version = ?2, batch = ?3, at = ?4, sequence = max(sequence, ?5)",
        )?
        .execute(params![
            key,
            signed(head.version.0),
            head.batch.as_bytes(),
            signed(head.at.0),
            signed(head.sequence)
        ])?;
    Ok(())
}

/// They may be there already, when the last process ended amid a fold. Two records of one version there are not: a
/// commit is compared with the entity's head before it is written.
fn write_places(connection: &Connection, key: &EntityKey, places: &[Place]) -> rusqlite::Result<()> {
    let key = key.to_string();
    let mut statement = connection
        .prepare_cached("INSERT OR IGNORE INTO place (entity, version, position) VALUES (?1, ?2, ?3)")?;
    for place in places {
        statement.execute(params![key, signed(place.version.0), place.position])?;
    }
    Ok(())
}

/// Writes a document once for all its changes.
fn document(
    connection: &Connection,
    journal: &Journal,
    key: &EntityKey,
    document: &str,
) -> rusqlite::Result<()> {
    let (changes, key) = (journal.changes(key, document), &key.to_string());
    let (Some(first), Some(last)) = (changes.first(), changes.last()) else { return Ok(()) };
    if matches!(first.get(), DocumentChange::Delete { .. }) {
        connection
            .prepare_cached("DELETE FROM document WHERE entity = ?1 AND document = ?2")?
            .execute([key, document])?;
    }
    let DocumentChange::Put { live, head, .. } = last.get() else { return Ok(()) };
    let (version, at) = (signed(last.version().0), signed(last.at().0));
    let Some(body) = body::line(changes) else {
        connection
            .prepare_cached(
                "INSERT INTO document (entity, document, live, version, written, head, body)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, '{}')
                 ON CONFLICT DO UPDATE SET live = ?3, version = ?4, written = ?5, head = ?6",
            )?
            .execute(params![key, document, live, version, at, head.text()])?;
        return Ok(());
    };
    connection
        .prepare_cached(
            "INSERT INTO document (entity, document, live, version, written, head, body)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT DO UPDATE SET live = ?3, version = ?4, written = ?5, head = ?6,
                 body = body || char(10) || ?7",
        )?
        .execute(params![key, document, live, version, at, head.text(), body.text()])?;
    if last.version().0.is_multiple_of(LOOK) {
        join_changes(connection, key, document)?;
    }
    Ok(())
}

/// Writes a long body anew as one object. One that cannot be read stays as it is, with its changes behind it: whoever
/// reads the document is told, and all others go on.
fn join_changes(connection: &Connection, key: &str, document: &str) -> rusqlite::Result<()> {
    let size: i64 = connection
        .prepare_cached("SELECT octet_length(body) FROM document WHERE entity = ?1 AND document = ?2")?
        .query_row([key, document], |row| row.get(0))?;
    if size <= LONG {
        return Ok(());
    }
    let read = connection
        .prepare_cached("SELECT body FROM document WHERE entity = ?1 AND document = ?2")?
        .query_row([key, document], |row| Ok(body::read(row, 0)))?;
    let body = match read {
        Ok(body) => body,
        Err(error) => {
            let Garbage { problem, .. } = Garbage::of(key, document, error)?;
            tracing::warn!(problem, "a long document stays as it is");
            return Ok(());
        }
    };
    connection
        .prepare_cached("UPDATE document SET body = ?3 WHERE entity = ?1 AND document = ?2")?
        .execute(params![key, document, body.to_string()])?;
    Ok(())
}

/// Moves marks on; one that lies behind the stored one is left out.
fn write_marks(connection: &Connection, key: &str, unfolded: &Unfolded) -> rusqlite::Result<()> {
    for (mark, at) in unfolded.marks.values() {
        connection
            .prepare_cached(
                "INSERT INTO mark (entity, source, epoch, sequence, at) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT DO UPDATE SET epoch = ?3, sequence = ?4, at = ?5
                 WHERE (?3, ?4) > (epoch, sequence)",
            )?
            .execute(params![
                key,
                mark.source.to_string(),
                signed(mark.epoch.0),
                signed(mark.sequence),
                signed(at.0)
            ])?;
    }
    Ok(())
}
