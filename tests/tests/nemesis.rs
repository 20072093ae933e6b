//! 32 clients work through three coordinators over one Redis while a nemesis breaks one thing after another. When all is
//! well again everything drains, and what the clients were told is compared with what the store has.
//!
//! `SKEIN_NEMESIS_SEED` repeats the faults and the clients' choices of a run; `SKEIN_NEMESIS_SECONDS` makes it longer.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use skein_tests::history::{Operation, Outcome, claims, inbox, locks};
use skein_tests::nemesis::{Fault, Nemesis};
use skein_tests::workload::client::{Worker, room};
use skein_tests::workload::evidence::{self, Agents};
use skein_tests::workload::{CAPACITY, Field, ROOMS};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const CLIENTS: usize = 32;
const LEASE: Duration = Duration::from_secs(3);
/// One round of all faults takes about so long.
const ORDINARY: u64 = 15;
/// For what drains once all is well again, on a busy machine.
const LIVENESS: Duration = Duration::from_secs(60);

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// The workers, one who only listens, and what they share.
struct Swarm {
    field: Arc<Field>,
    workers: Vec<Worker>,
    listener: Worker,
    agents: Agents,
}

async fn gather(nemesis: &Nemesis, seed: u64) -> Result<Swarm> {
    let field = Field::new(nemesis.addresses());
    let mut all = Vec::new();
    for number in 0..=CLIENTS {
        let token = nemesis.nodes[0].token("worker", &format!("worker-{number}")).await?;
        all.push(Worker::join(Arc::clone(&field), number, &token, seed).await?);
    }
    let agents = all.iter().map(|worker| (worker.agent.clone(), worker.number)).collect();
    let listener = all.pop().context("nobody listens")?;
    listener.furnish().await?;
    Ok(Swarm { field, workers: all, listener, agents })
}

impl Swarm {
    /// Lets everybody work while one fault follows another.
    async fn under_faults(self, nemesis: &mut Nemesis, time: Duration) -> Result<Self> {
        let Self { field, workers, listener, agents } = self;
        let stop = CancellationToken::new();
        let others: Arc<Vec<String>> = Arc::new(agents.keys().cloned().collect());
        let mut working: JoinSet<Worker> =
            workers.into_iter().map(|worker| worker.work(Arc::clone(&others), stop.clone())).collect();
        let listening = tokio::spawn(listener.listen(stop.clone()));
        let began = Instant::now();
        while began.elapsed() < time || nemesis.done.len() < Fault::ALL.len() {
            nemesis.strike().await?;
        }
        stop.cancel();
        let mut workers = Vec::new();
        while let Some(worker) = working.join_next().await {
            workers.push(worker?);
        }
        Ok(Self { field, workers, listener: listening.await?, agents })
    }

    /// All is well: everything that can be done is done, and each lock is to be had.
    async fn drain(self) -> Result<Self> {
        let Self { field, workers, listener, agents } = self;
        let draining: JoinSet<Worker> = workers.into_iter().map(Worker::drain).collect();
        listener.take_each_lock(LIVENESS).await;
        let workers =
            tokio::time::timeout(LIVENESS, draining.join_all()).await.context("it does not drain")?;
        listener.read_all().await;
        Ok(Self { field, workers, listener, agents })
    }

    /// The rooms as they are in the end.
    async fn rooms(&self) -> Result<BTreeMap<String, Vec<String>>> {
        let mut rooms = BTreeMap::new();
        for number in 0..ROOMS {
            let Outcome::Ok(texts) = self.listener.read(number, false).await else {
                anyhow::bail!("{} cannot be read", room(number));
            };
            ensure!(texts.len() < 1000, "a room has more messages than are shown");
            rooms.insert(room(number), texts);
        }
        Ok(rooms)
    }
}

/// What all checkers find, after the effects that are still on their way have arrived.
async fn judge(swarm: &Swarm, nemesis: &Nemesis, healed: Duration) -> Result<Vec<String>> {
    let history = swarm.field.claims.history();
    let ordered: BTreeSet<String> = history
        .iter()
        .filter_map(|operation| match (&operation.call, operation.answer()) {
            (claims::Call::Order { .. }, Some(claims::Answer::Task(task))) => Some(task.clone()),
            _ => None,
        })
        .collect();
    let node = &nemesis.nodes[0];
    let arrived = async || {
        let tasks = evidence::tasks(node, &swarm.agents).await?;
        let open = |task: &claims::Task| task.status == "unassigned";
        let all = ordered.iter().all(|task| tasks.contains_key(task)) && !tasks.values().any(open);
        Ok(all.then_some(()))
    };
    let drained = node.until("all that was ordered arrives and all that is open is done", arrived).await;
    let tasks = evidence::tasks(node, &swarm.agents).await?;
    let log = evidence::log(&nemesis.cluster.server, &swarm.agents).await?;
    let evidence = claims::Evidence { history: &history, tasks: &tasks, log: Some(&log), capacity: CAPACITY };
    let mut broken = claims::check(&evidence);
    broken.extend(drained.err().map(|problem| format!("liveness: {problem:#}")));
    let locks = swarm.field.locks.history();
    broken.extend(locks::check(&locks, &swarm.field.writes()));
    broken.extend(locks::none_is_stuck(&locks, healed, Worker::time_to_live() + LIVENESS));
    broken.extend(inbox::check(&swarm.field.inbox.history(), &swarm.rooms().await?));
    Ok(broken)
}

/// That the run was worth something: of each kind much was done, though faults came between.
fn is_worth_something(swarm: &Swarm) -> Result<()> {
    fn answered<C, A>(history: &[Operation<C, A>], of: impl Fn(&C) -> bool) -> usize {
        history.iter().filter(|operation| operation.answer().is_some() && of(&operation.call)).count()
    }
    let (claims, locks) = (swarm.field.claims.history(), swarm.field.locks.history());
    let inbox = swarm.field.inbox.history();
    let counts = [
        ("created", answered(&claims, |call| matches!(call, claims::Call::Create { .. }))),
        ("claimed", answered(&claims, |call| matches!(call, claims::Call::Claim { .. }))),
        ("completed", answered(&claims, |call| matches!(call, claims::Call::Complete { .. }))),
        ("ordered", answered(&claims, |call| matches!(call, claims::Call::Order { .. }))),
        ("locked", answered(&locks, |call| matches!(call, locks::Call::Acquire { .. }))),
        ("posted", answered(&inbox, |call| matches!(call, inbox::Call::Post { .. }))),
    ];
    println!("{counts:?}, {} writes under locks", swarm.field.writes().len());
    for (what, count) in counts {
        ensure!(count >= 10, "only {count} were {what}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_were_told_holds_whatever_breaks() -> Result<()> {
    let seed = setting("SKEIN_NEMESIS_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("SKEIN_NEMESIS_SEED={seed}");
    let time = Duration::from_secs(setting("SKEIN_NEMESIS_SECONDS").unwrap_or(ORDINARY));
    let mut nemesis = Nemesis::start(3, LEASE, seed).await?;
    let swarm = gather(&nemesis, seed).await?;
    let swarm = swarm.under_faults(&mut nemesis, time).await?;
    let healed = swarm.field.claims.now();
    let swarm = swarm.drain().await?;
    let broken = judge(&swarm, &nemesis, healed).await?;
    is_worth_something(&swarm)?;
    ensure!(broken.is_empty(), "seed {seed}, after {:?}: {broken:#?}", nemesis.done);
    Ok(())
}
