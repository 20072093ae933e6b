//! What an instance does while its runner has no lease: it stands still, for elsewhere another may take its place.

use super::ledger::{Row, State};
use super::machine::Machine;
use super::shared::LeftBehind;

impl Machine {
    /// What follows may run elsewhere by now if the runner has lost its lease, so it begins only with one. Gives the
    /// reason if it is not wanted any more.
    pub(super) async fn waits_for_lease(&mut self) -> Result<(), String> {
        let mut silent = self.silent.clone();
        tokio::select! {
            biased;
            // First: the verdict that gives the lease back says before that what was given away.
            (token, reason) = self.mailbox.given_up(self.row.began, self.row.token) => {
                self.row.token = token;
                Err(reason)
            }
            // Its sender lives in `shared`.
            _ = silent.wait_for(|silent| !silent) => Ok(()),
        }
    }

    pub(super) async fn follow_lease(&mut self) -> Result<(), LeftBehind> {
        let silent = *self.silent.borrow_and_update();
        match self.row.state {
            State::Running if silent => self.silence().await,
            State::Silenced if !silent => self.wake(None).await,
            _ => Ok(()),
        }
    }

    /// Goes on with what the ledger has of it. What stood still may have been thawed just before the runner crashed,
    /// and not written down yet.
    pub(super) async fn resume(mut self) -> Option<Row> {
        if self.row.state != State::Running {
            self.hold_or_end().await.ok()?;
        }
        self.run().await
    }

    async fn silence(&mut self) -> Result<(), LeftBehind> {
        if !self.hold_or_end().await? {
            return Ok(());
        }
        tracing::warn!(instance = self.instance(), "frozen: the runner's lease was not renewed");
        self.row.state = State::Silenced;
        self.shared.save(&self.row, None).await;
        Ok(())
    }

    /// Freezes it, or ends it if it cannot be frozen: it may not run on beyond the lease, for elsewhere another may
    /// take its place. False if it ends, which is taken as the exit of any other.
    async fn hold_or_end(&mut self) -> Result<bool, LeftBehind> {
        let Err(problem) = self.hold().await else { return Ok(true) };
        tracing::error!(instance = self.instance(), %problem, "not frozen without a lease; ending it");
        self.row.reason = format!("it could not be frozen when the runner's lease ended: {problem}");
        self.kill().await?;
        Ok(false)
    }
}
