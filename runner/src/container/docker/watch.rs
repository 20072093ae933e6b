//! How a container stands, and waiting for its end, however often the daemon is restarted meanwhile.

use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::ContainerState;
use bollard::query_parameters::WaitContainerOptions;
use futures::StreamExt;
use tokio::time::timeout;

use super::{SOON, is_missing};
use crate::container::Exit;

/// Before a daemon that is not there is asked again.
const PAUSE: Duration = Duration::from_millis(500);
/// What the kernel's killer of processes leaves as exit code: 128 and the number of SIGKILL.
const KILLED: i32 = 137;
/// The daemon hears of want of memory by another way than of the end, and on a busy machine later. Whoever was killed
/// is looked at again so often, with so long between.
const LOOKS: usize = 20;
const LOOK: Duration = Duration::from_millis(100);

/// Returns when the container has ended, at once if it has already.
pub(super) async fn ending(docker: &Docker, container: &str) -> Exit {
    loop {
        let told = docker.wait_container(container, None::<WaitContainerOptions>).next().await;
        let code = match told {
            Some(Ok(ended)) => i32::try_from(ended.status_code).ok(),
            Some(Err(Error::DockerContainerWaitError { code, .. })) => i32::try_from(code).ok(),
            _ => None,
        };
        match docker.inspect_container(container, None).await {
            Ok(found) => {
                let state = found.state.unwrap_or_default();
                if !state.running.unwrap_or(false) {
                    return with_cause(docker, container, exit(&state)).await;
                }
            }
            // Somebody else has removed it.
            Err(error) if is_missing(&error) => return Exit { code, ..Exit::default() },
            Err(_) => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether a container stands still by the daemon; none if it is gone. A daemon that does not answer says nothing of it,
/// and it may not go on by itself: it counts as one that does. Where the runner can freeze it without the daemon, as it
/// has to soon, that is not waited for.
pub(super) async fn is_paused(docker: &Docker, container: &str, soon: bool) -> Option<bool> {
    let looked = docker.inspect_container(container, None);
    let looked = match soon {
        true => timeout(SOON, looked).await.unwrap_or(Err(Error::RequestTimeoutError)),
        false => looked.await,
    };
    match looked {
        Ok(found) => Some(found.state.and_then(|state| state.paused).unwrap_or(false)),
        Err(error) if is_missing(&error) => None,
        Err(_) => Some(true),
    }
}

/// Whether nothing of a container runs any more. False if the daemon does not say.
pub(super) async fn has_ended(docker: &Docker, container: &str) -> bool {
    match docker.inspect_container(container, None).await {
        Ok(found) => !found.state.and_then(|state| state.running).unwrap_or(false),
        Err(error) => is_missing(&error),
    }
}

/// Gives the daemon time to learn why a container was killed.
async fn with_cause(docker: &Docker, container: &str, mut ended: Exit) -> Exit {
    for _ in 0..LOOKS {
        if ended.out_of_memory || ended.code != Some(KILLED) {
            break;
        }
        tokio::time::sleep(LOOK).await;
        let Ok(found) = docker.inspect_container(container, None).await else { break };
        ended = exit(&found.state.unwrap_or_default());
    }
    ended
}

fn exit(state: &ContainerState) -> Exit {
    let code = state.exit_code.and_then(|code| i32::try_from(code).ok());
    // The daemon notes every process that was killed for want of memory; it is the end only if the first one was.
    let out_of_memory = state.oom_killed.unwrap_or(false) && code == Some(KILLED);
    Exit { code, signal: None, out_of_memory }
}
