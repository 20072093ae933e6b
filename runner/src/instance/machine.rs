//! The life of one instance that has started, in a task of its own: it freezes, thaws, ends, and each step is written
//! down with its report.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use skein_shared::{Code, Refusal};
use tokio::sync::watch;
use tokio::time::Instant;

use super::ledger::{Row, State, What};
use super::shared::LeftBehind;
use super::sleeper::Sleeper;
use super::stage::{self, Deadline, Stage};
use super::start::{Begun, launch_stage};
use super::variables::Variables;
use super::{ForTool, Mailbox, Order, Reach, Shared, spec};
use crate::container::{Exit, Failure, Handle};
use crate::definition::Definition;
use crate::endpoint::Endpoint;

/// How long a thaw waits for an answer that the instance is owed. It comes over another connection than the
/// command to thaw, and may be a little later.
const ANSWER: Duration = Duration::from_secs(2);

/// Why an instance ends when its runner leaves.
pub(super) const STOPPED: &str = "the runner was stopped";

/// How long what failed rests before it is tried again. A process that waits for the disk cannot be frozen, an engine
/// whose daemon does not answer ends nothing, and a disk may be full.
pub(super) const REST: Duration = Duration::from_secs(1);

/// A running instance.
pub(super) struct Machine {
    pub shared: Arc<Shared>,
    pub row: Row,
    pub handle: Handle,
    pub endpoint: Endpoint,
    /// By which it runs; none where an earlier process of the runner has started it and this one has no definition yet.
    begun_with: Option<Arc<Definition>>,
    pub(super) mailbox: Mailbox,
    variables: Variables,
    /// When a freeze that failed is tried again.
    freeze_again: Option<Instant>,
    /// Whether the runner has no lease.
    pub(super) silent: watch::Receiver<bool>,
}

/// What an order came to.
enum Followed {
    On,
    /// The run is over, and how.
    Over(Exit, String),
    /// It has no process any more, and sleeps.
    Spilled,
}

/// What follows the end of a process.
enum Next {
    /// Another process of the run has started.
    Stage,
    /// The run is over, and how.
    Over(Exit, String),
}

impl Machine {
    pub(super) fn new(shared: Arc<Shared>, row: Row, begun: Begun, mailbox: Mailbox) -> Self {
        let Begun { handle, endpoint, definition } = begun;
        let mut silent = shared.silent.subscribe();
        // Looked at before anything else.
        silent.mark_changed();
        Self {
            shared,
            row,
            handle,
            endpoint,
            begun_with: definition,
            mailbox,
            variables: Variables::default(),
            freeze_again: None,
            silent,
        }
    }

    pub(super) fn instance(&self) -> &str {
        &self.row.instance
    }

    /// Follows orders until the instance has ended, and gives how, which is still to be written down and reported. None
    /// if the runner leaves before it has, or nobody is left to give orders.
    pub(super) async fn run(self) -> Option<Row> {
        self.live().await.ok()?
    }

    async fn live(mut self) -> Result<Option<Row>, LeftBehind> {
        let mut deadline = Deadline::begin();
        loop {
            let is_hook = self.row.stage.is_hook();
            let late = deadline.while_running(self.row.state == State::Running).filter(|_| is_hook);
            let ended = tokio::select! {
                // The end comes first: an order for an ended instance has no effect.
                biased;
                exit = self.shared.engine.wait(&self.handle) => self.go_on(exit, false).await?,
                () = at(late) => {
                    let exit = self.kill().await?;
                    self.go_on(exit, true).await?
                }
                () = at(self.freeze_again) => {
                    self.freeze().await;
                    continue;
                }
                order = self.mailbox.recv() => {
                    let Some(order) = order else { return Ok(None) };
                    match self.follow(order).await? {
                        Followed::Over(exit, reason) => Next::Over(self.run_exit(exit), reason),
                        Followed::Spilled => {
                            let Self { shared, row, mailbox, .. } = self;
                            return Ok(Box::pin(Sleeper { shared, row, mailbox }.run()).await);
                        }
                        Followed::On => continue,
                    }
                }
                // Behind the orders: one that was given away ends before it could go on.
                Ok(()) = self.silent.changed() => {
                    self.follow_lease().await?;
                    continue;
                }
            };
            match ended {
                Next::Over(exit, reason) => return self.over(exit, reason).await.map(Some),
                Next::Stage => deadline = Deadline::begin(),
            }
        }
    }

    /// How the run has ended whose last process has ended like this.
    fn run_exit(&self, last: Exit) -> Exit {
        match self.row.stage {
            Stage::Before(_) => stage::not_begun(last),
            Stage::Agent | Stage::After(_) => self.row.exit.unwrap_or(last),
        }
    }

    /// How long the instance has to end once it was asked to.
    pub(super) fn grace(&self) -> Duration {
        self.definition().map_or(Duration::ZERO, |definition| definition.grace)
    }

    /// What the run goes by. Where it is not known by which it began, the one that there is counts.
    fn definition(&self) -> Result<Arc<Definition>, Failure> {
        self.begun_with.clone().map_or_else(|| self.shared.definition(&self.row), Ok)
    }

    /// A process has ended by itself, or was `late`: goes on to the one that follows.
    async fn go_on(&mut self, exit: Exit, late: bool) -> Result<Next, LeftBehind> {
        self.freeze_again = None;
        let Ok(definition) = self.definition() else {
            return Ok(Next::Over(self.run_exit(exit), std::mem::take(&mut self.row.reason)));
        };
        let hooks = &definition.hooks;
        let failed = self.row.stage.hook(hooks).and_then(|hook| stage::failure(hook, exit, late));
        match (self.row.stage, failed) {
            (Stage::Before(_), Some(failure)) => return Ok(Next::Over(self.run_exit(exit), failure)),
            (Stage::After(_), Some(failure)) => tracing::warn!(instance = self.instance(), failure),
            (Stage::Agent, _) => self.row.exit = Some(exit),
            _ => {}
        }
        let Some(next) = self.row.stage.next(hooks) else {
            return Ok(Next::Over(self.run_exit(exit), std::mem::take(&mut self.row.reason)));
        };
        // Whatever the last one has left running.
        self.kill().await?;
        self.shared.engine.let_go(&self.handle);
        if let Err(reason) = self.waits_for_lease().await {
            return Ok(Next::Over(self.run_exit(exit), reason));
        }
        // What follows runs, however the last one stood.
        self.endpoint.release();
        (self.row.state, self.row.stage) = (State::Running, next);
        let (began, latest) = (self.row.began, self.row.token);
        let launched = tokio::select! {
            biased;
            launched = launch_stage(&self.shared, &mut self.row, &definition) => launched,
            (token, reason) = self.mailbox.given_up(began, latest) => {
                self.row.token = token;
                // It may have got as far as to leave something behind.
                self.shared.sweep(&self.row.instance).await?;
                Err(Failure(reason))
            }
        };
        Ok(match launched {
            Ok(handle) => {
                self.handle = handle;
                self.shared.save(&self.row, None).await;
                // The lease may have ended as it began.
                self.silent.mark_changed();
                Next::Stage
            }
            Err(Failure(problem)) => Next::Over(self.row.exit.unwrap_or_default(), problem),
        })
    }

    async fn follow(&mut self, order: Order) -> Result<Followed, LeftBehind> {
        if !Shared::takes(&mut self.row, &order) {
            return Ok(Followed::On);
        }
        match order {
            Order::Freeze(_) => self.freeze().await,
            Order::Thaw(_) => self.thaw(What::Thawed).await?,
            Order::Spill(_) if self.spill().await? => return Ok(Followed::Spilled),
            Order::Spill(_) => {}
            // It was never spilled, as far as this runner knows.
            Order::Restore { .. } => {
                let pid = self.handle.pid;
                self.thaw(What::Restored { pid }).await?;
            }
            Order::Stop { reason, grace, .. } => return Ok(Followed::Over(self.end(grace).await?, reason)),
            Order::Kill { reason, .. } => return Ok(Followed::Over(self.kill().await?, reason)),
            Order::Leave => {
                let grace = self.grace();
                return Ok(Followed::Over(self.end(grace).await?, STOPPED.to_owned()));
            }
            // Whoever asked may be gone.
            Order::Tool(ForTool::Reach(answer)) => _ = answer.send(self.reach()),
            Order::Tool(ForTool::SetEnv(change, answer)) => {
                _ = answer.send(self.is_reached().map(|()| self.variables.set(change)))
            }
        }
        Ok(Followed::On)
    }

    /// Only a running instance may be touched: in a frozen one nothing would go on, and its lease may be over.
    fn is_reached(&self) -> Result<(), Refusal> {
        if self.row.state == State::Running {
            return Ok(());
        }
        let instance = self.instance();
        let problem = format!("{instance} is frozen while it waits; its tools work again when it runs again");
        Err(Refusal::new(Code::WrongState, problem))
    }

    /// What it takes to run something beside the first process.
    fn reach(&self) -> Result<Reach, Refusal> {
        self.is_reached()?;
        let failed = |Failure(problem)| Refusal::new(Code::WrongState, problem);
        let spec =
            self.definition().and_then(|definition| spec::of(&self.shared, &self.row, &definition, None));
        let spec = spec.map_err(failed)?;
        Ok(Reach { handle: self.handle.clone(), spec, variables: self.variables.to_map() })
    }

    pub(super) async fn freeze(&mut self) {
        if self.row.state == State::Frozen {
            // A repeat: the first has been reported, and may have been lost.
            return self.shared.save(&self.row, Some(What::Frozen)).await;
        }
        if self.row.state == State::Running
            && let Err(problem) = self.hold().await
        {
            tracing::warn!(instance = self.instance(), %problem, "not frozen; tried again");
            self.freeze_again = Some(Instant::now() + REST);
            return self.shared.save(&self.row, None).await;
        }
        self.freeze_again = None;
        self.variables.clear();
        self.row.state = State::Frozen;
        self.shared.save(&self.row, Some(What::Frozen)).await;
    }

    /// The endpoint first: what comes between the two is kept for later.
    pub(super) async fn hold(&self) -> Result<(), Failure> {
        self.endpoint.hold();
        let frozen = self.shared.engine.freeze(&self.handle).await;
        if frozen.is_err() {
            self.endpoint.release();
        }
        frozen
    }

    async fn thaw(&mut self, report: What) -> Result<(), LeftBehind> {
        self.freeze_again = None;
        match self.row.state {
            State::Running => self.shared.save(&self.row, None).await,
            // It runs on with the lease.
            _ if *self.silent.borrow() => {
                self.row.state = State::Silenced;
                self.shared.save(&self.row, Some(report)).await;
            }
            _ => self.wake(Some(report)).await?,
        }
        Ok(())
    }

    /// Answers first, then the process: a client that wakes up looks at its timers before it looks at its
    /// socket, and must find the answer there.
    pub(super) async fn wake(&mut self, report: Option<What>) -> Result<(), LeftBehind> {
        self.endpoint.release();
        if report.is_some() {
            self.endpoint.answered(ANSWER).await;
        }
        match self.shared.engine.thaw(&self.handle).await {
            Ok(()) => {
                self.row.state = State::Running;
                self.shared.save(&self.row, report).await;
            }
            Err(problem) => {
                tracing::error!(instance = self.instance(), %problem, "not thawed; ending it");
                self.row.reason = format!("it could not be thawed: {problem}");
                self.kill().await?;
            }
        }
        Ok(())
    }

    /// Asks it to end, and kills what is left after the grace, or sooner when it may not run any longer.
    async fn end(&mut self, grace: Duration) -> Result<Exit, LeftBehind> {
        self.endpoint.release();
        if self.row.state != State::Running {
            self.log_failure(self.shared.engine.thaw(&self.handle).await);
        }
        self.log_failure(self.shared.engine.ask(&self.handle).await);
        let (mailbox, silent, began) = (&mut self.mailbox, &mut self.silent, self.row.began);
        let cut_short = async {
            while let Some(order) = mailbox.recv().await {
                match order {
                    Order::Kill { known, .. } if began <= known => return,
                    Order::Leave => return,
                    _ => {}
                }
            }
        };
        tokio::select! {
            biased;
            exit = self.shared.engine.wait(&self.handle) => return Ok(exit),
            () = tokio::time::sleep(grace) => {}
            () = cut_short => {}
            // It may not run on beyond the lease.
            _ = silent.wait_for(|silent| *silent) => {}
        }
        self.kill().await
    }

    pub(super) async fn kill(&self) -> Result<Exit, LeftBehind> {
        self.shared.kill(&self.handle).await
    }

    async fn over(mut self, exit: Exit, mut reason: String) -> Result<Row, LeftBehind> {
        if reason.is_empty() {
            reason = limit_met(exit).unwrap_or_default().to_owned();
        }
        // Whatever the first process has left running.
        self.kill().await?;
        tracing::info!(instance = self.instance(), code = exit.code, signal = exit.signal, reason, "ended");
        self.shared.engine.let_go(&self.handle);
        let ending = self.shared.ending(&self.row, exit).await;
        self.shared.clear(self.instance()).await;
        self.row.ended(ending, reason);
        Ok(self.row)
    }

    pub(super) fn log_failure(&self, result: Result<(), Failure>) {
        if let Err(problem) = result {
            tracing::error!(instance = self.instance(), %problem, "the engine failed");
        }
    }
}

/// What the kernel has ended it for.
fn limit_met(exit: Exit) -> Option<&'static str> {
    if exit.out_of_memory {
        return Some(
            "it needed more memory than it may have; raise `memory`, or write less into its writable folders",
        );
    }
    let too_long = exit.signal == Some(Signal::XFSZ.as_raw());
    too_long.then_some("it wrote a longer file than it may; raise `file_size`, or write less")
}

/// Returns at that moment; never if there is none.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
