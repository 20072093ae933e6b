//! The node's own tasks: all stop on one signal, and the node stops when one of them fails.

use std::fmt::Display;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::select_all;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, warn};

/// Tracks the tasks of a node.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    failure: Arc<Mutex<Option<String>>>,
}

impl Tasks {
    /// Cancelled once the node shall stop.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Runs a role until it ends. A role that fails takes the node down: half a node would look healthy.
    pub fn spawn<F, E>(&self, name: &'static str, role: F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        let (stop, failure) = (self.stop.clone(), Arc::clone(&self.failure));
        let running = self.tracker.spawn(role);
        self.tracker.spawn(async move {
            let problem = match running.await {
                Ok(Ok(())) if stop.is_cancelled() => return,
                Ok(Ok(())) => "ended though nobody told it to".to_owned(),
                Ok(Err(problem)) => problem.to_string(),
                Err(panic) => panic.to_string(),
            };
            error!(role = name, problem, "a part of the node failed; the node stops");
            let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(format!("{name}: {problem}"));
            stop.cancel();
        });
    }

    /// Waits until every task has ended, `limit` at most. Says what failed, if something did.
    pub async fn finish(&self, limit: Duration) -> Option<String> {
        self.tracker.close();
        if tokio::time::timeout(limit, self.tracker.wait()).await.is_err() {
            warn!(tasks = self.tracker.len(), "some work did not finish in time and is given up");
        }
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Waits until one of these stops: somebody has told it to, or a role of it has failed.
pub(super) async fn one_stops<const COUNT: usize>(parts: [&Tasks; COUNT]) {
    let stops = parts.map(|tasks| Box::pin(tasks.stop().cancelled()));
    select_all(stops).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failing_role_stops_the_others() {
        let tasks = Tasks::default();
        let stop = tasks.stop().clone();
        tasks.spawn("steady", async move {
            stop.cancelled().await;
            Ok::<(), String>(())
        });
        tasks.spawn("weak", async { Err("no air") });
        tasks.stop().cancelled().await;
        assert_eq!(tasks.finish(Duration::from_secs(5)).await.as_deref(), Some("weak: no air"));
    }

    #[tokio::test]
    async fn whichever_part_fails_is_heard_of() {
        for weak in 0..4 {
            let parts: [Tasks; 4] = Default::default();
            let [first, second, third, fourth] = &parts;
            let mut stops = Box::pin(one_stops([first, second, third, fourth]));
            assert!(futures::poll!(&mut stops).is_pending());
            parts[weak].spawn("weak", async { Err("no air") });
            stops.await;
            let stopped = parts.iter().filter(|tasks| tasks.stop().is_cancelled()).count();
            assert!(stopped == 1 && parts[weak].stop().is_cancelled());
        }
    }

    #[tokio::test]
    async fn an_ordered_stop_is_no_failure() {
        let tasks = Tasks::default();
        let stop = tasks.stop().clone();
        tasks.spawn("steady", async move {
            stop.cancelled().await;
            Ok::<(), String>(())
        });
        tasks.stop().cancel();
        assert_eq!(tasks.finish(Duration::from_secs(5)).await, None);
    }
}
