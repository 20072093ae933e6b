//! The read side: lists, filters, text search and history, from a SQLite file of its own.
//!
//! The file is disposable. It is built from the store, or gone on with if an earlier process left it whole
//! ([`origin`]), and follows the commits that the entities' hosts report ([`feed`]), in groups ([`mailbox`]). Where it
//! turns out to be damaged it is built anew. Decisions never read it; a reader that must see a certain write asks
//! [`Projection::caught_up`] first. Events are read from the store itself.

mod broken;
mod changes;
mod feed;
mod gate;
mod history;
mod mailbox;
mod origin;
mod query;
mod recall;
mod search;
mod source;
mod tables;
mod vectors;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use skein_shared::id::{EntityKey, Name};
use skein_shared::time::Timestamp;
use tokio::sync::{oneshot, watch};

use crate::store::sqlite::connection::{self, Durability, Readers, Unread};
use crate::store::{Batch, Store, Version};
use broken::said;
use feed::Feed;
use gate::Gate;
pub use gate::Hold;
use history::Subject;
use mailbox::{Mailbox, Message};
pub use query::{Filter, Order, Query, Search, Tally, Test, merge};
pub use query::{LIMIT, Path as FieldPath};
pub use search::{Hit, Seen, Sought};
use source::Source;
use vectors::Copies;

const READERS: usize = 2;
/// How far the thread that writes gives way to others (`nice`): a tenth of their share is left to it where all
/// processors are busy. It works for some 10 ms at a stretch, and nobody who writes waits for it, while an entity and
/// its store wait for one another: with a processor less for so long both stand still (measured over Redis with a flush
/// a second on two processors: a sixth more task cycles with it).
const GIVES_WAY: i32 = 10;

/// Lets the calling thread have less of the processors. Elsewhere than on Linux that would be the whole process.
fn give_way() {
    if cfg!(target_os = "linux") {
        // Everything works without it.
        let _ = rustix::process::nice(GIVES_WAY);
    }
}

/// The read side could not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the read side cannot answer: {0}")]
pub struct ProjectionError(pub String);

/// Whether a read sees the write that it was to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Freshness {
    Fresh,
    /// The write is not there yet: what is read may be old.
    Stale,
    /// The file is being built: what is read has gaps.
    Rebuilding,
}

impl Freshness {
    /// That of what was put together from both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if self == Self::Fresh { other } else { self }
    }
}

/// An event as it was recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Rises over all entities, and stays what it is: a cursor.
    pub position: u64,
    pub key: EntityKey,
    pub version: Version,
    pub at: Timestamp,
    pub subject: Option<String>,
    /// The event's name.
    pub kind: String,
    pub body: Value,
}

impl Event {
    /// What it says, which stands in its body under its name.
    pub fn facts(&self) -> &Value {
        self.body.get(&self.kind).unwrap_or(&self.body)
    }
}

/// Events in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct EventPage {
    pub events: Vec<Event>,
    /// Everything up to this position was looked at: the next page is the one after it.
    pub next: u64,
    /// Nothing more has happened.
    pub last: bool,
}

/// A handle to the read side; clones share it.
#[derive(Clone)]
pub struct Projection {
    inner: Arc<Inner>,
}

struct Inner {
    mailbox: Arc<Mailbox>,
    progress: Arc<Progress>,
    gate: Arc<Gate>,
    readers: Readers,
    copies: Arc<Copies>,
    store: Arc<dyn Store>,
    /// Counts the commits that were reported.
    commits: watch::Sender<u64>,
}

/// What the feed's thread tells the readers.
struct Progress {
    known: Mutex<Known>,
    /// Counts the changes of `known`.
    changes: watch::Sender<u64>,
    /// Commits in the group that is being written.
    writing: AtomicUsize,
}

#[derive(Default)]
struct Known {
    built: bool,
    versions: HashMap<EntityKey, Version>,
}

impl Projection {
    /// Goes on with the file that is there or makes it anew, and begins to bring it up to the store in the
    /// background. It must be called within a tokio runtime, on which the store is then read.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn open(path: &Path, store: Arc<dyn Store>) -> Result<Self, ProjectionError> {
        let explain = |problem: String| ProjectionError(format!("{}: {problem}", path.display()));
        let runtime = tokio::runtime::Handle::try_current().map_err(|error| explain(error.to_string()))?;
        let connection = match left(path) {
            Some(connection) => connection,
            None => create(path)?,
        };
        let readers = Readers::open(path, Durability::Disposable, READERS);
        let readers = readers.map_err(|error| explain(said(&error)))?;
        let mailbox = Mailbox::new();
        let progress = Arc::new(Progress {
            known: Mutex::default(),
            changes: watch::Sender::new(0),
            writing: AtomicUsize::new(0),
        });
        let gate = Arc::new(Gate::default());
        let source = Source { store: Arc::clone(&store), runtime, gate: Arc::clone(&gate) };
        let feed = Feed::new(connection, source, Arc::clone(&mailbox), Arc::clone(&progress));
        let thread = std::thread::Builder::new().name("projection".to_owned());
        let work = move || {
            give_way();
            feed.run();
        };
        thread.spawn(work).map_err(|error| explain(error.to_string()))?;
        let (copies, commits) = (Arc::default(), watch::Sender::new(0));
        Ok(Self { inner: Arc::new(Inner { mailbox, progress, gate, readers, copies, store, commits }) })
    }

    /// Whether there is room for another report. Whoever commits asks before, and waits if there is none, so that the
    /// read side falls behind by no more than the memory that is meant for it; a read side that stands still slows its
    /// writers and never stops them.
    pub fn has_room(&self) -> bool {
        self.inner.mailbox.has_room()
    }

    /// Waits until there is room for another report, at most for `limit`.
    pub async fn room(&self, limit: Duration) {
        self.inner.mailbox.room(limit).await;
    }

    /// Until the guard is dropped no build reads the store.
    pub fn hold(&self) -> Hold {
        Arc::clone(&self.inner.gate).hold()
    }

    /// Takes note of a commit. Called after each commit of an entity, in the order of its versions; it never
    /// waits. A commit that is left out is noticed at the next one, and the entity is read anew.
    pub fn committed(&self, batch: Arc<Batch>, version: Version) {
        self.inner.mailbox.put(Message::Committed(batch, version));
        self.inner.commits.send_modify(|count| *count += 1);
    }

    /// Something was committed by another process.
    pub fn happened(&self) {
        self.inner.commits.send_modify(|count| *count += 1);
    }

    /// Brings in what has come to be this process' own, and what has changed of it while it was another's.
    pub fn adopt(&self) {
        self.inner.mailbox.put(Message::Adopt);
    }

    /// Lets go of entities that are another process' own now.
    pub fn disown(&self, of: impl Fn(&EntityKey) -> bool + Send + 'static) {
        // At once: whoever asks for a version from here on shall not be shown one of before.
        self.inner.progress.change(|known| known.versions.retain(|key, _| !of(key)));
        self.inner.mailbox.put(Message::Disown(Box::new(of)));
    }

    /// Forgets what the store's trim has forgotten, old archived documents and the events of old batches and of all but
    /// the newest ones of each entity, and what nobody looks at.
    pub fn trim(&self, archived_before: Timestamp, events_before: Timestamp, events_per_entity: u64) {
        self.inner.mailbox.put(Message::Trim { archived_before, events_before, events_per_entity });
        self.inner.copies.forget_idle();
    }

    /// Waits until lists have no gaps and show what was in the store when this process began, at most for `limit`;
    /// says whether they do.
    pub async fn whole(&self, limit: Duration) -> bool {
        let progress = &self.inner.progress;
        let mut changes = progress.changes.subscribe();
        tokio::time::timeout(limit, changes.wait_for(|_| progress.lock().built))
            .await
            .is_ok_and(|seen| seen.is_ok())
    }

    /// Waits until a version of an entity can be read, at most for `limit`.
    pub async fn caught_up(&self, key: &EntityKey, version: Version, limit: Duration) -> Freshness {
        let progress = &self.inner.progress;
        if progress.lock().has(key, version) {
            return Freshness::Fresh;
        }
        let mut changes = progress.changes.subscribe();
        let _hurry = self.inner.mailbox.hurry();
        let fresh = changes.wait_for(|_| progress.lock().has(key, version));
        if tokio::time::timeout(limit, fresh).await.is_ok() {
            return Freshness::Fresh;
        }
        if !progress.lock().built {
            return Freshness::Rebuilding;
        }
        if self.lag() == 0 {
            // Nothing is on its way: the host went before it could report. The store has it.
            self.inner.mailbox.put(Message::Reload(key.clone()));
        }
        Freshness::Stale
    }

    /// Waits until everything that was reported before can be read, at most for `limit`; says whether it can. If not,
    /// what has come from another process may be missing, and the rest is older.
    pub async fn settled(&self, limit: Duration) -> bool {
        let (passed, all) = oneshot::channel();
        self.inner.mailbox.put(Message::Barrier { passed });
        // The feed drops its end when it fails on the way there.
        tokio::time::timeout(limit, all).await.is_ok_and(|passed| passed.is_ok())
    }

    /// Changes whenever an entity has committed. Take it before reading events, so that none is missed.
    pub fn commits(&self) -> watch::Receiver<u64> {
        self.inner.commits.subscribe()
    }

    /// How many commits wait to be taken in.
    pub fn lag(&self) -> usize {
        self.inner.mailbox.len() + self.inner.progress.writing.load(Ordering::Relaxed)
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

    /// How many documents that a query matches have which value, whatever its limit.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn tally(&self, query: Query, by: Tally) -> Result<BTreeMap<String, u64>, ProjectionError> {
        self.read(move |connection| query.tally(connection, &by)).await
    }

    /// The learnings of a memory that are sought, the best first.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn search(&self, key: &EntityKey, sought: Sought) -> Result<Vec<Hit>, ProjectionError> {
        let key = key.clone();
        let copies = Arc::clone(&self.inner.copies);
        self.read(move |connection| search::search(connection, &copies, &key, &sought)).await
    }

    /// The newest events of an entity about a subject (a task's, lock's, call's … id), oldest first.
    ///
    /// # Errors
    /// When the file or the store cannot be read.
    pub async fn history(
        &self,
        key: &EntityKey,
        subject: &str,
        limit: usize,
    ) -> Result<Vec<Event>, ProjectionError> {
        let (of, about) = (key.clone(), Subject::new(subject));
        let versions = self.read(move |connection| history::mentions(connection, &of, &about, limit)).await?;
        history::about(self.inner.store.as_ref(), key, subject, versions, limit).await
    }

    /// Events after a position, of one swarm or of all, oldest first. Every commit that was answered is there.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn events(
        &self,
        swarm: Option<&Name>,
        after: u64,
        limit: usize,
    ) -> Result<EventPage, ProjectionError> {
        history::after(self.inner.store.as_ref(), swarm, after, limit).await
    }

    /// The events of a swarm among the last records of the store, oldest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn latest(&self, swarm: &Name, records: usize) -> Result<Vec<Event>, ProjectionError> {
        let records = self.inner.store.newest_records(records).await.map_err(history::unreadable)?;
        Ok(history::of(records, swarm))
    }

    /// A position that everything answered so far is up to, and everything later is after.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn position(&self) -> Result<u64, ProjectionError> {
        let last = self.inner.store.last_position().await.map_err(history::unreadable)?;
        Ok(history::end(last))
    }

    /// Whether as much has happened as a cursor says. One of another store, or of a later state of this one, would hear
    /// nothing until that has happened anew.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn has_reached(&self, cursor: u64) -> Result<bool, ProjectionError> {
        Ok(cursor <= self.position().await?)
    }

    async fn read<T, Q>(&self, query: Q) -> Result<T, ProjectionError>
    where
        T: Send + 'static,
        Q: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.inner.readers.query(query).await.map_err(|unread| match &unread {
            Unread::Failed(error) => {
                if connection::is_damage(error) {
                    self.inner.mailbox.put(Message::Damaged);
                }
                ProjectionError(said(error))
            }
            Unread::Ending => ProjectionError(unread.to_string()),
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.mailbox.close();
    }
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self, commits: usize) {
        self.writing.store(commits, Ordering::Relaxed);
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

/// The file of an earlier process, if it can be gone on with.
fn left(path: &Path) -> Option<Connection> {
    if !path.exists() {
        return None;
    }
    connection::writable(path, Durability::Disposable).ok().filter(origin::is_ours)
}

/// Removes what an earlier process left, if it did. Nobody may have it open.
///
/// # Errors
/// When it cannot be removed.
pub fn remove(path: &Path) -> Result<(), ProjectionError> {
    for suffix in ["", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(suffix);
        match std::fs::remove_file(PathBuf::from(file)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let problem = format!("{}: {error}; see that this user can remove it", path.display());
                return Err(ProjectionError(problem));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Makes the file anew.
fn create(path: &Path) -> Result<Connection, ProjectionError> {
    remove(path)?;
    let connect = || -> rusqlite::Result<Connection> {
        let connection = connection::writable(path, Durability::Disposable)?;
        connection.execute_batch(include_str!("schema.sql"))?;
        tables::make_indexes(&connection)?;
        Ok(connection)
    };
    connect().map_err(|error| ProjectionError(format!("{}: {}", path.display(), said(&error))))
}

#[cfg(test)]
mod tests;
