//! The read side: lists, filters, text search and history, from a SQLite file of its own.
//!
//! The file is disposable. It is built again from the store at every start ([`feed`]) and follows the commits
//! that the entities' hosts report. Decisions never read it; a reader that must see a certain write asks
//! [`Projection::caught_up`] first.

mod feed;
mod query;
mod search;
mod tables;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use rusqlite::Connection;
use serde_json::Value;
use skein_shared::id::{EntityKey, Name};
use skein_shared::time::Timestamp;
use tokio::sync::{oneshot, watch};

use crate::store::sqlite::connection::{self, Durability, Readers, sentence};
use crate::store::{Batch, Store, StoredDocument, Version};
use feed::{Feed, Message};
pub use query::Path as FieldPath;
pub use query::{Filter, Order, Query, Search, Test};
pub use search::Hit;

const READERS: usize = 2;

/// The read side could not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the read side cannot answer: {0}")]
pub struct ProjectionError(pub String);

/// Whether a read sees the write that it was to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    Fresh,
    /// The write is not there yet: what is read may be old.
    Stale,
    /// The file is being built: what is read has gaps.
    Rebuilding,
}

/// An event as it was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Rises over all entities: the time in milliseconds times 1024, or one more than the last one. A cursor
    /// keeps its meaning when the file is built again; at that seam an event may be seen twice.
    pub position: u64,
    pub key: EntityKey,
    pub version: Version,
    pub at: Timestamp,
    pub subject: Option<String>,
    /// The event's name.
    pub kind: String,
    pub body: Value,
}

/// A handle to the read side; clones share it.
#[derive(Clone)]
pub struct Projection {
    inner: Arc<Inner>,
}

struct Inner {
    messages: mpsc::Sender<Message>,
    progress: Arc<Progress>,
    readers: Readers,
}

/// What the feed's thread tells the readers.
struct Progress {
    known: Mutex<Known>,
    /// Counts the changes of `known`.
    changes: watch::Sender<u64>,
    /// Messages that wait.
    lag: AtomicU64,
    closed: AtomicBool,
}

#[derive(Default)]
struct Known {
    built: bool,
    versions: HashMap<EntityKey, Version>,
}

impl Projection {
    /// Deletes what is there, makes the file anew and begins to build it in the background. It must be called
    /// within a tokio runtime, on which the store is then read.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn open(path: &Path, store: Arc<dyn Store>) -> Result<Self, ProjectionError> {
        let explain = |problem: String| ProjectionError(format!("{}: {problem}", path.display()));
        let runtime = tokio::runtime::Handle::try_current().map_err(|error| explain(error.to_string()))?;
        let connection = create(path).map_err(explain)?;
        let readers = Readers::open(path, READERS).map_err(|error| explain(sentence(&error)))?;
        let (messages, queue) = mpsc::channel();
        let progress = Arc::new(Progress {
            known: Mutex::default(),
            changes: watch::Sender::new(0),
            lag: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        });
        let feed = Feed::new(connection, store, runtime, queue, Arc::clone(&progress));
        let thread = std::thread::Builder::new().name("projection".to_owned());
        thread.spawn(move || feed.run()).map_err(|error| explain(error.to_string()))?;
        Ok(Self { inner: Arc::new(Inner { messages, progress, readers }) })
    }

    /// Takes note of a commit. Called after each commit of an entity, in the order of its versions; it never
    /// waits. A commit that is left out is noticed at the next one, and the entity is read anew.
    pub fn committed(&self, batch: Arc<Batch>, version: Version) {
        self.send(Message::Committed(batch, version));
    }

    /// Forgets what the store's trim has forgotten: old archived documents, and old events.
    pub fn trim(&self, archived_before: Timestamp, events_before: Timestamp) {
        self.send(Message::Trim { archived_before, events_before });
    }

    /// Waits until a version of an entity can be read, at most for `limit`.
    pub async fn caught_up(&self, key: &EntityKey, version: Version, limit: Duration) -> Freshness {
        let progress = &self.inner.progress;
        let mut changes = progress.changes.subscribe();
        let fresh = changes.wait_for(|_| progress.lock().has(key, version));
        if tokio::time::timeout(limit, fresh).await.is_ok() {
            return Freshness::Fresh;
        }
        if !progress.lock().built {
            return Freshness::Rebuilding;
        }
        if self.lag() == 0 {
            // Nothing is on its way: the host went before it could report. The store has it.
            self.send(Message::Reload(key.clone()));
        }
        Freshness::Stale
    }

    /// Waits until everything that was reported before can be read, at most for `limit`.
    pub async fn settled(&self, limit: Duration) {
        let (passed, all) = oneshot::channel();
        self.send(Message::Barrier(passed));
        // The feed drops its end when it is there; being late makes the reader's view older, not wrong.
        let _ = tokio::time::timeout(limit, all).await;
    }

    /// Changes whenever something new can be read. Take it before reading, so that nothing is missed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.progress.changes.subscribe()
    }

    /// The position of the newest event, of whatever swarm.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn position(&self) -> Result<u64, ProjectionError> {
        self.read(tables::position).await
    }

    /// How many commits wait to be taken in.
    pub fn lag(&self) -> u64 {
        self.inner.progress.lag.load(Ordering::Relaxed)
    }

    /// One document.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn get(
        &self,
        key: &EntityKey,
        document: &str,
    ) -> Result<Option<StoredDocument>, ProjectionError> {
        let (key, document) = (key.clone(), document.to_owned());
        self.read(move |connection| tables::document(connection, &key, &document)).await
    }

    /// The bodies of the documents that a query matches, in its order.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn list(&self, query: Query) -> Result<Vec<Value>, ProjectionError> {
        self.read(move |connection| query.list(connection)).await
    }

    /// How many documents a query matches, whatever its limit.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn count(&self, query: Query) -> Result<u64, ProjectionError> {
        self.read(move |connection| query.count(connection)).await
    }

    /// The documents of a type that have any of the text's words, the best first.
    ///
    /// # Errors
    /// When the file cannot be read. No text is an error.
    pub async fn search(
        &self,
        swarm: &Name,
        document_type: &str,
        text: &str,
        filters: Vec<Filter>,
        limit: usize,
    ) -> Result<Vec<Hit>, ProjectionError> {
        let Some(words) = search::words(text) else { return Ok(Vec::new()) };
        let (swarm, document_type) = (swarm.clone(), document_type.to_owned());
        self.read(move |connection| {
            search::search(connection, &swarm, &document_type, &words, &filters, limit)
        })
        .await
    }

    /// The newest events about a subject (a task's, lock's, call's … id) in a swarm, oldest first.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn history(
        &self,
        swarm: &Name,
        subject: &str,
        limit: usize,
    ) -> Result<Vec<Event>, ProjectionError> {
        let (swarm, subject) = (swarm.clone(), subject.to_owned());
        self.read(move |connection| tables::history(connection, &swarm, &subject, limit)).await
    }

    /// Events after a position, of one swarm or of all, oldest first.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn events(
        &self,
        swarm: Option<&Name>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, ProjectionError> {
        let swarm = swarm.cloned();
        self.read(move |connection| tables::events(connection, swarm.as_ref(), after, limit)).await
    }

    async fn read<T, Q>(&self, query: Q) -> Result<T, ProjectionError>
    where
        T: Send + 'static,
        Q: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.inner.readers.read(query).await.map_err(ProjectionError)
    }

    fn send(&self, message: Message) {
        self.inner.progress.lag.fetch_add(1, Ordering::Relaxed);
        if self.inner.messages.send(message).is_err() {
            tracing::error!("the thread of the read side has ended; lists are out of date until a restart");
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.progress.closed.store(true, Ordering::Relaxed);
    }
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is known and wakes the readers that wait for it.
    fn change(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.lock());
        self.changes.send_modify(|count| *count += 1);
    }
}

impl Known {
    fn has(&self, key: &EntityKey, version: Version) -> bool {
        self.built && self.versions.get(key).copied().unwrap_or_default() >= version
    }
}

/// Makes the file anew.
fn create(path: &Path) -> Result<Connection, String> {
    for suffix in ["", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(suffix);
        match std::fs::remove_file(PathBuf::from(file)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.to_string()),
            _ => {}
        }
    }
    let connect = || -> rusqlite::Result<Connection> {
        let connection = connection::writable(path, Durability::Disposable)?;
        connection.execute_batch(include_str!("schema.sql"))?;
        Ok(connection)
    };
    connect().map_err(|error| sentence(&error))
}

#[cfg(test)]
mod tests;
