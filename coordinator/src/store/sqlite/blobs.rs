//! Blobs: their chunks, and what a batch does to them. Neither waits in the journal.

use rusqlite::{Connection, OptionalExtension, params};
use skein_shared::blobs::chunks;
use skein_shared::entity::BlobChange;
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::apply::Stop;
use super::number::{signed, unsigned};
use super::reader;
use crate::store::{Batch, Chunk, CommitError, StoredBlob};

/// Writes a chunk within the open transaction. A blob that is kept does not change any more.
pub(super) fn write(connection: &Connection, chunk: &Chunk) -> rusqlite::Result<()> {
    let (entity, blob) = (chunk.key.to_string(), chunk.blob.as_bytes());
    let loose = connection
        .prepare_cached(
            "INSERT INTO blob (entity, blob, at) VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET at = ?3 WHERE bytes IS NULL",
        )?
        .execute(params![entity, blob, signed(chunk.at.0)])?;
    if loose == 0 {
        return Ok(());
    }
    connection
        .prepare_cached("INSERT OR REPLACE INTO chunk (entity, blob, place, bytes) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![entity, blob, chunk.place, chunk.bytes])?;
    Ok(())
}

/// Does what a batch says, within the open transaction, once it is known that all chunks of what it keeps are there.
pub(super) fn apply(connection: &Connection, key: &str, batch: &Batch) -> Result<(), Stop> {
    for change in &batch.blobs {
        if let BlobChange::Keep { blob, bytes } = change
            && !is_whole(connection, key, *blob, *bytes)?
        {
            return Err(Stop::Answer(CommitError::incomplete(blob)));
        }
    }
    for change in &batch.blobs {
        match change {
            BlobChange::Keep { blob, bytes } => {
                connection
                    .prepare_cached("UPDATE blob SET bytes = ?3, at = ?4 WHERE entity = ?1 AND blob = ?2")?
                    .execute(params![key, blob.as_bytes(), signed(*bytes), signed(batch.at.0)])?;
            }
            BlobChange::Free { blob } => remove(connection, key, blob.as_bytes())?,
        }
    }
    Ok(())
}

fn is_whole(connection: &Connection, key: &str, blob: Uuid, bytes: u64) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached(
        "SELECT count(*), coalesce(sum(length(bytes)), 0) FROM chunk WHERE entity = ?1 AND blob = ?2 AND place < ?3",
    )?;
    let pieces = chunks(bytes);
    let found: (u32, i64) =
        statement.query_row(params![key, blob.as_bytes(), pieces], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(found == (pieces, signed(bytes)))
}

fn remove(connection: &Connection, key: &str, blob: &[u8]) -> rusqlite::Result<()> {
    for delete in [
        "DELETE FROM chunk WHERE entity = ?1 AND blob = ?2",
        "DELETE FROM blob WHERE entity = ?1 AND blob = ?2",
    ] {
        connection.prepare_cached(delete)?.execute(params![key, blob])?;
    }
    Ok(())
}

/// Removes what nobody has kept since then, at most so many. Gives how many.
pub(super) fn sweep(connection: &Connection, before: Timestamp, limit: i64) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached(
        "SELECT entity, blob FROM blob WHERE bytes IS NULL AND at < ?1 ORDER BY at LIMIT ?2",
    )?;
    let rows = statement.query_map(params![signed(before.0), limit], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let loose: Vec<(String, Vec<u8>)> = rows.collect::<rusqlite::Result<_>>()?;
    for (key, blob) in &loose {
        remove(connection, key, blob)?;
    }
    Ok(loose.len() as u64)
}

pub(super) fn chunk(
    connection: &Connection,
    key: &str,
    blob: Uuid,
    place: u32,
) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut statement = connection.prepare_cached(
        "SELECT chunk.bytes FROM blob JOIN chunk USING (entity, blob)
         WHERE blob.entity = ?1 AND blob.blob = ?2 AND blob.bytes IS NOT NULL AND chunk.place = ?3",
    )?;
    statement.query_row(params![key, blob.as_bytes(), place], |row| row.get(0)).optional()
}

pub(super) fn kept(
    connection: &Connection,
    after: Option<(EntityKey, Uuid)>,
    limit: usize,
) -> rusqlite::Result<Vec<StoredBlob>> {
    let (entity, blob) =
        after.map_or_else(Default::default, |(key, blob)| (key.to_string(), blob.as_bytes().to_vec()));
    let mut statement = connection.prepare_cached(
        "SELECT entity, blob, bytes, at FROM blob
         WHERE bytes IS NOT NULL AND (entity, blob) > (?1, ?2) ORDER BY entity, blob LIMIT ?3",
    )?;
    let rows = statement.query_map(params![entity, blob, reader::count(limit)], |row| {
        Ok(StoredBlob {
            key: reader::entity(row, 0)?,
            blob: Uuid::from_bytes(row.get(1)?),
            bytes: unsigned(row.get(2)?),
            at: Timestamp(unsigned(row.get(3)?)),
        })
    })?;
    rows.collect()
}
