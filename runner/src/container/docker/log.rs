//! The output of a container on its way into the instance's log file.
//!
//! The daemon keeps the last of it in files of bounded size, and the runner copies from there at a bounded rate: an
//! agent that prints without end costs neither disk nor a processor of the runner, only its own older lines.
//!
//! How far it was copied stands in a file beside the log. The runner and the daemon may begin anew at any time, and the
//! log may have been emptied since: what a client says of its costs is counted from it, each line once.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::query_parameters::LogsOptionsBuilder;
use bytes::Bytes;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use skein_shared::time::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Id;
use crate::container::{Exit, Failure};

/// The extension of the file that stands beside a log.
pub const COPIED: &str = "copied";
/// Most bytes copied in one [`SPELL`]; each line counts for some more, for it costs time however short it is.
const BUDGET: usize = 1024 * 1024;
const SPELL: Duration = Duration::from_millis(125);
const LINE: usize = 64;
/// How long after the last line the end of its container may be told; later than that the daemon has let go.
const AGAIN: Duration = Duration::from_secs(1);
/// Lines that are written together.
const TOGETHER: usize = 1024;

/// How far the output of a container was copied.
#[derive(Serialize, Deserialize)]
struct Place {
    container: String,
    /// The latest second of which something was copied, since 1970. The daemon tells again what was printed from a
    /// second on.
    second: u64,
    /// How many pieces of output of that second were copied.
    pieces: u64,
    /// How long the log is with them. What lies behind was copied when the runner ended, and comes again.
    length: u64,
}

/// A log into which the output of a container is copied.
pub(super) struct Copied {
    log: File,
    beside: File,
    place: Place,
    /// Pieces that come again, and are in the log already.
    known: u64,
}

/// Opens the log of an instance, and says how long it is.
///
/// # Errors
/// When it cannot be opened.
pub(super) fn length(path: &Path) -> Result<u64, Failure> {
    let problem = |error| Failure(format!("cannot open the log {}: {error}", path.display()));
    let log = options().append(true).open(path).map_err(problem)?;
    log.metadata().map(|about| about.len()).map_err(problem)
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600);
    options
}

impl Copied {
    /// Goes on where the last one has ended. If nobody knows where that is, all of the container's output comes anew.
    ///
    /// # Errors
    /// When the files cannot be opened.
    pub(super) fn open(path: &Path, container: &Id) -> Result<Self, Failure> {
        let problem = |error| Failure(format!("cannot open the log {}: {error}", path.display()));
        let log = options().append(true).open(path).map_err(problem)?;
        let beside = path.with_extension(COPIED);
        let mut beside = options().read(true).write(true).truncate(false).open(beside).map_err(problem)?;
        let mut text = String::new();
        // What cannot be read is of no use.
        let place = beside.read_to_string(&mut text).ok().and_then(|_| serde_json::from_str(&text).ok());
        let mut place = place.filter(|place: &Place| place.container == container.id).unwrap_or_else(|| {
            Place { container: container.id.clone(), second: 0, pieces: 0, length: container.log }
        });
        let length = log.metadata().map_err(problem)?.len();
        // A shorter one was emptied since.
        place.length = place.length.min(length);
        if place.length < length {
            log.set_len(place.length).map_err(problem)?;
        }
        Ok(Self { log, beside, known: place.pieces, place })
    }

    /// Takes in what the daemon has told. Gives what that has cost.
    pub(super) fn take(&mut self, pieces: &[Bytes]) -> io::Result<usize> {
        let (mut bytes, mut spent) = (Vec::new(), 0);
        for piece in pieces {
            let (second, text) = dated(piece).unwrap_or((self.place.second, &piece[..]));
            spent += text.len() + LINE;
            if second > self.place.second {
                (self.place.second, self.place.pieces, self.known) = (second, 0, 0);
            }
            if second == self.place.second && self.known > 0 {
                self.known -= 1;
                continue;
            }
            if second == self.place.second {
                self.place.pieces += 1;
            }
            bytes.extend_from_slice(text);
        }
        self.write(&bytes)?;
        Ok(spent)
    }

    /// Both files are written one after the other, and a runner may end in between.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.log.write_all(bytes)?;
        // Looked at each time, for it may have been emptied.
        self.place.length = self.log.metadata()?.len();
        // In its place, which it fills always: for that a full disk has room.
        let place = format!("{:<256}", serde_json::to_string(&self.place)?);
        self.beside.write_all_at(place.as_bytes(), 0)
    }
}

/// When a piece of output was printed, in seconds, and what it is without that.
fn dated(piece: &[u8]) -> Option<(u64, &[u8])> {
    let end = piece.iter().position(|byte| *byte == b' ')?;
    let printed = Timestamp::parse_iso(std::str::from_utf8(&piece[..end]).ok()?)?;
    Some((printed.millis() / 1000, &piece[end + 1..]))
}

/// Copies to the end of the container. A daemon that is started again lets go of those who listen to it, a disk may be
/// full for a while, and a runner may have no more files open than so many: then it goes on where it was.
pub(super) async fn copy(
    docker: Docker,
    container: Id,
    path: PathBuf,
    copied: Copied,
    mut ending: watch::Receiver<Option<Exit>>,
) {
    let (mut copied, mut has_ended) = (Some(copied), false);
    loop {
        let is_whole = match copied.take() {
            Some(copied) => follow(&docker, copied).await,
            None => false,
        };
        let had_ended = has_ended;
        has_ended = tokio::time::timeout(AGAIN, ending.wait_for(Option::is_some)).await.is_ok();
        // Of what could not be told to its end, the rest is asked for once more.
        if had_ended || has_ended && is_whole {
            return;
        }
        match Copied::open(&path, &container) {
            Ok(again) => copied = Some(again),
            Err(problem) => {
                tracing::error!(container = container.id, %problem, "its output is not kept just now; tried again");
            }
        }
    }
}

/// Whether the daemon has told all that it will, and that is written.
async fn follow(docker: &Docker, mut copied: Copied) -> bool {
    let container = copied.place.container.clone();
    let since = i32::try_from(copied.place.second).unwrap_or(i32::MAX);
    let options = LogsOptionsBuilder::new().follow(true).stdout(true).stderr(true);
    let options = options.timestamps(true).since(since).build();
    let mut told = docker.logs(&container, Some(options)).ready_chunks(TOGETHER);
    let (mut began, mut spent) = (Instant::now(), 0);
    while let Some(chunk) = told.next().await {
        let count = chunk.len();
        let pieces: Vec<Bytes> = chunk.into_iter().map_while(whole).collect();
        let is_whole = pieces.len() == count;
        let written = tokio::task::spawn_blocking(move || copied.take(&pieces).map(|cost| (copied, cost)));
        let Ok(Ok((same, cost))) = written.await else {
            tracing::error!(container, "the log could not be written; check that the disk is not full");
            return false;
        };
        copied = same;
        if !is_whole {
            return false;
        }
        spent += cost;
        if spent >= BUDGET {
            tokio::time::sleep_until(began + SPELL).await;
            (began, spent) = (Instant::now(), 0);
        }
    }
    true
}

/// What the daemon tells. One that is cut short has an error to tell, or a part of a piece, which is of no stream.
fn whole(told: Result<LogOutput, Error>) -> Option<Bytes> {
    match told {
        Ok(LogOutput::StdOut { message } | LogOutput::StdErr { message }) => Some(message),
        Ok(_) | Err(_) => None,
    }
}
