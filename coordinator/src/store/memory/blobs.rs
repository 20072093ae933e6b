//! Blobs and their chunks.

use std::collections::BTreeMap;
use std::ops::Bound;

use skein_shared::blobs::chunks;
use skein_shared::entity::BlobChange;
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;
use uuid::Uuid;

use crate::store::{Batch, Chunk, CommitError, StoredBlob};

/// By the text of the entity's key, and the blob.
#[derive(Clone, Default)]
pub(super) struct Blobs(BTreeMap<(String, Uuid), Held>);

#[derive(Clone)]
struct Held {
    key: EntityKey,
    chunks: BTreeMap<u32, Vec<u8>>,
    /// When the last chunk was written, or the blob was kept.
    at: Timestamp,
    /// Its length once it is kept.
    kept: Option<u64>,
}

impl Held {
    fn has(&self, bytes: u64) -> bool {
        let pieces = self.chunks.range(..chunks(bytes));
        let found = pieces.fold((0, 0), |(count, sum), (_, piece)| (count + 1, sum + piece.len() as u64));
        found == (chunks(bytes), bytes)
    }
}

impl Blobs {
    pub(super) fn write(&mut self, chunk: &Chunk) {
        let held = self.0.entry((chunk.key.to_string(), chunk.blob)).or_insert_with(|| Held {
            key: chunk.key.clone(),
            chunks: BTreeMap::new(),
            at: chunk.at,
            kept: None,
        });
        if held.kept.is_none() {
            held.chunks.insert(chunk.place, chunk.bytes.clone());
            held.at = chunk.at;
        }
    }

    /// Whether all is there that the batch keeps.
    pub(super) fn check(&self, batch: &Batch) -> Result<(), CommitError> {
        let name = batch.key.to_string();
        for change in &batch.blobs {
            if let BlobChange::Keep { blob, bytes } = change
                && !self.0.get(&(name.clone(), *blob)).is_some_and(|held| held.has(*bytes))
            {
                return Err(CommitError::incomplete(blob));
            }
        }
        Ok(())
    }

    pub(super) fn take(&mut self, batch: &Batch) {
        let name = batch.key.to_string();
        for change in &batch.blobs {
            match change {
                BlobChange::Keep { blob, bytes } => {
                    if let Some(held) = self.0.get_mut(&(name.clone(), *blob)) {
                        (held.kept, held.at) = (Some(*bytes), batch.at);
                    }
                }
                BlobChange::Free { blob } => {
                    self.0.remove(&(name.clone(), *blob));
                }
            }
        }
    }

    pub(super) fn chunk(&self, key: &EntityKey, blob: Uuid, place: u32) -> Option<Vec<u8>> {
        let held = self.0.get(&(key.to_string(), blob)).filter(|held| held.kept.is_some())?;
        held.chunks.get(&place).cloned()
    }

    pub(super) fn kept(&self, after: Option<(EntityKey, Uuid)>, limit: usize) -> Vec<StoredBlob> {
        let after = after.map_or(Bound::Unbounded, |(key, blob)| Bound::Excluded((key.to_string(), blob)));
        let later = self.0.range((after, Bound::Unbounded));
        let kept = later.filter_map(|((_, blob), held)| {
            Some(StoredBlob { key: held.key.clone(), blob: *blob, bytes: held.kept?, at: held.at })
        });
        kept.take(limit).collect()
    }

    /// Removes what nobody has kept since then, at most so many. Gives how many.
    pub(super) fn sweep(&mut self, before: Timestamp, limit: usize) -> u64 {
        let loose = self.0.iter().filter(|(_, held)| held.kept.is_none() && held.at < before);
        let loose: Vec<_> = loose.map(|(name, _)| name.clone()).take(limit).collect();
        for name in &loose {
            self.0.remove(name);
        }
        loose.len() as u64
    }
}
