//! What a runner is told at its start.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use secrecy::SecretString;
use skein_shared::id::Name;

use crate::error::Error;
use crate::supervisor::Supervisor;

/// The command line of `skein-runner`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// A coordinator's address, such as http://10.0.0.5:7701; repeat it, or separate several by commas.
    #[arg(long = "coordinator", env = "SKEIN_COORDINATORS", value_delimiter = ',', required = true)]
    pub coordinators: Vec<String>,
    /// A file that holds the runner's token. It is read for each stream, so that a later token takes its place.
    #[arg(long, env = "SKEIN_RUNNER_TOKEN_FILE")]
    pub token_file: PathBuf,
    /// The runner's name, unique in the cluster.
    #[arg(long, env = "SKEIN_RUNNER_NAME")]
    pub name: Name,
    /// The group of runners that share their agents' bids.
    #[arg(long, env = "SKEIN_RUNNER_GROUP", default_value = "default")]
    pub group: Name,
    /// How many instances may run at a time; frozen ones take no slot.
    #[arg(long, env = "SKEIN_RUNNER_SLOTS", default_value_t = 4)]
    pub slots: u32,
    /// A label as key=value that agents may ask for; repeat it, or separate several by commas.
    #[arg(long, env = "SKEIN_RUNNER_LABELS", value_delimiter = ',', value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// The folder of agents: AGENTS/NAME/agent.toml defines one.
    #[arg(long, env = "SKEIN_RUNNER_AGENTS")]
    pub agents: PathBuf,
    /// The runner's own folder: ledger and logs.
    #[arg(long, env = "SKEIN_RUNNER_DATA")]
    pub data: PathBuf,
    /// The agents' work folders; DATA-work beside the data folder if left out.
    #[arg(long, env = "SKEIN_RUNNER_WORK")]
    pub work: Option<PathBuf>,
    /// The folder of credentials, as TYPE/INSTANCE/FIELD; DATA/credentials if left out.
    #[arg(long, env = "SKEIN_RUNNER_CREDENTIALS")]
    pub credentials: Option<PathBuf>,
    /// Swarms whose agents may run here. The first is that of agents which name none.
    #[arg(long, env = "SKEIN_RUNNER_SWARMS", value_delimiter = ',', default_value = "default")]
    pub swarms: Vec<Name>,
}

/// A runner's configuration, as [`crate::run`] takes it.
#[derive(Clone, Debug)]
pub struct RunnerConfig {
    pub coordinators: Vec<String>,
    pub token: Token,
    pub name: Name,
    pub group: Name,
    pub slots: u32,
    pub labels: BTreeMap<String, String>,
    pub agents: PathBuf,
    pub data: PathBuf,
    /// Where the agents work; beside `data` if left out.
    pub work: Option<PathBuf>,
    /// The keys and tokens that agents may be lent, as `TYPE/INSTANCE/FIELD`.
    pub credentials: PathBuf,
    /// Swarms whose agents may run here; none for any. The first is that of agents which name none.
    pub swarms: Vec<Name>,
    /// Program and arguments that run [`crate::exec_agent`].
    pub launcher: Vec<OsString>,
    /// Folders and files, besides those in `data`, that agents may not open: the runner's token, the credentials, the
    /// data of a coordinator in the same process.
    pub closed: Vec<PathBuf>,
    /// Who is told once the runner has taken over what ran before.
    pub supervisor: Supervisor,
}

impl RunnerConfig {
    /// # Errors
    /// When the program cannot find itself.
    pub fn from_args(args: Args) -> Result<Self, Error> {
        let credentials = args.credentials.unwrap_or_else(|| args.data.join("credentials"));
        Ok(Self {
            closed: vec![args.token_file.clone(), credentials.clone()],
            coordinators: args.coordinators,
            token: Token::new(move || in_file(&args.token_file)),
            name: args.name,
            group: args.group,
            slots: args.slots,
            labels: args.labels.into_iter().collect(),
            agents: args.agents,
            credentials,
            data: args.data,
            work: args.work,
            swarms: args.swarms,
            launcher: own_launcher()?,
            supervisor: Supervisor::of_this_process(),
        })
    }
}

/// Where the runner's token is to be had. It is asked for again at each stream, for a token ends and another one takes
/// its place.
#[derive(Clone)]
pub struct Token(Arc<dyn Fn() -> Result<SecretString, Error> + Send + Sync>);

impl Token {
    pub fn new(now: impl Fn() -> Result<SecretString, Error> + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// # Errors
    /// When it cannot be had.
    pub fn now(&self) -> Result<SecretString, Error> {
        (self.0)()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

fn in_file(file: &Path) -> Result<SecretString, Error> {
    let text =
        std::fs::read_to_string(file).map_err(|error| Error::io("read the token file", file, error))?;
    match text.trim() {
        "" => Err(Error::config(format!("{} is empty; write the runner's token into it", file.display()))),
        token => Ok(SecretString::from(token)),
    }
}

/// This very program with the subcommand `exec-agent`, which every binary that runs a runner has to offer.
///
/// # Errors
/// When the program cannot find itself.
pub fn own_launcher() -> Result<Vec<OsString>, Error> {
    let program = std::env::current_exe().map_err(|error| Error::io("find", "this program", error))?;
    Ok(vec![program.into_os_string(), OsString::from("exec-agent")])
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not a label; write key=value")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// Where agents run as the runner's own user, its modes do not keep them out.
    #[test]
    fn the_runners_token_and_all_credentials_are_closed_to_agents() {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "secret\n").unwrap();
        let token = token.to_str().unwrap();
        let line = ["runner", "--coordinator", "http://c:1", "--name", "r1", "--token-file", token];
        let rest = ["--agents", "/agents", "--data", "/data", "--credentials", "/elsewhere"];
        let line = Line::parse_from(line.into_iter().chain(rest));
        let config = RunnerConfig::from_args(line.args).unwrap();
        assert_eq!(config.closed, [PathBuf::from(token), PathBuf::from("/elsewhere")]);
    }
}
