//! One more process in a container: its input, its output up to a bound, and its end with all that it has started.

use std::io;
use std::time::Duration;

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecResults};
use futures::StreamExt;
use tokio::io::AsyncWriteExt;

use super::failed;
use super::program::Program;
use super::watch::has_ended;
use crate::container::exec::{ERRORS, Scope};
use crate::container::{Exec, Executed, Exit, Failure, Handle, freeze, tree};
use crate::transport::{END, SUBCOMMAND};

/// How long it may take to end inside a container what a tool has left there.
const ENDING: Duration = Duration::from_secs(20);

/// A container, as processes are run in it.
#[derive(Clone)]
pub(super) struct Inside {
    pub docker: Docker,
    pub container: String,
    /// Of the instance that lives in it.
    pub handle: Handle,
}

/// What is run.
struct Run<'a> {
    command: Vec<String>,
    /// `NAME=value`, beside what the container has.
    env: Vec<String>,
    input: &'a [u8],
    /// Bytes of its output that are kept.
    most: usize,
}

impl Inside {
    /// Runs the runner's program to its end or to the end of its time.
    ///
    /// # Errors
    /// When the daemon cannot start it or loses it.
    pub(super) async fn run(self, program: &Program, exec: &Exec) -> Result<Executed, Failure> {
        // The processes are in the container's control group, so they are known by a variable alone.
        let (inside, ending) = (self.clone(), program.command(&[SUBCOMMAND.to_owned()]));
        let scope = Scope::marked(|mark| inside.end(ending, mark));
        let mut env: Vec<String> =
            exec.spec.env.iter().map(|(key, value)| format!("{key}={value}")).collect();
        env.push(format!("{}={}", Scope::MARK, scope.id()));
        let command = program.command(&exec.arguments);
        let run = Run { command, env, input: &exec.input, most: exec.most };
        match tokio::time::timeout(exec.limit, self.finish(run)).await {
            Ok(executed) => Ok(scope.settle(executed?).await),
            Err(_) => Ok(scope.time_out().await),
        }
    }

    /// Kills the processes with this mark, which a tool has started and left. A runner that is not root can neither see
    /// nor signal another user's: then a process of that user does it, inside.
    async fn end(self, command: Vec<String>, mark: String) -> io::Result<()> {
        if self.handle.cgroup.is_some() && tree::is_in_reach(self.handle.pid) {
            return freeze::kill_marked(vec![mark]).await;
        }
        let run = Run { command, env: vec![format!("{END}={mark}")], input: &[], most: 0 };
        let problem = match tokio::time::timeout(ENDING, self.finish(run)).await {
            Ok(Ok(Executed { exit: Exit { code: Some(0), .. }, .. })) => return Ok(()),
            Ok(Ok(Executed { exit, errors, .. })) => format!("{} ({exit:?})", errors.trim()),
            Ok(Err(Failure(problem))) => problem,
            Err(_) => "the container did not do it in time".to_owned(),
        };
        // With a container all of it has ended.
        let has_ended = has_ended(&self.docker, &self.container).await;
        if has_ended { Ok(()) } else { Err(io::Error::other(problem)) }
    }

    async fn finish(&self, run: Run<'_>) -> Result<Executed, Failure> {
        let Run { command, env, input, most } = run;
        let options = CreateExecOptions {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            env: Some(env),
            cmd: Some(command),
            ..CreateExecOptions::default()
        };
        let problem = |error| failed("run a process in the container", &error);
        let id = self.docker.create_exec(&self.container, options).await.map_err(problem)?.id;
        let StartExecResults::Attached { output: mut said, input: mut into } =
            self.docker.start_exec(&id, None).await.map_err(problem)?
        else {
            return Err(Failure("Docker does not pass on what a process in the container says".into()));
        };
        let feed = async {
            // It need not read its input to the end.
            let _ = into.write_all(input).await;
            let _ = into.shutdown().await;
        };
        let listen = async {
            let (mut output, mut errors) = (Vec::new(), Vec::new());
            while let Some(part) = said.next().await {
                match part.map_err(problem)? {
                    LogOutput::StdErr { message } => keep(&mut errors, &message, ERRORS),
                    other => keep(&mut output, other.as_ref(), most),
                }
            }
            Ok::<_, Failure>((output, errors))
        };
        let ((), heard) = tokio::join!(feed, listen);
        let (output, errors) = heard?;
        let ended = self.docker.inspect_exec(&id).await.map_err(problem)?;
        let code = ended.exit_code.and_then(|code| i32::try_from(code).ok());
        Ok(Executed {
            exit: Exit { code, ..Exit::default() },
            output,
            errors: String::from_utf8_lossy(&errors).into_owned(),
            ..Executed::default()
        })
    }
}

/// The rest is heard and dropped.
fn keep(kept: &mut Vec<u8>, part: &[u8], most: usize) {
    kept.extend_from_slice(&part[..part.len().min(most.saturating_sub(kept.len()))]);
}
