//! Everybody at work at once: clients, a listener, schedules, and agents that events start; and, once all is well
//! again, what the checkers find.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::agents::{self, CALLEE, CALLER, SLEEPER};
use super::client::Client;
use super::evidence::{self, Clients};
use super::worker::{self, TTL, Worker};
use super::{CAPACITY, Field, LOOK, Map};
use crate::history::{
    Lost, Moment, NOTHING, Operation, calls, claims, events, forget_between, inbox, locks, schedules,
};
use crate::nemesis::Nemesis;
use crate::redis::Server;
use crate::up::Up;

/// Clients that work.
pub const CLIENTS: usize = 32;
/// How long a client waits for one node.
const PATIENCE: Duration = Duration::from_secs(3);
/// For what drains once all is well again, on a busy machine.
const LIVENESS: Duration = Duration::from_secs(90);
/// Of each kind of operation at least so many are to be answered.
const WORTH: usize = 10;
/// Where schedules make tasks that nobody takes.
const CLOCKWORK: &str = "clockwork";
const SCHEDULES: [(&str, Duration); 3] = [
    ("often", Duration::from_secs(1)),
    ("now-and-then", Duration::from_secs(2)),
    ("seldom", Duration::from_secs(5)),
];

/// Everybody, at rest.
pub struct Swarm {
    pub field: Arc<Field>,
    workers: Vec<Worker>,
    listener: Client,
    clients: Clients,
}

/// Everybody, at work.
pub struct Working {
    field: Arc<Field>,
    stop: CancellationToken,
    workers: JoinSet<Worker>,
    listener: JoinHandle<Client>,
    pushing: Option<JoinHandle<()>>,
    clients: Clients,
}

impl Swarm {
    /// Lets everybody join, and makes rooms and schedules.
    ///
    /// # Errors
    /// When somebody is not let in.
    pub async fn gather(node: &Up, map: watch::Receiver<Map>, seed: u64) -> Result<Self> {
        let field = Field::new(map, PATIENCE);
        let mut all = Vec::new();
        for number in 0..=CLIENTS {
            let token = node.token("worker", &format!("worker-{number}")).await?;
            all.push(Client::join(Arc::clone(&field), number, &token).await?);
        }
        let clients = all.iter().map(|client| (client.agent.clone(), client.number)).collect();
        let listener = all.pop().context("nobody listens")?;
        listener.furnish().await?;
        let printed = node
            .skein(&["token", "issue", "--swarm", CLOCKWORK, "--role", "worker", "--name", "keeper"])
            .await?;
        let token = printed.lines().last().context("no token was printed")?;
        let keeper = Client::join(Arc::clone(&field), CLIENTS + 1, token).await?;
        for (name, interval) in SCHEDULES {
            keeper.schedule(name, interval).await?;
        }
        let workers = all.into_iter().map(|client| Worker::new(client, seed)).collect();
        Ok(Self { field, workers, listener, clients })
    }

    /// Lets everybody begin. Without an ingress no events are sent.
    pub fn begin(self) -> Working {
        let Self { field, workers, listener, clients } = self;
        let stop = CancellationToken::new();
        let others: Arc<Vec<String>> = Arc::new(clients.keys().cloned().collect());
        let workers =
            workers.into_iter().map(|worker| worker.work(Arc::clone(&others), stop.clone())).collect();
        let listener = tokio::spawn(worker::listen(listener, stop.clone()));
        let has_ingress = !field.map.borrow().ingress.is_empty();
        let pushing = has_ingress.then(|| tokio::spawn(agents::push(Arc::clone(&field), stop.clone())));
        Working { field, stop, workers, listener, pushing, clients }
    }

    /// All is well: everything that can be done is done, and each lock is to be had.
    ///
    /// # Errors
    /// When it does not drain.
    pub async fn drain(self) -> Result<Self> {
        let Self { field, workers, listener, clients } = self;
        let draining: JoinSet<Worker> = workers.into_iter().map(Worker::drain).collect();
        worker::take_each_lock(&listener, LIVENESS).await;
        let workers =
            tokio::time::timeout(LIVENESS, draining.join_all()).await.context("it does not drain")?;
        listener.read_all().await;
        Ok(Self { field, workers, listener, clients })
    }

    /// What the checkers of clients and schedules find, after the effects that are still on their way have arrived.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn judge(&self, node: &Up, server: &Server, healed: Moment) -> Result<Vec<String>> {
        self.judge_without(node, Some(server), healed, NOTHING, Duration::ZERO).await
    }

    /// The same where what was told in a certain time may have been lost since, and nodes hear of that within a lease.
    /// Without a server neither the log nor the schedules are looked at.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn judge_without(
        &self,
        node: &Up,
        server: Option<&Server>,
        healed: Moment,
        lost: Lost,
        lease: Duration,
    ) -> Result<Vec<String>> {
        let heard = lost.end.saturating_add(lease);
        let history = claims::forget_lost(&self.field.claims.history(), &lost, heard);
        let late = self.arrives(node, &history).await?;
        let tasks = evidence::tasks(node, &self.clients).await?;
        let log = match server {
            Some(server) => Some(evidence::claims(server, &self.clients).await?),
            None => None,
        };
        let log = log.as_deref();
        let evidence = claims::Evidence { history: &history, tasks: &tasks, log, capacity: CAPACITY };
        // It computes for a while, and the links are to go on.
        let mut broken = tokio::task::block_in_place(|| claims::check(&evidence));
        broken.extend(late);
        let locks = self.field.locks.history();
        // A lock whose release was lost is refreshed under its token of before, which what it guards refuses.
        let known = forget_between(&locks, lost.start, lost.end);
        broken.extend(locks::check_tokens(&known, &locks, &self.field.writes()));
        broken.extend(locks::check_time(&known));
        broken.extend(locks::none_is_stuck(&locks, healed, TTL + LIVENESS));
        let inbox = forget_between(&self.field.inbox.history(), lost.start, lost.end);
        broken.extend(inbox::check(&inbox, &self.listener.rooms().await?));
        if let Some(server) = server {
            broken.extend(self.judge_schedules(node, server).await?);
        }
        Ok(broken)
    }

    /// The tasks that were acknowledged and are not there. Not those that were ordered by a message: it is the message
    /// that was acknowledged.
    ///
    /// # Errors
    /// When the node does not list those that are.
    pub async fn gone(&self, node: &Up) -> Result<Vec<String>> {
        let tasks = evidence::tasks(node, &self.clients).await?;
        let made =
            |operation: &Operation<claims::Call, claims::Answer>| match (&operation.call, operation.answer())
            {
                (claims::Call::Create { .. }, Some(claims::Answer::Task(task))) => Some(task.clone()),
                _ => None,
            };
        let history = self.field.claims.history();
        Ok(history.iter().filter_map(made).filter(|task| !tasks.contains_key(task)).collect())
    }

    /// Waits until all that was ordered is there and nothing is left to do, and says what does not come to that.
    async fn arrives(&self, node: &Up, history: &claims::History) -> Result<Vec<String>> {
        let ordered = |operation: &Operation<claims::Call, claims::Answer>| {
            matches!(operation.call, claims::Call::Order { .. }).then(|| operation.answer().cloned())?
        };
        let ordered: Vec<claims::Answer> = history.iter().filter_map(ordered).collect();
        let all = self.field.claims.history();
        let needs = |text: &str| -> &[String] {
            let made = all.iter().find_map(|operation| match &operation.call {
                claims::Call::Create { text: of, needs, .. } if of == text => Some(needs.as_slice()),
                _ => None,
            });
            made.unwrap_or_default()
        };
        let found = async || {
            let tasks = evidence::tasks(node, &self.clients).await?;
            // What needs a task that was lost is never to be had. That the task is gone is found elsewhere.
            let can_start =
                |task: &claims::Task| needs(&task.text).iter().all(|need| tasks.contains_key(need));
            let open = tasks.iter().filter(|(_, task)| task.status == "unassigned" && can_start(task));
            let mut late: Vec<String> =
                open.map(|(id, task)| format!("liveness: {id} is still open: {task:?}")).collect();
            let away = |answer: &&claims::Answer| match answer {
                claims::Answer::Task(task) => !tasks.contains_key(task),
                _ => false,
            };
            late.extend(
                ordered.iter().filter(away).map(|order| format!("liveness: {order:?} never arrived")),
            );
            Ok(late)
        };
        let nothing = async || Ok(found().await?.is_empty().then_some(()));
        match node.until("all arrives and is done", nothing).await {
            Ok(()) => Ok(Vec::new()),
            Err(_) => found().await,
        }
    }

    /// The schedules go on meanwhile; what has fired is to arrive.
    async fn judge_schedules(&self, node: &Up, server: &Server) -> Result<Vec<String>> {
        let found = async || {
            let (log, made) = evidence::schedules(server, CLOCKWORK).await?;
            let mut broken = schedules::check(&log, &made);
            broken.extend(schedules::none_is_stuck(&log, server.now().await?, 10_000));
            Ok(broken)
        };
        let settled = async || Ok(found().await?.is_empty().then_some(()));
        // What is not so yet may come about; what is wrong stays wrong.
        match node.until("the schedules' tasks arrive", settled).await {
            Ok(()) => Ok(Vec::new()),
            Err(_) => found().await,
        }
    }

    /// What the checkers of events, waits and calls find, once the agents have done all that they have to do. What they
    /// did in a certain time may have been lost since.
    ///
    /// # Errors
    /// When the store or a journal cannot be read.
    pub async fn judge_agents(&self, nemesis: &Nemesis, lost: &Lost) -> Result<Vec<String>> {
        let found = async || look_at_agents(nemesis, &self.field, lost).await;
        let settled = async || Ok(found().await?.is_empty().then_some(()));
        match nemesis.sites[0].up.until("the agents are through", settled).await {
            Ok(()) => Ok(Vec::new()),
            Err(_) => found().await,
        }
    }
}

/// What the checkers of events and calls find now: some of it may still be under way.
///
/// # Errors
/// When the store or a journal cannot be read.
pub async fn look_at_agents(nemesis: &Nemesis, field: &Field, lost: &Lost) -> Result<Vec<String>> {
    let (server, sent) = (&nemesis.cluster.server, field.sent());
    let (sleepers, callers) = (nemesis.journal(SLEEPER)?, nemesis.journal(CALLER)?);
    let used = [agents::uses(field, SLEEPER, &sleepers), agents::uses(field, CALLER, &callers)].concat();
    let ended = evidence::waits(server, SLEEPER).await?;
    let mut broken = events::check(&sent, &[SLEEPER, CALLER], &used, &ended, lost);
    let made = agents::made(field, &callers);
    let log = evidence::calls(server, CALLEE).await?;
    let runs = agents::through(field, &nemesis.journal(CALLEE)?, "start");
    broken.extend(calls::check(&made, &log, &runs, lost));
    let mut over = agents::under_way(field, &callers, lost);
    over.extend(agents::through(field, &callers, "end").into_iter().map(|run| run.instance));
    let begun = agents::through(field, &callers, "start");
    for calls::Run { instance, .. } in begun.iter().filter(|run| !over.contains(&run.instance)) {
        broken.push(format!("stuck: {instance} has begun and not ended"));
    }
    Ok(broken)
}

impl Working {
    /// Waits until of each kind something was done, so that the run is worth something.
    pub async fn has_done_everything(&self) {
        while self.field.least_done() < WORTH {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Lets everybody finish what is begun.
    ///
    /// # Errors
    /// When one of them broke.
    pub async fn stop(self) -> Result<Swarm> {
        let Self { field, stop, workers, listener, pushing, clients } = self;
        stop.cancel();
        let workers = workers.join_all().await;
        if let Some(pushing) = pushing {
            pushing.await?;
        }
        Ok(Swarm { field, workers, listener: listener.await?, clients })
    }
}
