//! What SQLite can do with a disk when steps that come together share a flush.
//!
//! `bare` writes one small row a step: clients wait for one writing thread, as they must. `shaped` writes the very
//! rows that Skein's commits write, taken down from a run of Skein under the same load, on one thread: nothing is
//! decided, no message is sent, and the JSON is made already.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use async_trait::async_trait;
use rusqlite::{Connection, params};
use skein_coordinator::store::{Batch, TimerChange};
use skein_shared::entity::DocumentChange;
use tokio::sync::{mpsc, oneshot};

use crate::harness::contender::{Card, Contender, Durability, Metered, Plan, Work};
use crate::harness::load::{self, Operation};

/// The text of a task, or the value of a row: 256 bytes.
pub(crate) const PAYLOAD: &str = "Read the log of last night's build, find the first test that failed, and say in two or three \
     sentences what broke it; then write a fix with a test of its own, run the suite again, and tell \
     the lead which files changed, why, and what is left for the others.";

fn open(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -16 * 1024)?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

/// Runs `turn` again and again on a thread of its own until the plan's time is over. It writes one group and gives
/// the operations that it finished.
async fn repeat<T>(
    plan: &Plan,
    state: T,
    mut turn: impl FnMut(&mut T) -> Result<u64> + Send + 'static,
) -> Result<(Work, T)>
where
    T: Send + 'static,
{
    let time = plan.time;
    let run = move || {
        let mut state = state;
        let (start, mut operations) = (Instant::now(), 0);
        while start.elapsed() < time {
            operations += turn(&mut state)?;
        }
        anyhow::Ok((Work { operations, elapsed: start.elapsed(), latency: None }, state))
    };
    tokio::task::spawn_blocking(run).await?
}

/// One row a step: clients hand their steps to one thread, which writes what has queued up in one commit.
pub(crate) struct Bare {
    steps: &'static [Step],
    queue: mpsc::Sender<Write>,
    next: Arc<AtomicI64>,
    flushes: Arc<AtomicU64>,
}

/// What a step of an operation does to its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Insert,
    Update,
}

/// A step on its way to the thread, and where its acknowledgement goes.
struct Write {
    step: Step,
    id: i64,
    state: i64,
    done: oneshot::Sender<()>,
}

/// Steps in one commit at most.
const GROUP: usize = 1024;

impl Bare {
    /// # Errors
    /// When the file cannot be made.
    pub(crate) fn new(folder: &Path, steps: &'static [Step]) -> Result<Self> {
        let connection = open(&folder.join("bare.db"))?;
        connection.execute_batch(
            "CREATE TABLE task (id INTEGER PRIMARY KEY, state INTEGER NOT NULL, body TEXT NOT NULL);
             CREATE INDEX task_pending ON task (id) WHERE state = 0;",
        )?;
        let (queue, steps_to_write) = mpsc::channel(4 * GROUP);
        let flushes = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&flushes);
        std::thread::Builder::new()
            .name("bare-writer".to_owned())
            .spawn(move || write_groups(&connection, steps_to_write, &count))?;
        Ok(Self { steps, queue, next: Arc::default(), flushes })
    }
}

/// Ends with the last client, or at a fault of the disk, which the clients notice.
fn write_groups(connection: &Connection, mut queue: mpsc::Receiver<Write>, flushes: &AtomicU64) {
    while let Some(first) = queue.blocking_recv() {
        let mut group = vec![first];
        while group.len() < GROUP {
            let Ok(next) = queue.try_recv() else { break };
            group.push(next);
        }
        if let Err(error) = write_group(connection, &group) {
            eprintln!("the probe cannot write: {error}");
            return;
        }
        flushes.fetch_add(1, Ordering::Relaxed);
        for write in group {
            let _ = write.done.send(());
        }
    }
}

fn write_group(connection: &Connection, group: &[Write]) -> rusqlite::Result<()> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    for write in group {
        match write.step {
            Step::Insert => connection
                .prepare_cached("INSERT INTO task (id, state, body) VALUES (?1, 0, ?2)")?
                .execute(params![write.id, PAYLOAD])?,
            Step::Update => connection
                .prepare_cached("UPDATE task SET state = ?2 WHERE id = ?1")?
                .execute(params![write.id, write.state])?,
        };
    }
    connection.execute_batch("COMMIT")
}

#[async_trait]
impl Contender for Bare {
    fn card(&self) -> Card {
        Card::limit("bare", Durability::PowerCut, format!("SQLite {}", rusqlite::version()), Metered::Myself)
    }

    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        let (steps, queue, next) = (self.steps, self.queue.clone(), Arc::clone(&self.next));
        let operation: Operation = Arc::new(move |_| {
            let (queue, id) = (queue.clone(), next.fetch_add(1, Ordering::Relaxed));
            Box::pin(async move {
                for (state, &step) in (0_i64..).zip(steps) {
                    let (done, written) = oneshot::channel();
                    queue
                        .send(Write { step, id, state, done })
                        .await
                        .ok()
                        .context("the probe's thread has ended")?;
                    written.await?;
                }
                Ok(())
            })
        });
        load::run(plan, operation).await
    }

    fn flushes(&self) -> Option<u64> {
        Some(self.flushes.load(Ordering::Relaxed))
    }
}

/// A run of Skein, taken down.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recording {
    pub batches: Vec<Batch>,
    /// Operations that they belong to.
    pub operations: u64,
}

/// Takes down the commits of a Skein that works under the given number in flight.
pub(crate) type Record =
    Arc<dyn Fn(PathBuf, usize) -> futures::future::BoxFuture<'static, Result<Recording>> + Send + Sync>;

/// The rows of one commit, with their JSON made.
struct Rows {
    entity: String,
    batch: [u8; 16],
    documents: Vec<(String, bool, String, Option<String>)>,
    deleted: Vec<String>,
    timer: TimerChange,
    events: String,
    replies: Option<String>,
    effects: Vec<String>,
}

pub(crate) struct Shaped {
    record: Record,
    folder: PathBuf,
    state: Option<ShapedState>,
    flushes: Arc<Mutex<u64>>,
}

struct ShapedState {
    connection: Connection,
    rows: Vec<Rows>,
    /// Operations in one pass over the rows, and the commits of one pass.
    operations: u64,
    place: usize,
    pass: u64,
    version: i64,
}

impl Shaped {
    pub(crate) fn new(folder: &Path, record: Record) -> Self {
        Self { record, folder: folder.to_owned(), state: None, flushes: Arc::default() }
    }
}

impl ShapedState {
    fn new(path: &Path, recording: Recording) -> Result<Self> {
        let connection = open(path)?;
        connection.execute_batch(include_str!("../../../coordinator/src/store/sqlite/schema.sql"))?;
        let rows = recording.batches.into_iter().map(rows).collect::<Result<_>>()?;
        Ok(Self { connection, rows, operations: recording.operations, place: 0, pass: 0, version: 0 })
    }

    /// Writes the next commit. A share of an operation is counted for each, so that a slot may end anywhere.
    fn commit(&mut self) -> Result<()> {
        if self.place == self.rows.len() {
            self.place = 0;
            self.pass += 1;
        }
        self.version += 1;
        let rows = &self.rows[self.place];
        self.place += 1;
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        rows.write(&self.connection, self.version, self.pass)?;
        self.connection.execute_batch("COMMIT")?;
        Ok(())
    }
}

fn rows(batch: Batch) -> Result<Rows> {
    let (mut documents, mut deleted) = (Vec::new(), Vec::new());
    for change in batch.documents {
        match change {
            DocumentChange::Put { key, live, head, body, .. } => {
                documents.push((key, live, head.text().to_owned(), body.map(|body| body.to_string())));
            }
            DocumentChange::Delete { key } => deleted.push(key),
        }
    }
    Ok(Rows {
        entity: batch.key.to_string(),
        batch: *batch.id.as_bytes(),
        documents,
        deleted,
        timer: batch.timer,
        events: serde_json::to_string(&batch.events)?,
        replies: (!batch.replies.is_empty()).then(|| serde_json::to_string(&batch.replies)).transpose()?,
        effects: batch.outbox.iter().map(serde_json::to_string).collect::<Result<_, _>>()?,
    })
}

impl Rows {
    fn write(&self, connection: &Connection, version: i64, pass: u64) -> Result<()> {
        for (key, live, head, body) in &self.documents {
            let key = fresh(key, pass);
            connection
                .prepare_cached(
                    "INSERT INTO document (entity, document, live, version, written, head, body)
                     VALUES (?1, ?2, ?3, ?4, ?4, ?5, coalesce(?6, '{}'))
                     ON CONFLICT DO UPDATE SET live = ?3, version = ?4, written = ?4, head = ?5, body = coalesce(?6, body)",
                )?
                .execute(params![self.entity, key, live, version, head, body])?;
        }
        for key in &self.deleted {
            connection
                .prepare_cached("DELETE FROM document WHERE entity = ?1 AND document = ?2")?
                .execute(params![self.entity, fresh(key, pass)])?;
        }
        connection
            .prepare_cached(
                "INSERT INTO entity (key, version, batch, at, sequence) VALUES (?1, ?2, ?3, ?2, 0)
                 ON CONFLICT DO UPDATE SET version = ?2, batch = ?3, at = ?2",
            )?
            .execute(params![self.entity, version, self.batch])?;
        if let TimerChange::Set(due) = self.timer {
            connection
                .prepare_cached("INSERT OR REPLACE INTO timer (entity, due) VALUES (?1, ?2)")?
                .execute(params![self.entity, due.0.cast_signed()])?;
        }
        connection
            .prepare_cached(
                "INSERT INTO record (entity, version, at, events, replies) VALUES (?1, ?2, ?2, ?3, ?4)",
            )?
            .execute(params![self.entity, version, self.events, self.replies])?;
        for (effect, place) in self.effects.iter().zip(version * 65536..) {
            connection
                .prepare_cached("INSERT INTO outbox (position, source, epoch, sequence, at, effect) VALUES (?1, ?2, 1, ?1, ?1, ?3)")?
                .execute(params![place, self.entity, effect])?;
        }
        Ok(())
    }
}

/// Things of a later pass are other things: the first digits of an id are overwritten by the pass.
fn fresh(key: &str, pass: u64) -> String {
    match key.split_once('/') {
        Some((kind, id)) if pass > 0 && id.len() > 24 => format!("{kind}/{pass:08x}{}", &id[8..]),
        _ => key.to_owned(),
    }
}

#[async_trait]
impl Contender for Shaped {
    fn card(&self) -> Card {
        Card::limit(
            "shaped",
            Durability::PowerCut,
            format!("SQLite {}", rusqlite::version()),
            Metered::Myself,
        )
    }

    async fn prepare(&mut self, in_flight: usize) -> Result<()> {
        let folder = self.folder.join(format!("shaped-{in_flight}"));
        std::fs::create_dir_all(&folder)?;
        let recording = (self.record)(folder.join("recorded"), in_flight).await?;
        self.state = Some(ShapedState::new(&folder.join("shaped.db"), recording)?);
        Ok(())
    }

    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        let state = self.state.take().context("the probe was not made ready")?;
        let before = state.version;
        let (mut work, state) = repeat(plan, state, |state| state.commit().map(|()| 0)).await?;
        let commits = (state.version - before).cast_unsigned();
        *self.flushes.lock().unwrap_or_else(PoisonError::into_inner) += commits;
        work.operations = commits * state.operations / state.rows.len() as u64;
        self.state = Some(state);
        Ok(work)
    }

    fn flushes(&self) -> Option<u64> {
        Some(*self.flushes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::fresh;

    #[test]
    fn a_later_pass_writes_other_documents_of_the_same_size() {
        let key = "task/0190a0b0-0000-7000-8000-000000000001";
        assert_eq!(fresh(key, 0), key);
        assert_eq!(fresh(key, 2), "task/00000002-0000-7000-8000-000000000001");
        assert_eq!(fresh("member/x", 2), "member/x");
    }
}
