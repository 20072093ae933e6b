//! After a start: the ledger says what should run, the machine says what does.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ledger::{Row, State, What};
use super::machine::{Machine, REST};
use super::sleeper::Sleeper;
use super::start::Begun;
use super::{Instances, Shared};
use crate::container::{Exit, Handle};
use crate::endpoint::Endpoint;
use crate::error::Error;

/// How often an engine is asked whether an instance has begun, before the runner gives its start up.
const LOOKS: u32 = 5;

impl Instances {
    /// Takes over what still runs, frozen until a coordinator has spoken; reports what ended meanwhile; and ends what
    /// nobody asked for. A start with which no program had begun yet is as good as one that never came: it is not held,
    /// so its agent sends it again.
    ///
    /// # Errors
    /// When the ledger cannot be read or written, or an engine does not say what has begun.
    pub async fn reconcile(self: &Arc<Self>) -> Result<(), Error> {
        let rows = self.shared.ledger.held().await?;
        let mut known = BTreeSet::new();
        for row in rows.into_iter().filter(|row| row.state.is_live()) {
            let instance = row.instance.clone();
            if row.state == State::Accepted {
                self.forget(&instance).await?;
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
        if row.handle.is_none() {
            self.find_begun(&mut row).await?;
        }
        if row.state == State::Spilled {
            self.take_over_asleep(row);
            return Ok(true);
        }
        let Some(handle) = row.handle.clone() else { return self.end_start(row).await };
        if !self.shared.engine.adopt(&handle, &self.shared.folders.log(&row.instance)).await {
            return self.end_rest(row, "it ended while the runner was away").await;
        }
        let endpoint = match Endpoint::open(&row, self.shared.upstreams.clone()).await {
            Ok(endpoint) => endpoint,
            Err(error) => {
                tracing::error!(instance = row.instance, %error, "its endpoint could not be opened again");
                return self.end_rest(row, "its endpoint's port was taken while the runner was away").await;
            }
        };
        tracing::info!(instance = row.instance, pid = handle.pid, "taken over");
        let shared = Arc::clone(&self.shared);
        let instance = row.instance.clone();
        // Its former runner knew the definition as it was then.
        let definition = shared.definition(&row).ok();
        let begun = Begun { handle, endpoint, definition };
        self.adopt(&instance, |mailbox| Machine::new(shared, row, begun, mailbox).resume());
        Ok(true)
    }

    /// Finds the processes of one that the runner had started, or started again after a long sleep, when it ended: what
    /// has begun goes on as if they had been written down.
    async fn find_begun(&self, row: &mut Row) -> Result<(), Error> {
        let woke = row.state == State::Spilled && !row.input.is_empty();
        let may_have_begun = woke || row.state == State::Starting;
        if !may_have_begun || self.shared.folders.unbegun(&row.instance).exists() {
            return Ok(());
        }
        let Some(handle) = self.find(row).await? else { return Ok(()) };
        let pid = handle.pid;
        (row.handle, row.state) = (Some(handle), State::Running);
        let what = if woke {
            row.input.clear();
            What::Restored { pid }
        } else {
            What::Started { pid }
        };
        self.shared.ledger.save(row.clone(), Some(what)).await
    }

    /// Asks again while the engine cannot say: an end would be reported of what runs on. A runner that never learns it
    /// does not start, as it does not without Docker while it holds a container.
    async fn find(&self, row: &Row) -> Result<Option<Handle>, Error> {
        let instance = &row.instance;
        let mut left = LOOKS;
        loop {
            let problem = match self.shared.engine.find(instance, row.user).await {
                Ok(found) => return Ok(found),
                Err(problem) => problem,
            };
            left -= 1;
            if left == 0 {
                return Err(Error::config(format!("nobody can say whether {instance} has begun: {problem}")));
            }
            tracing::error!(instance, %problem, "whether it has begun is not known; asked again");
            tokio::time::sleep(REST).await;
        }
    }

    /// One that the runner was starting when it ended, and of which nothing was found that has begun. Whatever there is
    /// of it was started before this runner had the data folder, so it is found and ended, and begins nothing
    /// afterwards.
    async fn end_start(self: &Arc<Self>, row: Row) -> Result<bool, Error> {
        let unbegun = self.shared.folders.unbegun(&row.instance);
        let is_first = row.state == State::Starting;
        if is_first && self.shared.engine.sweep(&row.instance).await.is_ok() && unbegun.exists() {
            return self.forget(&row.instance).await.map(|()| false);
        }
        self.end_rest(row, "the runner ended while it started this instance").await
    }

    /// Takes a start for one that never came.
    async fn forget(&self, instance: &str) -> Result<(), Error> {
        tracing::info!(instance, "it had not begun when the runner ended; its start comes again");
        self.shared.ledger.remove(instance).await?;
        self.shared.clear(instance).await;
        Ok(())
    }

    /// One whose processes were ended, or were to be, for the rest of a long wait. What a start that was cut short has
    /// left of it is ended too: if its program had not begun, it is started again once a coordinator has spoken.
    fn take_over_asleep(self: &Arc<Self>, mut row: Row) {
        let (shared, instance) = (Arc::clone(&self.shared), row.instance.clone());
        self.adopt(&instance, |mailbox| async move {
            if let Some(handle) = row.handle.take() {
                shared.kill(&handle).await.ok()?;
                shared.take_back(&row.instance).await;
                shared.save_asleep(&row).await;
            }
            shared.sweep(&row.instance).await.ok()?;
            if !row.input.is_empty() && !shared.folders.unbegun(&row.instance).exists() {
                let row =
                    ended_alone(&shared, row, "the runner ended while it started this instance again").await;
                shared.clear(&row.instance).await;
                return Some(row);
            }
            tracing::info!(instance = row.instance, "sleeps on");
            Sleeper { shared, row, mailbox }.run().await
        });
    }

    /// Ends what is left of an instance that nobody can go on with, at once or as often as it takes: only then it has
    /// ended. False when it has.
    async fn end_rest(self: &Arc<Self>, row: Row, reason: &'static str) -> Result<bool, Error> {
        let ended = match &row.handle {
            Some(handle) => self.shared.engine.kill(handle).await,
            None => self.shared.engine.sweep(&row.instance).await,
        };
        let Err(problem) = ended else {
            let row = ended_alone(&self.shared, row, reason).await;
            let token = row.token;
            return self.shared.report_end(row, token).await.map(|()| false);
        };
        tracing::error!(instance = row.instance, %problem, "what is left of it was not ended; tried again");
        let (shared, instance) = (Arc::clone(&self.shared), row.instance.clone());
        self.adopt(&instance, |_| async move {
            match &row.handle {
                Some(handle) => shared.kill(handle).await.map(drop),
                None => shared.sweep(&row.instance).await,
            }
            .ok()?;
            let row = ended_alone(&shared, row, reason).await;
            shared.clear(&row.instance).await;
            Some(row)
        });
        Ok(true)
    }
}

async fn ended_alone(shared: &Shared, mut row: Row, reason: &str) -> Row {
    if row.handle.is_none() {
        row.usage = shared.ending(&row, Exit::default()).await.usage;
        (row.state, row.reason) = (State::Ended, reason.to_owned());
        return row;
    }
    let exit = row.exit.unwrap_or_default();
    let ending = shared.ending(&row, exit).await;
    // A client that has said how it ended knows better.
    let reason = if ending.exit == exit { reason.to_owned() } else { String::new() };
    row.ended(ending, reason);
    row
}
