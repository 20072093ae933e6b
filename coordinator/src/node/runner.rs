//! The runner of `skein up`, in the same process.

use std::collections::BTreeMap;

use secrecy::SecretString;

use super::datadir::DataDir;
use super::endpoint::Endpoint;
use super::start::{StartError, own_token};
use super::tasks::Tasks;
use crate::auth::Role;
use crate::auth::token::Keys;
use crate::config::Config;
use crate::entity::Entities;

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
    let token = own_token(keys, entities.clock(), Role::Runner, &runner.name).map_err(StartError::Refused)?;
    let layout = data.layout();
    let agents = runner.agents.clone().unwrap_or_else(|| layout.agents());
    std::fs::create_dir_all(&agents).map_err(|error| StartError::Write(agents.clone(), error))?;
    let beside = || skein_runner::usual_work(layout.root(), skein_runner::isolation());
    let work = runner.work.clone().unwrap_or_else(beside);
    let launcher =
        skein_runner::config::own_launcher().map_err(|error| StartError::Failed(error.to_string()))?;
    let settings = skein_runner::RunnerConfig {
        coordinators: vec![format!("http://{}", endpoint.grpc)],
        token: SecretString::from(token),
        name: runner.name.clone(),
        group: runner.group.clone(),
        slots: runner.slots,
        labels: BTreeMap::new(),
        agents,
        data: layout.runner(),
        work: Some(work),
        swarms: runner.swarms.clone(),
        launcher,
        closed: vec![layout.root().to_owned()],
    };
    tasks.spawn("runner", skein_runner::run(settings, tasks.stop().clone()));
    Ok(())
}
