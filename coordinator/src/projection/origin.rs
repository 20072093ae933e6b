//! Whether the file that an earlier process left can be gone on with: it is as far as that process had come, and
//! only what has changed since need be read.
//!
//! It can if three things are known of it. It was whole. It was written by the same program, which fills the
//! columns in the same way, and since the system started: the file is never flushed, so it survives the end of a
//! process and not that of the system. And the store is still the one that it was made from, not an earlier state
//! of it that somebody has put back.

use std::collections::HashMap;
use std::time::UNIX_EPOCH;

use rusqlite::{Connection, OptionalExtension, Row, params};
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;

use super::tables::{self, Numbers};
use crate::store::Version;
use crate::store::sqlite::number::{signed, unsigned};

/// A commit that was taken in, by which a store is known again.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tip {
    pub(super) key: EntityKey,
    pub(super) version: Version,
    pub(super) at: Timestamp,
}

/// What an earlier process left.
pub(super) struct Left {
    pub(super) versions: HashMap<EntityKey, Version>,
    pub(super) numbers: Numbers,
    /// The newest commit.
    pub(super) tip: Tip,
}

impl Left {
    /// Whether the store has at least what the file has.
    pub(super) fn is_within(&self, store: &HashMap<EntityKey, Version>) -> bool {
        self.versions.iter().all(|(key, version)| store.get(key).is_some_and(|stored| stored >= version))
    }
}

/// Who writes: this program since this start of the system. `None` where that cannot be told.
pub(super) fn writer() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let program = std::fs::metadata(std::env::current_exe().ok()?).ok()?;
    let changed = program.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{} {} {}", boot.trim(), program.len(), changed.as_nanos()))
}

/// Whether the file is whole and of this writer.
pub(super) fn is_ours(connection: &Connection) -> bool {
    let stored = connection.query_row("SELECT writer FROM built", [], |row| row.get::<_, String>(0));
    matches!((stored, writer()), (Ok(stored), Some(writer)) if stored == writer)
}

/// What the file has, unless it has to be built.
pub(super) fn left(connection: &Connection) -> rusqlite::Result<Option<Left>> {
    if !is_ours(connection) {
        return Ok(None);
    }
    let mut statement = connection.prepare("SELECT key, version, at FROM built")?;
    let read = |row: &Row<'_>| {
        Ok(Tip {
            key: tables::key(row, 0)?,
            version: Version(unsigned(row.get(1)?)),
            at: Timestamp(unsigned(row.get(2)?)),
        })
    };
    let Some(tip) = statement.query_row([], read).optional()? else { return Ok(None) };
    let (numbers, versions) = Numbers::read(connection)?;
    Ok(Some(Left { versions, numbers, tip }))
}

/// Says that the tables are whole and how far they have come.
pub(super) fn reached(connection: &Connection, writer: &str, tip: &Tip) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO built (only_row, writer, key, version, at) VALUES (1, ?1, ?2, ?3, ?4)",
        )?
        .execute(params![writer, tip.key.to_string(), signed(tip.version.0), signed(tip.at.0)])?;
    Ok(())
}
