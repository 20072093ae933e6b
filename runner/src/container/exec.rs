//! One more process inside an instance, for the engine of plain processes: its input, its output up to a bound, and
//! its end with all that it has started.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
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
    /// Kills them. None once they are left, or being killed.
    end: Option<BoxFuture<'static, io::Result<()>>>,
}

impl Scope {
    /// The variable that holds the id.
    pub(super) const MARK: &str = "SKEIN_EXEC";

    pub(super) fn new(handle: &Handle) -> io::Result<Self> {
        let id = fresh();
        let group = handle.cgroup.as_ref().map(|instance| {
            // Those of earlier ones, whose last processes have ended since.
            cgroup::prune(instance);
            instance.join(format!("exec-{id}"))
        });
        group.as_deref().map(cgroup::make).transpose()?;
        let end = match group.clone() {
            Some(group) => async move { cgroup::kill(&group).await }.boxed(),
            None => freeze::kill_marked(vec![mark(&id)]).boxed(),
        };
        Ok(Self { id, group, end: Some(end) })
    }

    /// Where control groups are not the engine's to make. `end` is given what stands in the environment of its
    /// processes, and kills them.
    pub(super) fn marked<E>(end: impl FnOnce(String) -> E) -> Self
    where
        E: Future<Output = io::Result<()>> + Send + 'static,
    {
        let id = fresh();
        let end = end(mark(&id)).boxed();
        Self { id, group: None, end: Some(end) }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn group(&self) -> Option<&Path> {
        self.group.as_deref()
    }

    /// What still runs is the instance's own affair after a good end, and is killed after any other.
    pub(super) async fn settle(self, executed: Executed) -> Executed {
        match executed.exit.code {
            Some(0) => {
                self.leave();
                executed
            }
            _ => Executed { left: self.kill().await, ..executed },
        }
    }

    /// When the time of the [`Exec`] is over.
    pub(super) async fn time_out(self) -> Executed {
        Executed { timed_out: true, left: self.kill().await, ..Executed::default() }
    }

    fn leave(mut self) {
        self.end = None;
        if let Some(group) = &self.group {
            // It stays while something runs in it.
            let _ = std::fs::remove_dir(group);
        }
    }

    /// Gives why some were not killed, if so. It goes on when whoever asked for it waits no longer.
    async fn kill(mut self) -> Option<String> {
        let killing = tokio::spawn(killed(self.end.take()?));
        killing.await.unwrap_or_else(|problem| Some(problem.to_string()))
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let (Some(end), Ok(runtime)) = (self.end.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(killed(end));
        }
    }
}

async fn killed(end: BoxFuture<'static, io::Result<()>>) -> Option<String> {
    let error = end.await.err()?;
    tracing::error!(%error, "processes of a tool were not ended; they end with their instance");
    Some(error.to_string())
}

fn fresh() -> String {
    Uuid::new_v4().simple().to_string()
}

/// What its processes have in their environment.
fn mark(id: &str) -> String {
    format!("{}={id}", Scope::MARK)
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
        Ok(Ok(executed)) => Ok(scope.settle(executed).await),
        Ok(Err(error)) => Err(Failure(format!("a process in the instance was lost: {error}"))),
        Err(_) => Ok(scope.time_out().await),
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
        ..Executed::default()
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

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_kill_that_has_begun_goes_on_when_its_asker_goes() {
        let (begins, begun) = oneshot::channel();
        let (goes_on, gone) = oneshot::channel();
        let (ends, ended) = oneshot::channel();
        let scope = Scope::marked(|_| async move {
            let _ = begins.send(());
            let _ = gone.await;
            let _ = ends.send(());
            Ok(())
        });
        let asker = tokio::spawn(scope.time_out());
        begun.await.unwrap();
        asker.abort();
        assert!(asker.await.unwrap_err().is_cancelled());
        goes_on.send(()).expect("nobody kills any more");
        ended.await.unwrap();
    }
}
