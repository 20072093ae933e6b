//! Where the truth is kept. Every backend passes the same conformance suite ([`conformance`]).
//!
//! Only `entity`, `projection`, `outbox`, `cluster` and `cli/transfer` may touch a store.

pub mod conformance;
pub mod memory;
pub(crate) mod pace;
mod receipt;
pub mod redis;
pub mod sqlite;
pub mod transfer;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
pub use receipt::Receipt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use skein_shared::entity::{BlobChange, DocumentChange, Effect, LiveDocument};
use skein_shared::fence::Epoch;
use skein_shared::id::EntityKey;
use skein_shared::json::Json;
use skein_shared::time::Timestamp;
use uuid::Uuid;

/// How many batches an entity has committed. Zero before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub u64);

/// Who writes an entity. A distributed store has a fence for each of its shards; the embedded one has a single
/// permanent owner and takes a new epoch at every start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    pub epoch: Epoch,
    pub nonce: u64,
}

impl Fence {
    /// The fence of nobody: no store has given it out, so every write under it is refused.
    pub const NONE: Fence = Fence { epoch: Epoch(0), nonce: 0 };
}

/// Everything that one commit writes: all of it, or nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Batch {
    pub key: EntityKey,
    /// The version that the deciding state stands at.
    pub expected: Version,
    /// The batch that made that version; nil for the first. The version alone does not tell: while one batch is refused
    /// because somebody else's was taken in its place, the one behind it names a version that is there by now.
    pub after: Uuid,
    /// Sending the same batch again commits it once.
    pub id: Uuid,
    pub at: Timestamp,
    pub documents: Vec<DocumentChange>,
    /// Events, marks and replies share one record (a row each would halve the rate).
    pub events: Vec<EventRecord>,
    pub seen: Vec<Mark>,
    pub replies: Vec<StoredReply>,
    pub timer: TimerChange,
    pub outbox: Vec<OutboxEffect>,
    /// Blobs that can be read from now on, or not any more. Of what is kept all chunks have to be there.
    pub blobs: Vec<BlobChange>,
}

impl Batch {
    /// Roughly how long it is, bytes: its texts, and what stands around each.
    pub(crate) fn weight(&self) -> usize {
        let documents = self.documents.iter().map(DocumentChange::length);
        let events = self.events.iter().map(|event| event.body.text().len());
        let replies = self.replies.iter().map(|reply| reply.reply.text().len());
        let effects = self.outbox.iter().map(|entry| match &entry.effect {
            Effect::Entity { command, .. } => command.text().len(),
            // There are few of these.
            Effect::Runner { .. } | Effect::Slack { .. } => 0,
        });
        documents.chain(events).chain(replies).chain(effects).map(|text| 128 + text).sum()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventRecord {
    /// What the event is about: a task's, lock's, call's … id.
    pub subject: Option<String>,
    pub body: Json,
}

/// How far the deliveries of one source entity have been taken in. Ordered by epoch, then sequence, so that
/// a source that was rolled back does not reuse a mark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub source: EntityKey,
    pub epoch: Epoch,
    pub sequence: u64,
}

/// The answer to a request, kept for its repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredReply {
    pub request: Uuid,
    /// A digest of the command: the same request with other arguments is refused.
    pub digest: u64,
    pub at: Timestamp,
    pub reply: Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimerChange {
    Keep,
    Set(Timestamp),
    Clear,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutboxEffect {
    /// Rises by one with every effect of the entity.
    pub sequence: u64,
    pub effect: Effect,
}

/// An entity as it is taken into memory.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    pub version: Version,
    /// The last batch; nil before the first.
    pub batch: Uuid,
    /// The time of the last commit.
    pub at: Timestamp,
    /// The last outbox sequence that was given out.
    pub sequence: u64,
    /// The first [`LIVE_PAGE`] live documents, in the order of their keys; [`Store::live`] has the others.
    pub live: Vec<LiveDocument>,
    pub marks: Vec<Mark>,
    /// Those that may still be asked for ([`skein_shared::limits::REPLY_KEEP`]), oldest first.
    pub replies: Vec<StoredReply>,
    pub timer: Option<Timestamp>,
}

/// Live documents of an entity, and where it stood when they were read: pages of one version belong together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LivePage {
    pub version: Version,
    /// The last batch; nil before the first.
    pub batch: Uuid,
    pub documents: Vec<LiveDocument>,
}

/// Live documents that are read at once. Nearly every entity has fewer; a pool may have a million, of which only
/// a page at a time is in memory twice.
pub const LIVE_PAGE: usize = 2048;

/// A document as the read side gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredDocument {
    pub key: EntityKey,
    pub document: String,
    pub live: bool,
    pub head: Value,
    /// An object; empty if no body was ever put.
    pub body: Value,
    /// The entity's version whose batch last wrote the document: of two copies the higher is the later one.
    pub version: Version,
    /// When that batch was committed.
    pub at: Timestamp,
}

/// The record of one committed batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Rises over all entities of this store; a cursor for feeds.
    pub position: u64,
    pub key: EntityKey,
    pub version: Version,
    pub at: Timestamp,
    pub events: Vec<EventRecord>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OutboxEntry {
    /// Rises over all entities of this store: entries of one source come in their order.
    pub position: u64,
    pub source: EntityKey,
    /// The epoch under which the effect was committed.
    pub epoch: Epoch,
    pub sequence: u64,
    pub at: Timestamp,
    pub effect: Effect,
    /// Who owned the source when this was read; [`Fence::NONE`] where the store has a single owner.
    pub fence: Fence,
}

impl OutboxEntry {
    /// Where the store finds it again.
    pub fn place(&self) -> OutboxPlace {
        OutboxPlace { source: self.source.clone(), position: self.position, fence: self.fence }
    }
}

/// Names an effect in the outbox, as it was read under a fence. Where the store has lost what it acknowledged, the
/// delivery may be lost too and the position be another effect's, so nothing is taken out under a later fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxPlace {
    pub source: EntityKey,
    pub position: u64,
    pub fence: Fence,
}

/// An effect that could not be delivered.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetter {
    pub entry: OutboxEntry,
    pub reason: String,
    pub buried_at: Timestamp,
}

/// A piece of a blob, which nobody can read before a commit keeps the blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub key: EntityKey,
    pub blob: Uuid,
    /// Counted from zero.
    pub place: u32,
    /// At most [`skein_shared::limits::CHUNK`]; all but the last have as many.
    pub bytes: Vec<u8>,
    pub at: Timestamp,
}

/// A blob that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBlob {
    pub key: EntityKey,
    pub blob: Uuid,
    pub bytes: u64,
    /// When the batch that keeps it was committed.
    pub at: Timestamp,
}

/// What may be forgotten. Replies and marks that [`Loaded`] needs outlive the events they came with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TrimPlan {
    /// When it was made. What is dated later was written by a clock that was ahead.
    pub now: Timestamp,
    /// Records older than this lose their events.
    pub events_before: Timestamp,
    /// And of each entity at most this many newest records keep theirs.
    pub events_per_entity: u64,
    /// Replies older than this are forgotten.
    pub replies_before: Timestamp,
    /// Marks that last moved before this are forgotten. It must lie before every effect that could still be
    /// delivered ([`skein_shared::limits::EFFECT_EXPIRY`]), or a repeat of it would be taken for a new one.
    pub marks_before: Timestamp,
    /// Documents that are not live and were last written before this are removed.
    pub archived_before: Timestamp,
    pub dead_letters_before: Timestamp,
    /// Chunks that no commit has kept, and that were written before this, are removed.
    pub loose_before: Timestamp,
    /// At most this many of each sort in one step, so that a trim never holds up the writer for long.
    pub limit: usize,
}

/// What one step forgot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Records that lost their events.
    pub records: u64,
    /// Records that lost their replies.
    pub replies: u64,
    pub marks: u64,
    pub documents: u64,
    pub dead_letters: u64,
    /// Blobs whose chunks nobody kept.
    pub loose: u64,
}

impl Trimmed {
    /// Whether the plan left nothing to do.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Why a commit did not happen, or may have happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    #[error("this process does not own the entity any more (its epoch is {0} now); load it anew")]
    Fenced(Epoch),
    /// Also when it stands at the version by another batch.
    #[error("the entity stands at version {}, not where the decision was made", .actual.0)]
    Conflict { actual: Version },
    /// Send the same batch again until there is a definite answer.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// Nothing was written.
    #[error("the store refused the write: {0}")]
    Failed(String),
}

impl CommitError {
    /// Nothing was written, because a blob was to be kept whose chunks are not all there.
    fn incomplete(blob: impl std::fmt::Display) -> Self {
        Self::Failed(format!("not all chunks of the blob {blob} are there; write them again"))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store cannot be read: {0}")]
pub struct StoreError(pub String);

/// Why there is no copy of the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// A store of this kind is copied in another way, which the sentence names.
    #[error("{0}")]
    AnotherWay(String),
    #[error("{0}")]
    Failed(String),
}

/// The store of record.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The fence under which this process writes an entity. Whoever decides for the entity takes it before loading
    /// and commits under it: if the store has taken a new one since, what was loaded is out of date. [`Fence::NONE`]
    /// when the entity is another process' to decide for.
    fn fence(&self, key: &EntityKey) -> Fence;

    /// Applies one batch and says what became of it when it is durable. The same batch again gives its version and
    /// changes nothing, for as long as it is the entity's last one. Batches of one entity that are under way together
    /// are applied in the order in which they were submitted; their receipts may be given in another. Never waits:
    /// whoever submits lets no more than some batches of an entity be under way.
    fn submit(&self, fence: Fence, batch: Arc<Batch>, receipt: Receipt);

    /// Submits a batch and waits for what becomes of it.
    async fn commit(&self, fence: Fence, batch: Arc<Batch>) -> Result<Version, CommitError> {
        let (receipt, outcome) = Receipt::awaited();
        self.submit(fence, batch, receipt);
        outcome.await
    }

    /// Takes an entity into memory; an entity that was never written is empty.
    async fn load(&self, key: &EntityKey) -> Result<Loaded, StoreError>;

    /// Live documents of an entity after the given one, in the byte order of their keys.
    async fn live(&self, key: &EntityKey, after: &str, limit: usize) -> Result<LivePage, StoreError>;

    /// The live documents behind the first page of an entity, which ends with the given one: pages of [`LIVE_PAGE`] up
    /// to the one with fewer, behind which nothing is to be asked for. Where that saves time some are read ahead.
    fn rest<'a>(&'a self, key: &'a EntityKey, last: String) -> BoxStream<'a, Result<LivePage, StoreError>> {
        let next = move |after: Option<String>| async move {
            let Some(after) = after else { return Ok(None) };
            let page = self.live(key, &after, LIVE_PAGE).await?;
            let last = page.documents.last().filter(|_| page.documents.len() == LIVE_PAGE);
            let after = last.map(|last| last.key.clone());
            Ok::<_, StoreError>(Some((page, after)))
        };
        stream::try_unfold(Some(last), next).boxed()
    }

    /// Reads one document, head and body.
    async fn document(&self, key: &EntityKey, document: &str) -> Result<Option<StoredDocument>, StoreError>;

    /// Documents after the given one, for rebuilding the read side, of the entities that are this process' own: in the
    /// byte order of the entity key's text, then of the document's key.
    async fn documents(
        &self,
        after: Option<(EntityKey, String)>,
        limit: usize,
    ) -> Result<Vec<StoredDocument>, StoreError>;

    /// Documents of one entity after the given one, in the byte order of their keys. Fewer than `limit` are the last.
    async fn documents_of(
        &self,
        key: &EntityKey,
        after: &str,
        limit: usize,
    ) -> Result<Vec<StoredDocument>, StoreError>;

    /// Every entity that is this process' own, with its version.
    async fn versions(&self) -> Result<Vec<(EntityKey, Version)>, StoreError>;

    /// Every entity, whosever it is.
    async fn entities(&self) -> Result<Vec<EntityKey>, StoreError> {
        Ok(self.versions().await?.into_iter().map(|(key, _)| key).collect())
    }

    /// Records after a position, oldest first. A batch without events is not among them, nor one whose
    /// events were trimmed.
    async fn records(&self, after: u64, limit: usize) -> Result<Vec<Record>, StoreError>;

    /// The records of this process' own entities, each once: those after one, which its entity and its position name.
    /// They come in an order in which the store has them at hand, and each entity's by version.
    async fn own_records(
        &self,
        after: Option<(EntityKey, u64)>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.records(after.map_or(0, |(_, position)| position), limit).await
    }

    /// The newest records, oldest first: so many, or those of so many batches.
    async fn newest_records(&self, limit: usize) -> Result<Vec<Record>, StoreError> {
        // Each position is a batch's.
        let last = self.last_position().await?;
        self.records(last.saturating_sub(limit as u64), limit).await
    }

    /// The records of an entity's batches with these versions, by version. Those without events, or whose events
    /// were trimmed, are left out.
    async fn records_of(&self, key: &EntityKey, versions: Vec<Version>) -> Result<Vec<Record>, StoreError>;

    /// The records of an entity's batches after a version, by version. Those without events, or whose events were
    /// trimmed, are left out, however many they are. Fewer than `limit` are the last.
    async fn history(&self, key: &EntityKey, after: Version, limit: usize)
    -> Result<Vec<Record>, StoreError>;

    /// The position of the newest record, with or without events; zero before the first.
    async fn last_position(&self) -> Result<u64, StoreError>;

    /// The earliest timers of this process' own entities, due or not, with their times.
    async fn timers(&self, limit: usize) -> Result<Vec<(EntityKey, Timestamp)>, StoreError>;

    /// Undelivered effects of this process' own entities after a position, oldest first.
    async fn outbox(&self, after: u64, limit: usize) -> Result<Vec<OutboxEntry>, StoreError>;

    /// Removes delivered effects. Losing this leads to a repeat, which the receiver's marks make harmless.
    /// Like the other upkeep below, it is done under the fence that the store holds now.
    async fn delivered(&self, effects: Vec<OutboxPlace>) -> Result<(), CommitError>;

    /// Moves an effect to the dead letters. One that is not in the outbox (any more) is left alone.
    async fn bury(&self, effect: OutboxPlace, reason: String, at: Timestamp) -> Result<(), CommitError>;

    async fn dead_letters(&self, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError>;

    /// Writes a chunk of a blob, and answers when a commit can rely on it. The same chunk again changes nothing, and
    /// neither does one of a blob that is kept.
    async fn write_chunk(&self, fence: Fence, chunk: Chunk) -> Result<(), CommitError>;

    /// A chunk of a blob that is kept, whosever the entity is.
    async fn chunk(&self, key: &EntityKey, blob: Uuid, place: u32) -> Result<Option<Vec<u8>>, StoreError>;

    /// The blobs of this process' own entities that are kept, after the given one: in the byte order of the entity
    /// key's text, then of the blob's id.
    async fn blobs(
        &self,
        after: Option<(EntityKey, Uuid)>,
        limit: usize,
    ) -> Result<Vec<StoredBlob>, StoreError>;

    /// Forgets what the plan names, in one small step. Call again while something was trimmed.
    async fn trim(&self, plan: TrimPlan) -> Result<Trimmed, CommitError>;

    /// Notes that an import is filling the store, or that it has: meanwhile nobody opens it, for a part of a store
    /// would pass for a whole one. One that ends with its process has nothing to note.
    async fn mark_import(&self, _under_way: bool) -> Result<(), CommitError> {
        Ok(())
    }

    /// Writes a consistent copy while the store is in use. The file must not exist yet.
    async fn backup(&self, path: &Path) -> Result<(), CopyError>;
}
