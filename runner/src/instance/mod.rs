//! The instances of this runner: one task for each, and the ledger that outlives a crash.

pub mod folders;
mod input;
pub mod ledger;
mod log;
mod machine;
mod reconcile;
mod sleeper;
mod spec;
pub mod stage;
mod tools;
mod transcript;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use skein_shared::Refusal;
use skein_shared::entity::{Reign, RunnerCommand};
use skein_shared::fence::Token;
use skein_shared::id::{EntityKey, Kind};
use tokio::sync::{Mutex as Turn, mpsc, oneshot, watch};
use tokio_util::task::TaskTracker;

use crate::container::confine::USERS;
use crate::container::{Engine, Exit, Failure, Handle, Isolation, Spec, User};
use crate::credentials::{self, Credentials, Mask};
use crate::definition::{Definition, Definitions};
use crate::endpoint::Upstreams;
use crate::error::Error;
use crate::harness::{Ending, Said};
use folders::Folders;
use ledger::{Ledger, Row, State, What};

/// Orders that wait for an instance whose task is busy freezing or ending it.
const ORDERS: usize = 32;

/// What can be asked of a running instance.
#[derive(Debug)]
enum Order {
    Freeze(Token),
    Thaw(Token),
    /// Ends its processes and keeps its files.
    Spill(Token),
    /// Starts it again, with what its wait came to.
    Restore {
        token: Token,
        input: String,
    },
    Stop {
        token: Token,
        reason: String,
        grace: Duration,
    },
    /// Ends it without a word: it was given away.
    Kill {
        reason: String,
    },
    /// The runner leaves.
    Leave,
    /// Answers with what it takes to run something inside.
    Reach(oneshot::Sender<Result<Reach, Refusal>>),
}

impl Order {
    /// Of a command.
    fn token(&self) -> Option<Token> {
        match self {
            Self::Freeze(token)
            | Self::Thaw(token)
            | Self::Spill(token)
            | Self::Restore { token, .. }
            | Self::Stop { token, .. } => Some(*token),
            Self::Kill { .. } | Self::Leave | Self::Reach(_) => None,
        }
    }
}

/// What it takes to run something inside an instance.
#[derive(Debug)]
struct Reach {
    handle: Handle,
    spec: Spec,
}

/// All instances.
pub struct Instances {
    shared: Arc<Shared>,
    running: Mutex<HashMap<String, mpsc::Sender<Order>>>,
    /// Starts that wait for the end of an earlier one of the same instance, with their access tokens.
    next: Mutex<HashMap<String, (RunnerCommand, String)>>,
    /// Held while a command is taken: two coordinators may send at one moment, and the second has to find what the first
    /// has written down.
    taking: Turn<()>,
    tasks: TaskTracker,
}

/// What the tasks of the instances have in common.
pub struct Shared {
    /// Stands in the environment of every process, to find strays by.
    pub mark: String,
    pub engine: Arc<dyn Engine>,
    pub isolation: Isolation,
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
}

impl Shared {
    /// Writes a row down with its report. A ledger that fails is logged; the state in memory goes on, and the
    /// next registration tells the coordinators of it.
    async fn save(&self, row: &Row, what: Option<What>) {
        let reports = what.is_some();
        if let Err(error) = self.ledger.save(row.clone(), what).await {
            tracing::error!(instance = row.instance, %error, "an instance's state was not written down");
        }
        if reports {
            self.reported.send_modify(|count| *count += 1);
        }
    }

    /// Reports again how an instance ended, to whoever has commanded it since.
    async fn report_end(&self, mut row: Row, token: Token) -> Result<(), Error> {
        row.token = row.token.max(token);
        let what = row.end();
        self.ledger.save(row, Some(what)).await?;
        self.reported.send_modify(|count| *count += 1);
        Ok(())
    }

    /// What an instance's program has said so far, by its log.
    async fn said(&self, row: &Row) -> Said {
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
    fn definition(&self, row: &Row) -> Result<Arc<Definition>, Failure> {
        let key = (row.swarm.clone(), row.agent.clone());
        self.definitions.borrow().get(&key).cloned().ok_or_else(|| {
            let (swarm, agent) = key;
            Failure(format!("this runner has no definition of agent `{agent}` in swarm `{swarm}`"))
        })
    }

    /// Removes what an instance was given whose processes have ended, and what it has printed of it.
    async fn take_back(&self, instance: &str) {
        let folders = self.folders.clone();
        let (lent, input, log) =
            (self.folders.lent(instance), self.folders.input(instance), self.folders.log(instance));
        let of = instance.to_owned();
        let taken = tokio::task::spawn_blocking(move || {
            let hidden = log::hide(&log, &Mask::of(&lent));
            credentials::take_back(&lent);
            folders.take_outputs_back(&of);
            input::take_back(&input);
            hidden
        });
        if let Ok(Err(error)) = taken.await {
            tracing::error!(instance, %error, "its log may show what it was lent");
        }
    }

    /// How an instance ended, by its exit and by its program's own word.
    async fn ending(&self, row: &Row, exit: Exit) -> Ending {
        let mask = self.mask(&row.instance).await;
        let mut ending = self.said(row).await.ending(exit);
        ending.reason = mask.hidden(&ending.reason);
        ending
    }

    /// What is not to be seen of an instance.
    async fn mask(&self, instance: &str) -> Mask {
        let lent = self.folders.lent(instance);
        tokio::task::spawn_blocking(move || Mask::of(&lent)).await.unwrap_or_default()
    }

    /// Whether an order is to be followed. Two coordinators may send out of order, so the token is compared again where
    /// that is done.
    fn takes(row: &mut Row, order: &Order) -> bool {
        let Some(token) = order.token() else { return true };
        if token < row.token {
            return false;
        }
        row.token = token;
        true
    }

    /// How long an instance has to end once it was asked to.
    fn grace(&self, row: &Row) -> Duration {
        self.definition(row).map_or(Duration::ZERO, |definition| definition.grace)
    }

    async fn group(&self, swarm: &str, agent: &str) -> Result<Option<u32>, Error> {
        if self.isolation != Isolation::Users {
            return Ok(None);
        }
        Ok(Some(USERS.start + self.ledger.group(swarm, agent).await? % (USERS.end - USERS.start)))
    }
}

impl Instances {
    pub fn new(shared: Shared) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::new(shared),
            running: Mutex::default(),
            next: Mutex::default(),
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

    /// Takes a command. `access_token` belongs to a start alone. It does not wait for the command's effect.
    ///
    /// # Errors
    /// When the ledger cannot be read: the command is then dropped, and sent again by the coordinator.
    pub async fn command(
        self: &Arc<Self>,
        command: RunnerCommand,
        access_token: &str,
        reign: &Reign,
    ) -> Result<(), Error> {
        let _turn = self.taking.lock().await;
        let (instance, token) = subject(&command);
        let highest = self.shared.ledger.reign(reign).await?;
        if reign.epoch < highest {
            let (source, epoch) = (&reign.source, reign.epoch);
            tracing::warn!(instance, %source, %epoch, %highest, "a command of a former owner was refused");
            return Ok(());
        }
        let row = self.shared.ledger.row(instance).await?;
        if let Some(known) =
            row.as_ref().filter(|known| !known.state.is_live() && asks_after(&command, known))
        {
            return self.shared.report_end(known.clone(), token).await;
        }
        if let Some(row) = &row
            && token < row.token
        {
            let known = row.token;
            tracing::warn!(instance, %token, %known, "a command with a lower token was refused");
            return Ok(());
        }
        match (command, row) {
            (RunnerCommand::Start { instance, agent, swarm, token, input }, None) => {
                self.start(Row::new(instance, swarm, agent, token, access_token), &input).await
            }
            // One that was lost on the way to its first start may come back to the runner that got that start after all.
            (command @ RunnerCommand::Start { .. }, Some(row)) if token_of(&command) > row.token => {
                self.start_anew(command, row, access_token).await
            }
            // A repeat: what became of the first is reported already, or about to be.
            (RunnerCommand::Start { .. }, _) => Ok(()),
            (RunnerCommand::Freeze { instance, token }, _) => self.order(&instance, Order::Freeze(token)),
            (RunnerCommand::Thaw { instance, token }, _) => self.order(&instance, Order::Thaw(token)),
            (RunnerCommand::Spill { instance, token }, _) => self.order(&instance, Order::Spill(token)),
            (RunnerCommand::Restore { instance, token, input }, _) => {
                self.order(&instance, Order::Restore { token, input: input.to_string() })
            }
            (RunnerCommand::Stop { instance, token, .. }, None) => {
                self.never_starts(instance, token, reign).await
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

    /// Reports again how everything has ended that nobody has let go of: whoever took the first report in may have
    /// forgotten it.
    ///
    /// # Errors
    /// When the ledger cannot be read or written.
    pub async fn report_ends(&self) -> Result<(), Error> {
        for row in self.shared.ledger.ended_without_report().await? {
            let token = row.token;
            self.shared.report_end(row, token).await?;
        }
        Ok(())
    }

    /// Freezes everything: the lease is about to end unrenewed.
    pub fn silence(&self) {
        self.shared.silent.send_replace(true);
    }

    /// The lease holds. Instances in `lost` were given away meanwhile and end; the others go on.
    pub fn verdict(&self, lost: &[String]) {
        for (instance, orders) in self.running().iter().filter(|(instance, _)| lost.contains(instance)) {
            let reason = "it was given to another runner while this one was silent".to_owned();
            deliver(instance, orders, Order::Kill { reason });
        }
        // After that, so that what was given away does not run on.
        self.shared.silent.send_replace(false);
    }

    /// Ends everything with each agent's grace, and waits for it.
    pub async fn leave(&self) {
        // Closed first: a start sees that, or its instance is among those that get the order.
        self.tasks.close();
        self.all(|| Order::Leave);
        self.tasks.wait().await;
    }

    /// Answers for an instance that never came here. It is remembered as ended: were its start to come after all, it
    /// would run beside the one that was made elsewhere meanwhile.
    async fn never_starts(&self, instance: String, token: Token, reign: &Reign) -> Result<(), Error> {
        let EntityKey { kind: Kind::Agent, swarm, name: Some(agent), .. } = &reign.source else {
            return Ok(());
        };
        let mut row = Row::new(instance, swarm.to_string(), agent.to_string(), token, "");
        row.state = State::Ended;
        row.reason = "it was stopped before it was started".to_owned();
        self.shared.report_end(row, token).await
    }

    /// Starts an instance once its earlier start has ended here.
    async fn start_anew(
        self: &Arc<Self>,
        command: RunnerCommand,
        earlier: Row,
        access_token: &str,
    ) -> Result<(), Error> {
        let instance = earlier.instance.clone();
        self.next().insert(instance.clone(), (command, access_token.to_owned()));
        if self.running().contains_key(&instance) {
            let grace = self.shared.grace(&earlier);
            let reason = "it is started anew".to_owned();
            return self.order(&instance, Order::Stop { token: earlier.token, reason, grace });
        }
        self.go_on(&instance).await
    }

    /// Starts what waited for the end of an instance.
    async fn go_on(self: &Arc<Self>, instance: &str) -> Result<(), Error> {
        let waited = self.next().remove(instance);
        let Some((RunnerCommand::Start { instance, agent, swarm, token, input }, access)) = waited else {
            return Ok(());
        };
        self.start(Row::new(instance, swarm, agent, token, &access), &input).await
    }

    async fn start(self: &Arc<Self>, mut row: Row, input: &serde_json::Value) -> Result<(), Error> {
        // Whoever leaves waits for a start that is under way.
        let _under_way = self.tasks.token();
        if self.tasks.is_closed() {
            return Ok(());
        }
        row.user = self.free_user(&row).await?;
        if row.user.is_none() && self.shared.isolation == Isolation::Users {
            // Without one it would run as root.
            row.state = State::Ended;
            row.reason = format!(
                "all {} users that a runner gives to instances are given away; begin anew with another data folder",
                USERS.len()
            );
            let token = row.token;
            return self.shared.report_end(row, token).await;
        }
        row.secret = secret()?;
        let (orders, inbox) = mpsc::channel(ORDERS);
        {
            let mut running = self.running();
            if running.contains_key(&row.instance) || self.tasks.is_closed() {
                return Ok(());
            }
            running.insert(row.instance.clone(), orders);
        }
        // In the ledger before anything runs: a crash from here on leaves a trace.
        if let Err(error) = self.shared.ledger.save(row.clone(), None).await {
            self.running().remove(&row.instance);
            return Err(error);
        }
        let input = input.to_string();
        let shared = Arc::clone(&self.shared);
        self.spawn(row.instance.clone(), async move { machine::start(shared, row, input, inbox).await });
        Ok(())
    }

    /// Takes over an instance that still runs, or sleeps, from before this process.
    fn adopt<F>(self: &Arc<Self>, instance: &str, life: impl FnOnce(mpsc::Receiver<Order>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (orders, inbox) = mpsc::channel(ORDERS);
        self.running().insert(instance.to_owned(), orders);
        self.spawn(instance.to_owned(), life(inbox));
    }

    fn spawn(self: &Arc<Self>, instance: String, work: impl Future<Output = ()> + Send + 'static) {
        let instances = Arc::clone(self);
        self.tasks.spawn(async move {
            work.await;
            instances.running().remove(&instance);
            let _turn = instances.taking.lock().await;
            if let Err(error) = instances.go_on_later(&instance).await {
                tracing::error!(instance, %error, "an instance was not started anew");
            }
        });
    }

    /// The same behind a box: a start ends in this again.
    fn go_on_later<'a>(self: &'a Arc<Self>, instance: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.go_on(instance))
    }

    /// A user of the agent's that no held instance has.
    async fn free_user(&self, row: &Row) -> Result<Option<User>, Error> {
        let Some(gid) = self.shared.group(&row.swarm, &row.agent).await? else { return Ok(None) };
        let held = self.shared.ledger.held().await?;
        // An instance that is started again finds what it left in its home.
        let earlier = held.iter().find(|held| held.instance == row.instance);
        if let Some(user) = earlier.and_then(|earlier| earlier.user) {
            return Ok(Some(user));
        }
        let taken = held.iter().filter_map(|row| Some(row.user?.uid)).collect();
        let uid = self.shared.ledger.user(&row.swarm, &row.agent, USERS, taken).await?;
        Ok(uid.map(|uid| User { uid, gid }))
    }

    fn order(&self, instance: &str, order: Order) -> Result<(), Error> {
        match self.running().get(instance) {
            Some(orders) => deliver(instance, orders, order),
            None => tracing::debug!(instance, ?order, "nothing to do: the instance does not run here"),
        }
        Ok(())
    }

    fn all(&self, order: impl Fn() -> Order) {
        for (instance, orders) in self.running().iter() {
            deliver(instance, orders, order());
        }
    }

    fn next(&self) -> std::sync::MutexGuard<'_, HashMap<String, (RunnerCommand, String)>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashMap<String, mpsc::Sender<Order>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn deliver(instance: &str, orders: &mpsc::Sender<Order>, order: Order) {
    match orders.try_send(order) {
        Ok(()) => {}
        // Nobody gives these again.
        Err(mpsc::error::TrySendError::Full(order @ (Order::Kill { .. } | Order::Leave))) => {
            let orders = orders.clone();
            tokio::spawn(async move { orders.send(order).await });
        }
        // Ended just now, or overrun by repeats; the coordinator sends what it still wants again.
        Err(_) => tracing::warn!(instance, "an order was not taken"),
    }
}

/// Whether a command wants of an instance that has ended what only its end can answer: whoever sends it does not know.
fn asks_after(command: &RunnerCommand, ended: &Row) -> bool {
    match command {
        RunnerCommand::Start { token, .. } => *token <= ended.token,
        RunnerCommand::Stop { .. } => true,
        RunnerCommand::Freeze { .. }
        | RunnerCommand::Thaw { .. }
        | RunnerCommand::Spill { .. }
        | RunnerCommand::Restore { .. }
        | RunnerCommand::Forget { .. } => false,
    }
}

fn token_of(command: &RunnerCommand) -> Token {
    subject(command).1
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
