//! The one thread that writes. It takes what has queued up, writes it in one transaction with one flush, and
//! answers: while one group is flushed the next one forms, so no timer is needed. With a group it folds some of
//! what waits in the journal.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rusqlite::{Connection, params};
use skein_shared::time::Timestamp;
use tokio::sync::mpsc;

use super::apply::{self, Group, Prepared, Stop};
use super::blobs;
use super::checkpoint::Checkpoints;
use super::connection::sentence;
use super::fold;
use super::journal::{Part, Table, Waiting};
use super::migrate;
use super::number::signed;
use super::room::{self, Room};
use super::standstill::{Serving, Standstill};
use super::trim::{self, Passed, Step};
use crate::alarms::Alarms;
use crate::store::{Chunk, CommitError, Fence, Receipt, TrimPlan, Version};

/// Greatest group: requests, and bytes that they write.
const GROUP: usize = 256;
const GROUP_BYTES: usize = 2 * 1024 * 1024;

/// Parts that are folded with a group at least.
const SLICE: usize = 32;

/// Something to write.
pub(super) enum Work {
    Commit(Box<Prepared>),
    Chunk(Box<Chunk>),
    Delivered(Vec<u64>),
    Bury {
        position: u64,
        reason: String,
        at: Timestamp,
    },
    /// Says whether an import is under way.
    Import(bool),
    /// Brings what waits in the journal to the tables.
    Fold,
    Trim(TrimPlan),
    /// Asks how the connection commits.
    #[cfg(test)]
    Settings,
}

/// What was written.
enum Done {
    Committed(Version),
    Trimmed(Step),
    Written,
    #[cfg(test)]
    Settings(i64, String),
}

type Outcome = Result<Done, CommitError>;

struct Request {
    fence: Fence,
    work: Work,
    receipt: Receipt<Done>,
}

/// A handle to the thread. Dropping it waits until everything queued is written and the file is closed.
pub(super) struct Writer {
    /// Nobody has more than some requests among those that wait: each waits for its answer, and an entity has no more
    /// than some batches under way.
    requests: Option<mpsc::UnboundedSender<Request>>,
    thread: Option<JoinHandle<()>>,
    waiting: Arc<Mutex<Waiting>>,
    serving: Serving,
}

impl Writer {
    /// Starts the thread for the owner with this fence, over an empty journal.
    pub(super) fn start(connection: Connection, checkpoints: Checkpoints, fence: Fence) -> io::Result<Self> {
        let (requests, queue) = mpsc::unbounded_channel();
        let waiting = Arc::<Mutex<Waiting>>::default();
        let serving = Serving::default();
        let pen = Pen {
            connection,
            checkpoints,
            fence,
            waiting: Arc::clone(&waiting),
            unfolded: Vec::new(),
            table: Table::default(),
            passed: Passed::default(),
            standstill: Standstill::none(Arc::clone(&serving)),
            room: Room::enough(Arc::clone(&serving)),
        };
        let thread = thread::Builder::new().name("store-writer".to_owned()).spawn(move || pen.run(queue))?;
        Ok(Self { requests: Some(requests), thread: Some(thread), waiting, serving })
    }

    /// Says where alarms go; the first word counts.
    pub(super) fn serve(&self, alarms: Alarms) {
        let _ = self.serving.set(alarms);
    }

    /// Looks into what is committed and waits to be folded.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Waiting) -> T) -> T {
        look(&self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn commit(&self, fence: Fence, batch: Prepared, receipt: Receipt) {
        let receipt = Receipt::new(|outcome| {
            receipt.give(match outcome {
                Ok(Done::Committed(version)) => Ok(version),
                Ok(_) => Err(mixed_up()),
                Err(problem) => Err(problem),
            });
        });
        self.send(Request { fence, work: Work::Commit(Box::new(batch)), receipt });
    }

    pub(super) async fn trim(&self, fence: Fence, plan: TrimPlan) -> Result<Step, CommitError> {
        match self.ask(fence, Work::Trim(plan)).await? {
            Done::Trimmed(step) => Ok(step),
            _ => Err(mixed_up()),
        }
    }

    pub(super) async fn write(&self, fence: Fence, work: Work) -> Result<(), CommitError> {
        self.ask(fence, work).await.map(|_| ())
    }

    /// What the thread's own connection has as `synchronous` and as `journal_mode`.
    #[cfg(test)]
    pub(super) async fn settings(&self, fence: Fence) -> Result<(i64, String), CommitError> {
        match self.ask(fence, Work::Settings).await? {
            Done::Settings(synchronous, journal) => Ok((synchronous, journal)),
            _ => Err(mixed_up()),
        }
    }

    async fn ask(&self, fence: Fence, work: Work) -> Outcome {
        let (receipt, outcome) = Receipt::awaited();
        self.send(Request { fence, work, receipt });
        outcome.await
    }

    /// Puts a request behind those that wait.
    fn send(&self, request: Request) {
        let Some(requests) = &self.requests else { return request.receipt.not_taken() };
        if let Err(mpsc::error::SendError(request)) = requests.send(request) {
            request.receipt.not_taken();
        }
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

/// What the thread writes with.
struct Pen {
    connection: Connection,
    checkpoints: Checkpoints,
    fence: Fence,
    /// Only the thread changes it.
    waiting: Arc<Mutex<Waiting>>,
    /// Of the old half, what is not in its tables yet, the next one last.
    unfolded: Vec<Part>,
    /// Where the young half's rows are; the old half's are in the other table.
    table: Table,
    /// How far trims have come.
    passed: Passed,
    standstill: Standstill,
    room: Room,
}

impl Pen {
    fn run(mut self, mut queue: mpsc::UnboundedReceiver<Request>) {
        while let Some(first) = queue.blocking_recv() {
            let (mut group, mut bytes, mut next) = (Vec::new(), 0, Some(first));
            let upkeep = loop {
                match next.take() {
                    Some(request) if request.is_upkeep() => break Some(request),
                    Some(request) => {
                        bytes += request.bytes();
                        group.push(request);
                    }
                    None => break None,
                }
                if group.len() < GROUP && bytes < GROUP_BYTES {
                    next = queue.try_recv().ok();
                }
            };
            self.write(group);
            if let Some(request) = upkeep {
                let outcome = self.look_after(&request);
                request.receipt.give(outcome);
            } else {
                self.begin_to_fold();
            }
            self.checkpoints.look_after(&self.connection);
        }
        self.fold_or_warn();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Once enough waits, has it folded with the groups to come.
    fn begin_to_fold(&mut self) {
        if !self.waiting().young.is_full() {
            return;
        }
        if !self.unfolded.is_empty() {
            // It grew faster than the old half was folded: long texts, or one that cannot be.
            if self.standstill.lets_try() {
                self.fold_or_warn();
            }
            return;
        }
        let unfolded: Vec<Part> = self.waiting().young.parts().collect();
        let mut waiting = self.waiting();
        waiting.old = std::mem::take(&mut waiting.young);
        drop(waiting);
        (self.unfolded, self.table) = (unfolded, self.table.other());
    }

    /// Folds some parts within the open transaction, at least as many as the group has added. Gives how many are left.
    fn fold_some(&self, added: usize) -> rusqlite::Result<usize> {
        let left = self.unfolded.len().saturating_sub(added.max(SLICE));
        let old = Arc::clone(&self.waiting().old);
        for part in &self.unfolded[left..] {
            fold::part(&self.connection, &old, part)?;
        }
        if left == 0 && !self.unfolded.is_empty() {
            fold::finish(&self.connection, &old, self.table.other())?;
        }
        Ok(left)
    }

    /// What needs the tables to be whole.
    fn look_after(&mut self, request: &Request) -> Outcome {
        self.fold()?;
        let Work::Trim(plan) = &request.work else { return Ok(Done::Written) };
        let stored = begin(&self.connection).map_err(failed)?;
        // Should the step fail, the next one begins anew.
        let mut passed = std::mem::take(&mut self.passed);
        let step = match stored == request.fence {
            true => trim::trim(&self.connection, plan, &mut passed).map_err(failed),
            false => Err(CommitError::Fenced(stored.epoch)),
        };
        let step = step.inspect_err(|_| roll_back(&self.connection))?;
        commit(&self.connection).map_err(|error| not_committed(&error))?;
        self.passed = passed;
        Ok(Done::Trimmed(step))
    }

    /// Brings all that waits to the tables. Readers find it in memory until the tables have it.
    ///
    /// # Errors
    /// When the disk refuses: everything waits on, and nothing is lost. Another owner has taken up what waits.
    fn fold(&mut self) -> Result<(), CommitError> {
        let waiting = self.waiting();
        let all = Waiting { young: Arc::clone(&waiting.young), old: Arc::clone(&waiting.old) };
        drop(waiting);
        if all.is_empty() {
            return Ok(());
        }
        let stored = begin(&self.connection).map_err(failed)?;
        if stored != self.fence {
            roll_back(&self.connection);
            self.nothing_waits();
            return Err(CommitError::Fenced(stored.epoch));
        }
        fold::whole(&self.connection, &all).map_err(|error| self.not_folded(error))?;
        commit(&self.connection).map_err(|error| {
            self.standstill.goes_on(&error);
            not_committed(&error)
        })?;
        self.nothing_waits();
        Ok(())
    }

    /// Takes back what was written.
    fn not_folded(&mut self, error: rusqlite::Error) -> CommitError {
        roll_back(&self.connection);
        self.standstill.goes_on(&error);
        failed(error)
    }

    fn nothing_waits(&mut self) {
        self.standstill.ends();
        self.unfolded.clear();
        *self.waiting() = Waiting::default();
    }

    /// Commits do not depend on it: a disk that refuses this will tell their callers too.
    fn fold_or_warn(&mut self) {
        match self.fold() {
            Ok(()) | Err(CommitError::Fenced(_)) => {}
            Err(error) => tracing::warn!(%error, "commits wait in the store's journal; tried again later"),
        }
    }

    /// Writes a group and answers each of its requests. Should one of them fail, each is written by itself: a
    /// savepoint around each would cost every group a copy of the pages that it touches.
    fn write(&mut self, group: Vec<Request>) {
        if group.is_empty() {
            return;
        }
        let fold = !self.unfolded.is_empty() && self.standstill.lets_try();
        let outcomes = match self.together(&group, fold) {
            Ok(outcomes) => outcomes,
            // Else it may be the fault of what was folded with it.
            Err(problem) if group.len() == 1 && !fold => vec![Err(problem)],
            Err(_) => group.iter().map(|request| self.alone(request)).collect(),
        };
        for (request, outcome) in group.into_iter().zip(outcomes) {
            request.receipt.give(outcome);
        }
    }

    fn alone(&mut self, request: &Request) -> Outcome {
        self.together(std::slice::from_ref(request), false)?.pop().unwrap_or_else(|| Err(mixed_up()))
    }

    /// Writes requests in one transaction, and perhaps folds some of what waits with it.
    ///
    /// # Errors
    /// When the file or the disk refuses any of them: then nothing was written.
    fn together(&mut self, requests: &[Request], fold: bool) -> Result<Vec<Outcome>, CommitError> {
        let stored = begin(&self.connection).map_err(failed)?;
        let mut group = Group::default();
        let mut outcomes = Vec::with_capacity(requests.len());
        for request in requests {
            outcomes.push(match self.run_one(&mut group, request, stored) {
                Ok(done) => Ok(done),
                Err(Stop::Answer(answer)) => Err(answer),
                Err(Stop::Sqlite(error)) => {
                    roll_back(&self.connection);
                    self.room.refused(&error);
                    return Err(failed(error));
                }
            });
        }
        let mut left = self.unfolded.len();
        if fold && stored == self.fence {
            left = self.fold_some(group.parts()).map_err(|error| self.not_folded(error))?;
        }
        match commit(&self.connection) {
            Ok(()) => {
                let mut waiting = self.waiting();
                group.take_in(Arc::make_mut(&mut waiting.young));
                if left == 0 {
                    waiting.old = Arc::default();
                }
                drop(waiting);
                if left < self.unfolded.len() {
                    self.standstill.ends();
                }
                self.unfolded.truncate(left);
                if outcomes.iter().any(Result::is_ok) {
                    self.room.taken();
                }
            }
            Err(error) => {
                if left < self.unfolded.len() {
                    self.standstill.goes_on(&error);
                } else {
                    self.room.refused(&error);
                }
                let problem = not_committed(&error);
                if matches!(problem, CommitError::Failed(_)) {
                    return Err(problem);
                }
                for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
                    *outcome = Err(problem.clone());
                }
            }
        }
        Ok(outcomes)
    }

    /// Writes within the open transaction. An answer that is no success has written nothing.
    fn run_one<'a>(&self, group: &mut Group<'a>, request: &'a Request, stored: Fence) -> Result<Done, Stop> {
        if stored != self.fence || stored != request.fence {
            return Err(Stop::Answer(CommitError::Fenced(stored.epoch)));
        }
        let connection = &self.connection;
        match &request.work {
            Work::Commit(batch) => {
                let journal = (&*self.waiting, self.table);
                apply::apply(connection, journal, group, stored.epoch, batch).map(Done::Committed)
            }
            Work::Chunk(chunk) => Ok(blobs::write(connection, chunk).map(|()| Done::Written)?),
            Work::Delivered(positions) => Ok(delivered(connection, positions).map(|()| Done::Written)?),
            Work::Bury { position, reason, at } => {
                Ok(bury(connection, *position, reason, *at).map(|()| Done::Written)?)
            }
            Work::Import(under_way) => {
                Ok(migrate::mark_import(connection, *under_way).map(|()| Done::Written)?)
            }
            Work::Fold | Work::Trim(_) => Err(Stop::Answer(mixed_up())),
            #[cfg(test)]
            Work::Settings => Ok(Done::Settings(
                connection.pragma_query_value(None, "synchronous", |row| row.get(0))?,
                connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?,
            )),
        }
    }
}

impl Request {
    /// Whether it stands alone, after what waits was folded.
    fn is_upkeep(&self) -> bool {
        matches!(self.work, Work::Fold | Work::Trim(_))
    }

    fn bytes(&self) -> usize {
        match &self.work {
            Work::Commit(batch) => batch.bytes,
            Work::Chunk(chunk) => chunk.bytes.len(),
            _ => 0,
        }
    }
}

fn failed(error: rusqlite::Error) -> CommitError {
    CommitError::Failed(sentence(&error))
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

fn commit(connection: &Connection) -> rusqlite::Result<()> {
    metrics::counter!("skein_store_flushes_total").increment(1);
    connection.execute_batch("COMMIT").inspect_err(|_| roll_back(connection))
}

/// A commit that failed may have reached the disk all the same: only a restart would tell. Not where there was no room
/// for it, for what makes a commit of the pages before it is written last.
pub(super) fn not_committed(error: &rusqlite::Error) -> CommitError {
    match room::is_missing(error) {
        true => CommitError::Failed(sentence(error)),
        false => CommitError::Unknown(sentence(error)),
    }
}

fn roll_back(connection: &Connection) {
    if connection.is_autocommit() {
        return; // SQLite has done it already
    }
    if let Err(error) = connection.execute_batch("ROLLBACK") {
        tracing::error!(%error, "a transaction of the store could not be rolled back");
    }
}
