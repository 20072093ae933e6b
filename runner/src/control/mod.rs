//! The runner's side of the control streams: registration, lease, commands, reports.

mod announcement;
mod asks;
mod backlog;
mod bearer;
mod claim;
mod lease;
mod reports;
mod roster;
mod session;
mod starts;
mod stream;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::agent_commands;
use crate::config::RunnerConfig;
use crate::container::docker::DockerEngine;
use crate::container::engines::Engines;
use crate::container::mark;
use crate::container::process::ProcessEngine;
use crate::container::{Engine, Isolation, isolation};
use crate::credentials::Credentials;
use crate::definition::{self, Definitions};
use crate::endpoint::Upstreams;
use crate::error::Error;
use crate::instance::folders::Folders;
use crate::instance::ledger::Ledger;
use crate::instance::{Instances, Shared, users};
use asks::Asks;
use bearer::Bearer;
use lease::Lease;
use reports::Speakers;
use roster::{Node, Roster};
use starts::Starts;
use stream::Control;

/// How long a leaving runner waits until its last reports are acknowledged. The ledger keeps them.
const FAREWELL: Duration = Duration::from_secs(5);

/// The engines that the runner has: Docker may come to them later.
type EngineNames = Vec<&'static str>;

/// What all control streams share.
struct Runner {
    config: RunnerConfig,
    bearer: Bearer,
    definitions: watch::Receiver<Definitions>,
    /// The agents and engines as a stream has said last, or began to say.
    told: std::sync::Mutex<Option<(Definitions, EngineNames)>>,
    starts: std::sync::Mutex<Starts>,
    engines: watch::Receiver<EngineNames>,
    isolation: Isolation,
    incarnation: u64,
    /// Tells its data folder from that of any other runner.
    identity: String,
    instances: Arc<Instances>,
    lease: Lease,
    speakers: Speakers,
    roster: Roster,
    asks: Asks,
    /// Held by the stream that registers, so that the next one finds the runner registered.
    registering: Mutex<()>,
    /// The fleet has declared the runner lost: only a registration can tell what it has given away.
    lost: AtomicBool,
    /// Registrations that were taken so far.
    registrations: AtomicU64,
    departure: watch::Sender<Departure>,
}

/// How far a runner is that was asked to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Departure {
    #[default]
    None,
    /// It takes no new run, and ends those it has.
    Begun,
    /// Nothing of it runs.
    Done,
}

/// Runs the agents of a folder until `shutdown`; then ends them with their grace and returns.
///
/// # Errors
/// When the configuration is wrong, when there is no token, when the data folder is in use, or when a coordinator
/// refuses the runner at its first registration. A wrong definition is logged, and the other agents run.
pub async fn run(config: RunnerConfig, shutdown: CancellationToken) -> Result<(), Error> {
    if config.coordinators.is_empty() {
        return Err(Error::config("name at least one coordinator"));
    }
    let bearer = Bearer::new(config.token.clone())?;
    let watch = definition::watch::Watch::begin(&config.agents, &config.swarms);
    let mut agents = definition::load(&config.agents, &config.swarms)?;
    let isolation = isolation();
    let (folders, _lock) = Folders::open(&config.data, config.work.as_deref(), isolation)?;
    let ledger = Ledger::open(&folders.ledger())?;
    let incarnation = ledger.incarnation().await?;
    // Not the name alone: two runners of one machine may share it, and must not take each other's processes
    // for their own strays.
    let identity = ledger.identity().await?;
    let _claim = claim::of(&identity)?;
    let users = match isolation {
        Isolation::Users => Some(users::claim(&folders, ledger.highest_user().await?)?),
        Isolation::Landlock | Isolation::None => None,
    };
    let mark = mark::of(config.name.as_str(), &identity);
    let docker = DockerEngine::connect(&mark, &config.launcher).await;
    let is_late = docker.is_err();
    let engine = Arc::new(Engines::new(ProcessEngine::new(&mark, config.launcher.clone()), docker));
    agents.refuse(|known| engine.check(known.container.as_ref()));
    for (_, problem) in &agents.wrong {
        tracing::error!("an agent is left out until its definition is mended: {problem}");
    }
    let definitions = agents.definitions;
    tracing::info!(runner = %config.name, agents = definitions.len(), "{}", isolation.sentence());
    let definitions = watch::Sender::new(definitions);
    let engines = watch::Sender::new(engine.names());
    let shared = shared(&config, &mark, users, ledger, &folders, definitions.subscribe(), engine.clone());
    let instances = Instances::new(shared);
    instances.reconcile().await?;
    config.supervisor.is_ready();
    let writers = Arc::clone(&instances);
    let start = (incarnation, identity);
    let (known, running) = (definitions.subscribe(), engines.subscribe());
    let runner = Runner::new(config, bearer, isolation, start, instances, known, running);
    let mut tasks = JoinSet::new();
    tasks.spawn(folders.tend(writers.ledger().clone(), move || writers.live()));
    if is_late {
        let (late, launcher, read_again) =
            (Arc::clone(&engine), runner.config.launcher.clone(), watch.again());
        let held = Arc::clone(&runner.instances);
        tasks.spawn(async move {
            late.find_docker(&mark, &launcher, |instance| held.follows(instance)).await;
            engines.send_replace(late.names());
            read_again();
        });
    }
    let checking = Arc::clone(&engine);
    tasks.spawn(watch.follow(definitions, move |known| checking.check(known.container.as_ref())));
    let result = Arc::new(runner).serve(shutdown).await;
    tasks.abort_all();
    engine.close().await;
    result
}

/// What the instances have in common.
fn shared(
    config: &RunnerConfig,
    mark: &str,
    users: Option<Range<u32>>,
    ledger: Ledger,
    folders: &Folders,
    definitions: watch::Receiver<Definitions>,
    engine: Arc<dyn Engine>,
) -> Shared {
    Shared {
        mark: mark.to_owned(),
        users,
        ledger,
        folders: folders.clone(),
        closed: config.closed.clone(),
        credentials: Credentials::new(config.credentials.clone()),
        agent_commands: agent_commands_in(folders),
        definitions,
        upstreams: Upstreams::default(),
        reported: watch::Sender::new(0),
        // What is taken over has no lease that this process knows of.
        silent: watch::Sender::new(true),
        leaving: CancellationToken::new(),
        engine,
    }
}

impl Runner {
    /// `incarnation` and `identity` are the number of this start, and what tells the data folder from any other.
    fn new(
        config: RunnerConfig,
        bearer: Bearer,
        isolation: Isolation,
        (incarnation, identity): (u64, String),
        instances: Arc<Instances>,
        definitions: watch::Receiver<Definitions>,
        engines: watch::Receiver<EngineNames>,
    ) -> Self {
        Self {
            config,
            bearer,
            definitions,
            told: std::sync::Mutex::default(),
            starts: std::sync::Mutex::default(),
            engines,
            isolation,
            incarnation,
            identity,
            instances,
            lease: Lease::default(),
            speakers: Speakers::default(),
            roster: Roster::default(),
            asks: Asks::default(),
            registering: Mutex::default(),
            lost: AtomicBool::new(false),
            registrations: AtomicU64::new(0),
            departure: watch::Sender::default(),
        }
    }

    async fn serve(self: Arc<Self>, shutdown: CancellationToken) -> Result<(), Error> {
        let hang_up = CancellationToken::new();
        let mut streams = Streams::begin(&self, &hang_up)?;
        let watchdog = tokio::spawn(Arc::clone(&self).watch_lease());
        let result = tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            ended = streams.follow() => ended,
        };
        // Said before the first instance ends, or its slot would be given to another.
        self.departure.send_replace(Departure::Begun);
        self.instances.leave().await;
        // Until here: what may take its time to end does so under the lease.
        watchdog.abort();
        // Unacknowledged reports stay in the ledger and are sent after the next start.
        let _ = tokio::time::timeout(FAREWELL, self.all_acknowledged()).await;
        self.departure.send_replace(Departure::Done);
        let _ = tokio::time::timeout(FAREWELL, streams.end()).await;
        hang_up.cancel();
        streams.end().await;
        result
    }

    /// Another stream has registered, and the fleet counts on this runner.
    fn is_registered(&self) -> bool {
        !self.lost.load(Ordering::Acquire) && self.speakers.are_any() && self.lease.holds()
    }

    async fn watch_lease(self: Arc<Self>) {
        self.lease.watch(|| self.instances.silence()).await;
    }

    /// Returns when nothing of the runner runs any more and it was asked to end.
    async fn is_done(&self) {
        // The sender is `self`, so there is no error.
        let _ = self.departure.subscribe().wait_for(|departure| *departure == Departure::Done).await;
    }

    async fn all_acknowledged(&self) {
        let mut acknowledged = self.speakers.acknowledged();
        while let Ok(left) = self.instances.ledger().reports(0, 1).await
            && !left.is_empty()
            && acknowledged.changed().await.is_ok()
        {}
    }
}

/// Puts the commands for shell scripts where agents find them. A runner without them does all else.
fn agent_commands_in(folders: &Folders) -> Option<PathBuf> {
    let without = "agents that are shell scripts do not find `rlock`, `al-status` and the like";
    if !agent_commands::is_there() {
        tracing::warn!("{without}: this program was built where there was no static C library");
        return None;
    }
    let folder = folders.agent_commands();
    match agent_commands::install(&folder) {
        Ok(()) => Some(folder),
        Err(error) => {
            tracing::warn!(%error, folder = %folder.display(), "{without}: they cannot be put there");
            None
        }
    }
}

/// The streams to the coordinators that were named at the start, and to those that these know of.
struct Streams {
    runner: Arc<Runner>,
    hang_up: CancellationToken,
    running: JoinSet<Result<(), Error>>,
    /// Those that were not named.
    learned: BTreeMap<Node, Learned>,
    /// How many streams there have been.
    count: usize,
}

/// A stream to a coordinator of which others have told.
struct Learned {
    /// Where it was when the stream was opened.
    url: String,
    end: CancellationToken,
    /// The number of the stream.
    index: usize,
}

impl Streams {
    fn begin(runner: &Arc<Runner>, hang_up: &CancellationToken) -> Result<Self, Error> {
        let mut streams = Self {
            runner: Arc::clone(runner),
            hang_up: hang_up.clone(),
            running: JoinSet::new(),
            learned: BTreeMap::new(),
            count: 0,
        };
        for url in &runner.config.coordinators {
            streams.open(url, None, hang_up.clone())?;
        }
        Ok(streams)
    }

    fn open(&mut self, url: &str, node: Option<Node>, end: CancellationToken) -> Result<(), Error> {
        let control = Control::new(Arc::clone(&self.runner), self.count, url, node)?;
        self.count += 1;
        self.running.spawn(control.keep(end));
        Ok(())
    }

    /// Returns when no stream is left.
    async fn end(&mut self) {
        while self.running.join_next().await.is_some() {}
    }

    /// Follows who comes and goes, until a stream is refused.
    async fn follow(&mut self) -> Result<(), Error> {
        let mut roster = self.runner.roster.changes();
        loop {
            let known = roster.borrow_and_update().all();
            self.adjust(known);
            tokio::select! {
                _ = roster.changed() => {}
                Some(ended) = self.running.join_next() => {
                    ended.unwrap_or_else(|lost| Err(Error::config(lost.to_string())))?;
                }
            }
        }
    }

    /// One that has another address since is as good as a new one: a node keeps its name over its restarts.
    fn adjust(&mut self, known: BTreeMap<Node, String>) {
        let upstreams = self.runner.instances.upstreams().clone();
        self.learned.retain(|node, learned| {
            let stays = known.get(node) == Some(&learned.url);
            if !stays {
                learned.end.cancel();
                upstreams.forget(learned.index);
            }
            stays
        });
        for (node, url) in known {
            if self.learned.contains_key(&node) {
                continue;
            }
            let (end, index) = (self.hang_up.child_token(), self.count);
            match self.open(&url, Some(node.clone()), end.clone()) {
                Ok(()) => _ = self.learned.insert(node, Learned { url, end, index }),
                Err(problem) => tracing::warn!(node, url, %problem, "a coordinator cannot be reached"),
            }
        }
    }
}
