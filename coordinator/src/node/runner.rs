//! The runner of `skein up`, in the same process.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use secrecy::SecretString;
use skein_runner::container::Isolation;
use skein_shared::id::Name;

use super::datadir::{DataDir, Layout};
use super::endpoint::Endpoint;
use super::start::{StartError, own_token};
use super::tasks::Tasks;
use crate::auth::Role;
use crate::auth::token::Keys;
use crate::config::Config;
use crate::entity::Entities;

/// Starts it as one more role: it registers over the loopback as any other runner does.
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
    let mut swarms = runner.swarms.clone();
    if swarms.is_empty() {
        swarms.push(Name::parse("default").map_err(StartError::Refused)?);
    }
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
        data: data_folder(runner.data.as_ref(), layout)?,
        swarms,
        launcher,
        closed: vec![layout.root().to_owned()],
    };
    tasks.spawn("runner", skein_runner::run(settings, tasks.stop().clone()));
    Ok(())
}

/// Where the runner keeps its ledger and the work folders: where the settings say, or in the data directory
/// unless agents get users of their own, who may not enter that.
fn data_folder(chosen: Option<&PathBuf>, layout: &Layout) -> Result<PathBuf, StartError> {
    if let Some(folder) = chosen {
        return Ok(folder.clone());
    }
    if skein_runner::isolation() != Isolation::Users {
        return Ok(layout.runner());
    }
    let folder = layout.runner_outside();
    let failed = |error| StartError::Write(folder.clone(), error);
    if !folder.exists() {
        std::fs::create_dir(&folder).map_err(failed)?;
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o711)).map_err(failed)?;
        std::fs::write(folder.join(".gitignore"), "*\n").map_err(failed)?;
    }
    Ok(folder)
}
