//! What the tasks of the instances have in common.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use skein_shared::fence::Token;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::folders::Folders;
use super::ledger::{Ledger, Row, State, What};
use super::machine::REST;
use super::{Order, input, log, transcript};
use crate::container::{Engine, Exit, Failure, Handle};
use crate::credentials::{self, Credentials, Mask};
use crate::definition::{Definition, Definitions};
use crate::endpoint::Upstreams;
use crate::error::Error;
use crate::harness::{Ending, Harness, Said};

/// How often a runner that leaves still tries to end what does not end. Its next start goes on with that.
const LAST_TRIES: u32 = 5;

/// The runner leaves, and something of an instance has not ended: its next start finds it by the ledger.
#[derive(Debug)]
pub(super) struct LeftBehind;

pub struct Shared {
    /// Stands in the environment of every process, to find strays by.
    pub mark: String,
    pub engine: Arc<dyn Engine>,
    /// Those that instances run as, where each has one of its own.
    pub users: Option<Range<u32>>,
    pub ledger: Ledger,
    pub folders: Folders,
    pub closed: Vec<PathBuf>,
    pub credentials: Credentials,
    /// The folder of the commands that shell scripts call, if there are any.
    pub agent_commands: Option<PathBuf>,
    pub definitions: watch::Receiver<Definitions>,
    pub upstreams: Upstreams,
    /// Rises with every report.
    pub reported: watch::Sender<u64>,
    /// The runner has no lease, so nothing of it may run. A state and no order, for it must not be overlooked.
    pub silent: watch::Sender<bool>,
    /// The runner is about to end.
    pub leaving: CancellationToken,
}

impl Shared {
    /// Writes a row down with its report, while the instance lives. A ledger that fails is logged; the state in memory
    /// goes on, and the next registration tells the coordinators of it.
    pub(super) async fn save(&self, row: &Row, what: Option<What>) {
        let reports = what.is_some();
        if let Err(error) = self.ledger.save(row.clone(), what).await {
            tracing::error!(instance = row.instance, %error, "an instance's state was not written down");
        }
        if reports {
            self.reported.send_modify(|count| *count += 1);
        }
    }

    /// Writes down that an instance sleeps, as often as it takes: nothing of it runs meanwhile, and its agent waits for
    /// the word. A runner that leaves does not, for its next start says it.
    pub(super) async fn save_asleep(&self, row: &Row) {
        while let Err(error) = self.ledger.save(row.clone(), Some(What::Spilled)).await {
            tracing::error!(instance = row.instance, %error, "that it sleeps was not written down; tried again");
            tokio::select! {
                () = self.leaving.cancelled() => return,
                () = tokio::time::sleep(REST) => {}
            }
        }
        self.reported.send_modify(|count| *count += 1);
    }

    /// Reports how an instance ended, perhaps again, to whoever has commanded it since.
    pub(super) async fn report_end(&self, mut row: Row, token: Token) -> Result<(), Error> {
        row.token = row.token.max(token);
        // It may be long, and is of no use any more.
        row.input.clear();
        let what = row.end();
        self.ledger.save(row, Some(what)).await?;
        self.reported.send_modify(|count| *count += 1);
        Ok(())
    }

    /// What an instance's program has said so far, by its log.
    pub(super) async fn said(&self, row: &Row) -> Said {
        let (harness, log) = (row.harness, self.folders.log(&row.instance));
        if !harness.is_client() {
            return Said::default();
        }
        let reading = tokio::task::spawn_blocking(move || transcript::read(harness, &log));
        match reading.await {
            Ok(Ok(said)) => said,
            Ok(Err(problem)) => {
                tracing::error!(instance = row.instance, %problem, "its log could not be read");
                Said::default()
            }
            Err(_) => Said::default(),
        }
    }

    /// What the instance is a run of.
    pub(super) fn definition(&self, row: &Row) -> Result<Arc<Definition>, Failure> {
        let key = (row.swarm.clone(), row.agent.clone());
        self.definitions.borrow().get(&key).cloned().ok_or_else(|| {
            let (swarm, agent) = key;
            Failure(format!("this runner has no definition of agent `{agent}` in swarm `{swarm}`"))
        })
    }

    /// Removes what an instance was given whose processes have ended, and what it has printed of it. What it has made
    /// itself stays: it may be started again.
    pub(super) async fn take_back(&self, instance: &str) {
        self.hide_lent(instance, self.ledger.harness(instance).await).await;
        let (lent, input) = (self.folders.lent(instance), self.folders.input(instance));
        let taken = tokio::task::spawn_blocking(move || {
            credentials::take_back(&lent);
            input::take_back(&input);
        });
        if let Err(lost) = taken.await {
            tracing::error!(instance, %lost, "what it was given may still be there");
        }
    }

    /// Masks what an instance has printed of what it is lent. None of its processes may run.
    pub(super) async fn hide_lent(&self, instance: &str, harness: Harness) {
        let (lent, log) = (self.folders.lent(instance), self.folders.log(instance));
        let hidden = tokio::task::spawn_blocking(move || log::hide(&log, &Mask::of(&lent), harness));
        if let Ok(Err(error)) = hidden.await {
            tracing::error!(instance, %error, "its log may show what it was lent");
        }
    }

    /// Removes all that was an instance's which is over.
    pub(super) async fn clear(&self, instance: &str) {
        self.take_back(instance).await;
        let (folders, of) = (self.folders.clone(), instance.to_owned());
        if let Err(lost) = tokio::task::spawn_blocking(move || folders.take_files_back(&of)).await {
            tracing::error!(instance, %lost, "its files may still be there");
        }
    }

    /// Kills an instance as often as it takes, for an engine may fail at that and nobody else would try again. Gives
    /// how its first process ended, once that and all others have.
    pub(super) async fn kill(&self, handle: &Handle) -> Result<Exit, LeftBehind> {
        let mut left = LAST_TRIES;
        loop {
            let problem = match self.engine.kill(handle).await {
                Ok(()) => match tokio::time::timeout(REST, self.engine.wait(handle)).await {
                    Ok(exit) => return Ok(exit),
                    Err(_) => Failure("its first process has not ended yet".to_owned()),
                },
                Err(problem) => problem,
            };
            self.rest(&handle.instance, &problem, &mut left).await?;
        }
    }

    /// The same for an instance of which only the id is known.
    pub(super) async fn sweep(&self, instance: &str) -> Result<(), LeftBehind> {
        let mut left = LAST_TRIES;
        while let Err(problem) = self.engine.sweep(instance).await {
            self.rest(instance, &problem, &mut left).await?;
        }
        Ok(())
    }

    /// Ends an instance that nobody looks after any more.
    pub(super) async fn end_forsaken(&self, mut row: Row) -> Option<Row> {
        tracing::error!(instance = row.instance, "nobody looks after it any more; ending it");
        self.sweep(&row.instance).await.ok()?;
        row.handle.iter().for_each(|handle| self.engine.let_go(handle));
        self.clear(&row.instance).await;
        row.state = State::Ended;
        row.exit = row.exit.or(Some(Exit::default()));
        row.reason = "its runner has lost sight of it".to_owned();
        Some(row)
    }

    /// A pause after what has failed, unless a runner that leaves has tried it often enough.
    async fn rest(&self, instance: &str, problem: &Failure, left: &mut u32) -> Result<(), LeftBehind> {
        tracing::error!(instance, %problem, "not all of it was ended; tried again");
        if self.leaving.is_cancelled() {
            *left -= 1;
        }
        if *left == 0 {
            return Err(LeftBehind);
        }
        tokio::time::sleep(REST).await;
        Ok(())
    }

    /// How an instance ended, by its exit and by its program's own word.
    pub(super) async fn ending(&self, row: &Row, exit: Exit) -> Ending {
        let mask = self.mask(&row.instance).await;
        let mut ending = self.said(row).await.ending(exit);
        ending.reason = mask.hidden(&ending.reason);
        ending
    }

    /// What is not to be seen of an instance.
    pub(super) async fn mask(&self, instance: &str) -> Mask {
        let lent = self.folders.lent(instance);
        tokio::task::spawn_blocking(move || Mask::of(&lent)).await.unwrap_or_default()
    }

    /// Whether an order is to be followed. Two coordinators may send out of order, so the token is compared again where
    /// that is done. What was given away ends whatever it was told since, unless it was started anew since.
    pub(super) fn takes(row: &mut Row, order: &Order) -> bool {
        if let Order::Kill { known, .. } = order {
            return row.began <= *known;
        }
        let Some(token) = order.token() else { return true };
        if token < row.token {
            return false;
        }
        row.token = token;
        true
    }
}
