//! Forgets what a plan names, a bounded step at a time.

use rusqlite::{Connection, params};
use skein_shared::time::Timestamp;

use super::blobs;
use super::number::signed;
use crate::store::{TrimPlan, Trimmed};

pub(super) fn trim(connection: &Connection, plan: &TrimPlan) -> rusqlite::Result<Trimmed> {
    let limit = i64::try_from(plan.limit).unwrap_or(i64::MAX);
    let trimmed = Trimmed {
        records: old_events(connection, plan, limit)? + surplus_events(connection, plan, limit)?,
        replies: replies(connection, plan, limit)?,
        marks: marks(connection, plan, limit)?,
        documents: documents(connection, plan, limit)?,
        dead_letters: dead_letters(connection, plan, limit)?,
        loose: blobs::sweep(connection, plan.loose_before, limit)?,
    };
    drop_empty(connection, limit)?;
    Ok(trimmed)
}

fn old_events(connection: &Connection, plan: &TrimPlan, limit: i64) -> rusqlite::Result<u64> {
    let all = "SELECT position, at FROM record WHERE events IS NOT NULL ORDER BY position LIMIT ?1";
    forget_events(connection, &old(connection, all, plan.events_before, limit)?)
}

/// Of the positions that a query gives in their order with their times, those before a moment. Times rise with
/// positions, so the walk ends at the first young record instead of reading them all.
fn old(connection: &Connection, all: &str, before: Timestamp, limit: i64) -> rusqlite::Result<Vec<i64>> {
    let mut statement = connection.prepare_cached(all)?;
    let rows = statement.query_map([limit], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?)))?;
    let mut positions = Vec::new();
    for row in rows {
        let (position, at) = row?;
        if at >= signed(before.0) {
            break;
        }
        positions.push(position);
    }
    Ok(positions)
}

/// Versions count an entity's records, so the newest ones are known without counting rows.
fn surplus_events(connection: &Connection, plan: &TrimPlan, limit: i64) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached(
        "SELECT record.position FROM entity
         CROSS JOIN place ON place.entity = entity.key AND place.version <= entity.version - ?1
         CROSS JOIN record ON record.position = place.position
         WHERE record.events IS NOT NULL LIMIT ?2",
    )?;
    let rows = statement.query_map([signed(plan.events_per_entity), limit], |row| row.get(0))?;
    let positions = rows.collect::<rusqlite::Result<Vec<i64>>>()?;
    forget_events(connection, &positions)
}

fn forget_events(connection: &Connection, positions: &[i64]) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached("UPDATE record SET events = NULL WHERE position = ?1")?;
    for position in positions {
        statement.execute([position])?;
    }
    Ok(positions.len() as u64)
}

fn replies(connection: &Connection, plan: &TrimPlan, limit: i64) -> rusqlite::Result<u64> {
    let all = "SELECT position, at FROM record WHERE replies IS NOT NULL ORDER BY position LIMIT ?1";
    let positions = old(connection, all, plan.replies_before, limit)?;
    let mut statement = connection.prepare_cached("UPDATE record SET replies = NULL WHERE position = ?1")?;
    for position in &positions {
        statement.execute([position])?;
    }
    Ok(positions.len() as u64)
}

fn marks(connection: &Connection, plan: &TrimPlan, limit: i64) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM mark WHERE (entity, source) IN (
             SELECT entity, source FROM mark WHERE at < ?1 LIMIT ?2)",
    )?;
    Ok(statement.execute([signed(plan.marks_before.0), limit])? as u64)
}

fn documents(connection: &Connection, plan: &TrimPlan, limit: i64) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM document WHERE (entity, document) IN (
             SELECT entity, document FROM document WHERE live = 0 AND written < ?1
             ORDER BY written LIMIT ?2)",
    )?;
    Ok(statement.execute([signed(plan.archived_before.0), limit])? as u64)
}

fn dead_letters(connection: &Connection, plan: &TrimPlan, limit: i64) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM dead_letter WHERE position IN (
             SELECT position FROM dead_letter WHERE buried_at < ?1 LIMIT ?2)",
    )?;
    Ok(statement.execute([signed(plan.dead_letters_before.0), limit])? as u64)
}

/// Removes records that carry nothing any more, with their places. The newest stays: its position must not be given out
/// again.
fn drop_empty(connection: &Connection, limit: i64) -> rusqlite::Result<()> {
    let mut empty = connection.prepare_cached(
        "SELECT position, entity, version FROM record WHERE events IS NULL AND replies IS NULL
         AND position < (SELECT max(position) FROM record) LIMIT ?1",
    )?;
    // One step empties at most three times its limit: old events, surplus events, replies.
    let rows =
        empty.query_map([limit.saturating_mul(4)], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let all: Vec<(i64, String, i64)> = rows.collect::<rusqlite::Result<_>>()?;
    let mut place = connection.prepare_cached("DELETE FROM place WHERE entity = ?1 AND version = ?2")?;
    let mut record = connection.prepare_cached("DELETE FROM record WHERE position = ?1")?;
    for (position, entity, version) in all {
        place.execute(params![entity, version])?;
        record.execute([position])?;
    }
    Ok(())
}
