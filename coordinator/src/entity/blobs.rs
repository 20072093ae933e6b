//! Texts too long for a document. Their chunks are written by whoever owns the entity, under its fence, before the
//! command that names the blob is sent; they are read from the store by whoever is asked.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use skein_shared::agent::Blob;
use skein_shared::id::EntityKey;
use skein_shared::limits::CHUNK;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::Entities;
use super::refusals::{failed, moving};
use super::remote::Call;
use crate::store::{Chunk, Fence, StoreError};

impl Entities {
    /// Writes the chunks of a blob, which an entity is about to name. They are swept unless it does within the hour.
    ///
    /// # Errors
    /// `unavailable` or `outcome_unknown` when the store or the owner does not answer: write it again, or leave it.
    pub async fn write_blob(&self, key: &EntityKey, blob: Uuid, bytes: &[u8]) -> Result<(), Refusal> {
        for (place, bytes) in (0..).zip(bytes.chunks(CHUNK)) {
            let call = match self.cluster() {
                Some(_) => Call::Chunk { blob, place, bytes: STANDARD.encode(bytes) },
                // Nobody else to send it to.
                None => Call::Chunk { blob, place, bytes: String::new() },
            };
            self.read_routed(key, &call, || self.write_chunk_here(key, blob, place, bytes.to_vec())).await?;
        }
        Ok(())
    }

    pub(super) async fn write_chunk_here(
        &self,
        key: &EntityKey,
        blob: Uuid,
        place: u32,
        bytes: Vec<u8>,
    ) -> Result<(), Refusal> {
        let (store, at) = (&self.shared().store, self.clock().now());
        let fence = store.fence(key);
        if fence == Fence::NONE {
            return Err(moving(key));
        }
        let chunk = Chunk { key: key.clone(), blob, place, bytes, at };
        store.write_chunk(fence, chunk).await.map_err(|problem| failed(key, &problem))
    }

    /// The same for a chunk as another node sends it.
    pub(super) async fn take_chunk(
        &self,
        key: &EntityKey,
        blob: Uuid,
        place: u32,
        text: &str,
    ) -> Result<(), Refusal> {
        let bytes = STANDARD.decode(text).ok().filter(|bytes| bytes.len() <= CHUNK);
        let Some(bytes) = bytes else {
            let problem =
                format!("{key}: what another node sends is no chunk; run the same version on all nodes");
            return Err(Refusal::new(Code::InvalidArgument, problem));
        };
        self.write_chunk_here(key, blob, place, bytes).await
    }

    /// A part of a blob: so many bytes from an offset on, fewer at its end. `None` when it is gone.
    ///
    /// # Errors
    /// `unavailable` when the store cannot be read.
    pub async fn read_blob(
        &self,
        key: &EntityKey,
        blob: Blob,
        offset: u64,
        limit: usize,
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let chunk = CHUNK as u64;
        let left = blob.bytes.saturating_sub(offset);
        let limit = limit.min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut part = Vec::new();
        while part.len() < limit {
            let next = offset + part.len() as u64;
            let place = u32::try_from(next / chunk).unwrap_or(u32::MAX);
            let found = self.shared().store.chunk(key, blob.id, place).await;
            let found = found.map_err(|StoreError(problem)| {
                Refusal::new(Code::Unavailable, format!("{problem}; try again in a moment")).retry_after(500)
            })?;
            let Some(bytes) = found else { return Ok(None) };
            let begin = usize::try_from(next % chunk).unwrap_or(usize::MAX).min(bytes.len());
            let end = bytes.len().min(begin + (limit - part.len()));
            if begin == end {
                // Shorter than it was said to be. Whoever reads part after part would never come to the end.
                return Ok(None);
            }
            part.extend_from_slice(&bytes[begin..end]);
        }
        Ok(Some(part))
    }
}
