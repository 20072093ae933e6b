//! Forgets what a plan names, a bounded step at a time.

use std::collections::HashMap;

use rusqlite::{Connection, params};
use skein_shared::time::Timestamp;

use super::blobs;
use super::number::signed;
use crate::store::{TrimPlan, Trimmed};

/// Records that a walk may look at in one step, for each that it may forget. Most have nothing more to forget.
const LOOKS: usize = 16;

/// Up to where nothing is left to forget, so that no step looks again at what the last one has passed: a record without
/// events stays for as long as its replies. Only this process knows it; its first steps find it again.
#[derive(Debug, Default)]
pub(super) struct Passed {
    events: Walk,
    replies: Walk,
    /// Of each entity that has had too many events, the last version without any.
    surplus: HashMap<String, i64>,
}

/// What one step did.
pub(super) struct Step {
    pub trimmed: Trimmed,
    /// Whether it ended before it had looked at everything.
    pub more: bool,
}

/// Goes on from where the last step has come to, which counts once this one is committed.
pub(super) fn trim(connection: &Connection, plan: &TrimPlan, passed: &mut Passed) -> rusqlite::Result<Step> {
    let limit = i64::try_from(plan.limit).unwrap_or(i64::MAX);
    let old = old_events(connection, plan, &mut passed.events)?;
    let surplus = surplus_events(connection, plan, &mut passed.surplus)?;
    let replies = replies(connection, plan, &mut passed.replies)?;
    let trimmed = Trimmed {
        records: old.count() + surplus.count(),
        replies: replies.count(),
        marks: marks(connection, plan, limit)?,
        documents: documents(connection, plan, limit)?,
        dead_letters: dead_letters(connection, plan, limit)?,
        loose: blobs::sweep(connection, plan.loose_before, limit)?,
    };
    drop_empty(connection, limit)?;
    Ok(Step { trimmed, more: old.more || surplus.more || replies.more })
}

/// What a walk came upon.
#[derive(Default)]
struct Found {
    positions: Vec<i64>,
    /// Whether it ended before it had looked at everything.
    more: bool,
}

impl Found {
    fn count(&self) -> u64 {
        self.positions.len() as u64
    }
}

fn old_events(connection: &Connection, plan: &TrimPlan, walk: &mut Walk) -> rusqlite::Result<Found> {
    let all = "SELECT position, at, events IS NOT NULL FROM record WHERE position > ?1 ORDER BY position";
    let old = walk.old(connection, all, plan.events_before, plan)?;
    forget_events(connection, &old.positions)?;
    Ok(old)
}

/// A walk over records by position, oldest first.
#[derive(Debug, Default)]
struct Walk {
    /// The last position that was passed.
    passed: i64,
    /// Where the first record is that was passed though it waits to be forgotten, and the earliest time of such ones.
    waiting: Option<(i64, i64)>,
}

impl Walk {
    /// Of the records that a query gives in their order, with their times and whether there is something to forget,
    /// those before a moment. Times rise with positions, so the walk ends at the first young record instead of reading
    /// them all. What a clock that was ahead has dated later than now holds up no other: it is passed, and come back to
    /// when it is old.
    fn old(
        &mut self,
        connection: &Connection,
        all: &str,
        before: Timestamp,
        plan: &TrimPlan,
    ) -> rusqlite::Result<Found> {
        let (before, now) = (signed(before.0), signed(plan.now.0));
        if let Some((first, _)) = self.waiting.take_if(|(_, earliest)| *earliest < before) {
            self.passed = first - 1;
        }
        let mut statement = connection.prepare_cached(all)?;
        let mut rows = statement.query([self.passed])?;
        let (mut found, mut looks) = (Found::default(), plan.limit.saturating_mul(LOOKS));
        while let Some(row) = rows.next()? {
            let (position, at, has_some) = (row.get(0)?, row.get(1)?, row.get(2)?);
            if (before..=now).contains(&at) {
                break;
            }
            if looks == 0 || found.positions.len() == plan.limit {
                found.more = true;
                break;
            }
            looks -= 1;
            self.passed = position;
            match has_some {
                true if at < before => found.positions.push(position),
                true => self.wait_for(position, at),
                false => {}
            }
        }
        Ok(found)
    }

    fn wait_for(&mut self, position: i64, at: i64) {
        let (first, earliest) = self.waiting.unwrap_or((position, at));
        self.waiting = Some((first, earliest.min(at)));
    }
}

/// Versions count an entity's records, so the newest ones are known without counting rows.
fn surplus_events(
    connection: &Connection,
    plan: &TrimPlan,
    passed: &mut HashMap<String, i64>,
) -> rusqlite::Result<Found> {
    let mut entities =
        connection.prepare_cached("SELECT key, version - ?1 FROM entity WHERE version > ?1")?;
    let mut records = connection.prepare_cached(
        "SELECT place.version, place.position, record.events IS NOT NULL FROM place
         CROSS JOIN record ON record.position = place.position
         WHERE place.entity = ?1 AND place.version > ?2 AND place.version <= ?3 ORDER BY place.version",
    )?;
    let (mut found, mut looks) = (Found::default(), plan.limit.saturating_mul(LOOKS));
    let mut rows = entities.query([signed(plan.events_per_entity)])?;
    while let Some(row) = rows.next()?
        && !found.more
    {
        let (key, last): (String, i64) = (row.get(0)?, row.get(1)?);
        let passed = passed.entry(key.clone()).or_default();
        let mut rows = records.query(params![key, *passed, last])?;
        while let Some(row) = rows.next()? {
            if looks == 0 || found.positions.len() == plan.limit {
                found.more = true;
                break;
            }
            looks -= 1;
            *passed = row.get(0)?;
            if row.get(2)? {
                found.positions.push(row.get(1)?);
            }
        }
    }
    forget_events(connection, &found.positions)?;
    Ok(found)
}

fn forget_events(connection: &Connection, positions: &[i64]) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("UPDATE record SET events = NULL WHERE position = ?1")?;
    for position in positions {
        statement.execute([position])?;
    }
    Ok(())
}

fn replies(connection: &Connection, plan: &TrimPlan, walk: &mut Walk) -> rusqlite::Result<Found> {
    let all =
        "SELECT position, at, 1 FROM record WHERE replies IS NOT NULL AND position > ?1 ORDER BY position";
    let old = walk.old(connection, all, plan.replies_before, plan)?;
    let mut statement = connection.prepare_cached("UPDATE record SET replies = NULL WHERE position = ?1")?;
    for position in &old.positions {
        statement.execute([position])?;
    }
    Ok(old)
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
