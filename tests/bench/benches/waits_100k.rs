//! B12: many waits are open; some of their events come, and then one that all of a kind have asked for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::FutureExt;
use serde_json::json;
use skein_coordinator::entity::Request;
use skein_coordinator::outbox::pump;
use skein_coordinator::projection::Query;
use skein_coordinator::slack::Workspaces;
use skein_shared::agent::{Command, Definition, Outcome, Reply};
use skein_shared::id::{EntityKey, InstanceId, Kind, Name};
use skein_shared::triggers::{self, Filter, FilterKind, Incoming, Triggers};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Bench;
use crate::harness::report::{Figure, Goal, Report};
use crate::harness::stats::Interval;
use crate::options::Options;
use crate::skein::calls::Nobody;
use crate::skein::embedded::{Agent, Kernel, refused};

pub(super) const BENCH: Bench = Bench {
    name: "waits_100k",
    about: "100,000 open waits of 100 agents; 10,000 events resume one each, and one event resumes 10,000",
    run: |options| run(options).boxed(),
};

const AGENTS: usize = 100;
/// Commands in flight.
const AT_ONCE: usize = 1024;
/// How long anything may take before the bench gives up.
const PATIENCE: Duration = Duration::from_secs(600);

/// A wait of an instance that nobody runs.
#[derive(Clone)]
struct Waiter {
    agent: Agent,
    number: usize,
    wait: Uuid,
}

async fn run(options: Options) -> Result<Report> {
    let of_each = if options.rounds < 5 { 100 } else { 1000 };
    let (total, some) = (AGENTS * of_each, AGENTS * of_each / 10);
    let (kernel, stop) = (Kernel::open(&options.folder_for("skein")?)?, CancellationToken::new());
    let pumping = tokio::spawn(pump::run(
        kernel.entities.clone(),
        Arc::new(Nobody),
        Workspaces::default(),
        stop.clone(),
    ));
    let mut report = Report::default();

    let waiters = attach(&kernel, total).await?;
    let began = Instant::now();
    each(&waiters, |waiter| async move { waiter.begin(waiter.number_of(), false).await }).await?;
    registered(&kernel, total).await?;
    let registering = began.elapsed().as_secs_f64();
    report.figures.push(Figure::new("waits registered a second", "1/s", total as f64 / registering));

    // Every tenth, so that all agents have some.
    let chosen: Vec<Waiter> = waiters.iter().step_by(10).cloned().collect();
    let woken = listen(&chosen).await?;
    let began = Instant::now();
    each(&chosen, |waiter| async move { waiter.deliver("issue", waiter.number).await }).await?;
    all_woken(woken).await?;
    let resuming = began.elapsed().as_secs_f64();
    registered(&kernel, total - some).await?;
    report.figures.push(Figure::new(format!("{some} events resume {some} of {total}"), "s", resuming));

    each(&chosen, |waiter| async move { waiter.again().begin(waiter.any_deploy(), true).await }).await?;
    registered(&kernel, total).await?;
    let again: Vec<Waiter> = chosen.iter().map(Waiter::again).collect();
    let woken = listen(&again).await?;
    let began = Instant::now();
    again[0].deliver("deploy", 0).await?;
    all_woken(woken).await?;
    let broadcasting = began.elapsed().as_secs_f64();
    registered(&kernel, total - some).await?;
    report.figures.push(Figure::new(format!("one event resumes {some} by broadcast"), "s", broadcasting));

    stop.cancel();
    pumping.await?;
    if total < 100_000 {
        report.remarks.push(format!("a first look, with {total} waits; the goals are for 100,000"));
        return Ok(report);
    }
    report.goals.extend([
        Goal::at_most("B12 10,000 events resume 10,000, s", 3.0, Some(Interval::exactly(resuming))),
        Goal::at_most("B12 one event resumes 10,000, s", 2.0, Some(Interval::exactly(broadcasting))),
    ]);
    Ok(report)
}

/// Instances that wait for calls and webhooks, evenly over the agents.
async fn attach(kernel: &Kernel, total: usize) -> Result<Vec<Waiter>> {
    let mut waiters = Vec::with_capacity(total);
    for number in 0..total {
        let name = Name::parse(&format!("sleeper-{}", number % AGENTS)).map_err(refused)?;
        let instance = InstanceId(format!("token-{number}"));
        let agent = Agent {
            id: Uuid::from_u128(number as u128),
            name,
            instance,
            has_keys: true,
            kernel: kernel.clone(),
        };
        waiters.push(Waiter { agent, number, wait: Uuid::now_v7() });
    }
    for waiter in &waiters[..AGENTS] {
        let definition = Definition { scale: 0, max_waiting: total, ..Definition::default() };
        let group = Name::parse("default").map_err(refused)?;
        let define = Command::Define { definition, group };
        waiter.agent.ask(&waiter.agent.key(), Request::read(), define).await?;
    }
    each(&waiters, |waiter| async move { waiter.agent.attach().await }).await?;
    Ok(waiters)
}

impl Waiter {
    fn number_of(&self) -> Filter {
        let matches = [("number".to_owned(), json!(self.number))].into();
        Filter {
            kind: FilterKind::Webhook,
            source: Some("bench".to_owned()),
            event: Some("issue".to_owned()),
            matches,
            source_agent: None,
            only: Default::default(),
        }
    }

    fn any_deploy(&self) -> Filter {
        Filter { event: Some("deploy".to_owned()), matches: Default::default(), ..self.number_of() }
    }

    /// The next wait of the same instance.
    fn again(&self) -> Self {
        Self { wait: Uuid::new_v5(&self.wait, b"again"), ..self.clone() }
    }

    async fn begin(&self, filter: Filter, broadcast: bool) -> Result<()> {
        let begin = Command::BeginWait {
            instance: self.agent.instance.clone(),
            wait: self.wait,
            filter,
            timeout_ms: Some(86_400_000),
            broadcast,
            look_back: false,
            asked: Uuid::nil(),
        };
        match self.agent.ask(&self.agent.key(), Request::read(), begin).await? {
            Reply::Wait(view) if view.wait == self.wait => Ok(()),
            other => bail!("it does not wait: {other:?}"),
        }
    }

    async fn deliver(&self, event: &str, number: usize) -> Result<()> {
        let kernel = &self.agent.kernel;
        let incoming = Incoming {
            receipt: Uuid::now_v7(),
            delivery: format!("{event}-{number}"),
            source: "bench".to_owned(),
            provider: "generic".to_owned(),
            event: event.to_owned(),
            context: json!({ "number": number }),
            payload: json!({}),
            unsigned: false,
            said: None,
            letter: None,
            activity: None,
            received_at: kernel.entities.clock().now(),
        };
        let key = EntityKey::of(Kind::Triggers, &kernel.swarm);
        let deliver = triggers::Command::Deliver { incoming };
        let request = Request::once(Uuid::now_v7());
        kernel.entities.ask::<Triggers>(&key, request, deliver).await.map_err(refused).map(|_| ())
    }

    /// Fetches what the wait came to.
    async fn outcome(&self) -> Result<Option<Outcome>> {
        let (instance, wait) = (self.agent.instance.clone(), Some(self.wait));
        let check = Command::CheckWait { instance, wait, asked: Uuid::nil() };
        match self.agent.ask(&self.agent.key(), Request::read(), check).await? {
            Reply::Wait(view) => Ok(view.outcome),
            other => bail!("no wait: {other:?}"),
        }
    }
}

/// Does something for each of them, many at a time.
async fn each<R>(waiters: &[Waiter], act: impl Fn(Waiter) -> R) -> Result<()>
where
    R: Future<Output = Result<()>> + Send + 'static,
{
    let (places, mut acts) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
    for waiter in waiters {
        let place = Arc::clone(&places).acquire_owned().await?;
        let act = act(waiter.clone());
        acts.spawn(async move {
            let done = act.await;
            drop(place);
            done
        });
    }
    while let Some(done) = acts.join_next().await {
        done??;
    }
    Ok(())
}

/// Waits until so many waits are with triggers, no more and no less.
async fn registered(kernel: &Kernel, wanted: usize) -> Result<()> {
    let mut waits = Query::new(&kernel.swarm, Kind::Triggers, "wait");
    waits.live = Some(true);
    let look = async {
        while kernel.entities.shared().projection.count(waits.clone()).await? != wanted as u64 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, look).await.with_context(|| format!("there are never {wanted} waits"))?
}

/// Each waits as a client does: it sleeps until something happens to its wait, and asks.
async fn listen(waiters: &[Waiter]) -> Result<JoinSet<Result<()>>> {
    let mut listeners = JoinSet::new();
    for waiter in waiters.iter().cloned() {
        let mut topic = waiter.agent.kernel.entities.hub().subscribe(waiter.wait.to_string());
        ensure!(waiter.outcome().await?.is_none(), "it was woken before its event");
        listeners.spawn(async move {
            loop {
                topic.changed().await;
                if waiter.outcome().await?.is_some() {
                    return Ok(());
                }
            }
        });
    }
    Ok(listeners)
}

async fn all_woken(mut listeners: JoinSet<Result<()>>) -> Result<()> {
    let all = async {
        while let Some(woken) = listeners.join_next().await {
            woken??;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, all).await.context("not all were woken")?
}
