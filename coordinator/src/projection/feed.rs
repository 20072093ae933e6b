//! The thread that writes the read side: it builds the file from the store, then follows the commits.
//!
//! While it builds, commits wait in the queue. Pages of documents are read at different moments, so some are
//! newer than the entity's version noted at the beginning. What keeps this right is that each row carries the
//! version that last wrote it, and that a reported change applies only to a row older than itself:
//! - a change up to the noted version is in the pages, so it is left out;
//! - a later change is in the page of its document (left out, by the row's version) or it is not (applied);
//! - a document deleted before its page was read may come back from an earlier change, until its deletion,
//!   which is later than the noted version too, is taken from the queue.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{Progress, tables};
use crate::store::sqlite::connection::sentence;
use crate::store::{Batch, Store, StoreError, Version};

/// Messages taken into one transaction.
const GROUP: usize = 1000;
/// Documents or records read from the store at once.
const PAGE: usize = 500;
/// How long to wait before building is tried again after the store or the disk failed.
const RETRY: Duration = Duration::from_secs(1);

pub(super) enum Message {
    /// What a host reports.
    Committed(Arc<Batch>, Version),
    /// Read an entity anew: a commit of it was not reported.
    Reload(EntityKey),
    Trim {
        archived_before: Timestamp,
        events_before: Timestamp,
    },
    /// Dropped once everything before it can be read.
    Barrier(oneshot::Sender<()>),
}

/// What one transaction took in.
struct Taken {
    touched: HashSet<EntityKey>,
    /// Dropping them tells those who wait.
    _barriers: Vec<oneshot::Sender<()>>,
}

/// Why a step did not succeed. Every one of them is answered by building anew.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the read side's file: {}", sentence(.0))]
    Sqlite(#[from] rusqlite::Error),
    #[error("the process is shutting down")]
    Closed,
}

pub(super) struct Feed {
    connection: Connection,
    source: Source,
    queue: mpsc::Receiver<Message>,
    progress: Arc<Progress>,
    /// The last version taken in of each entity.
    versions: HashMap<EntityKey, Version>,
}

/// The store, read from this thread.
struct Source {
    store: Arc<dyn Store>,
    runtime: Handle,
}

impl Feed {
    pub(super) fn new(
        connection: Connection,
        store: Arc<dyn Store>,
        runtime: Handle,
        queue: mpsc::Receiver<Message>,
        progress: Arc<Progress>,
    ) -> Self {
        let source = Source { store, runtime };
        Self { connection, source, queue, progress, versions: HashMap::new() }
    }

    /// Runs until the last handle is gone.
    pub(super) fn run(mut self) {
        while !self.is_closed() {
            if let Err(broken) = self.build().and_then(|()| self.follow()) {
                if !matches!(broken, Broken::Closed) {
                    tracing::warn!(%broken, "the read side is built anew");
                    std::thread::park_timeout(RETRY);
                }
                self.progress.change(|known| known.built = false);
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.progress.closed.load(Ordering::Relaxed)
    }

    /// Empties the file and fills it from the store.
    fn build(&mut self) -> Result<(), Broken> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tables::clear(&transaction)?;
        transaction.commit()?;
        // Before the first document, so that every page has at least these versions.
        self.versions = self.source.versions()?;
        self.build_documents()?;
        self.build_events()?;
        let versions = self.versions.clone();
        self.progress.change(|known| {
            known.built = true;
            known.versions = versions;
        });
        Ok(())
    }

    fn build_documents(&mut self) -> Result<(), Broken> {
        let mut after = None;
        while !self.is_closed() {
            let store = &self.source.store;
            let page = self.source.runtime.block_on(store.documents(after, PAGE))?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some((last.key.clone(), last.document.clone()));
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for document in &page {
                tables::put(&transaction, document)?;
            }
            transaction.commit()?;
        }
        Err(Broken::Closed)
    }

    fn build_events(&mut self) -> Result<(), Broken> {
        let mut after = 0;
        while !self.is_closed() {
            let store = &self.source.store;
            let page = self.source.runtime.block_on(store.records(after, PAGE))?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.position;
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for record in &page {
                tables::record(&transaction, &record.key, record.version, record.at, &record.events)?;
            }
            transaction.commit()?;
        }
        Err(Broken::Closed)
    }

    /// Takes in what is reported, as much as has queued up in one transaction.
    fn follow(&mut self) -> Result<(), Broken> {
        while let Ok(first) = self.queue.recv() {
            let mut group = vec![first];
            while group.len() < GROUP {
                let Ok(next) = self.queue.try_recv() else { break };
                group.push(next);
            }
            let taken = group.len() as u64;
            let result = self.take(group);
            // Also when it failed: the build that follows reads what they reported. Before readers are told,
            // so that whoever was told finds nothing waiting.
            self.progress.lag.fetch_sub(taken, Ordering::Relaxed);
            self.publish(result?);
        }
        Err(Broken::Closed)
    }

    /// Writes what a group reports; gives the entities that changed by it, and whom to tell.
    fn take(&mut self, group: Vec<Message>) -> Result<Taken, Broken> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut touched = HashSet::new();
        let mut barriers = Vec::new();
        for message in group {
            match message {
                Message::Committed(batch, version) => {
                    take_commit(&transaction, &self.source, &mut self.versions, &batch, version)?;
                    touched.insert(batch.key.clone());
                }
                Message::Reload(key) => {
                    reload(&transaction, &self.source, &mut self.versions, &key)?;
                    touched.insert(key);
                }
                Message::Barrier(passed) => barriers.push(passed),
                Message::Trim { archived_before, events_before } => {
                    tables::trim(&transaction, archived_before, events_before)?;
                }
            }
        }
        transaction.commit()?;
        Ok(Taken { touched, _barriers: barriers })
    }

    fn publish(&self, taken: Taken) {
        self.progress.change(|known| {
            for key in taken.touched {
                let version = self.versions.get(&key).copied().unwrap_or_default();
                known.versions.insert(key, version);
            }
        });
    }
}

fn take_commit(
    transaction: &Transaction<'_>,
    source: &Source,
    versions: &mut HashMap<EntityKey, Version>,
    batch: &Batch,
    version: Version,
) -> Result<(), Broken> {
    let Batch { key, at, documents, events, .. } = batch;
    tables::record(transaction, key, version, *at, events)?;
    let last = versions.get(key).copied().unwrap_or_default();
    if version <= last {
        return Ok(());
    }
    if version.0 > last.0 + 1 {
        return reload(transaction, source, versions, key);
    }
    for change in documents {
        tables::change(transaction, key, version, *at, change)?;
    }
    versions.insert(key.clone(), version);
    Ok(())
}

/// Puts an entity's documents in place of the rows it has. The store is never behind the queue.
fn reload(
    transaction: &Transaction<'_>,
    source: &Source,
    versions: &mut HashMap<EntityKey, Version>,
    key: &EntityKey,
) -> Result<(), Broken> {
    let version = source.versions()?.get(key).copied().unwrap_or_default();
    tables::forget(transaction, key)?;
    let mut after = (key.clone(), String::new());
    loop {
        let page = source.runtime.block_on(source.store.documents(Some(after), PAGE))?;
        for document in page.iter().take_while(|document| document.key == *key) {
            tables::put(transaction, document)?;
        }
        match page.last() {
            Some(last) if last.key == *key => after = (last.key.clone(), last.document.clone()),
            _ => break,
        }
    }
    versions.insert(key.clone(), version);
    Ok(())
}

impl Source {
    fn versions(&self) -> Result<HashMap<EntityKey, Version>, StoreError> {
        Ok(self.runtime.block_on(self.store.versions())?.into_iter().collect())
    }
}
