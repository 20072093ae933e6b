//! One more process in a container: its input, its output up to a bound, and its end.

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecResults};
use futures::StreamExt;
use tokio::io::AsyncWriteExt;

use super::failed;
use crate::container::exec::{ERRORS, Scope};
use crate::container::{Exec, Executed, Exit, Failure};

/// Runs a command to its end or to the end of its time.
///
/// # Errors
/// When the daemon cannot start it or loses it.
pub(super) async fn run(
    docker: &Docker,
    container: &str,
    command: Vec<String>,
    exec: &Exec,
) -> Result<Executed, Failure> {
    // The processes are in the container's control group, so they are known by a variable alone.
    let scope = Scope::marked();
    let mut env: Vec<String> = exec.spec.env.iter().map(|(key, value)| format!("{key}={value}")).collect();
    env.push(format!("{}={}", Scope::MARK, scope.id()));
    match tokio::time::timeout(exec.limit, finish(docker, container, command, env, exec)).await {
        Ok(executed) => {
            let executed = executed?;
            scope.settle(&executed).await;
            Ok(executed)
        }
        Err(_) => {
            scope.kill().await;
            Ok(Executed { timed_out: true, ..Executed::default() })
        }
    }
}

async fn finish(
    docker: &Docker,
    container: &str,
    command: Vec<String>,
    env: Vec<String>,
    exec: &Exec,
) -> Result<Executed, Failure> {
    let options = CreateExecOptions {
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        env: Some(env),
        cmd: Some(command),
        ..CreateExecOptions::default()
    };
    let problem = |error| failed("run a process in the container", &error);
    let id = docker.create_exec(container, options).await.map_err(problem)?.id;
    let StartExecResults::Attached { output: mut said, input: mut into } =
        docker.start_exec(&id, None).await.map_err(problem)?
    else {
        return Err(Failure("Docker does not pass on what a process in the container says".into()));
    };
    let feed = async {
        // It need not read its input to the end.
        let _ = into.write_all(&exec.input).await;
        let _ = into.shutdown().await;
    };
    let listen = async {
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        while let Some(part) = said.next().await {
            match part.map_err(problem)? {
                LogOutput::StdErr { message } => keep(&mut errors, &message, ERRORS),
                other => keep(&mut output, other.as_ref(), exec.most),
            }
        }
        Ok::<_, Failure>((output, errors))
    };
    let ((), heard) = tokio::join!(feed, listen);
    let (output, errors) = heard?;
    let ended = docker.inspect_exec(&id).await.map_err(problem)?;
    let code = ended.exit_code.and_then(|code| i32::try_from(code).ok());
    Ok(Executed {
        exit: Exit { code, ..Exit::default() },
        output,
        errors: String::from_utf8_lossy(&errors).into_owned(),
        timed_out: false,
    })
}

/// The rest is heard and dropped.
fn keep(kept: &mut Vec<u8>, part: &[u8], most: usize) {
    kept.extend_from_slice(&part[..part.len().min(most.saturating_sub(kept.len()))]);
}
