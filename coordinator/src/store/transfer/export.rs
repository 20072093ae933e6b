//! Writes a store's state as lines.

use std::collections::HashMap;
use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Map, Value};
use skein_shared::blobs::chunks;
use skein_shared::entity::Effect;
use skein_shared::fence::Epoch;
use skein_shared::id::EntityKey;

use super::{FORMAT, Head, Line, Sum, Summary, TransferError, sorted, sorted_json};
use crate::store::pace::{Pace, Page};
use crate::store::{
    DeadLetter, Mark, OutboxEntry, Record, Store, StoreError, StoredBlob, StoredDocument, StoredReply,
};

/// Things that are read at once, at most.
const PAGE: usize = 1024;

/// Writes everything that the store holds. Nobody else may write to it meanwhile.
///
/// # Errors
/// When the store cannot be read or the lines cannot be written.
pub async fn export(store: &dyn Store, out: &mut (dyn Write + Send)) -> Result<Summary, TransferError> {
    let mut entities: Vec<EntityKey> = store.versions().await?.into_iter().map(|(key, _)| key).collect();
    entities.sort_by_key(ToString::to_string);
    let epoch = entities.iter().map(|key| store.fence(key).epoch).max().unwrap_or_default().0;
    let mut lines = Lines { out, sum: Sum::default() };
    lines.head(&Head { format: FORMAT.to_owned(), epoch })?;
    lines.records(store).await?;
    lines.documents(store).await?;
    lines.blobs(store).await?;
    lines.dead_letters(store).await?;
    lines.effects(store).await?;
    for key in entities {
        lines.entity(store, key).await?;
    }
    lines.finish()
}

struct Lines<'a> {
    out: &'a mut (dyn Write + Send),
    sum: Sum,
}

impl Lines<'_> {
    fn head(&mut self, head: &Head) -> Result<(), TransferError> {
        let text = text(head)?;
        self.sum.head(&text);
        Ok(self.out.write_all(&text)?)
    }

    fn line(&mut self, line: &Line) -> Result<(), TransferError> {
        let text = text(line)?;
        self.sum.line(&text);
        Ok(self.out.write_all(&text)?)
    }

    fn finish(self) -> Result<Summary, TransferError> {
        let summary = self.sum.finish();
        self.out.write_all(&text(&summary)?)?;
        self.out.flush()?;
        Ok(summary)
    }

    async fn records(&mut self, store: &dyn Store) -> Result<(), TransferError> {
        let (mut after, mut pace) = (0, Pace::up_to(PAGE));
        loop {
            let Page { things: records, pace: next, .. } =
                pace.read(|count| store.records(after, count)).await?;
            let Some(last) = records.last() else { return Ok(()) };
            (after, pace) = (last.position, next);
            for Record { key, at, events, .. } in records {
                self.line(&Line::Record { key, at, events })?;
            }
        }
    }

    async fn documents(&mut self, store: &dyn Store) -> Result<(), TransferError> {
        let (mut after, mut pace) = (None, Pace::up_to(PAGE));
        loop {
            let Page { things: documents, pace: next, .. } =
                pace.read(|count| store.documents(after.clone(), count)).await?;
            let Some(last) = documents.last() else { return Ok(()) };
            (after, pace) = (Some((last.key.clone(), last.document.clone())), next);
            for StoredDocument { key, document, live, head, body, at, .. } in documents {
                let body = match sorted(body) {
                    Value::Object(body) => body,
                    _ => Map::new(),
                };
                self.line(&Line::Document { key, document, at, live, head: sorted(head), body })?;
            }
        }
    }

    async fn blobs(&mut self, store: &dyn Store) -> Result<(), TransferError> {
        let mut after = None;
        loop {
            let page = store.blobs(after.take(), PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some((last.key.clone(), last.blob));
            for StoredBlob { key, blob, bytes, at } in page {
                for place in 0..chunks(bytes) {
                    let Some(chunk) = store.chunk(&key, blob, place).await? else {
                        let problem = format!(
                            "{key}: chunk {place} of the blob {blob} is missing; restore it from a copy"
                        );
                        return Err(StoreError(problem).into());
                    };
                    let bytes = STANDARD.encode(chunk);
                    self.line(&Line::Chunk { key: key.clone(), blob, place, at, bytes })?;
                }
                self.line(&Line::Blob { key, blob, bytes, at })?;
            }
        }
    }

    async fn dead_letters(&mut self, store: &dyn Store) -> Result<(), TransferError> {
        let (mut after, mut pace) = (0, Pace::up_to(PAGE));
        loop {
            let Page { things: letters, pace: next, .. } =
                pace.read(|count| store.dead_letters(after, count)).await?;
            let Some(last) = letters.last() else { return Ok(()) };
            (after, pace) = (last.entry.position, next);
            for DeadLetter { entry: OutboxEntry { source, sequence, at, effect, .. }, reason, buried_at } in
                letters
            {
                self.line(&Line::DeadLetter { source, sequence, at, effect, reason, buried_at })?;
            }
        }
    }

    /// Leaves out what its target has taken in already, but whose delivery was not noted any more: under an epoch of
    /// the new store it would be taken for another one.
    async fn effects(&mut self, store: &dyn Store) -> Result<(), TransferError> {
        let mut seen = HashMap::new();
        let (mut after, mut pace) = (0, Pace::up_to(PAGE));
        loop {
            let Page { things: effects, pace: next, .. } =
                pace.read(|count| store.outbox(after, count)).await?;
            let Some(last) = effects.last() else { return Ok(()) };
            (after, pace) = (last.position, next);
            for OutboxEntry { source, epoch, sequence, at, effect, .. } in effects {
                if let Effect::Entity { key, .. } = &effect {
                    if !seen.contains_key(key) {
                        seen.insert(key.clone(), store.load(key).await?.marks);
                    }
                    if seen.get(key).is_some_and(|marks| has(marks, &source, epoch, sequence)) {
                        continue;
                    }
                }
                self.line(&Line::Effect { source, sequence, at, effect })?;
            }
        }
    }

    async fn entity(&mut self, store: &dyn Store, key: EntityKey) -> Result<(), TransferError> {
        let loaded = store.load(&key).await?;
        let mut marks = loaded.marks;
        marks.sort_by_key(|mark| mark.source.to_string());
        let replies =
            loaded.replies.into_iter().map(|reply| StoredReply { reply: sorted_json(&reply.reply), ..reply });
        let replies = replies.collect();
        self.line(&Line::Entity { key, at: loaded.at, timer: loaded.timer, marks, replies })
    }
}

fn has(marks: &[Mark], source: &EntityKey, epoch: Epoch, sequence: u64) -> bool {
    marks.iter().any(|mark| mark.source == *source && (mark.epoch, mark.sequence) >= (epoch, sequence))
}

fn text(line: &impl Serialize) -> Result<Vec<u8>, TransferError> {
    let mut text = serde_json::to_vec(line).map_err(std::io::Error::from)?;
    text.push(b'\n');
    Ok(text)
}
