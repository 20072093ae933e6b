//! Writes lines into an empty store.

use std::collections::HashMap;
use std::io::{BufRead, Seek};
use std::pin::Pin;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use skein_shared::entity::{BlobChange, DocumentChange};
use skein_shared::id::EntityKey;
use skein_shared::json::{Json, length};
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::{FORMAT, Head, Line, Sum, Summary, TransferError, export};
use crate::store::{Batch, Chunk, CommitError, OutboxEffect, Receipt, Store, TimerChange, Version};

/// Commits under way at a time: a store writes them together.
const WINDOW: usize = 256;
/// Bytes under way at a time, unless one commit alone has more: a store may hold them twice, as they came and as it
/// writes them.
const UNDER_WAY: usize = 16 << 20;
/// Documents of one commit.
const DOCUMENTS: usize = 256;
/// How long a commit may be, bytes, unless one thing alone is longer: Redis refuses very long ones, and serves nobody
/// else meanwhile.
const BYTES: usize = 4 << 20;

/// Reads the file twice: before anything is written it is known to be whole. Then the store is exported again, to
/// nowhere, and has to give the same checksum.
///
/// # Errors
/// When the file is not whole, the store is not empty or refuses, or its epochs would not rise. What was written by
/// then stays, and nobody opens the store any more: it has to be thrown away.
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
        pen.write(parse(number, &text)?, text.len()).await?;
    }
    pen.finish().await?;
    if export(&*store, &mut std::io::sink()).await?.state != summary.state {
        return Err(TransferError::Differs);
    }
    store.mark_import(false).await?;
    Ok(summary)
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

/// Gives the bytes of a commit, and what became of it.
type Commit = Pin<Box<dyn Future<Output = (usize, Result<Version, CommitError>)> + Send>>;

/// Turns lines into commits.
struct Pen {
    store: Arc<dyn Store>,
    /// Epochs have to lie above it.
    epoch: u64,
    /// Whether something was written.
    has_begun: bool,
    /// Where each entity stands, and by which batch.
    places: HashMap<EntityKey, (Version, Uuid)>,
    /// What one entity wrote at one moment, with its length.
    gathered: Option<(Batch, usize)>,
    under_way: FuturesOrdered<Commit>,
    /// Those that are under way.
    bytes: usize,
}

impl Pen {
    fn new(store: Arc<dyn Store>, epoch: u64) -> Self {
        let (places, under_way) = (HashMap::new(), FuturesOrdered::new());
        Self { store, epoch, has_begun: false, places, gathered: None, under_way, bytes: 0 }
    }

    /// `bytes` is the length of the line.
    async fn write(&mut self, line: Line, bytes: usize) -> Result<(), TransferError> {
        match line {
            Line::Record { key, at, events } => self.commit(Batch { events, ..empty(key, at) }, bytes).await,
            Line::Document { key, document, at, live, head, body } => {
                let body = Some(Json::of(&body));
                let put =
                    DocumentChange::Put { key: document, live, head: Json::from(head), body, new: true };
                self.gather(key, at, bytes).await?.documents.push(put);
                Ok(())
            }
            Line::Chunk { key, blob, place, at, bytes: text } => {
                self.chunk(key, blob, place, at, &text).await
            }
            Line::Blob { key, blob, bytes: kept, at } => {
                let blobs = vec![BlobChange::Keep { blob, bytes: kept }];
                self.commit(Batch { blobs, ..empty(key, at) }, bytes).await
            }
            Line::DeadLetter { source, sequence, at, effect, reason, buried_at } => {
                self.gather(source, at, bytes).await?.outbox.push(OutboxEffect { sequence, effect });
                self.bury(reason, buried_at).await
            }
            Line::Effect { source, sequence, at, effect } => {
                self.gather(source, at, bytes).await?.outbox.push(OutboxEffect { sequence, effect });
                Ok(())
            }
            // A busy entity has answered and taken in more than one commit carries.
            Line::Entity { key, at, timer, marks, replies } => {
                for mark in marks {
                    self.gather(key.clone(), at, length(&mark)).await?.seen.push(mark);
                }
                for reply in replies {
                    self.gather(key.clone(), at, length(&reply)).await?.replies.push(reply);
                }
                self.gather(key, at, 0).await?.timer = timer.map_or(TimerChange::Keep, TimerChange::Set);
                Ok(())
            }
        }
    }

    /// Before the first write: from then on the store is to be filled or thrown away.
    async fn begin(&mut self) -> Result<(), TransferError> {
        if !self.has_begun {
            self.store.mark_import(true).await?;
            self.has_begun = true;
        }
        Ok(())
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
        self.begin().await?;
        let fence = self.store.fence(&key);
        Ok(self.store.write_chunk(fence, Chunk { key, blob, place, bytes, at }).await?)
    }

    /// Dead letters come before what is yet to be delivered, so the one that was just written is alone in the outbox.
    async fn bury(&mut self, reason: String, at: Timestamp) -> Result<(), TransferError> {
        self.finish().await?;
        for entry in self.store.outbox(0, WINDOW).await? {
            self.store.bury(entry.place(), reason.clone(), at).await?;
        }
        Ok(())
    }

    /// The batch that takes in what else this entity wrote at this moment, as far as it has room for so many bytes.
    async fn gather(
        &mut self,
        key: EntityKey,
        at: Timestamp,
        bytes: usize,
    ) -> Result<&mut Batch, TransferError> {
        let fits = |(batch, before): &(Batch, usize)| {
            let has_room = batch.documents.len() < DOCUMENTS && before + bytes <= BYTES;
            batch.key == key && batch.at == at && has_room
        };
        let (batch, before) = match self.gathered.take() {
            Some(gathered) if fits(&gathered) => gathered,
            other => {
                if let Some((batch, before)) = other {
                    self.send(batch, before).await?;
                }
                (empty(key, at), 0)
            }
        };
        Ok(&mut self.gathered.insert((batch, before + bytes)).0)
    }

    async fn commit(&mut self, batch: Batch, bytes: usize) -> Result<(), TransferError> {
        self.send_gathered().await?;
        self.send(batch, bytes).await
    }

    async fn send_gathered(&mut self) -> Result<(), TransferError> {
        match self.gathered.take() {
            Some((batch, bytes)) => self.send(batch, bytes).await,
            None => Ok(()),
        }
    }

    /// The store begins with it at once, so that it has work while the next lines are read.
    async fn send(&mut self, mut batch: Batch, bytes: usize) -> Result<(), TransferError> {
        let fence = self.store.fence(&batch.key);
        if fence.epoch.0 <= self.epoch {
            return Err(TransferError::Clock(self.epoch - fence.epoch.0 + 1));
        }
        self.begin().await?;
        while !self.has_room(bytes) {
            self.settle_one().await?;
        }
        let (version, last) = self.places.entry(batch.key.clone()).or_default();
        (batch.expected, batch.after) = (*version, *last);
        (*version, *last) = (Version(version.0 + 1), batch.id);
        let (receipt, outcome) = Receipt::awaited();
        self.store.submit(fence, Arc::new(batch), receipt);
        self.bytes += bytes;
        self.under_way.push_back(Box::pin(async move { (bytes, outcome.await) }));
        Ok(())
    }

    fn has_room(&self, bytes: usize) -> bool {
        let fits = self.under_way.len() < WINDOW && self.bytes + bytes <= UNDER_WAY;
        fits || self.under_way.is_empty()
    }

    async fn settle_one(&mut self) -> Result<(), TransferError> {
        let Some((bytes, outcome)) = self.under_way.next().await else { return Ok(()) };
        self.bytes -= bytes;
        outcome?;
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), TransferError> {
        self.send_gathered().await?;
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
