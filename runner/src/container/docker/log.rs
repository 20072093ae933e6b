//! The output of a container on its way into the instance's log file.
//!
//! The daemon keeps the last of it in files of bounded size, and the runner copies from there at a bounded rate: an
//! agent that prints without end costs neither disk nor a processor of the runner, only its own older lines.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::LogsOptionsBuilder;
use futures::StreamExt;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Id;
use crate::container::{Exit, Failure};

/// Most bytes copied in one [`SPELL`]; each line counts for some more, for it costs time however short it is.
const BUDGET: usize = 1024 * 1024;
const SPELL: Duration = Duration::from_millis(125);
const LINE: usize = 64;
/// How long after the last line the end of its container may be told; later than that the daemon has let go.
const AGAIN: Duration = Duration::from_secs(1);
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

/// Copies to the end of the container. A daemon that is started again lets go of those who listen to it: then it is all
/// copied anew.
pub(super) async fn copy(
    docker: Docker,
    container: Id,
    path: PathBuf,
    mut file: File,
    mut ending: watch::Receiver<Option<Exit>>,
) {
    loop {
        follow(&docker, &container.id, file).await;
        if tokio::time::timeout(AGAIN, ending.wait_for(Option::is_some)).await.is_ok() {
            return;
        }
        match open(&path, Some(container.log)) {
            Ok((again, _)) => file = again,
            Err(problem) => {
                return tracing::error!(container = container.id, %problem, "no more output is kept");
            }
        }
    }
}

async fn follow(docker: &Docker, container: &str, mut file: File) {
    let options = LogsOptionsBuilder::new().follow(true).stdout(true).stderr(true).build();
    let mut lines = docker.logs(container, Some(options)).ready_chunks(TOGETHER);
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
