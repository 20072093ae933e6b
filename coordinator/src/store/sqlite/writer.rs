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

type Answer<T> = oneshot::Sender<Result<T, CommitError>>;

/// Something to write, and where the answer goes.
pub(super) enum Request {
    Commit { fence: Fence, batch: Box<Prepared>, answer: Answer<Version> },
    Delivered { fence: Fence, positions: Vec<u64>, answer: Answer<()> },
    Bury { fence: Fence, position: u64, reason: String, at: Timestamp, answer: Answer<()> },
    Trim { fence: Fence, plan: TrimPlan, answer: Answer<Trimmed> },
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

    pub(super) async fn ask<T>(&self, request: impl FnOnce(Answer<T>) -> Request) -> Result<T, CommitError> {
        let (answer, answered) = oneshot::channel();
        let stopped = || "the store's writer has stopped; restart the process".to_owned();
        let Some(requests) = &self.requests else { return Err(CommitError::Failed(stopped())) };
        if requests.send(request(answer)).await.is_err() {
            return Err(CommitError::Failed(stopped()));
        }
        answered.await.unwrap_or_else(|_| Err(CommitError::Unknown(stopped())))
    }
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

impl Request {
    fn bytes(&self) -> usize {
        match self {
            Request::Commit { batch, .. } => batch.bytes,
            _ => 0,
        }
    }
}

/// Answers one request, given why the transaction failed, if it did.
type Told = Box<dyn FnOnce(Option<&CommitError>)>;

/// Writes a group in one transaction and answers each of its requests.
fn write(connection: &Connection, group: Vec<Request>) {
    let (stored, mut outcome) = match begin(connection) {
        Ok(stored) => (stored, None),
        Err(error) => (Fence::default(), Some(CommitError::Failed(sentence(&error)))),
    };
    let mut answers: Vec<Told> = Vec::with_capacity(group.len());
    for request in group {
        answers.push(request.run(connection, stored, outcome.as_ref()));
        if outcome.is_none() && connection.is_autocommit() {
            outcome = Some(neighbour_failed());
        }
    }
    if outcome.is_none() {
        outcome = commit(connection).err();
        metrics::counter!("skein_store_flushes_total").increment(1);
    }
    for answer in answers {
        answer(outcome.as_ref());
    }
}

/// A full or failing disk ends the whole transaction, not only the savepoint that met it.
fn neighbour_failed() -> CommitError {
    CommitError::Failed(
        "the disk failed a write of the same group; nothing was written, try again".to_owned(),
    )
}

impl Request {
    /// Writes within the open transaction, unless that is lost already, and gives the way to answer.
    fn run(self, connection: &Connection, stored: Fence, lost: Option<&CommitError>) -> Told {
        match self {
            Request::Commit { fence, batch, answer } => {
                step(connection, (stored, fence), lost, answer, || {
                    apply::apply(connection, fence.epoch, &batch)
                })
            }
            Request::Delivered { fence, positions, answer } => {
                step(connection, (stored, fence), lost, answer, || Ok(delivered(connection, &positions)?))
            }
            Request::Bury { fence, position, reason, at, answer } => {
                step(connection, (stored, fence), lost, answer, || {
                    Ok(bury(connection, position, &reason, at)?)
                })
            }
            Request::Trim { fence, plan, answer } => {
                step(connection, (stored, fence), lost, answer, || Ok(trim::trim(connection, &plan)?))
            }
        }
    }
}

/// Runs one request in a savepoint, so that its failure does not touch its neighbours.
fn step<T: 'static>(
    connection: &Connection,
    (stored, fence): (Fence, Fence),
    lost: Option<&CommitError>,
    answer: Answer<T>,
    work: impl FnOnce() -> Result<T, Stop>,
) -> Told {
    let result = match lost {
        Some(lost) => Err(lost.clone()),
        None if stored != fence => Err(CommitError::Fenced(stored.epoch)),
        None => within_savepoint(connection, work),
    };
    Box::new(move |outcome| {
        let result = match (result, outcome) {
            (Ok(_), Some(error)) => Err(error.clone()),
            (result, _) => result,
        };
        // The caller may have gone; what was committed stays.
        let _ = answer.send(result);
    })
}

fn within_savepoint<T>(
    connection: &Connection,
    work: impl FnOnce() -> Result<T, Stop>,
) -> Result<T, CommitError> {
    let run = || -> Result<T, Stop> {
        connection.prepare_cached("SAVEPOINT request")?.execute([])?;
        let done = work()?;
        connection.prepare_cached("RELEASE request")?.execute([])?;
        Ok(done)
    };
    run().map_err(|stop| {
        if !connection.is_autocommit()
            && let Err(error) = connection.execute_batch("ROLLBACK TO request; RELEASE request")
        {
            tracing::error!(%error, "a request's part could not be rolled back, so its group is");
            roll_back(connection);
        }
        match stop {
            Stop::Answer(answer) => answer,
            Stop::Sqlite(error) => CommitError::Failed(sentence(&error)),
        }
    })
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
