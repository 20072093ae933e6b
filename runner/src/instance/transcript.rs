//! What an instance's program printed, read again for what it says of the run.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use crate::harness::{Harness, Said};

/// Longest line that is looked at, bytes; no client says anything of a run in a longer one.
const LINE: u64 = 4 * 1024 * 1024;

/// Reads a log from its beginning, with the part that was cut off when it grew too long.
pub(super) fn read(harness: Harness, log: &Path) -> std::io::Result<Said> {
    let mut said = Said::default();
    for part in [log.with_extension("log.1"), log.to_owned()] {
        match File::open(part) {
            Ok(part) => note(harness, BufReader::new(part), &mut said)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(said)
}

fn note(harness: Harness, mut log: impl BufRead, said: &mut Said) -> std::io::Result<()> {
    let mut line = Vec::new();
    // A line that is too long comes in pieces, which are no JSON.
    while log.by_ref().take(LINE).read_until(b'\n', &mut line)? > 0 {
        harness.note(String::from_utf8_lossy(&line).trim_end(), said);
        line.clear();
    }
    Ok(())
}
