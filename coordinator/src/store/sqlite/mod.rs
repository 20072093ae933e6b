//! The embedded store: one SQLite file in WAL mode, flushed at every commit.
//!
//! One thread owns the writing connection and commits what has queued up as a group ([`writer`]): each commit appends
//! its record and its row of the [`journal`], and the tables of documents follow many commits at once ([`fold`]). The
//! log is copied into the file beside it ([`checkpoint`]). Reads go to two connections of their own
//! ([`connection::Readers`]); one document is put together from its row and what waits, whoever reads many has them
//! folded first.

mod apply;
mod blobs;
mod body;
mod checkpoint;
pub(crate) mod connection;
mod copied;
mod fold;
mod garbage;
mod journal;
mod migrate;
pub(crate) mod number;
mod reader;
mod room;
mod standstill;
mod trim;
mod writer;

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use skein_shared::fence::Epoch;
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::{
    Batch, Chunk, CommitError, CopyError, DeadLetter, Fence, LivePage, Loaded, OutboxEntry, OutboxPlace,
    Receipt, Record, Store, StoreError, StoredBlob, StoredDocument, TrimPlan, Trimmed, Version,
};
use crate::alarms::{Alarms, Kind};
use apply::Prepared;
use checkpoint::Checkpoints;
pub use connection::Durability;
use connection::{Readers, sentence};
use garbage::Garbage;
use journal::{Journal, Waiting};
use number::{signed, unsigned};
use reader::Found;
use writer::{Work, Writer};

const READERS: usize = 2;

/// By how much a clock may be set back without a word: nobody notices.
const APART: Duration = Duration::from_secs(60);

/// The store of the embedded mode.
pub struct Sqlite {
    path: PathBuf,
    fence: Fence,
    readers: Readers,
    writer: Writer,
    ahead: Option<Ahead>,
    /// None where whoever reads copies the store: what is left out would be lost, so garbage is an error.
    alarms: Option<Alarms>,
}

/// What a clock has written that was ahead of the one at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    pub entities: u64,
    /// The latest of their times: an entity never decides before it did so last.
    pub until: Timestamp,
}

impl Sqlite {
    /// Opens the file, or makes it, and takes a new epoch: whoever had it open before is fenced off.
    ///
    /// # Errors
    /// When the file is damaged, of another program, of a newer schema, filled in part by an import, or a copy beside
    /// the log of another store, or the disk refuses.
    pub fn open(path: &Path, wall: Timestamp) -> Result<Self, StoreError> {
        Self::open_with(path, wall, Durability::Full)
    }

    /// The same with another durability: what is not `Full` loses acknowledged commits, as a check of
    /// durability has to find out.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_with(path: &Path, wall: Timestamp, durability: Durability) -> Result<Self, StoreError> {
        let explain = |problem: String| StoreError(format!("{}: {problem}", path.display()));
        refuse_foreign(path).map_err(explain)?;
        let mut connection =
            connection::writable(path, durability).map_err(|error| explain(sentence(&error)))?;
        migrate::migrate(&mut connection).map_err(|unusable| explain(problem(unusable)))?;
        flush_directory(path).map_err(|error| explain(error.to_string()))?;
        let fence = take_fence(&mut connection, wall).map_err(explain)?;
        let ahead = ahead(&connection, wall).map_err(|error| explain(sentence(&error)))?;
        let readers = Readers::open(path, durability, READERS).map_err(|error| explain(sentence(&error)))?;
        let checkpoints = Checkpoints::start(&mut connection, path, durability).map_err(explain)?;
        let writer =
            Writer::start(connection, checkpoints, fence).map_err(|error| explain(error.to_string()))?;
        Ok(Self { path: path.to_owned(), fence, readers, writer, ahead, alarms: None })
    }

    /// Serves a node: a document that cannot be read is an alarm there, and is left out of lists; a journal that
    /// cannot be folded is an alarm too.
    #[must_use]
    pub fn serving(self, alarms: Alarms) -> Self {
        self.writer.serve(alarms.clone());
        Self { alarms: Some(alarms), ..self }
    }

    /// What was found to be ahead of the clock at the start, if that is more than clocks are apart.
    pub fn ahead(&self) -> Option<Ahead> {
        self.ahead
    }

    /// A document that cannot be read, as an error and an alarm.
    fn told(&self, garbage: Garbage) -> StoreError {
        if let Some(alarms) = &self.alarms {
            alarms.raise(Kind::StoreGarbage, &garbage.subject, &garbage.problem);
        }
        StoreError(garbage.problem)
    }

    /// Those that can be read.
    fn sound(&self, found: Vec<Found>) -> Result<Vec<StoredDocument>, StoreError> {
        let mut sound = Vec::with_capacity(found.len());
        for document in found {
            match document.map_err(|garbage| self.told(garbage)) {
                Ok(document) => sound.push(document),
                Err(problem) if self.alarms.is_none() => return Err(problem),
                Err(_) => {}
            }
        }
        Ok(sound)
    }

    /// Has what waits folded, of one entity or of all.
    async fn fold(&self, key: Option<&EntityKey>) -> Result<(), StoreError> {
        let folded = self.writer.look(|waiting| key.map_or(waiting.is_empty(), |key| !waiting.has(key)));
        if folded {
            return Ok(());
        }
        match self.writer.write(self.fence, Work::Fold).await {
            // The new owner has folded it.
            Ok(()) | Err(CommitError::Fenced(_)) => Ok(()),
            Err(error) => Err(StoreError(error.to_string())),
        }
    }

    async fn read<T, Q>(&self, query: Q) -> Result<T, StoreError>
    where
        T: Send + 'static,
        Q: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.readers.read(query).await.map_err(StoreError)
    }
}

/// Looks into an existing file before anything is written to it.
fn refuse_foreign(path: &Path) -> Result<(), String> {
    if !std::fs::metadata(path).is_ok_and(|file| file.len() > 0) {
        return Ok(());
    }
    copied::refuse_beside_a_log(path)?;
    let connection = connection::readable(path, Durability::Full).map_err(|error| sentence(&error))?;
    migrate::schema(&connection).map(|_| ()).map_err(problem)
}

fn problem(unusable: migrate::Unusable) -> String {
    match unusable {
        migrate::Unusable::Sqlite(error) => sentence(&error),
        other => other.to_string(),
    }
}

/// SQLite flushes the directory for its log, but not for a new database file.
fn flush_directory(path: &Path) -> std::io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A hybrid clock: above every epoch that this file has seen, and above those of a reign that a restored
/// backup does not know. What the last owner left in its journal is folded with the same transaction: it can write
/// nothing more.
fn take_fence(connection: &mut Connection, wall: Timestamp) -> Result<Fence, String> {
    let mut nonce = [0; 8];
    getrandom::fill(&mut nonce).map_err(|error| format!("the system gives no randomness: {error}"))?;
    let nonce = u64::from_ne_bytes(nonce);
    let write = |connection: &mut Connection| -> rusqlite::Result<Fence> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let last: Option<i64> =
            transaction.query_row("SELECT epoch FROM fence", [], |row| row.get(0)).optional()?;
        let epoch = last.map_or(wall.0, |last| wall.0.max(unsigned(last).saturating_add(1)));
        transaction.execute(
            "INSERT OR REPLACE INTO fence (only_row, epoch, nonce) VALUES (1, ?1, ?2)",
            params![signed(epoch), nonce.cast_signed()],
        )?;
        let left = Waiting { young: Arc::new(Journal::read(&transaction)?), ..Waiting::default() };
        fold::whole(&transaction, &left)?;
        transaction.commit()?;
        Ok(Fence { epoch: Epoch(epoch), nonce })
    };
    write(connection).map_err(|error| sentence(&error))
}

/// The entities that were last written later than it is now.
fn ahead(connection: &Connection, wall: Timestamp) -> rusqlite::Result<Option<Ahead>> {
    let latest = signed((wall + APART).0);
    let mut statement = connection.prepare("SELECT count(*), max(at) FROM entity WHERE at > ?1")?;
    statement.query_row([latest], |row| {
        let until: Option<i64> = row.get(1)?;
        let entities = unsigned(row.get(0)?);
        Ok(until.map(|until| Ahead { entities, until: Timestamp(unsigned(until)) }))
    })
}

#[async_trait]
impl Store for Sqlite {
    fn fence(&self, _key: &EntityKey) -> Fence {
        self.fence
    }

    fn submit(&self, fence: Fence, batch: Arc<Batch>, receipt: Receipt) {
        match Prepared::new(batch) {
            Ok(batch) => self.writer.commit(fence, batch, receipt),
            Err(problem) => receipt.give(Err(problem)),
        }
    }

    async fn load(&self, key: &EntityKey) -> Result<Loaded, StoreError> {
        self.fold(Some(key)).await?;
        let key = key.to_string();
        self.read(move |connection| reader::load(connection, &key)).await
    }

    async fn live(&self, key: &EntityKey, after: &str, limit: usize) -> Result<LivePage, StoreError> {
        self.fold(Some(key)).await?;
        let (key, after) = (key.to_string(), after.to_owned());
        self.read(move |connection| reader::live_page(connection, &key, &after, limit)).await
    }

    async fn document(&self, key: &EntityKey, document: &str) -> Result<Option<StoredDocument>, StoreError> {
        // First what waits: it may be folded meanwhile, but not the other way round.
        let changes = self.writer.look(|waiting| waiting.changes(key, document));
        let (entity, name) = (key.to_string(), document.to_owned());
        let stored = self.read(move |connection| reader::document(connection, &entity, &name)).await?;
        let stored = stored.transpose().map_err(|garbage| self.told(garbage))?;
        Ok(journal::with_changes(key, document, stored, &changes))
    }

    async fn documents(
        &self,
        after: Option<(EntityKey, String)>,
        limit: usize,
    ) -> Result<Vec<StoredDocument>, StoreError> {
        self.fold(None).await?;
        self.sound(self.read(move |connection| reader::documents(connection, after, limit)).await?)
    }

    async fn documents_of(
        &self,
        key: &EntityKey,
        after: &str,
        limit: usize,
    ) -> Result<Vec<StoredDocument>, StoreError> {
        self.fold(Some(key)).await?;
        let (key, after) = (key.to_string(), after.to_owned());
        self.sound(self.read(move |connection| reader::documents_of(connection, &key, &after, limit)).await?)
    }

    async fn versions(&self) -> Result<Vec<(EntityKey, Version)>, StoreError> {
        self.fold(None).await?;
        self.read(reader::versions).await
    }

    async fn records(&self, after: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.read(move |connection| reader::records(connection, after, limit)).await
    }

    async fn records_of(&self, key: &EntityKey, versions: Vec<Version>) -> Result<Vec<Record>, StoreError> {
        // First what waits: it may be folded meanwhile, but not the other way round.
        let versions: Vec<_> = self.writer.look(|waiting| {
            versions.into_iter().map(|version| (version, waiting.place(key, version))).collect()
        });
        let key = key.clone();
        self.read(move |connection| reader::records_of(connection, &key, &versions)).await
    }

    async fn history(
        &self,
        key: &EntityKey,
        after: Version,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.fold(Some(key)).await?;
        let key = key.clone();
        self.read(move |connection| reader::history(connection, &key, after, limit)).await
    }

    async fn last_position(&self) -> Result<u64, StoreError> {
        self.read(reader::last_position).await
    }

    async fn timers(&self, limit: usize) -> Result<Vec<(EntityKey, Timestamp)>, StoreError> {
        self.read(move |connection| reader::timers(connection, limit)).await
    }

    async fn outbox(&self, after: u64, limit: usize) -> Result<Vec<OutboxEntry>, StoreError> {
        self.read(move |connection| reader::outbox(connection, after, limit)).await
    }

    async fn delivered(&self, effects: Vec<OutboxPlace>) -> Result<(), CommitError> {
        let positions = effects.into_iter().map(|effect| effect.position).collect();
        self.writer.write(self.fence, Work::Delivered(positions)).await
    }

    async fn bury(&self, effect: OutboxPlace, reason: String, at: Timestamp) -> Result<(), CommitError> {
        self.writer.write(self.fence, Work::Bury { position: effect.position, reason, at }).await
    }

    async fn dead_letters(&self, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.read(move |connection| reader::dead_letters(connection, after, limit)).await
    }

    async fn write_chunk(&self, fence: Fence, chunk: Chunk) -> Result<(), CommitError> {
        self.writer.write(fence, Work::Chunk(Box::new(chunk))).await
    }

    async fn chunk(&self, key: &EntityKey, blob: Uuid, place: u32) -> Result<Option<Vec<u8>>, StoreError> {
        let key = key.to_string();
        self.read(move |connection| blobs::chunk(connection, &key, blob, place)).await
    }

    async fn blobs(
        &self,
        after: Option<(EntityKey, Uuid)>,
        limit: usize,
    ) -> Result<Vec<StoredBlob>, StoreError> {
        self.read(move |connection| blobs::kept(connection, after, limit)).await
    }

    /// A step that has only passed what was forgotten before says nothing of what comes behind.
    async fn trim(&self, plan: TrimPlan) -> Result<Trimmed, CommitError> {
        loop {
            let step = self.writer.trim(self.fence, plan.clone()).await?;
            if !step.more || !step.trimmed.is_nothing() {
                return Ok(step.trimmed);
            }
        }
    }

    async fn mark_import(&self, under_way: bool) -> Result<(), CommitError> {
        self.writer.write(self.fence, Work::Import(under_way)).await
    }

    async fn backup(&self, path: &Path) -> Result<(), CopyError> {
        let (source, target) = (self.path.clone(), path.to_owned());
        let copied = tokio::task::spawn_blocking(move || copy(&source, &target)).await;
        let ending = |_| CopyError::Failed("the process is shutting down".to_owned());
        copied.map_err(ending)?.map_err(CopyError::Failed)
    }
}

/// Copies on a connection of its own: a snapshot that holds up neither the writer nor the readers. The copy gets its
/// name only when all of it is on the disk; until then it has one that no other copy has, be it made beside this one or
/// left in part by a process that died.
fn copy(source: &Path, target: &Path) -> Result<(), String> {
    let exists = || format!("{} exists already; name a new file for the backup", target.display());
    let unusable = |error: std::io::Error| format!("{}: {error}; choose another path", target.display());
    if target.exists() {
        return Err(exists());
    }
    let connection = connection::readable(source, Durability::Full).map_err(|error| sentence(&error))?;
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(".");
    let partial = tempfile::Builder::new().prefix(&name).suffix(".partial").tempfile_in(folder_of(target));
    let partial = partial.map_err(unusable)?;
    let into = partial.path().to_str().ok_or("the path of the backup is not valid UTF-8; choose another")?;
    connection.execute("VACUUM INTO ?1", params![into]).map_err(|error| sentence(&error))?;
    partial.as_file().sync_all().map_err(unusable)?;
    partial.persist_noclobber(target).map_err(|failed| match failed.error.kind() {
        ErrorKind::AlreadyExists => exists(),
        _ => unusable(failed.error),
    })?;
    flush_directory(target).map_err(unusable)
}

#[cfg(test)]
mod tests;
