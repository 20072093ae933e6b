//! When and how a node ends.

use std::io::Write;
use std::time::Duration;

use skein_runner::supervisor::Supervisor;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

use super::start::{Node, StartError};
use super::tasks;

/// What a shell adds to the number of the signal that has ended a program.
const BY_SIGNAL: i32 = 128;

/// The runner needs a moment to report the ends of its instances.
const RUNNER: Duration = Duration::from_secs(15);

/// SIGTERM and SIGINT. From the moment on at which it is made they do not end the process by themselves, so it is made
/// before anybody is told that the node is ready: whoever asks it to end the moment after gets a clean end.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// # Errors
    /// When the system does not let signals be caught.
    pub fn catch() -> Result<Self, StartError> {
        let catch = |kind| signal(kind).map_err(StartError::Signals);
        Ok(Self { terminate: catch(SignalKind::terminate())?, interrupt: catch(SignalKind::interrupt())? })
    }

    /// Waits until one comes.
    pub async fn come(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.terminate.recv() => {
                info!("asked to stop");
                SignalKind::terminate()
            }
            _ = self.interrupt.recv() => {
                info!("interrupted");
                SignalKind::interrupt()
            }
        }
    }
}

impl Node {
    /// Serves until a signal comes, or until a part fails; then drains. Whoever has started the process hears of both.
    ///
    /// Whoever sends another signal does not want to wait for that: the process ends where it is, which loses no more
    /// than a crash does, and what still runs is taken over by its next start.
    ///
    /// # Errors
    /// When a part failed.
    pub async fn run(self, mut signals: Signals, supervisor: &Supervisor) -> Result<(), StartError> {
        supervisor.is_ready();
        tokio::select! {
            _ = signals.come() => {}
            () = tasks::one_stops([&self.runner, &self.tasks, &self.pumps, &self.leases]) => {}
        }
        supervisor.is_stopping();
        info!(
            "it ends its agents and what is under way first; asked again, it ends at once and leaves them to its next start"
        );
        let endpoint = self.data.layout().endpoint();
        // Kept to the very end of the process: it has the data directory, which nobody else may open before.
        let mut stopping = Box::pin(self.stop());
        tokio::select! {
            stopped = &mut stopping => stopped,
            again = signals.come() => {
                let _ = std::fs::remove_file(endpoint);
                // The log has no time left to be written, and it ends as it was asked to if this cannot be either.
                let last = "skein: asked again: it ends at once, and what still runs is left to the next start";
                let _ = writeln!(std::io::stderr(), "{last}");
                std::process::exit(BY_SIGNAL + again.as_raw_value())
            }
        }
    }

    /// Takes no new work, finishes what is in flight, and lets go of the data directory.
    ///
    /// The runner leaves first: agents that are asked to end can still call, and their ends are written down.
    /// Commands still reach their entities while requests finish, so those and the pumps end last.
    ///
    /// # Errors
    /// When a part had failed.
    pub async fn stop(self) -> Result<(), StartError> {
        self.leaving.cancel();
        if let Some(cluster) = self.cluster.as_ref().filter(|cluster| cluster.has_successors()) {
            // First, so that nobody waits for this node to end: it goes on answering through the next owners.
            cluster.retire();
            cluster.drained(self.drain).await;
        }
        self.runner.stop().cancel();
        let failed = self.runner.finish(self.drain + RUNNER).await;
        // Until here the command line looks after what ends: an agent that does not want to can be killed.
        let _ = std::fs::remove_file(self.data.layout().endpoint());
        self.tasks.stop().cancel();
        let failed = failed.or(self.tasks.finish(self.drain).await);
        self.pumps.stop().cancel();
        let failed = failed.or(self.pumps.finish(self.drain).await);
        self.leases.stop().cancel();
        // First, for a lost store makes the rest fail.
        let failed = self.leases.finish(self.drain).await.or(failed);
        drop(self.entities);
        drop(self.data);
        match failed {
            None => Ok(()),
            Some(problem) => Err(StartError::Failed(problem)),
        }
    }
}
