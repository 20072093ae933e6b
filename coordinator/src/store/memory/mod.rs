//! The store in memory, for tests and simulation: the semantics of the others, nothing on disk, and faults by
//! script ([`faults`]).

mod blobs;
mod faults;
mod state;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures::FutureExt;
use skein_shared::fence::Epoch;
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::{
    Batch, Chunk, CommitError, CopyError, DeadLetter, Fence, LivePage, Loaded, OutboxEntry, OutboxPlace,
    Receipt, Record, Store, StoreError, StoredBlob, StoredDocument, TrimPlan, Trimmed, Version,
};
pub use faults::{Fault, Faults, Gate};
pub use state::State;

/// One owner's access to contents that outlive it.
#[derive(Clone)]
pub struct Memory {
    fence: Fence,
    contents: Contents,
}

/// What would be on the disk. Every owner that opens it fences the one before.
#[derive(Clone, Default)]
pub struct Contents {
    state: Arc<Mutex<State>>,
    faults: Faults,
    /// Commits of one entity take effect in the order in which they were asked for, also behind a slow one.
    turns: Arc<Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>>,
    outbox_read: Arc<AtomicU64>,
    read: Arc<Mutex<Read>>,
    closed: Arc<AtomicBool>,
}

/// What was read of documents and records, a page at a time, and how often it was asked how all entities stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    pub surveys: usize,
    pub pages: usize,
    pub documents: usize,
    pub records: usize,
}

/// The contents at one moment, to roll back to.
#[derive(Clone)]
pub struct Snapshot(State);

impl Contents {
    /// Opens the contents under a new epoch.
    pub fn open(&self, wall: Timestamp) -> Memory {
        let mut state = self.lock();
        let last = state.fence;
        let epoch = match last {
            Some(last) => Epoch(wall.0.max(last.epoch.0 + 1)),
            None => Epoch(wall.0),
        };
        // The nonce only has to differ from those of other owners; a count keeps simulations repeatable.
        let fence = Fence { epoch, nonce: last.map_or(0, |last| last.nonce + 1) };
        state.fence = Some(fence);
        Memory { fence, contents: self.clone() }
    }

    /// The script of faults that the next commits meet.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// From now on nothing new begins: its owner gives it away. What is under way is taken.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// From now on another process owns this entity.
    pub fn lose(&self, key: &EntityKey) {
        self.lock().elsewhere.insert(key.clone());
    }

    /// It is this one's again.
    pub fn take(&self, key: &EntityKey) {
        self.lock().elsewhere.remove(key);
    }

    /// How many effects were read from the outbox so far, repeats included.
    pub fn outbox_read(&self) -> u64 {
        self.outbox_read.load(Ordering::Relaxed)
    }

    /// What was read so far of documents and records, repeats included.
    pub fn read(&self) -> Read {
        *self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, documents: usize, records: usize) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.pages += 1;
        read.documents += documents;
        read.records += records;
    }

    /// How many effects are in the outbox.
    pub fn outbox_len(&self) -> usize {
        self.lock().outbox_len()
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.lock().clone())
    }

    /// Loses everything since the snapshot, acknowledged or not, as a failover to a replica that lags does.
    pub fn roll_back(&self, snapshot: Snapshot) {
        *self.lock() = snapshot.0;
    }

    fn turn(&self, key: &EntityKey) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(turns.entry(key.to_string()).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    /// A new, empty store.
    pub fn new(wall: Timestamp) -> Self {
        Contents::default().open(wall)
    }

    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Runs a write if the fence still holds.
    fn write<T>(
        &self,
        fence: Fence,
        work: impl FnOnce(&mut State) -> Result<T, CommitError>,
    ) -> Result<T, CommitError> {
        let mut state = self.contents.lock();
        match state.fence {
            Some(stored) if stored == fence => work(&mut state),
            stored => Err(CommitError::Fenced(stored.unwrap_or_default().epoch)),
        }
    }

    /// Takes in a batch whose turn it is, with the fault that it meets.
    async fn take(&self, fence: Fence, batch: &Batch) -> Result<Version, CommitError> {
        match self.contents.faults.next() {
            None => {}
            Some(Fault::Refused) => {
                return Err(CommitError::Failed("the script refuses this write".to_owned()));
            }
            Some(Fault::RequestLost) => return Err(faults::unknown()),
            Some(Fault::AnswerLost) => {
                return self.write(fence, |state| state.commit(fence, batch)).and(Err(faults::unknown()));
            }
            Some(Fault::Slow(gate)) => gate.passed().await,
            Some(Fault::ThenUnreadable) => self.contents.faults.refuse_reads(),
        }
        self.write(fence, |state| state.commit(fence, batch))
    }
}

#[async_trait]
impl Store for Memory {
    fn fence(&self, key: &EntityKey) -> Fence {
        let is_given_up =
            self.contents.closed.load(Ordering::Acquire) || self.contents.lock().elsewhere.contains(key);
        if is_given_up { Fence::NONE } else { self.fence }
    }

    fn submit(&self, fence: Fence, batch: Arc<Batch>, receipt: Receipt) {
        let (memory, mut turn) = (self.clone(), Box::pin(self.contents.turn(&batch.key).lock_owned()));
        // Whoever is polled has a place among those who wait for their turn.
        let taken = (&mut turn).now_or_never();
        tokio::spawn(async move {
            let _turn = match taken {
                Some(turn) => turn,
                None => turn.await,
            };
            receipt.give(memory.take(fence, &batch).await);
        });
    }

    async fn load(&self, key: &EntityKey) -> Result<Loaded, StoreError> {
        Ok(self.contents.lock().load(key))
    }

    async fn live(&self, key: &EntityKey, after: &str, limit: usize) -> Result<LivePage, StoreError> {
        Ok(self.contents.lock().live_page(key, after, limit))
    }

    async fn document(&self, key: &EntityKey, document: &str) -> Result<Option<StoredDocument>, StoreError> {
        if self.contents.faults.are_reads_refused() {
            return Err(StoreError("the script refuses this read".to_owned()));
        }
        Ok(self.contents.lock().document(key, document))
    }

    async fn documents(
        &self,
        after: Option<(EntityKey, String)>,
        limit: usize,
    ) -> Result<Vec<StoredDocument>, StoreError> {
        let page = self.contents.lock().documents(after, limit);
        self.contents.count(page.len(), 0);
        Ok(page)
    }

    async fn documents_of(
        &self,
        key: &EntityKey,
        after: &str,
        limit: usize,
    ) -> Result<Vec<StoredDocument>, StoreError> {
        let page = self.contents.lock().documents_of(key, after, limit);
        self.contents.count(page.len(), 0);
        Ok(page)
    }

    async fn versions(&self) -> Result<Vec<(EntityKey, Version)>, StoreError> {
        self.contents.read.lock().unwrap_or_else(PoisonError::into_inner).surveys += 1;
        Ok(self.contents.lock().versions())
    }

    async fn records(&self, after: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        let page = self.contents.lock().records(after, limit);
        self.contents.count(0, page.len());
        Ok(page)
    }

    async fn own_records(
        &self,
        after: Option<(EntityKey, u64)>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let page = self.contents.lock().own_records(after.map_or(0, |(_, position)| position), limit);
        self.contents.count(0, page.len());
        Ok(page)
    }

    async fn records_of(&self, key: &EntityKey, versions: Vec<Version>) -> Result<Vec<Record>, StoreError> {
        let found = self.contents.lock().records_of(key, &versions);
        self.contents.count(0, found.len());
        Ok(found)
    }

    async fn history(
        &self,
        key: &EntityKey,
        after: Version,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let page = self.contents.lock().history(key, after, limit);
        self.contents.count(0, page.len());
        Ok(page)
    }

    async fn last_position(&self) -> Result<u64, StoreError> {
        Ok(self.contents.lock().last_position())
    }

    async fn timers(&self, limit: usize) -> Result<Vec<(EntityKey, Timestamp)>, StoreError> {
        Ok(self.contents.lock().timers(limit))
    }

    async fn outbox(&self, after: u64, limit: usize) -> Result<Vec<OutboxEntry>, StoreError> {
        let page = self.contents.lock().outbox(after, limit);
        self.contents.outbox_read.fetch_add(page.len() as u64, Ordering::Relaxed);
        Ok(page)
    }

    async fn delivered(&self, effects: Vec<OutboxPlace>) -> Result<(), CommitError> {
        self.write(self.fence, |state| {
            state.delivered(effects.iter().map(|effect| effect.position));
            Ok(())
        })
    }

    async fn bury(&self, effect: OutboxPlace, reason: String, at: Timestamp) -> Result<(), CommitError> {
        self.write(self.fence, |state| {
            state.bury(effect.position, reason, at);
            Ok(())
        })
    }

    async fn dead_letters(&self, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        Ok(self.contents.lock().dead_letters(after, limit))
    }

    async fn write_chunk(&self, fence: Fence, chunk: Chunk) -> Result<(), CommitError> {
        self.write(fence, |state| {
            state.write_chunk(&chunk);
            Ok(())
        })
    }

    async fn chunk(&self, key: &EntityKey, blob: Uuid, place: u32) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.contents.lock().chunk(key, blob, place))
    }

    async fn blobs(
        &self,
        after: Option<(EntityKey, Uuid)>,
        limit: usize,
    ) -> Result<Vec<StoredBlob>, StoreError> {
        Ok(self.contents.lock().blobs(after, limit))
    }

    async fn trim(&self, plan: TrimPlan) -> Result<Trimmed, CommitError> {
        self.write(self.fence, |state| Ok(state.trim(&plan)))
    }

    async fn backup(&self, _path: &Path) -> Result<(), CopyError> {
        let way = "the store in memory has no file to copy; use the sqlite store";
        Err(CopyError::AnotherWay(way.to_owned()))
    }
}

#[cfg(test)]
mod tests;
