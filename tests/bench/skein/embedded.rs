//! Skein's kernel in this process: entities, the durable store and the read side, without a network.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use futures::future::BoxFuture;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use skein_coordinator::entity::{Clock, Entities, Hub, Request};
use skein_coordinator::projection::Projection;
use skein_coordinator::store::Store;
use skein_coordinator::store::sqlite::{self, Sqlite};
use skein_shared::Refusal;
use skein_shared::id::{EntityKey, InstanceId, Kind, Name};
use skein_shared::lockspace::{self, Lockspace};
use skein_shared::pool::{self, Pool};
use uuid::Uuid;

use super::recorder::Recorder;
use crate::harness::contender::{Card, Contender, Durability, Metered, Pace, Plan, Work};
use crate::harness::load::{self, Operation};
use crate::probes::sqlite::{PAYLOAD, Record, Recording};

/// How long the read side may take to catch up after a slot.
const SETTLE: Duration = Duration::from_secs(60);
/// How much of a run is taken down for the `shaped` probe.
const RECORDED: Duration = Duration::from_millis(500);

/// The kernel over a store.
#[derive(Clone)]
pub(crate) struct Kernel {
    pub entities: Entities,
    pub swarm: Name,
}

impl Kernel {
    /// Opens an embedded store in a folder and serves from it.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        Self::open_with(folder, sqlite::Durability::Full)
    }

    /// The same, with or without flushes.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub(crate) fn open_with(folder: &Path, durability: sqlite::Durability) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let store = Sqlite::open_with(&folder.join("store.db"), Clock::start().wall(), durability)?;
        Self::over(folder, Arc::new(store))
    }

    pub(super) fn over(folder: &Path, store: Arc<dyn Store>) -> Result<Self> {
        let projection = Projection::open(&folder.join("projection.db"), Arc::clone(&store))?;
        let entities = Entities::new(store, projection, Clock::start(), Hub::default());
        Ok(Self { entities, swarm: name("default")? })
    }

    /// An agent that joins the swarm's pool.
    ///
    /// # Errors
    /// When the pool refuses.
    pub(crate) async fn join(&self, number: usize) -> Result<Agent> {
        let agent = Agent {
            id: Uuid::now_v7(),
            name: name(&format!("worker-{number}"))?,
            instance: InstanceId(format!("worker-{number}")),
            has_keys: true,
            kernel: self.clone(),
        };
        let join = pool::Join {
            agent: agent.id,
            name: agent.name.to_string(),
            lead: false,
            role: None,
            capabilities: Vec::new(),
            description: None,
            max_tasks: None,
            managed: false,
            texts: None,
        };
        agent.pool(pool::Command::Join(join)).await?;
        Ok(agent)
    }
}

fn open_store(folder: &Path) -> Result<Sqlite> {
    Ok(Sqlite::open(&folder.join("store.db"), Clock::start().wall())?)
}

/// A refusal as an error with its sentence.
pub(crate) fn refused(refusal: Refusal) -> anyhow::Error {
    anyhow::anyhow!("{}: {}", refusal.code.as_str(), refusal.message)
}

fn name(text: &str) -> Result<Name> {
    Name::parse(text).map_err(refused)
}

/// A member of the swarm.
#[derive(Clone)]
pub(crate) struct Agent {
    pub id: Uuid,
    pub name: Name,
    pub instance: InstanceId,
    /// Whether its requests have keys, as those behind a runner have: then the answer to each is kept for its repeat.
    pub has_keys: bool,
    pub kernel: Kernel,
}

impl Agent {
    /// Asks the pool, once.
    ///
    /// # Errors
    /// When it refuses.
    pub(crate) async fn pool(&self, command: pool::Command) -> Result<pool::Reply> {
        let key = EntityKey::of(Kind::Pool, &self.kernel.swarm);
        let request = Request { keep_reply: self.has_keys, ..Request::once(Uuid::now_v7()) };
        Box::pin(self.kernel.entities.ask::<Pool>(&key, request, command)).await.map_err(refused)
    }

    /// Makes a task for whoever comes.
    ///
    /// # Errors
    /// When the pool refuses.
    pub(crate) async fn create(&self, spec: pool::TaskSpec) -> Result<Uuid> {
        let create = pool::Create {
            by: Some(self.id),
            spec,
            target: pool::Target::Pool,
            rules: pool::Rules::Plain,
            facts: Vec::new(),
        };
        match self.pool(pool::Command::Create(Box::new(create))).await? {
            pool::Reply::Created { task, .. } => Ok(task.id),
            other => bail!("the pool made no task: {other:?}"),
        }
    }

    /// Takes a task of the pool.
    ///
    /// # Errors
    /// When somebody else has it.
    pub(crate) async fn claim(&self, task: Uuid) -> Result<()> {
        let claim =
            pool::Command::Claim { agent: self.id, instance: self.instance.clone(), managed: false, task };
        self.pool(claim).await.map(|_| ())
    }

    /// # Errors
    /// When the pool refuses.
    pub(crate) async fn complete(&self, task: Uuid) -> Result<()> {
        let progress = pool::Progress {
            task,
            by: Some(self.id),
            instance: Some(self.instance.clone()),
            managed: false,
            progress: None,
            finish: Some(pool::Finish::Completed { output: Some("done".to_owned()) }),
            cost: None,
            about: None,
        };
        self.pool(pool::Command::Progress(Box::new(progress))).await.map(|_| ())
    }

    /// Takes a lock and gives it back.
    ///
    /// # Errors
    /// When somebody else has it.
    pub(crate) async fn lock_and_release(&self, resource: &str) -> Result<()> {
        let key = EntityKey::of(Kind::Lockspace, &self.kernel.swarm);
        let acquire = lockspace::Command::Acquire {
            holder: self.instance.clone(),
            agent: self.name.clone(),
            key: resource.to_owned(),
            ttl_ms: None,
        };
        let release = lockspace::Command::Release { holder: self.instance.clone(), key: resource.to_owned() };
        for command in [acquire, release] {
            let request = Request::once(Uuid::now_v7());
            let reply = self.kernel.entities.ask::<Lockspace>(&key, request, command).await;
            reply.and_then(lockspace::Reply::granted).map_err(refused)?;
        }
        Ok(())
    }
}

/// What an agent does again and again.
pub(crate) type Task = fn(Agent) -> BoxFuture<'static, Result<()>>;

/// Durable steps of a [`cycle`].
pub(crate) const CYCLE_STEPS: usize = 3;

/// Create, claim, complete: three durable steps of the pool.
pub(crate) fn cycle(agent: Agent) -> BoxFuture<'static, Result<()>> {
    Box::pin(async move {
        let task = agent.create(pool::TaskSpec::new(PAYLOAD)).await?;
        agent.claim(task).await?;
        agent.complete(task).await
    })
}

/// A [`cycle`] of an agent whose requests have no keys, as those have that come from no runner.
pub(crate) fn cycle_without_keys(agent: Agent) -> BoxFuture<'static, Result<()>> {
    cycle(Agent { has_keys: false, ..agent })
}

/// Durable steps of a [`lock`].
pub(crate) const LOCK_STEPS: usize = 2;

/// Acquire and release, each agent its own resource: two durable steps of the lockspace.
pub(crate) fn lock(agent: Agent) -> BoxFuture<'static, Result<()>> {
    Box::pin(async move { agent.lock_and_release(&format!("file:///repo/{}", agent.name)).await })
}

/// The kernel, doing one thing with as many agents as there are operations in flight.
pub(crate) struct Embedded {
    kernel: Kernel,
    task: Task,
    agents: Vec<Agent>,
    metrics: PrometheusHandle,
}

impl Embedded {
    /// # Errors
    /// When the store cannot be opened.
    pub(crate) fn open(folder: &Path, task: Task) -> Result<Self> {
        Self::over(Kernel::open(folder)?, task)
    }

    pub(super) fn over(kernel: Kernel, task: Task) -> Result<Self> {
        Ok(Self { kernel, task, agents: Vec::new(), metrics: metrics()? })
    }
}

/// The counters of this process. There is one recorder, however many contenders read it.
fn metrics() -> Result<PrometheusHandle> {
    static HANDLE: Mutex<Option<PrometheusHandle>> = Mutex::new(None);
    let mut handle = HANDLE.lock().unwrap_or_else(PoisonError::into_inner);
    if handle.is_none() {
        *handle = Some(PrometheusBuilder::new().install_recorder().context("the counters cannot be read")?);
    }
    handle.clone().context("just made")
}

/// Flushes of all stores of this process so far.
///
/// # Errors
/// When the counters cannot be read.
pub(crate) fn flushes() -> Result<u64> {
    Ok(counter(&metrics()?.render(), "skein_store_flushes_total").unwrap_or_default())
}

/// A counter's value in the text that Prometheus reads.
pub(crate) fn counter(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split([' ', '{']).next() == Some(name))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[async_trait]
impl Contender for Embedded {
    fn card(&self) -> Card {
        Card::skein(Durability::PowerCut, Metered::Myself)
    }

    async fn prepare(&mut self, in_flight: usize) -> Result<()> {
        while self.agents.len() < in_flight {
            self.agents.push(self.kernel.join(self.agents.len()).await?);
        }
        Ok(())
    }

    /// The read side has to keep up: a slot ends when lists show all that was done in it.
    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        let (agents, task) = (self.agents.clone(), self.task);
        let operation: Operation = Arc::new(move |client| task(agents[client].clone()));
        let start = tokio::time::Instant::now();
        let mut work = load::run(plan, operation).await?;
        self.kernel.entities.shared().projection.settled(SETTLE).await;
        work.elapsed = start.elapsed();
        Ok(work)
    }

    fn flushes(&self) -> Option<u64> {
        counter(&self.metrics.render(), "skein_store_flushes_total")
    }
}

/// Takes down what the kernel commits when agents do something.
pub(crate) fn recording(task: Task) -> Record {
    Arc::new(move |folder, in_flight| {
        Box::pin(async move {
            std::fs::create_dir_all(&folder)?;
            take_down(&folder, Arc::new(open_store(&folder)?), task, in_flight, Pace::Closed).await
        })
    })
}

/// Works for a moment over a store, and gives what was committed to it.
pub(super) async fn take_down(
    folder: &Path,
    store: Arc<dyn Store>,
    task: Task,
    in_flight: usize,
    pace: Pace,
) -> Result<Recording> {
    let batches = Arc::new(Mutex::new(Vec::new()));
    let kernel = Kernel::over(folder, Arc::new(Recorder::new(store, Arc::clone(&batches))))?;
    let mut agents = Vec::new();
    for number in 0..in_flight {
        agents.push(kernel.join(number).await?);
    }
    batches.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let plan = Plan { in_flight, time: RECORDED, pace };
    let operation: Operation = Arc::new(move |client| task(agents[client].clone()));
    let work = load::run(&plan, operation).await?;
    let batches = std::mem::take(&mut *batches.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Recording { batches, operations: work.operations })
}
