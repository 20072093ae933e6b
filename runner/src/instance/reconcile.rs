//! After a start: the ledger says what should run, the machine says what does.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Instances;
use super::ledger::{Row, State, What};
use super::machine::Machine;
use super::sleeper::Sleeper;
use crate::endpoint::Endpoint;
use crate::error::Error;

impl Instances {
    /// Takes over what still runs, frozen until a coordinator has spoken; reports what ended meanwhile; and
    /// ends what nobody asked for. A start of which nothing had been done yet is as good as one that never came.
    ///
    /// # Errors
    /// When the ledger cannot be read or written.
    pub async fn reconcile(self: &Arc<Self>) -> Result<(), Error> {
        let rows = self.shared.ledger.held().await?;
        let mut known = BTreeSet::new();
        for row in rows.into_iter().filter(|row| row.state.is_live()) {
            let instance = row.instance.clone();
            // It is not held, so its agent sends the start again.
            if row.state == State::Accepted {
                self.shared.ledger.remove(&instance).await?;
                continue;
            }
            if self.take_over(row).await? {
                known.insert(instance);
            }
        }
        for borrower in self.shared.folders.borrowers().into_iter().filter(|one| !known.contains(one)) {
            self.shared.clear(&borrower).await;
        }
        for stray in self.shared.engine.list().await.into_iter().filter(|stray| !known.contains(stray)) {
            tracing::warn!(instance = stray, "ending processes that the ledger knows no live instance for");
            if let Err(problem) = self.shared.engine.sweep(&stray).await {
                tracing::error!(instance = stray, %problem, "stray processes were not ended");
            }
        }
        Ok(())
    }

    /// False for one that has ended.
    async fn take_over(self: &Arc<Self>, mut row: Row) -> Result<bool, Error> {
        if row.state == State::Spilled {
            self.take_over_asleep(row).await;
            return Ok(true);
        }
        let Some(handle) = row.handle.clone() else {
            row.state = State::Ended;
            row.reason = "the runner ended while it started this instance".to_owned();
            let token = row.token;
            return self.shared.report_end(row, token).await.map(|()| false);
        };
        if !self.shared.engine.adopt(&handle, &self.shared.folders.log(&row.instance)).await {
            self.shared.engine.kill(&handle).await.unwrap_or_else(|problem| tracing::error!(%problem));
            return self.ended_alone(row, "it ended while the runner was away").await.map(|()| false);
        }
        let endpoint = match Endpoint::open(&row, self.shared.upstreams.clone()).await {
            Ok(endpoint) => endpoint,
            Err(error) => {
                tracing::error!(instance = row.instance, %error, "its endpoint could not be opened again");
                self.shared.engine.kill(&handle).await.unwrap_or_else(|problem| tracing::error!(%problem));
                let reason = "its endpoint's port was taken while the runner was away";
                return self.ended_alone(row, reason).await.map(|()| false);
            }
        };
        tracing::info!(instance = row.instance, pid = handle.pid, "taken over");
        if row.state != State::Running {
            endpoint.hold();
        }
        let shared = Arc::clone(&self.shared);
        let instance = row.instance.clone();
        self.adopt(&instance, |inbox| Machine::new(shared, row, handle, endpoint, inbox).run());
        Ok(true)
    }

    /// One whose processes were ended, or were to be, for the rest of a long wait. What a start that was cut short has
    /// left of it is ended too: it is started again once a coordinator has spoken.
    async fn take_over_asleep(self: &Arc<Self>, mut row: Row) {
        let instance = row.instance.clone();
        if let Some(handle) = row.handle.take() {
            self.shared.engine.kill(&handle).await.unwrap_or_else(|problem| tracing::error!(%problem));
            self.shared.take_back(&instance).await;
            self.shared.save(&row, Some(What::Spilled)).await;
        }
        self.shared.engine.sweep(&instance).await.unwrap_or_else(|problem| tracing::error!(%problem));
        tracing::info!(instance, "sleeps on");
        let shared = Arc::clone(&self.shared);
        self.adopt(&instance, |inbox| Sleeper { shared, row, inbox }.run());
    }

    async fn ended_alone(&self, mut row: Row, reason: &str) -> Result<(), Error> {
        let exit = row.exit.unwrap_or_default();
        let ending = self.shared.ending(&row, exit).await;
        // A client that has said how it ended knows better.
        let reason = if ending.exit == exit { reason.to_owned() } else { String::new() };
        row.ended(ending, reason);
        let token = row.token;
        self.shared.report_end(row, token).await
    }
}
