//! A store that takes down what is committed, and passes it on.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use skein_coordinator::store::{
    Batch, Chunk, CommitError, CopyError, DeadLetter, Fence, LivePage, Loaded, OutboxEntry, OutboxPlace,
    Receipt, Record, Store, StoreError, StoredBlob, StoredDocument, TrimPlan, Trimmed, Version,
};
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;
use uuid::Uuid;

pub(crate) struct Recorder {
    store: Arc<dyn Store>,
    batches: Arc<Mutex<Vec<Batch>>>,
}

impl Recorder {
    pub(crate) fn new(store: Arc<dyn Store>, batches: Arc<Mutex<Vec<Batch>>>) -> Self {
        Self { store, batches }
    }
}

#[async_trait]
impl Store for Recorder {
    fn fence(&self, key: &EntityKey) -> Fence {
        self.store.fence(key)
    }

    fn submit(&self, fence: Fence, batch: Arc<Batch>, receipt: Receipt) {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).push((*batch).clone());
        self.store.submit(fence, batch, receipt);
    }

    async fn load(&self, key: &EntityKey) -> Result<Loaded, StoreError> {
        self.store.load(key).await
    }

    async fn live(&self, key: &EntityKey, after: &str, limit: usize) -> Result<LivePage, StoreError> {
        self.store.live(key, after, limit).await
    }

    async fn document(&self, key: &EntityKey, document: &str) -> Result<Option<StoredDocument>, StoreError> {
        self.store.document(key, document).await
    }

    async fn documents(
        &self,
        after: Option<(EntityKey, String)>,
        limit: usize,
    ) -> Result<Vec<StoredDocument>, StoreError> {
        self.store.documents(after, limit).await
    }

    async fn documents_of(
        &self,
        key: &EntityKey,
        after: &str,
        limit: usize,
    ) -> Result<Vec<StoredDocument>, StoreError> {
        self.store.documents_of(key, after, limit).await
    }

    async fn versions(&self) -> Result<Vec<(EntityKey, Version)>, StoreError> {
        self.store.versions().await
    }

    async fn records(&self, after: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.store.records(after, limit).await
    }

    async fn records_of(&self, key: &EntityKey, versions: Vec<Version>) -> Result<Vec<Record>, StoreError> {
        self.store.records_of(key, versions).await
    }

    async fn history(
        &self,
        key: &EntityKey,
        after: Version,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.store.history(key, after, limit).await
    }

    async fn last_position(&self) -> Result<u64, StoreError> {
        self.store.last_position().await
    }

    async fn timers(&self, limit: usize) -> Result<Vec<(EntityKey, Timestamp)>, StoreError> {
        self.store.timers(limit).await
    }

    async fn outbox(&self, after: u64, limit: usize) -> Result<Vec<OutboxEntry>, StoreError> {
        self.store.outbox(after, limit).await
    }

    async fn delivered(&self, effects: Vec<OutboxPlace>) -> Result<(), CommitError> {
        self.store.delivered(effects).await
    }

    async fn bury(&self, effect: OutboxPlace, reason: String, at: Timestamp) -> Result<(), CommitError> {
        self.store.bury(effect, reason, at).await
    }

    async fn dead_letters(&self, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.store.dead_letters(after, limit).await
    }

    async fn write_chunk(&self, fence: Fence, chunk: Chunk) -> Result<(), CommitError> {
        self.store.write_chunk(fence, chunk).await
    }

    async fn chunk(&self, key: &EntityKey, blob: Uuid, place: u32) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.chunk(key, blob, place).await
    }

    async fn blobs(
        &self,
        after: Option<(EntityKey, Uuid)>,
        limit: usize,
    ) -> Result<Vec<StoredBlob>, StoreError> {
        self.store.blobs(after, limit).await
    }

    async fn trim(&self, plan: TrimPlan) -> Result<Trimmed, CommitError> {
        self.store.trim(plan).await
    }

    async fn backup(&self, path: &Path) -> Result<(), CopyError> {
        self.store.backup(path).await
    }
}
