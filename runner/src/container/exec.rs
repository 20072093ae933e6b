//! One more process inside an instance, for the engine of plain processes: its input, its output up to a bound, and
//! its end with all that it has started.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use uuid::Uuid;

use super::{Exec, Executed, Exit, Failure, Handle, cgroup, freeze};

/// Bytes that are kept of standard error: what an instance's program says there is a failure, and short.
pub(super) const ERRORS: usize = 4096;
const CHUNK: usize = 64 * 1024;

/// All processes of one [`Exec`]: a control group below the instance's, or those that have its id in their environment.
/// Unless it was left, dropping it kills them.
pub(super) struct Scope {
    id: String,
    group: Option<PathBuf>,
    left: bool,
}

impl Scope {
    /// The variable that holds the id.
    pub(super) const MARK: &str = "SKEIN_EXEC";

    pub(super) fn new(handle: &Handle) -> io::Result<Self> {
        let id = Uuid::new_v4().simple().to_string();
        let group = handle.cgroup.as_ref().map(|instance| {
            // Those of earlier ones, whose last processes have ended since.
            cgroup::prune(instance);
            instance.join(format!("exec-{id}"))
        });
        group.as_deref().map(cgroup::make).transpose()?;
        Ok(Self { id, group, left: false })
    }

    /// Where control groups are not the engine's to make.
    pub(super) fn marked() -> Self {
        Self { id: Uuid::new_v4().simple().to_string(), group: None, left: false }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn group(&self) -> Option<&Path> {
        self.group.as_deref()
    }

    /// What still runs is the instance's own affair after a good end, and is killed after any other.
    pub(super) async fn settle(self, executed: &Executed) {
        match executed.exit.code {
            Some(0) => self.leave(),
            _ => self.kill().await,
        }
    }

    fn leave(mut self) {
        self.left = true;
        if let Some(group) = &self.group {
            // It stays while something runs in it.
            let _ = std::fs::remove_dir(group);
        }
    }

    pub(super) async fn kill(mut self) {
        self.left = true;
        end(std::mem::take(&mut self.id), self.group.take()).await;
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let (false, Ok(runtime)) = (self.left, tokio::runtime::Handle::try_current()) {
            runtime.spawn(end(std::mem::take(&mut self.id), self.group.take()));
        }
    }
}

async fn end(id: String, group: Option<PathBuf>) {
    let killed = match &group {
        Some(group) => cgroup::kill(group).await,
        None => freeze::kill_marked(vec![format!("{}={id}", Scope::MARK)]).await,
    };
    if let Err(error) = killed {
        tracing::error!(%error, "processes of a tool were not ended; they end with their instance");
    }
}

/// Runs the command, which begins in its scope, to its end or to the end of its time. In an instance that was `closed`
/// meanwhile it does not run: whoever froze or ended that has looked for its processes before this one was there.
pub(super) async fn run(
    mut command: Command,
    exec: &Exec,
    scope: Scope,
    closed: &AtomicBool,
) -> Result<Executed, Failure> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let child = command
        .spawn()
        .map_err(|error| Failure(format!("a process could not be started in the instance: {error}")))?;
    if closed.load(Ordering::SeqCst) {
        drop(child);
        scope.kill().await;
        return Err(Failure("the instance was frozen or ended at that moment; look, and try again".into()));
    }
    match tokio::time::timeout(exec.limit, finish(child, exec)).await {
        Ok(Ok(executed)) => {
            scope.settle(&executed).await;
            Ok(executed)
        }
        Ok(Err(error)) => Err(Failure(format!("a process in the instance was lost: {error}"))),
        Err(_) => {
            scope.kill().await;
            Ok(Executed { timed_out: true, ..Executed::default() })
        }
    }
}

async fn finish(mut child: Child, exec: &Exec) -> io::Result<Executed> {
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut input) = input {
            // It need not read its input to the end.
            let _ = input.write_all(&exec.input).await;
        }
    };
    let ((), output, errors, status) =
        tokio::join!(feed, bounded(output, exec.most), bounded(errors, ERRORS), child.wait());
    let status = status?;
    Ok(Executed {
        exit: Exit { code: status.code(), signal: status.signal(), ..Exit::default() },
        output: output?,
        errors: String::from_utf8_lossy(&errors?).into_owned(),
        timed_out: false,
    })
}

/// Reads to the end and keeps the first `most` bytes.
async fn bounded(from: Option<impl AsyncRead + Unpin>, most: usize) -> io::Result<Vec<u8>> {
    let (mut kept, mut chunk) = (Vec::new(), vec![0; CHUNK]);
    let Some(mut from) = from else { return Ok(kept) };
    loop {
        let read = from.read(&mut chunk).await?;
        if read == 0 {
            return Ok(kept);
        }
        kept.extend_from_slice(&chunk[..read.min(most.saturating_sub(kept.len()))]);
    }
}
