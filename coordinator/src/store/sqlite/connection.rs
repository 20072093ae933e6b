//! Connections to SQLite files: their settings, a small pool for reading, and errors as sentences.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

/// How long a connection waits for another one's lock. Only a second process can hold one for long.
const BUSY: Duration = Duration::from_secs(5);

/// Statements kept prepared on a connection: more than any part of the program has.
const STATEMENTS: usize = 64;

/// Kibibytes of pages that a connection keeps, as SQLite's negative number. The writer's are those that it will
/// change next; readers find theirs with the system, which keeps them once for all.
const WRITE_CACHE: i32 = -16 * 1024;
const READ_CACHE: i32 = -2 * 1024;

/// Bytes of a page of a file that can be made again. It is written in large groups: fewer, larger pages.
pub(crate) const DISPOSABLE_PAGE: u32 = 8192;

/// What a commit has survived when it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Power loss: the log is flushed at every commit.
    Full,
    /// Nothing: for files that can be made again.
    Disposable,
}

/// Makes an empty file that this user alone can read, unless there is one: it will hold what agents and people
/// told each other, wherever its folder is. SQLite gives the files beside it the same mode.
fn make_private(path: &Path) -> std::io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).map(|_| ())
}

/// Opens a file for its one writer, and makes it if need be.
pub(crate) fn writable(path: &Path, durability: Durability) -> rusqlite::Result<Connection> {
    // What keeps it from being made keeps SQLite from opening it, and SQLite says it better.
    let _ = make_private(path);
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    settle(&connection, durability)?;
    match durability {
        Durability::Full => {
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "FULL")?;
        }
        Durability::Disposable => {
            connection.pragma_update(None, "page_size", DISPOSABLE_PAGE)?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "OFF")?;
        }
    }
    connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
    // A page that is written again and again is copied into the file once in so many.
    connection.pragma_update(None, "wal_autocheckpoint", 4000)?;
    Ok(connection)
}

/// Opens an existing file for reading alone.
pub(crate) fn readable(path: &Path, durability: Durability) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    settle(&connection, durability)?;
    connection.pragma_update(None, "cache_size", READ_CACHE)?;
    Ok(connection)
}

fn settle(connection: &Connection, durability: Durability) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Otherwise each new value of a `LIMIT` has its statement prepared anew, which takes longer than to run it. The
    // store's statements have one good plan; for lists of the read side the value decides which index is the best.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, durability == Durability::Full)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    // It finds a broken page early, and takes a quarter of a search's time.
    connection.pragma_update(None, "cell_size_check", durability == Durability::Full)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cache_size", WRITE_CACHE)
}

/// Why a query gave nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unread {
    #[error("the process is shutting down")]
    Ending,
    #[error("{}", sentence(.0))]
    Failed(rusqlite::Error),
}

/// Read-only connections, lent to blocking threads one query at a time.
#[derive(Clone)]
pub(crate) struct Readers {
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    pub(crate) fn open(path: &Path, durability: Durability, count: usize) -> rusqlite::Result<Self> {
        let open = |_| readable(path, durability);
        let idle = (0..count).map(open).collect::<rusqlite::Result<Vec<_>>>()?;
        Ok(Self { permits: Arc::new(Semaphore::new(count)), idle: Arc::new(Mutex::new(idle)) })
    }

    /// Runs a query in one read transaction, so that all it sees is of one moment.
    ///
    /// # Errors
    /// A sentence, when the query fails or the process is ending.
    pub(crate) async fn read<T, Q>(&self, query: Q) -> Result<T, String>
    where
        T: Send + 'static,
        Q: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.query(query).await.map_err(|unread| unread.to_string())
    }

    /// The same for whoever wants to know what went wrong.
    ///
    /// # Errors
    /// When the query fails or the process is ending.
    pub(crate) async fn query<T, Q>(&self, query: Q) -> Result<T, Unread>
    where
        T: Send + 'static,
        Q: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (permits, idle) = (Arc::clone(&self.permits), Arc::clone(&self.idle));
        // In a task of its own: whoever reads may be left alone (a call whose client takes nothing more), and those
        // behind it in the queue would wait with it.
        let reading = async move {
            let permit = permits.acquire_owned().await.map_err(|_| Unread::Ending)?;
            let run = move || {
                let _permit = permit;
                let mut loan = Loan::take(idle)?;
                let transaction = loan.connection()?.transaction()?;
                query(&transaction)
            };
            let result = tokio::task::spawn_blocking(run).await.map_err(|_| Unread::Ending)?;
            result.map_err(Unread::Failed)
        };
        AbortOnDropHandle::new(tokio::spawn(reading)).await.unwrap_or(Err(Unread::Ending))
    }
}

/// A connection that goes back to the pool, also when the query panics.
struct Loan {
    connection: Option<Connection>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Loan {
    fn take(idle: Arc<Mutex<Vec<Connection>>>) -> rusqlite::Result<Self> {
        let connection = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Ok(Self { connection, idle })
    }

    fn connection(&mut self) -> rusqlite::Result<&mut Connection> {
        self.connection.as_mut().ok_or(rusqlite::Error::InvalidQuery)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }
}

/// Whether the file holds what SQLite has not written.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// What went wrong and what to do about it.
pub(crate) fn sentence(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            format!("the disk is full ({error}); free some space, then it works again")
        }
        Some(ErrorCode::SystemIoFailure) => {
            format!("the disk failed ({error}); look at the system's log")
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            format!("the file is damaged ({error}); stop, keep it aside and restore a backup")
        }
        Some(ErrorCode::NotADatabase) => {
            "the file is not a SQLite database; name another file or restore a backup".to_owned()
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            format!("another process holds the file ({error}); stop that one first")
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            format!("the file cannot be opened for writing ({error}); check its path, owner and mode")
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn whoever_waits_to_read_and_is_left_alone_holds_up_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.db");
        writable(&path, Durability::Disposable).unwrap();
        let readers = Readers::open(&path, Durability::Disposable, 1).unwrap();
        let (goes_on, waits) = mpsc::channel::<()>();
        let holder = tokio::spawn({
            let readers = readers.clone();
            async move { readers.read(move |_| Ok(waits.recv())).await }
        });
        while readers.permits.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let mut left_alone = std::pin::pin!(readers.read(|_| Ok(())));
        assert!(futures::poll!(&mut left_alone).is_pending(), "it waits for its turn");
        tokio::task::yield_now().await;
        let next = tokio::spawn({
            let readers = readers.clone();
            async move { readers.read(|_| Ok(())).await }
        });
        goes_on.send(()).unwrap();
        tokio::time::timeout(BUSY, next)
            .await
            .expect("it waits behind the one that is left alone")
            .unwrap()
            .unwrap();
        holder.await.unwrap().unwrap().unwrap();
    }
}
