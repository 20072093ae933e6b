//! The output of a container on its way into the instance's log file.
//!
//! The daemon keeps the last of it in files of bounded size, and the runner copies from there at a bounded rate: an
//! agent that prints without end costs neither disk nor a processor of the runner, only its own older lines.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::LogsOptionsBuilder;
use futures::StreamExt;
use tokio::time::Instant;

use crate::container::Failure;

/// Most bytes copied in one [`SPELL`]; each line counts for some more, for it costs time however short it is.
const BUDGET: usize = 1024 * 1024;
const SPELL: Duration = Duration::from_millis(125);
const LINE: usize = 64;
/// Lines that are written together.
const TOGETHER: usize = 1024;

/// Opens the log, and says how long it is. What an earlier process of the runner has copied comes again, so what lies
/// behind `from` is dropped.
///
/// # Errors
/// When the file cannot be opened.
pub(super) fn open(path: &Path, from: Option<u64>) -> Result<(File, u64), Failure> {
    let open = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    let problem = |error| Failure(format!("cannot open the log {}: {error}", path.display()));
    let file = open.map_err(problem)?;
    let length = file.metadata().map_err(problem)?.len();
    let kept = from.map_or(length, |from| from.min(length));
    file.set_len(kept).map_err(problem)?;
    Ok((file, kept))
}

/// Copies until the container has ended, or the daemon lets go of it.
pub(super) async fn follow(docker: Docker, container: String, mut file: File) {
    let options = LogsOptionsBuilder::new().follow(true).stdout(true).stderr(true).build();
    let mut lines = docker.logs(&container, Some(options)).ready_chunks(TOGETHER);
    let (mut began, mut spent) = (Instant::now(), 0);
    while let Some(chunk) = lines.next().await {
        let mut bytes = Vec::new();
        for line in chunk.iter().flatten() {
            bytes.extend_from_slice(line.as_ref());
            spent += line.as_ref().len() + LINE;
        }
        let written = tokio::task::spawn_blocking(move || file.write_all(&bytes).map(|()| file)).await;
        let Ok(Ok(same)) = written else {
            tracing::error!(container, "the log could not be written; check that the disk is not full");
            return;
        };
        file = same;
        if spent >= BUDGET {
            tokio::time::sleep_until(began + SPELL).await;
            (began, spent) = (Instant::now(), 0);
        }
    }
}
