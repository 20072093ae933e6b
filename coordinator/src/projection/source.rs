//! The store as the thread that writes the read side reads it: pages ahead of what is written, and after those who go
//! first.

use std::collections::HashMap;
use std::sync::Arc;

use skein_shared::id::EntityKey;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::broken::Broken;
use super::gate::Gate;
use super::origin::Tip;
use crate::store::pace::{Pace, Page};
use crate::store::{Fence, Record, Store, StoreError, StoredDocument, Version};

/// The store, read from a thread that may wait.
pub(super) struct Source {
    pub(super) store: Arc<dyn Store>,
    pub(super) runtime: Handle,
    /// Those who hold it read first.
    pub(super) gate: Arc<Gate>,
}

/// A page that is being read.
pub(super) type Reading<T> = JoinHandle<Result<Page<T>, StoreError>>;

impl Source {
    /// Whether an entity is another process' to decide for, or about to be.
    pub(super) fn is_given_up(&self, key: &EntityKey) -> bool {
        self.store.fence(key) == Fence::NONE
    }

    pub(super) fn versions(&self) -> Result<HashMap<EntityKey, Version>, StoreError> {
        Ok(self.runtime.block_on(self.store.versions())?.into_iter().collect())
    }

    pub(super) fn documents(
        &self,
        pace: Pace,
        after: Option<(EntityKey, String)>,
    ) -> Reading<StoredDocument> {
        let store = Arc::clone(&self.store);
        self.runtime.spawn(async move { pace.read(|count| store.documents(after.clone(), count)).await })
    }

    pub(super) fn records(&self, pace: Pace, after: Option<(EntityKey, u64)>) -> Reading<Record> {
        let store = Arc::clone(&self.store);
        self.runtime.spawn(async move { pace.read(|count| store.own_records(after.clone(), count)).await })
    }

    pub(super) fn documents_of(&self, pace: Pace, key: &EntityKey, after: &str) -> Reading<StoredDocument> {
        let (store, key, after) = (Arc::clone(&self.store), key.clone(), after.to_owned());
        self.runtime.spawn(async move { pace.read(|count| store.documents_of(&key, &after, count)).await })
    }

    pub(super) fn history(&self, pace: Pace, key: &EntityKey, after: Version) -> Reading<Record> {
        let (store, key) = (Arc::clone(&self.store), key.clone());
        self.runtime.spawn(async move { pace.read(|count| store.history(&key, after, count)).await })
    }

    /// Whether the store has this very commit.
    pub(super) fn has(&self, tip: &Tip) -> Result<bool, StoreError> {
        let found = self.runtime.block_on(self.store.records_of(&tip.key, vec![tip.version]))?;
        Ok(found.iter().any(|record| record.at == tip.at))
    }

    /// The page, once nobody goes first any more.
    pub(super) fn finish<T>(&self, reading: Reading<T>) -> Result<Page<T>, Broken> {
        // A task is only dropped when the runtime ends.
        let page = self.runtime.block_on(reading).map_err(|_| Broken::Closed)??;
        self.gate.pass();
        Ok(page)
    }
}
