//! The one thread that writes. It takes what has queued up, writes it in one transaction with one flush, and
//! answers: while one group is flushed the next one forms, so no timer is needed.

use std::io;
use std::thread::{self, JoinHandle};

use rusqlite::{Connection, params};
use skein_shared::time::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::apply::{self, Prepared, Stop};
use super::connection::sentence;
use super::number::signed;
use super::trim;
use crate::store::{CommitError, Fence, TrimPlan, Trimmed, Version};

/// Requests that may wait; beyond them callers wait for a place.
const QUEUE: usize = 1024;
/// Greatest group: requests, and bytes that they write.
const GROUP: usize = 256;
const GROUP_BYTES: usize = 2 * 1024 * 1024;

/// Something to write.
pub(super) enum Work {
    Commit(Box<Prepared>),
    Delivered(Vec<u64>),
    Bury { position: u64, reason: String, at: Timestamp },
    Trim(TrimPlan),
}

/// What was written.
enum Done {
    Committed(Version),
    Trimmed(Trimmed),
    Removed,
}

type Outcome = Result<Done, CommitError>;

struct Request {
    fence: Fence,
    work: Work,
    answer: oneshot::Sender<Outcome>,
}

/// A handle to the thread. Dropping it waits until everything queued is written and the file is closed.
pub(super) struct Writer {
    requests: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(connection: Connection) -> io::Result<Self> {
        let (requests, queue) = mpsc::channel(QUEUE);
        let thread =
            thread::Builder::new().name("store-writer".to_owned()).spawn(move || run(&connection, queue))?;
        Ok(Self { requests: Some(requests), thread: Some(thread) })
    }

    pub(super) async fn commit(&self, fence: Fence, batch: Prepared) -> Result<Version, CommitError> {
        match self.ask(fence, Work::Commit(Box::new(batch))).await? {
            Done::Committed(version) => Ok(version),
            _ => Err(mixed_up()),
        }
    }

    pub(super) async fn trim(&self, fence: Fence, plan: TrimPlan) -> Result<Trimmed, CommitError> {
        match self.ask(fence, Work::Trim(plan)).await? {
            Done::Trimmed(trimmed) => Ok(trimmed),
            _ => Err(mixed_up()),
        }
    }

    pub(super) async fn remove(&self, fence: Fence, work: Work) -> Result<(), CommitError> {
        self.ask(fence, work).await.map(|_| ())
    }

    async fn ask(&self, fence: Fence, work: Work) -> Outcome {
        let (answer, answered) = oneshot::channel();
        let stopped = || "the store's writer has stopped; restart the process".to_owned();
        let Some(requests) = &self.requests else { return Err(CommitError::Failed(stopped())) };
        if requests.send(Request { fence, work, answer }).await.is_err() {
            return Err(CommitError::Failed(stopped()));
        }
        answered.await.unwrap_or_else(|_| Err(CommitError::Unknown(stopped())))
    }
}

fn mixed_up() -> CommitError {
    CommitError::Unknown("the store's writer gave an answer of another kind; report this".to_owned())
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported where it happened, and its callers got their answer.
            let _ = thread.join();
        }
    }
}

fn run(connection: &Connection, mut queue: mpsc::Receiver<Request>) {
    while let Some(first) = queue.blocking_recv() {
        let mut bytes = first.bytes();
        let mut group = vec![first];
        while group.len() < GROUP && bytes < GROUP_BYTES {
            let Ok(next) = queue.try_recv() else { break };
            bytes += next.bytes();
            group.push(next);
        }
        write(connection, group);
    }
}

/// Writes a group and answers each of its requests. Should one of them fail, each is written by itself: a
/// savepoint around each would cost every group a copy of the pages that it touches.
fn write(connection: &Connection, group: Vec<Request>) {
    let outcomes = match together(connection, &group) {
        Ok(outcomes) => outcomes,
        Err(problem) if group.len() == 1 => vec![Err(problem)],
        Err(_) => group.iter().map(|request| alone(connection, request)).collect(),
    };
    for (request, outcome) in group.into_iter().zip(outcomes) {
        // The caller may have gone; what was committed stays.
        let _ = request.answer.send(outcome);
    }
}

fn alone(connection: &Connection, request: &Request) -> Outcome {
    together(connection, std::slice::from_ref(request))?.pop().unwrap_or_else(|| Err(mixed_up()))
}

/// Writes requests in one transaction.
///
/// # Errors
/// When the file or the disk refuses any of them: then nothing was written.
fn together(connection: &Connection, requests: &[Request]) -> Result<Vec<Outcome>, CommitError> {
    let failed = |error: rusqlite::Error| CommitError::Failed(sentence(&error));
    let stored = begin(connection).map_err(failed)?;
    let mut outcomes = Vec::with_capacity(requests.len());
    for request in requests {
        outcomes.push(match request.run(connection, stored) {
            Ok(done) => Ok(done),
            Err(Stop::Answer(answer)) => Err(answer),
            Err(Stop::Sqlite(error)) => {
                roll_back(connection);
                return Err(failed(error));
            }
        });
    }
    if let Err(unknown) = commit(connection) {
        for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
            *outcome = Err(unknown.clone());
        }
    }
    metrics::counter!("skein_store_flushes_total").increment(1);
    Ok(outcomes)
}

impl Request {
    fn bytes(&self) -> usize {
        match &self.work {
            Work::Commit(batch) => batch.bytes,
            _ => 0,
        }
    }

    /// Writes within the open transaction. An answer that is no success has written nothing.
    fn run(&self, connection: &Connection, stored: Fence) -> Result<Done, Stop> {
        if stored != self.fence {
            return Err(Stop::Answer(CommitError::Fenced(stored.epoch)));
        }
        match &self.work {
            Work::Commit(batch) => apply::apply(connection, stored.epoch, batch).map(Done::Committed),
            Work::Delivered(positions) => Ok(delivered(connection, positions).map(|()| Done::Removed)?),
            Work::Bury { position, reason, at } => {
                Ok(bury(connection, *position, reason, *at).map(|()| Done::Removed)?)
            }
            Work::Trim(plan) => Ok(trim::trim(connection, plan).map(Done::Trimmed)?),
        }
    }
}

fn delivered(connection: &Connection, positions: &[u64]) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("DELETE FROM outbox WHERE position = ?1")?;
    for position in positions {
        statement.execute([signed(*position)])?;
    }
    Ok(())
}

fn bury(connection: &Connection, position: u64, reason: &str, at: Timestamp) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT OR IGNORE INTO dead_letter
             SELECT position, source, epoch, sequence, at, effect, ?2, ?3 FROM outbox WHERE position = ?1",
        )?
        .execute(params![signed(position), reason, signed(at.0)])?;
    delivered(connection, &[position])
}

fn begin(connection: &Connection) -> rusqlite::Result<Fence> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    apply::stored_fence(connection).inspect_err(|_| roll_back(connection))
}

/// A failed commit may all the same have reached the disk: only a restart would tell.
fn commit(connection: &Connection) -> Result<(), CommitError> {
    connection.execute_batch("COMMIT").map_err(|error| {
        roll_back(connection);
        CommitError::Unknown(sentence(&error))
    })
}

fn roll_back(connection: &Connection) {
    if connection.is_autocommit() {
        return; // SQLite has done it already
    }
    if let Err(error) = connection.execute_batch("ROLLBACK") {
        tracing::error!(%error, "a transaction of the store could not be rolled back");
    }
}
