//! A copy that was put in the place of a store.
//!
//! What a process that was killed has left in its log SQLite writes into whatever file it finds beside it. So a backup
//! that is put over the store of a node that was killed would be undone in part, page by page, without a word.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Where the header of a file says how it is written, and what stands there of a copy that nobody has opened yet: it is
/// written without a log. Before a store has a log its header says so.
const WRITTEN: usize = 18;
const WITHOUT_LOG: u8 = 1;

/// Looks whether a log lies beside a file that has none.
///
/// # Errors
/// When one does.
pub(super) fn refuse_beside_a_log(path: &Path) -> Result<(), String> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let log = PathBuf::from(log);
    let is_there = log.metadata().is_ok_and(|log| log.len() > 0);
    if !is_there || !is_without_log(path) {
        return Ok(());
    }
    Err(format!(
        "it is a copy, and {} beside it is the log of the store that was here before, which would be written into the \
         copy; put the copy into a new data folder, or remove that log and the file that is called the same with -shm",
        log.display()
    ))
}

/// Of what cannot be read SQLite says why.
fn is_without_log(path: &Path) -> bool {
    let mut header = [0; WRITTEN + 1];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    read.is_ok() && header[WRITTEN] == WITHOUT_LOG
}
