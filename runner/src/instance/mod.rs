//! The instances of this runner: one task for each, and the ledger that outlives a crash.

pub mod folders;
mod input;
mod joined;
mod kept;
pub mod ledger;
mod log;
mod machine;
mod mailbox;
mod reconcile;
mod shared;
mod silence;
mod sleeper;
mod spec;
pub mod stage;
mod start;
mod tools;
mod transcript;
pub mod users;
mod variables;
mod waiting;

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use skein_shared::entity::{Reign, RunnerCommand};
use skein_shared::fence::Token;
use skein_shared::id::{EntityKey, Kind};
use tokio::sync::{Mutex as Turn, watch};
use tokio_util::task::TaskTracker;

pub use shared::Shared;

use crate::container::{Exit, User};
use crate::endpoint::Upstreams;
use crate::error::Error;
use ledger::{Ledger, Row, State};
use machine::REST;
use mailbox::{ForTool, Mailbox, Order, Orders, Reach};
use waiting::{Line, Waiting};

/// Why a start came to nothing.
const CALLED_OFF: &str = "it was stopped before it was started";

/// All instances.
pub struct Instances {
    shared: Arc<Shared>,
    running: Mutex<HashMap<String, Orders>>,
    line: Line,
    /// Held while a command is taken: two coordinators may send at one moment, and the second has to find what the
    /// first has written down.
    taking: Turn<()>,
    tasks: TaskTracker,
}

impl Instances {
    pub fn new(shared: Shared) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::new(shared),
            running: Mutex::default(),
            line: Line::default(),
            taking: Turn::default(),
            tasks: TaskTracker::new(),
        })
    }

    pub fn ledger(&self) -> &Ledger {
        &self.shared.ledger
    }

    pub fn upstreams(&self) -> &Upstreams {
        &self.shared.upstreams
    }

    pub fn reported(&self) -> watch::Receiver<u64> {
        self.shared.reported.subscribe()
    }

    /// The instances that have a task, for heartbeats.
    pub fn live(&self) -> Vec<String> {
        self.running().keys().cloned().collect()
    }

    /// Whether an instance has a task.
    pub fn follows(&self, instance: &str) -> bool {
        self.running().contains_key(instance)
    }

    /// Takes a command, or gives the reign for which it was refused. `access_token` belongs to a start alone. It does
    /// not wait for the command's effect.
    ///
    /// # Errors
    /// When the ledger cannot be read: the command is then dropped, and sent again by the coordinator.
    pub async fn command(
        self: &Arc<Self>,
        command: RunnerCommand,
        access_token: &str,
        reign: &Reign,
    ) -> Result<Option<Reign>, Error> {
        let _turn = self.taking.lock().await;
        let highest = self.shared.ledger.reign(reign).await?;
        if reign.epoch < highest {
            let ((instance, _), source, epoch) = (subject(&command), &reign.source, reign.epoch);
            tracing::warn!(instance, %source, %epoch, %highest, "a command of a former owner was refused");
            return Ok(Some(Reign { source: source.clone(), epoch: highest }));
        }
        self.follow(command, access_token, reign).await.map(|()| None)
    }

    /// Does what the owner of an agent commands.
    async fn follow(
        self: &Arc<Self>,
        command: RunnerCommand,
        access_token: &str,
        reign: &Reign,
    ) -> Result<(), Error> {
        let (instance, token) = subject(&command);
        if let Some(waiting) = self.line.token(instance)
            && self.is_for_the_line(&command, waiting)
        {
            return Ok(());
        }
        // Asked before the row is read: whoever follows it writes its end down before that is over.
        let is_followed = self.follows(instance);
        let row = self.shared.ledger.row(instance).await?;
        if let Some(known) =
            row.as_ref().filter(|known| !known.state.is_live() && asks_after(&command, known))
        {
            return self.shared.report_end(known.clone(), token).await;
        }
        if let Some(row) = &row
            && token < row.token
        {
            refused(instance, token, row.token);
            return Ok(());
        }
        if let Some(row) =
            row.as_ref().filter(|row| row.state.is_live() && !is_followed && asks_after(&command, row))
        {
            self.end_forsaken(Row { token, ..row.clone() });
            return Ok(());
        }
        match (command, row) {
            (RunnerCommand::Start { instance, agent, swarm, token, input }, None) if is_followed => {
                // What an earlier one has left is being ended, of which the ledger knows nothing.
                let row = Row::new(instance.clone(), swarm, agent, token, access_token);
                self.line.put(&instance, Waiting::Start(Box::new(row), input));
                Ok(())
            }
            (RunnerCommand::Start { instance, agent, swarm, token, input }, None) => {
                self.start(Row::new(instance, swarm, agent, token, access_token), &input).await
            }
            // One that was lost on the way to its first start may come back to the runner that got that start after
            // all.
            (RunnerCommand::Start { instance, agent, swarm, token, input }, Some(row))
                if token > row.token =>
            {
                self.start_anew(Row::new(instance, swarm, agent, token, access_token), input, row).await
            }
            // A repeat: what became of the first is reported already, or about to be.
            (RunnerCommand::Start { .. }, _) => Ok(()),
            (RunnerCommand::Stop { instance, token, .. }, None) => {
                self.answer_for_absent(instance, token, reign, false).await
            }
            // Whoever commands this has heard that it began here.
            (
                RunnerCommand::Freeze { instance, token }
                | RunnerCommand::Thaw { instance, token }
                | RunnerCommand::Spill { instance, token }
                | RunnerCommand::Restore { instance, token, .. },
                None,
            ) => self.answer_for_absent(instance, token, reign, true).await,
            (RunnerCommand::Freeze { instance, token }, _) => self.order(&instance, Order::Freeze(token)),
            (RunnerCommand::Thaw { instance, token }, _) => self.order(&instance, Order::Thaw(token)),
            (RunnerCommand::Spill { instance, token }, _) => self.order(&instance, Order::Spill(token)),
            (RunnerCommand::Restore { instance, token, input }, _) => {
                self.order(&instance, Order::Restore { token, input: input.to_string() })
            }
            (RunnerCommand::Stop { instance, token, reason, grace_ms }, Some(_)) => {
                let grace = Duration::from_millis(grace_ms);
                self.order(&instance, Order::Stop { token, reason, grace })
            }
            (RunnerCommand::Forget { token, .. }, Some(mut row)) if row.state == State::Ended => {
                row.token = token;
                self.shared.ledger.forget(row).await
            }
            (RunnerCommand::Forget { .. }, _) => Ok(()),
        }
    }

    /// Whether a command is one for an instance whose latest start waits, with this token, and has been followed with
    /// that: those for the one before it are over, and of those for the start itself only a stop says anything new.
    fn is_for_the_line(&self, command: &RunnerCommand, waiting: Token) -> bool {
        let (instance, token) = subject(command);
        if token < waiting {
            refused(instance, token, waiting);
            return true;
        }
        match command {
            RunnerCommand::Start { .. } => token == waiting,
            RunnerCommand::Stop { .. } => {
                self.line.put(instance, Waiting::CalledOff(token));
                true
            }
            RunnerCommand::Forget { .. } => {
                self.line.take(instance);
                false
            }
            RunnerCommand::Freeze { .. }
            | RunnerCommand::Thaw { .. }
            | RunnerCommand::Spill { .. }
            | RunnerCommand::Restore { .. } => true,
        }
    }

    /// The highest token of what was told of a held instance.
    pub fn latest(&self, row: &Row) -> Token {
        self.line.token(&row.instance).map_or(row.token, |waiting| waiting.max(row.token))
    }

    /// Reports again how everything has ended that nobody has let go of: whoever took the first report in may have
    /// forgotten it. So may whoever was told in a registration that an instance has ended, which is in `said`: it waits
    /// to hear how, also if a former owner has let go of the instance since.
    ///
    /// # Errors
    /// When the ledger cannot be read or written.
    pub async fn report_ends(&self, said: &BTreeSet<String>) -> Result<(), Error> {
        for row in self.shared.ledger.ended_without_report(said).await? {
            let token = row.token;
            self.shared.report_end(row, token).await?;
        }
        Ok(())
    }

    /// Freezes everything: the lease is about to end unrenewed.
    pub fn silence(&self) {
        self.shared.silent.send_replace(true);
    }

    /// Whether everything is to stand still.
    pub fn is_silent(&self) -> bool {
        *self.shared.silent.borrow()
    }

    /// The lease holds. Instances in `lost` were given away meanwhile and end, unless they were started anew since they
    /// had this token; the others go on.
    pub fn verdict<'a>(&self, lost: impl IntoIterator<Item = (&'a String, &'a Token)>) {
        let running = self.running();
        for (instance, token) in lost {
            self.line.give_away(instance, *token);
            let Some(orders) = running.get(instance) else { continue };
            let reason = "it was given to another runner while this one was silent".to_owned();
            orders.give(instance, Order::Kill { known: *token, reason });
        }
        drop(running);
        // After that, so that what was given away does not run on.
        self.shared.silent.send_replace(false);
    }

    /// Ends everything with each agent's grace, and waits for it.
    pub async fn leave(&self) {
        // Closed first: a start sees that, or its instance is among those that get the order.
        self.tasks.close();
        self.shared.leaving.cancel();
        self.all(|| Order::Leave);
        self.tasks.wait().await;
    }

    /// Answers for an instance that never came here, or is not remembered though it `began`. It is remembered as ended:
    /// were its start to come after all, it would run beside the one that was made elsewhere meanwhile.
    async fn answer_for_absent(
        &self,
        instance: String,
        token: Token,
        reign: &Reign,
        began: bool,
    ) -> Result<(), Error> {
        let EntityKey { kind: Kind::Agent, swarm, name: Some(agent), .. } = &reign.source else {
            return Ok(());
        };
        let mut row = Row::new(instance, swarm.to_string(), agent.to_string(), token, "");
        row.state = State::Ended;
        let (exit, reason) = match began {
            true => (Some(Exit::default()), "its runner knows nothing of it"),
            false => (None, CALLED_OFF),
        };
        (row.exit, row.reason) = (exit, reason.to_owned());
        self.shared.report_end(row, token).await
    }

    /// Ends what should live and is followed by nobody: it would keep its slot for ever.
    fn end_forsaken(self: &Arc<Self>, row: Row) {
        let (shared, instance) = (Arc::clone(&self.shared), row.instance.clone());
        self.adopt(&instance, |_| async move { shared.end_forsaken(row).await });
    }

    /// Starts an instance once its earlier start has ended here.
    async fn start_anew(
        self: &Arc<Self>,
        row: Row,
        input: serde_json::Value,
        earlier: Row,
    ) -> Result<(), Error> {
        let instance = earlier.instance.clone();
        // Until its program is known, its log is what the earlier one has printed.
        let row = Row { harness: earlier.harness, ..row };
        let waiting = Waiting::Start(Box::new(row), input);
        if self.running().contains_key(&instance) {
            self.line.put(&instance, waiting);
            let grace = self.shared.definition(&earlier).map_or(Duration::ZERO, |known| known.grace);
            let reason = "it is started anew".to_owned();
            return self.order(&instance, Order::Stop { token: earlier.token, reason, grace });
        }
        self.line.take(&instance);
        self.go_on(&instance, waiting).await
    }

    async fn start(self: &Arc<Self>, mut row: Row, input: &serde_json::Value) -> Result<(), Error> {
        // Whoever leaves waits for a start that is under way.
        let _under_way = self.tasks.token();
        if self.tasks.is_closed() {
            return Ok(());
        }
        if let Some(users) = self.shared.users.clone() {
            row.user = self.free_user(&row, users.clone()).await?;
            if row.user.is_none() {
                // Without one it would run as root.
                row.state = State::Ended;
                row.reason = format!(
                    "all {} users that a runner gives to instances are given away; begin anew with another data folder",
                    users.len()
                );
                let token = row.token;
                return self.shared.report_end(row, token).await;
            }
        }
        row.secret = secret()?;
        let (orders, mailbox) = mailbox::open();
        {
            let mut running = self.running();
            if running.contains_key(&row.instance) || self.tasks.is_closed() {
                return Ok(());
            }
            running.insert(row.instance.clone(), orders);
        }
        // In the ledger: it is held from here on.
        if let Err(error) = self.shared.ledger.save(row.clone(), None).await {
            self.running().remove(&row.instance);
            return Err(error);
        }
        let input = input.to_string();
        let shared = Arc::clone(&self.shared);
        self.spawn(row.instance.clone(), async move { start::start(shared, row, input, mailbox).await });
        Ok(())
    }

    /// Takes over an instance that still runs, or sleeps, from before this process.
    fn adopt<F>(self: &Arc<Self>, instance: &str, life: impl FnOnce(Mailbox) -> F)
    where
        F: Future<Output = Option<Row>> + Send + 'static,
    {
        let (orders, mailbox) = mailbox::open();
        self.running().insert(instance.to_owned(), orders);
        self.spawn(instance.to_owned(), life(mailbox));
    }

    fn spawn(self: &Arc<Self>, instance: String, life: impl Future<Output = Option<Row>> + Send + 'static) {
        let instances = Arc::clone(self);
        self.tasks.spawn(async move {
            let ended = match AssertUnwindSafe(life).catch_unwind().await {
                Ok(ended) => ended,
                // The panic itself is in the log.
                Err(_) => instances.after_panic(&instance).await,
            };
            if let Some(ended) = ended {
                instances.write_down(ended).await;
            }
            instances.running().remove(&instance);
            instances.go_on_at_last(&instance).await;
        });
    }

    /// Ends an instance of which the task has panicked. What it was told by then is lost, but for the token.
    async fn after_panic(&self, instance: &str) -> Option<Row> {
        let row = loop {
            match self.shared.ledger.row(instance).await {
                Ok(row) => break row,
                Err(error) => tracing::error!(instance, %error, "the ledger cannot be read; tried again"),
            }
            if self.tasks.is_closed() {
                return None;
            }
            tokio::time::sleep(REST).await;
        };
        let mut ended = self.shared.end_forsaken(row?).await?;
        let told = self.running().get(instance).and_then(Orders::latest);
        ended.token = ended.token.max(told.unwrap_or(ended.token));
        Some(ended)
    }

    /// Writes down how an instance ended, as often as it takes: until then its agent takes it for alive. A runner that
    /// leaves does not wait for that, for its next start finds out.
    async fn write_down(&self, ended: Row) {
        let token = ended.token;
        while let Err(error) = self.shared.report_end(ended.clone(), token).await {
            tracing::error!(instance = ended.instance, %error, "how it ended was not written down; tried again");
            if self.tasks.is_closed() {
                return;
            }
            tokio::time::sleep(REST).await;
        }
    }

    /// A user of the agent's that no held instance has.
    async fn free_user(&self, row: &Row, users: Range<u32>) -> Result<Option<User>, Error> {
        let held = self.shared.ledger.held().await?;
        // An instance that is started again finds what it left in its home.
        let earlier = held.iter().find(|held| held.instance == row.instance);
        if let Some(user) = earlier.and_then(|earlier| earlier.user) {
            return Ok(Some(user));
        }
        let taken = held.iter().filter_map(|row| Some(row.user?.uid)).collect();
        let group = self.shared.ledger.group(&row.swarm, &row.agent).await?;
        let gid = users.start + group % (users.end - users.start);
        let uid = self.shared.ledger.user(&row.swarm, &row.agent, users, taken).await?;
        Ok(uid.map(|uid| User { uid, gid }))
    }

    fn order(&self, instance: &str, order: Order) -> Result<(), Error> {
        match self.running().get(instance) {
            Some(orders) => orders.give(instance, order),
            None => tracing::debug!(instance, ?order, "nothing to do: the instance does not run here"),
        }
        Ok(())
    }

    fn all(&self, order: impl Fn() -> Order) {
        for (instance, orders) in self.running().iter() {
            orders.give(instance, order());
        }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashMap<String, Orders>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a command wants of an instance that has ended what only its end can answer: whoever sends it does not know.
fn asks_after(command: &RunnerCommand, ended: &Row) -> bool {
    match command {
        RunnerCommand::Start { token, .. } => *token <= ended.token,
        RunnerCommand::Freeze { .. }
        | RunnerCommand::Thaw { .. }
        | RunnerCommand::Spill { .. }
        | RunnerCommand::Restore { .. }
        | RunnerCommand::Stop { .. } => true,
        RunnerCommand::Forget { .. } => false,
    }
}

fn refused(instance: &str, token: Token, known: Token) {
    tracing::warn!(instance, %token, %known, "a command with a lower token was refused");
}

fn subject(command: &RunnerCommand) -> (&str, Token) {
    match command {
        RunnerCommand::Start { instance, token, .. }
        | RunnerCommand::Freeze { instance, token }
        | RunnerCommand::Thaw { instance, token }
        | RunnerCommand::Spill { instance, token }
        | RunnerCommand::Restore { instance, token, .. }
        | RunnerCommand::Stop { instance, token, .. }
        | RunnerCommand::Forget { instance, token } => (instance, *token),
    }
}

/// 256 random bits in hexadecimal.
fn secret() -> Result<String, Error> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::config(format!("the machine gives no random numbers: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
