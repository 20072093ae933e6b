//! The runner's side of the control streams: registration, lease, commands, reports.

mod lease;
mod reports;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use skein_proto::v1::{HeldInstance, Register};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::RunnerConfig;
use crate::container::process::ProcessEngine;
use crate::container::{Engine, isolation};
use crate::definition::{self, Definition};
use crate::endpoint::Upstreams;
use crate::error::Error;
use crate::instance::folders::Folders;
use crate::instance::ledger::{Ledger, Row, State};
use crate::instance::{Instances, Shared};
use lease::Lease;
use reports::Speakers;
use stream::Control;

/// How long a leaving runner waits until its last reports are acknowledged. The ledger keeps them.
const FAREWELL: Duration = Duration::from_secs(5);

/// What all control streams share.
struct Runner {
    config: RunnerConfig,
    definitions: Vec<Definition>,
    engine: &'static str,
    incarnation: u64,
    instances: Arc<Instances>,
    lease: Lease,
    speakers: Speakers,
}

/// Runs the agents of a folder until `shutdown`; then ends them with their grace and returns.
///
/// # Errors
/// When the configuration is wrong, when the data folder is in use, or when a coordinator refuses the runner at
/// its first registration. A wrong definition is logged, and the other agents run.
pub async fn run(config: RunnerConfig, shutdown: CancellationToken) -> Result<(), Error> {
    if config.coordinators.is_empty() {
        return Err(Error::config("name at least one coordinator"));
    }
    let definition::Folder { definitions, wrong } = definition::load(&config.agents, &config.swarms)?;
    for problem in &wrong {
        tracing::error!("an agent is left out until the runner starts again: {problem}");
    }
    let isolation = isolation();
    let (folders, _lock) = Folders::open(&config.data, config.work.as_deref(), isolation)?;
    let ledger = Ledger::open(&folders.ledger())?;
    let incarnation = ledger.incarnation().await?;
    // Not the name alone: two runners of one machine may share it, and must not take each other's processes
    // for their own strays.
    let mark = format!("{}-{}", config.name, ledger.identity().await?);
    let engine: Arc<dyn Engine> = Arc::new(ProcessEngine::new(&mark, config.launcher.clone()));
    tracing::info!(runner = %config.name, agents = definitions.len(), "{}", isolation.sentence());
    let by_name =
        |known: &Definition| ((known.public.swarm.clone(), known.public.name.clone()), known.clone());
    let instances = Instances::new(Shared {
        mark,
        isolation,
        ledger,
        folders: folders.clone(),
        closed: config.closed.clone(),
        definitions: definitions.iter().map(by_name).collect(),
        upstreams: Upstreams::default(),
        reported: watch::Sender::new(0),
        engine: Arc::clone(&engine),
    });
    instances.reconcile().await?;
    // What was taken over has no lease that this process knows of.
    instances.silence();
    let runner = Runner {
        engine: engine.name(),
        definitions,
        incarnation,
        instances,
        lease: Lease::default(),
        speakers: Speakers::default(),
        config,
    };
    let tending = tokio::spawn(folders.tend());
    let result = Arc::new(runner).serve(shutdown).await;
    tending.abort();
    result
}

impl Runner {
    async fn serve(self: Arc<Self>, shutdown: CancellationToken) -> Result<(), Error> {
        let hang_up = CancellationToken::new();
        let mut streams = JoinSet::new();
        for (index, url) in self.config.coordinators.iter().enumerate() {
            let control = Control::new(Arc::clone(&self), index, url)?;
            streams.spawn(control.keep(hang_up.clone()));
        }
        let watchdog = tokio::spawn(Arc::clone(&self).watch_lease());
        let result = tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            // A stream ends on its own only when it was refused.
            Some(ended) = streams.join_next() => ended.unwrap_or_else(|lost| Err(Error::config(lost.to_string()))),
        };
        watchdog.abort();
        self.instances.leave().await;
        // Unacknowledged reports stay in the ledger and are sent after the next start.
        let _ = tokio::time::timeout(FAREWELL, self.all_acknowledged()).await;
        hang_up.cancel();
        streams.join_all().await;
        result
    }

    async fn watch_lease(self: Arc<Self>) {
        self.lease.watch(|| self.instances.silence()).await;
    }

    async fn all_acknowledged(&self) {
        let mut acknowledged = self.speakers.acknowledged();
        while let Ok(left) = self.instances.ledger().reports(0, 1).await
            && !left.is_empty()
            && acknowledged.changed().await.is_ok()
        {}
    }

    /// What the runner says of itself at the start of a stream.
    async fn registration(&self) -> Result<Register, Error> {
        let held = self.instances.ledger().held().await?;
        let agents = self.definitions.iter().map(|definition| definition.public.clone());
        Ok(Register {
            name: self.config.name.to_string(),
            group: self.config.group.to_string(),
            slots: self.config.slots,
            labels: self.config.labels.clone(),
            engines: vec![self.engine.to_owned()],
            swarms: self.config.swarms.iter().map(ToString::to_string).collect(),
            agents: agents.collect(),
            held: held.into_iter().map(held_instance).collect(),
            incarnation: self.incarnation,
        })
    }
}

fn held_instance(row: Row) -> HeldInstance {
    let state = match row.state {
        State::Starting | State::Running => "running",
        // Silence is the runner's own affair: to the coordinators the instance is as it was.
        State::Silenced => "running",
        State::Frozen => "frozen",
        State::Ended | State::Forgotten => "ended",
    };
    HeldInstance {
        instance: row.instance,
        swarm: row.swarm,
        agent: row.agent,
        state: state.to_owned(),
        token: row.token.to_string(),
        exit_code: row.exit.and_then(|exit| exit.code),
        reason: row.reason,
    }
}
