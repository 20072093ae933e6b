//! What an engine is told to start for an instance.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::ledger::Row;
use super::{Shared, folders, joined};
use crate::container::{Failure, Spec, User, docker};
use crate::credentials::{self, Credentials};
use crate::definition::{self, Definition, PATH};
use crate::endpoint::tunnel;
use crate::harness::{Launch, Lent, Place};
use crate::transport::OUTPUTS;

/// The process whose turn it is, or one beside it, with what the instance has been lent by now. `session` is a
/// conversation to go on with.
pub(super) fn of(
    shared: &Shared,
    row: &Row,
    definition: &Definition,
    session: Option<&str>,
) -> Result<Spec, Failure> {
    let loan = Loan::of(shared, row, definition)?;
    let Launch { command, env: usual } = launch(shared, row, definition, loan.as_ref(), session);
    let outputs = shared.folders.outputs(&row.instance);
    let home = if definition.container.is_some() {
        PathBuf::from(docker::HOME)
    } else {
        let opened = shared.folders.open_outputs(&row.instance, row.user);
        let made = opened.and_then(|()| shared.folders.work(&row.swarm, &row.agent, row.user));
        made.map_err(|error| Failure(error.to_string()))?
    };
    let lent = loan.as_ref().map(|loan| loan.folder.clone());
    let project = in_reach(row, definition)?;
    let mut env = environment(shared, row, definition, &home, usual, loan);
    env.extend(project.as_ref().map(|folder| (joined::VARIABLE.to_owned(), folder.display().to_string())));
    let mut closed = shared.closed.clone();
    closed.extend(shared.folders.closed());
    let workdir = definition.workdir.clone().unwrap_or_else(|| home.clone());
    Ok(Spec {
        instance: row.instance.clone(),
        command,
        env,
        log: shared.folders.log(&row.instance),
        unbegun: shared.folders.unbegun(&row.instance),
        user: row.user,
        closed,
        open: vec![home, workdir.clone(), outputs],
        readable: [shared.folders.input(&row.instance)]
            .into_iter()
            .chain(lent.clone())
            .chain(shared.agent_commands.clone())
            .chain(project)
            .collect(),
        workdir,
        definition: std::path::absolute(&definition.folder)
            .map_err(|error| Failure(format!("the agent's definition is not found: {error}")))?,
        credentials: lent,
        input: None,
        limits: definition.limits.clone(),
        agent_commands: shared.agent_commands.clone(),
        kept: None,
        joined: None,
        container: definition.container.clone(),
    })
}

/// What all agents of its project share, for one that lives in no container. None where the user that it has to itself
/// could not get there.
fn in_reach(row: &Row, definition: &Definition) -> Result<Option<PathBuf>, Failure> {
    if definition.container.is_some() {
        return Ok(None);
    }
    let Some(folder) = definition::shared_folder(&definition.folder).map_err(Failure)? else {
        return Ok(None);
    };
    if row.user.is_none() {
        return Ok(Some(folder));
    }
    let blocked = folders::blocked_at(&folder).map_err(|error| Failure(error.to_string()))?;
    Ok(blocked.is_none().then_some(folder))
}

/// Made from nothing, so that no secret of the runner's own can slip through. `usual` is what the program that is
/// started has by itself.
fn environment(
    shared: &Shared,
    row: &Row,
    definition: &Definition,
    home: &Path,
    usual: BTreeMap<String, String>,
    loan: Option<Loan>,
) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    // In a container programs are looked for where the image says.
    if definition.container.is_none() {
        env.insert("PATH".to_owned(), PATH.to_owned());
        let outputs = shared.folders.outputs(&row.instance);
        for name in [OUTPUTS, "TMPDIR"] {
            env.insert(name.to_owned(), outputs.display().to_string());
        }
    }
    env.insert("HOME".to_owned(), home.display().to_string());
    env.extend(usual);
    if !row.egress.is_empty() {
        env.extend(way_out(row));
    }
    if let Some(Loan { seen, variables, .. }) = loan {
        env.extend(variables);
        env.insert("SKEIN_CREDENTIALS".to_owned(), seen.display().to_string());
    }
    env.extend(definition.env.clone());
    env.insert("SKEIN_URL".to_owned(), row.url());
    env.insert("SKEIN_TOKEN".to_owned(), row.secret.clone());
    env.insert("SKEIN_SWARM".to_owned(), row.swarm.clone());
    env.insert("SKEIN_AGENT".to_owned(), row.agent.clone());
    env.insert("SKEIN_INSTANCE".to_owned(), row.instance.clone());
    env.insert("SKEIN_RUNNER".to_owned(), shared.mark.clone());
    env.insert("SKEIN_INSTRUCTIONS".to_owned(), definition.instructions.clone());
    env.insert("SKEIN_PARAMS".to_owned(), definition.params.to_string());
    if definition.container.is_none()
        && let (Some(commands), Some(path)) = (&shared.agent_commands, env.get_mut("PATH"))
    {
        // At the end: what the agent brings along is found first.
        path.push_str(&format!(":{}", commands.display()));
    }
    env
}

/// What an instance has been lent by now.
struct Loan {
    folder: PathBuf,
    /// Where the instance finds that folder.
    seen: PathBuf,
    variables: BTreeMap<String, String>,
}

impl Loan {
    fn of(shared: &Shared, row: &Row, definition: &Definition) -> Result<Option<Self>, Failure> {
        let folder = shared.folders.lent(&row.instance);
        if !folder.exists() {
            return Ok(None);
        }
        let contained = definition.container.is_some();
        let seen = if contained { PathBuf::from(docker::CREDENTIALS) } else { folder.clone() };
        let variables = Credentials::variables_lent(&folder, &definition.credentials, &seen);
        Ok(Some(Self { variables: variables.map_err(Failure)?, folder, seen }))
    }
}

/// What starts the hook or the program whose turn it is.
fn launch(
    shared: &Shared,
    row: &Row,
    definition: &Definition,
    loan: Option<&Loan>,
    session: Option<&str>,
) -> Launch {
    if let Some(line) = row.stage.hook(&definition.hooks) {
        return Launch::shell(line);
    }
    let url = row.url();
    let variables: Vec<&str> =
        loan.into_iter().flat_map(|loan| loan.variables.keys().map(String::as_str)).collect();
    let credentials = &definition.credentials;
    let lent = loan.map(|Loan { seen, .. }| Lent { folder: seen, credentials, variables: &variables });
    let contained = definition.container.is_some();
    let writable: &[&str] = if contained { &docker::WRITABLE } else { &[] };
    let seen = |folder| if contained { Path::new(docker::AGENT_COMMANDS) } else { folder };
    let place = Place {
        swarm: &row.swarm,
        agent: &row.agent,
        instance: &row.instance,
        url: &url,
        params: &definition.params,
        lent,
        writable,
        commands: shared.agent_commands.as_deref().map(seen),
    };
    definition.program.launch(&place, &row.input, session)
}

/// What leads the programs of an instance to its endpoint as their proxy.
fn way_out(row: &Row) -> [(String, String); 4] {
    let proxy = format!("http://{}:{}@{}", tunnel::USER, row.secret, SocketAddr::new(row.address, row.port));
    let own = row.address.to_string();
    [("HTTPS_PROXY", &proxy), ("https_proxy", &proxy), ("NO_PROXY", &own), ("no_proxy", &own)]
        .map(|(name, value)| (name.to_owned(), value.clone()))
}

/// Hands an instance the credentials of its definition, for its first process and again for each that follows.
pub(super) fn lend(shared: &Shared, row: &Row, definition: &Definition) -> Result<(), Failure> {
    let folder = shared.folders.lent(&row.instance);
    if definition.credentials.is_empty() {
        credentials::take_back(&folder);
        return Ok(());
    }
    shared.credentials.lend(&definition.credentials, &folder, reader(row, definition)).map_err(Failure)?;
    let credentials: Vec<String> = definition.credentials.iter().map(ToString::to_string).collect();
    // Whoever asks later who has had a secret finds it here.
    tracing::info!(instance = row.instance, agent = row.agent, credentials = credentials.join(", "), "lent");
    Ok(())
}

/// The user that an instance reads its files as, if it is not the runner's own.
pub(super) fn reader(row: &Row, definition: &Definition) -> Option<User> {
    match &definition.container {
        // Only root may give a file away; to others the container's user has to be their own.
        Some(container) => rustix::process::geteuid().is_root().then_some(container.user),
        None => row.user,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use skein_shared::fence::{Epoch, Token};

    use super::*;

    #[test]
    fn a_process_is_led_to_what_all_agents_share_where_its_user_gets_there() {
        let root = tempfile::tempdir().unwrap();
        let (agent, shared) = (root.path().join("agents/worker"), root.path().join("shared"));
        for folder in [&agent, &shared] {
            fs::create_dir_all(folder).unwrap();
        }
        let known = |settings: &str| {
            fs::write(agent.join("agent.toml"), settings).unwrap();
            definition::read(&agent, &[]).unwrap()
        };
        let of = |user: Option<User>| {
            let token = Token { epoch: Epoch(1), number: 1 };
            let row = Row::new("worker-1".to_owned(), "default".to_owned(), "worker".to_owned(), token, "");
            Row { user, ..row }
        };
        let shared = shared.canonicalize().unwrap();
        let process = known("command = [\"sh\"]");
        assert_eq!(in_reach(&of(None), &process), Ok(Some(shared)));
        fs::set_permissions(root.path(), Permissions::from_mode(0o700)).unwrap();
        let user = User { uid: 1_900_000_007, gid: 1_900_000_003 };
        assert_eq!(in_reach(&of(Some(user)), &process), Ok(None), "it could not pass through");
        let contained = known("image = \"my/agent:1\"");
        assert_eq!(in_reach(&of(None), &contained), Ok(None), "it has it in its work folder");
    }
}
