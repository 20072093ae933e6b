//! Writes lines into an empty store.

use std::collections::HashMap;
use std::io::{BufRead, Seek};
use std::pin::Pin;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use skein_shared::entity::{BlobChange, DocumentChange, Effect};
use skein_shared::id::EntityKey;
use skein_shared::json::Json;
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::{FORMAT, Head, Line, Sum, Summary, TransferError, export};
use crate::store::{Batch, Chunk, CommitError, OutboxEffect, Store, TimerChange, Version};

/// Commits under way at a time: a store writes them together.
const WINDOW: usize = 256;
/// Documents of one commit.
const DOCUMENTS: usize = 256;

/// Reads the file twice: before anything is written it is known to be whole. Then the store is exported again, to
/// nowhere, and has to give the same checksum.
///
/// # Errors
/// When the file is not whole, the store is not empty or refuses, or its epochs would not rise. What was written by
/// then stays: the store has to be thrown away.
pub async fn import<F: BufRead + Seek + Send>(
    store: Arc<dyn Store>,
    file: &mut F,
) -> Result<Summary, TransferError> {
    let (head, summary) = check(file)?;
    if !store.versions().await?.is_empty() {
        return Err(TransferError::NotEmpty);
    }
    file.rewind()?;
    let mut pen = Pen::new(Arc::clone(&store), head.epoch);
    let mut lines = Lines::new(file);
    lines.next()?;
    for _ in 0..summary.lines {
        let (number, text) = lines.next()?.ok_or(TransferError::Checksum)?;
        pen.write(parse(number, &text)?).await?;
    }
    pen.finish().await?;
    match export(&*store, &mut std::io::sink()).await?.state == summary.state {
        true => Ok(summary),
        false => Err(TransferError::Differs),
    }
}

/// Whether the file is as it was written.
fn check(file: &mut impl BufRead) -> Result<(Head, Summary), TransferError> {
    let mut lines = Lines::new(file);
    let (number, first) = lines.next()?.ok_or(TransferError::Checksum)?;
    let head: Head = parse(number, &first)?;
    if head.format != FORMAT {
        let problem = format!("it is `{}`; this program reads `{FORMAT}`", head.format);
        return Err(TransferError::Format { line: number, problem });
    }
    let mut sum = Sum::default();
    sum.head(&first);
    let mut held = lines.next()?;
    while let Some((_, text)) = held {
        held = lines.next()?;
        if held.is_some() {
            sum.line(&text);
            continue;
        }
        let last: Summary = serde_json::from_slice(&text).map_err(|_| TransferError::Checksum)?;
        return if last == sum.finish() { Ok((head, last)) } else { Err(TransferError::Checksum) };
    }
    Err(TransferError::Checksum)
}

/// The file, line by line.
struct Lines<'a, F> {
    file: &'a mut F,
    number: u64,
}

impl<'a, F: BufRead> Lines<'a, F> {
    fn new(file: &'a mut F) -> Self {
        Self { file, number: 0 }
    }

    /// The next line with its number and its end.
    fn next(&mut self) -> std::io::Result<Option<(u64, Vec<u8>)>> {
        let mut text = Vec::new();
        self.number += 1;
        let read = self.file.read_until(b'\n', &mut text)?;
        Ok((read > 0).then_some((self.number, text)))
    }
}

fn parse<T: serde::de::DeserializeOwned>(line: u64, text: &[u8]) -> Result<T, TransferError> {
    serde_json::from_slice(text).map_err(|error| TransferError::Format { line, problem: error.to_string() })
}

type Commit = Pin<Box<dyn Future<Output = Result<Version, CommitError>> + Send>>;

/// Turns lines into commits.
struct Pen {
    store: Arc<dyn Store>,
    /// Epochs have to lie above it.
    epoch: u64,
    /// Where each entity stands, and by which batch.
    places: HashMap<EntityKey, (Version, Uuid)>,
    /// Documents or effects of one entity and one moment.
    gathered: Option<Batch>,
    under_way: FuturesOrdered<Commit>,
}

impl Pen {
    fn new(store: Arc<dyn Store>, epoch: u64) -> Self {
        Self { store, epoch, places: HashMap::new(), gathered: None, under_way: FuturesOrdered::new() }
    }

    async fn write(&mut self, line: Line) -> Result<(), TransferError> {
        match line {
            Line::Record { key, at, events } => self.commit(Batch { events, ..empty(key, at) }).await,
            Line::Document { key, document, at, live, head, body } => {
                let body = Some(Json::of(&body));
                let put =
                    DocumentChange::Put { key: document, live, head: Json::from(head), body, new: true };
                self.gather(key, at).await?.documents.push(put);
                Ok(())
            }
            Line::Chunk { key, blob, place, at, bytes } => self.chunk(key, blob, place, at, &bytes).await,
            Line::Blob { key, blob, bytes, at } => {
                let blobs = vec![BlobChange::Keep { blob, bytes }];
                self.commit(Batch { blobs, ..empty(key, at) }).await
            }
            Line::DeadLetter { source, sequence, at, effect, reason, buried_at } => {
                self.effect(source, sequence, at, effect).await?;
                self.bury(reason, buried_at).await
            }
            Line::Effect { source, sequence, at, effect } => self.effect(source, sequence, at, effect).await,
            Line::Entity { key, at, timer, marks, replies } => {
                let timer = timer.map_or(TimerChange::Keep, TimerChange::Set);
                self.commit(Batch { seen: marks, replies, timer, ..empty(key, at) }).await
            }
        }
    }

    async fn chunk(
        &mut self,
        key: EntityKey,
        blob: Uuid,
        place: u32,
        at: Timestamp,
        text: &str,
    ) -> Result<(), TransferError> {
        let bytes = STANDARD.decode(text).map_err(|_| TransferError::Checksum)?;
        let fence = self.store.fence(&key);
        Ok(self.store.write_chunk(fence, Chunk { key, blob, place, bytes, at }).await?)
    }

    async fn effect(
        &mut self,
        source: EntityKey,
        sequence: u64,
        at: Timestamp,
        effect: Effect,
    ) -> Result<(), TransferError> {
        self.gather(source, at).await?.outbox.push(OutboxEffect { sequence, effect });
        Ok(())
    }

    /// Dead letters come before what is yet to be delivered, so the one that was just written is alone in the outbox.
    async fn bury(&mut self, reason: String, at: Timestamp) -> Result<(), TransferError> {
        self.finish().await?;
        for entry in self.store.outbox(0, WINDOW).await? {
            self.store.bury(entry.place(), reason.clone(), at).await?;
        }
        Ok(())
    }

    /// The batch that takes in what else this entity wrote at this moment.
    async fn gather(&mut self, key: EntityKey, at: Timestamp) -> Result<&mut Batch, TransferError> {
        let fits = |batch: &Batch| batch.key == key && batch.at == at && batch.documents.len() < DOCUMENTS;
        let batch = match self.gathered.take() {
            Some(batch) if fits(&batch) => batch,
            other => {
                if let Some(batch) = other {
                    self.send(batch).await?;
                }
                empty(key, at)
            }
        };
        Ok(self.gathered.insert(batch))
    }

    async fn commit(&mut self, batch: Batch) -> Result<(), TransferError> {
        if let Some(before) = self.gathered.take() {
            self.send(before).await?;
        }
        self.send(batch).await
    }

    async fn send(&mut self, mut batch: Batch) -> Result<(), TransferError> {
        let fence = self.store.fence(&batch.key);
        if fence.epoch.0 <= self.epoch {
            return Err(TransferError::Clock(self.epoch - fence.epoch.0 + 1));
        }
        while self.under_way.len() >= WINDOW {
            self.settle_one().await?;
        }
        let (version, last) = self.places.entry(batch.key.clone()).or_default();
        (batch.expected, batch.after) = (*version, *last);
        (*version, *last) = (Version(version.0 + 1), batch.id);
        let store = Arc::clone(&self.store);
        self.under_way.push_back(Box::pin(async move { store.commit(fence, Arc::new(batch)).await }));
        Ok(())
    }

    async fn settle_one(&mut self) -> Result<(), TransferError> {
        match self.under_way.next().await {
            Some(outcome) => Ok(outcome.map(|_| ())?),
            None => Ok(()),
        }
    }

    async fn finish(&mut self) -> Result<(), TransferError> {
        if let Some(batch) = self.gathered.take() {
            self.send(batch).await?;
        }
        while !self.under_way.is_empty() {
            self.settle_one().await?;
        }
        Ok(())
    }
}

fn empty(key: EntityKey, at: Timestamp) -> Batch {
    Batch {
        key,
        expected: Version(0),
        after: Uuid::nil(),
        id: Uuid::now_v7(),
        at,
        documents: Vec::new(),
        events: Vec::new(),
        seen: Vec::new(),
        replies: Vec::new(),
        timer: TimerChange::Keep,
        outbox: Vec::new(),
        blobs: Vec::new(),
    }
}
