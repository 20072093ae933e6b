//! The runner of `skein up`, in the same process.

use std::collections::BTreeMap;
use std::time::Duration;

use skein_runner::supervisor::Supervisor;
use skein_shared::id::Name;
use tracing::warn;
use uuid::Uuid;

use super::datadir::DataDir;
use super::endpoint::Endpoint;
use super::start::{StartError, own_token};
use super::tasks::Tasks;
use crate::auth::Role;
use crate::auth::token::Keys;
use crate::config::Config;
use crate::entity::Entities;
use crate::outbox::Runners as _;
use crate::runners::Sessions;

/// How long a node that starts waits for its runner.
const REGISTRATION: Duration = Duration::from_secs(20);

/// Starts it as a role of its own: it registers over the loopback as any other runner does.
pub(super) fn start(
    tasks: &Tasks,
    data: &DataDir,
    config: &Config,
    keys: &Keys,
    entities: &Entities,
    endpoint: &Endpoint,
) -> Result<(), StartError> {
    let runner = &config.runner;
    // Signed for each stream by the key that signs then: an operator may have taken out the one of the start.
    let token = skein_runner::Token::new({
        let (keys, clock, name) = (keys.clone(), entities.clock().clone(), runner.name.clone());
        let id = Uuid::now_v7();
        move || Ok(own_token(&keys, &clock, Role::Runner, &name, id)?.into())
    });
    let layout = data.layout();
    let agents = runner.agents.clone().unwrap_or_else(|| layout.agents());
    std::fs::create_dir_all(&agents).map_err(|error| StartError::Write(agents.clone(), error))?;
    let beside = || skein_runner::usual_work(layout.root(), skein_runner::isolation());
    let work = runner.work.clone().unwrap_or_else(beside);
    let launcher =
        skein_runner::config::own_launcher().map_err(|error| StartError::Failed(error.to_string()))?;
    let settings = skein_runner::RunnerConfig {
        coordinators: vec![format!("http://{}", Endpoint::near(endpoint.grpc))],
        token,
        name: runner.name.clone(),
        group: runner.group.clone(),
        slots: runner.slots,
        labels: BTreeMap::new(),
        agents,
        data: layout.runner(),
        work: Some(work),
        credentials: layout.credentials(),
        swarms: runner.swarms.clone(),
        launcher,
        closed: vec![layout.root().to_owned()],
        // This process is more than its runner.
        supervisor: Supervisor::default(),
    };
    tasks.spawn("runner", skein_runner::run(settings, tasks.stop().clone()));
    Ok(())
}

/// Waits until the runner has registered, so that a node that is ready knows its agents.
///
/// # Errors
/// When the runner cannot run, for want of a work folder that agents can reach, say.
pub(super) async fn welcomed(tasks: &Tasks, sessions: &Sessions, runner: &Name) -> Result<(), StartError> {
    let registered = async {
        loop {
            let connected = sessions.connected();
            let mut connected = std::pin::pin!(connected);
            if sessions.names().iter().any(|name| name == runner.as_str()) {
                return;
            }
            connected.as_mut().await;
        }
    };
    let waited = tasks.stop().run_until_cancelled(tokio::time::timeout(REGISTRATION, registered)).await;
    match waited {
        Some(Ok(())) => {}
        Some(Err(_)) => {
            warn!(%runner, "the runner of this node has not registered yet; its agents start later")
        }
        None => {
            let problem = tasks.finish(Duration::ZERO).await;
            return Err(StartError::Failed(problem.unwrap_or_else(|| "the runner ended".to_owned())));
        }
    }
    Ok(())
}
