//! Long sleeps: the processes of a frozen instance are ended and all its files kept, those of a container too, until it
//! is started again by its client's own resumption of the conversation, with what its wait came to as its next input.
//!
//! From the moment at which its processes are asked to end, the ledger has it as spilled: whatever becomes of the
//! runner then, the instance sleeps on.

use std::sync::Arc;
use std::time::Duration;

use skein_shared::{Code, Refusal};

use super::ledger::{Row, State, What};
use super::machine::{Machine, STOPPED};
use super::shared::LeftBehind;
use super::stage::Stage;
use super::start::{Begun, open_and_launch};
use super::{Mailbox, Order, Shared, kept};
use crate::container::{Exit, Failure};
use crate::definition::Definition;
use crate::harness::Said;

/// Longest time in which a process may write down what it has to when it is asked to end, unless its agent's grace is
/// shorter. No orders are followed meanwhile.
const GRACE: Duration = Duration::from_secs(5);
/// The signal that ended what is not there any more, for runs that end asleep.
const TERM: i32 = 15;

/// An instance without a process.
pub(super) struct Sleeper {
    pub shared: Arc<Shared>,
    pub row: Row,
    pub(super) mailbox: Mailbox,
}

impl Machine {
    /// Ends all processes of a frozen instance and keeps its files. False when it stays as it is.
    pub(super) async fn spill(&mut self) -> Result<bool, LeftBehind> {
        if self.row.state != State::Frozen {
            // A coordinator has lost that it was thawed: what it hears is that it is frozen now.
            self.freeze().await;
            return Ok(false);
        }
        match self.session().await {
            Ok(session) => self.row.session = session,
            Err(Failure(problem)) => {
                tracing::warn!(instance = self.instance(), problem, "not spilled; it sleeps on frozen");
                self.shared.save(&self.row, Some(What::Frozen)).await;
                return Ok(false);
            }
        }
        self.row.state = State::Spilled;
        self.shared.save(&self.row, None).await;
        self.end_asleep().await?;
        self.row.handle = None;
        tracing::info!(
            instance = self.instance(),
            "spilled: its processes have ended for the rest of its wait"
        );
        self.shared.save_asleep(&self.row).await;
        Ok(true)
    }

    /// The conversation to go on with later. A client that goes on in one and has named none yet could not be started
    /// again.
    async fn session(&self) -> Result<Option<String>, Failure> {
        self.shared.definition(&self.row)?;
        if self.row.stage.is_hook() {
            return Err(Failure("it is a hook of its agent that waits".to_owned()));
        }
        if self.handle.container.is_some() && !kept::are_there(&self.shared, self.instance()) {
            return Err(Failure(
                "its container began when its definition had no `spill_after`, and its files would go with it"
                    .to_owned(),
            ));
        }
        let Said { session, .. } = self.shared.said(&self.row).await;
        if session.is_none() && self.row.harness.goes_on() {
            return Err(Failure("its client has not said which conversation it has".to_owned()));
        }
        Ok(session)
    }

    /// The request to end waits for it when it is thawed, so that it comes before anything else. It asks nobody for
    /// anything on the way out: its endpoint is shut.
    async fn end_asleep(&self) -> Result<(), LeftBehind> {
        let (engine, handle) = (&self.shared.engine, &self.handle);
        self.endpoint.shut();
        self.log_failure(engine.ask(handle).await);
        self.log_failure(engine.thaw(handle).await);
        let grace = GRACE.min(self.grace());
        // Late is no failure: what is left is killed.
        let _ = tokio::time::timeout(grace, engine.wait(handle)).await;
        self.kill().await?;
        engine.let_go(handle);
        self.shared.take_back(self.instance()).await;
        Ok(())
    }
}

impl Sleeper {
    /// Follows orders until the instance has been started again, and then goes on as [`Machine::run`] does, or is over.
    pub(super) async fn run(mut self) -> Option<Row> {
        let mut silent = self.shared.silent.subscribe();
        loop {
            let leased = async {
                // The sender is among what all instances share.
                let _ = silent.wait_for(|silent| !*silent).await;
            };
            let order = tokio::select! {
                biased;
                order = self.mailbox.recv() => order,
                // Without a lease it may run elsewhere by now. The runner may also have been started anew in the middle
                // of a start.
                () = leased, if !self.row.input.is_empty() => {
                    let input = std::mem::take(&mut self.row.input);
                    return self.restore(input).await;
                }
            };
            let order = order?;
            if !Shared::takes(&mut self.row, &order) {
                continue;
            }
            match order {
                Order::Stop { reason, .. } | Order::Kill { reason, .. } => {
                    return Some(self.over(reason).await);
                }
                Order::Leave => return Some(self.over(STOPPED.to_owned()).await),
                Order::Restore { input, .. } => self.row.input = input,
                // By the word of a coordinator that has lost the spill: the agent asks for the rest itself.
                Order::Thaw(_) => self.row.input = r#"{"type":"resumed"}"#.to_owned(),
                Order::Spill(_) => self.sleep_on(What::Spilled).await,
                Order::Freeze(_) => self.sleep_on(What::Frozen).await,
                Order::Tool(what) => what.refuse(self.asleep()),
            }
        }
    }

    /// A repeat: the first has been reported, and may have been lost. A start that has not begun is called off by it.
    async fn sleep_on(&mut self, what: What) {
        self.row.input.clear();
        self.shared.save(&self.row, Some(what)).await;
    }

    fn asleep(&self) -> Refusal {
        let problem = format!(
            "{} sleeps, and its processes have ended; its tools work again when its wait is over",
            self.row.instance
        );
        Refusal::new(Code::WrongState, problem)
    }

    /// Starts it again. The row says that it is spilled until its process is there.
    async fn restore(mut self, input: String) -> Option<Row> {
        self.row.input = input;
        // Its old port may be another's by now, and its new process is told the new one.
        self.row.port = 0;
        let (began, latest) = (self.row.began, self.row.token);
        let launched = tokio::select! {
            biased;
            launched = launch(&self.shared, &mut self.row) => launched,
            (token, reason) = self.mailbox.given_up(began, latest) => {
                self.row.token = token;
                // It may have got as far as to leave something behind.
                self.shared.sweep(&self.row.instance).await.ok()?;
                return Some(self.over(reason).await);
            }
        };
        match launched {
            Ok(begun) => {
                let Self { shared, mut row, mailbox } = self;
                let pid = begun.handle.pid;
                row.state = State::Running;
                row.input.clear();
                tracing::info!(instance = row.instance, pid, "started again after a long sleep");
                shared.save(&row, Some(What::Restored { pid })).await;
                Box::pin(Machine::new(shared, row, begun, mailbox).run()).await
            }
            Err(Failure(reason)) => {
                tracing::warn!(instance = self.row.instance, reason, "not started again");
                // What it has cost until it slept.
                self.row.usage = self.shared.ending(&self.row, Exit::default()).await.usage;
                self.shared.clear(&self.row.instance).await;
                (self.row.state, self.row.reason) = (State::Ended, reason);
                Some(self.row)
            }
        }
    }

    async fn over(mut self, reason: String) -> Row {
        tracing::info!(instance = self.row.instance, reason, "ended in its sleep");
        let exit = Exit { signal: Some(TERM), ..Exit::default() };
        let ending = self.shared.ending(&self.row, exit).await;
        self.shared.clear(&self.row.instance).await;
        self.row.ended(ending, reason);
        self.row
    }
}

async fn launch(shared: &Shared, row: &mut Row) -> Result<Begun, Failure> {
    let definition = shared.definition(row)?;
    may_go_on(shared, row, &definition)?;
    row.patience = definition.program.patience();
    row.stage = Stage::Agent;
    open_and_launch(shared, row, definition).await
}

/// A definition may have changed while its instance slept.
fn may_go_on(shared: &Shared, row: &Row, definition: &Definition) -> Result<(), Failure> {
    let change = if definition.program.harness() != row.harness {
        "another `harness` than the one that it began with"
    } else if definition.container.is_none() && kept::are_there(shared, &row.instance) {
        "no `image` any more, and its files lie in its container's folders"
    } else if definition.container.is_some() && !kept::are_there(shared, &row.instance) {
        "an `image` since, and its files lie outside of it"
    } else {
        return Ok(());
    };
    Err(Failure(format!("its definition has {change}; start it anew")))
}
