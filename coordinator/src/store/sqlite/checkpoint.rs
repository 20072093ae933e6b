//! Copies the write-ahead log into the file, beside the writer.
//!
//! SQLite would have the commit that fills the log copy all of it, and everybody behind that commit would wait for
//! tens of milliseconds. Here a thread of its own copies while commits go on. A log is begun anew only when all of it
//! is copied, so the writer copies the few pages itself that were added meanwhile.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;

use super::connection::{self, Durability, sentence};

/// Pages of the log that are copied together: a page that is written again and again is copied once for all of them.
const LOG: i32 = 4000;
/// Pages that the writer may copy by itself, which takes about as long as a flush.
const REST: i32 = 100;
/// The copier goes over the log so many times to leave no more than that.
const TURNS: u32 = 6;

/// The writer's side.
pub(super) struct Checkpoints {
    /// Pages in the log, as of the last commit.
    log: Arc<AtomicI32>,
    /// Pages that were in the log when it was last copied; none of it if it has begun anew since.
    copied: i32,
    /// Turns that the copier has begun.
    turns: u32,
    copier: Option<Copier>,
}

struct Copier {
    orders: SyncSender<()>,
    /// Pages that are copied so far.
    answers: Receiver<i32>,
    thread: JoinHandle<()>,
}

impl Checkpoints {
    /// Takes the place of SQLite's own checkpoints on the writer's connection.
    pub(super) fn start(
        writer: &mut Connection,
        path: &Path,
        durability: Durability,
    ) -> Result<Self, String> {
        let log = Arc::<AtomicI32>::default();
        let pages = Arc::clone(&log);
        let note = move |_: &mut rusqlite::hooks::Wal, count| {
            pages.store(count, Ordering::Relaxed);
            Ok(())
        };
        writer.wal_hook(Some(note)).map_err(|error| sentence(&error))?;
        let connection = connection::writable(path, durability).map_err(|error| sentence(&error))?;
        let (orders, queue) = mpsc::sync_channel(1);
        let (answer, answers) = mpsc::sync_channel(1);
        let work = move || {
            while queue.recv().is_ok() && answer.send(copy(&connection)).is_ok() {}
        };
        let thread = thread::Builder::new().name("checkpoint".to_owned()).spawn(work);
        let thread = thread.map_err(|error| error.to_string())?;
        Ok(Self { log, copied: 0, turns: 0, copier: Some(Copier { orders, answers, thread }) })
    }

    /// Has the log copied if it is long. Called between the writer's transactions; it waits for nobody.
    pub(super) fn look_after(&mut self, writer: &Connection) {
        let log = self.log.load(Ordering::Relaxed);
        if log < self.copied {
            self.copied = 0;
        }
        let Some(copier) = &self.copier else { return };
        if self.turns == 0 {
            if log - self.copied >= LOG && copier.orders.try_send(()).is_ok() {
                self.turns = 1;
            }
            return;
        }
        match copier.answers.try_recv() {
            Err(TryRecvError::Empty) => {}
            Ok(copied) if log - copied > REST && self.turns < TURNS => {
                self.turns = if copier.orders.try_send(()).is_ok() { self.turns + 1 } else { 0 };
            }
            Ok(_) => {
                self.turns = 0;
                self.copied = copy(writer).max(log);
            }
            Err(TryRecvError::Disconnected) => self.leave_to_sqlite(writer),
        }
    }

    /// The copier panicked, which was reported there.
    fn leave_to_sqlite(&mut self, writer: &Connection) {
        self.copier = None;
        if let Err(error) = writer.pragma_update(None, "wal_autocheckpoint", LOG) {
            tracing::warn!(error = sentence(&error), "the store's log is not copied into the file any more");
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        let Some(Copier { orders, answers, thread }) = self.copier.take() else { return };
        drop((orders, answers));
        let _ = thread.join();
    }
}

/// Copies what is committed and no reader's moment needs. Gives how many pages of the log are in the file.
fn copy(connection: &Connection) -> i32 {
    let copied = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(2));
    copied.unwrap_or_else(|error| {
        tracing::warn!(
            error = sentence(&error),
            "the store's log grows, for it cannot be copied into the file"
        );
        0
    })
}
