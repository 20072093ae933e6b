//! What SQLite can do with a disk when steps that come together share a flush.
//!
//! [`Bare`] writes one small row a step: clients wait for one writing thread, as they must. [`Shaped`] writes the very
//! rows that Skein's commits write, taken down from a run of Skein under the same load, on one thread: nothing is
//! decided, no message is sent, and the JSON is made already.

mod bare;
mod shaped;

use std::path::Path;

use anyhow::Result;
use rusqlite::Connection;

pub(crate) use bare::{Bare, Step};
pub(crate) use shaped::{Record, Recording, Shaped, fresh};

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
