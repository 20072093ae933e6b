//! The command line: data on stdout, all else on stderr, an exit code that programs can go by.
//!
//! One file for each command. `table` prints; `api::client` reaches the node.

mod added;
mod agent;
mod backup;
mod clients;
mod cluster;
mod cluster_init;
mod console;
mod costs;
mod credentials;
mod dead_letters;
mod definitions;
mod events;
mod hook;
mod ids;
mod in_swarm;
mod list;
mod logs;
mod mcp_config;
mod memory;
mod oauth;
mod questions;
mod runners;
mod secrets;
mod simulate;
mod status;
mod swarm;
mod table;
mod task;
mod token;
mod tools;
mod transfer;
mod up;
mod webhooks;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand};
use skein_shared::{Code, Refusal};

use self::in_swarm::InSwarm;
use crate::api::client;
use crate::cluster::member::FORMAT;
use crate::config::{self, Overrides};
use crate::demo;
use crate::node::StartError;
use crate::node::datadir::{self, DataDirError, Layout};

/// Whoever updates a cluster has to know the format before the program runs.
static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{}\nformat of a cluster's nodes: {FORMAT}", env!("CARGO_PKG_VERSION")));

/// Coordinates swarms of AI agents.
#[derive(Debug, Parser)]
#[command(name = "skein", version, long_version = VERSION.as_str(), propagate_version = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What every command that talks to a node or its data takes.
#[derive(Clone, Debug, Args)]
struct Common {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "SKEIN_DATA", default_value = ".skein")]
    data: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Common {
    fn layout(&self) -> Layout {
        Layout::new(&self.data)
    }

    /// The same for a command that reads or writes what is there itself.
    ///
    /// # Errors
    /// `forbidden` for a user who may not look into it.
    fn files(&self) -> Result<Layout, Refusal> {
        let layout = self.layout();
        datadir::look_into(layout.root())?;
        Ok(layout)
    }

    /// Where the node's own runner looks for agents. What is wrong with its settings the node says at its start.
    fn agents(&self) -> PathBuf {
        let layout = self.layout();
        let settings = config::load(&layout.config(), &Overrides::default()).ok();
        settings.and_then(|settings| settings.runner.agents).unwrap_or_else(|| layout.agents())
    }

    /// The node that runs on the data directory.
    async fn admin(&self) -> Result<client::Admin, Refusal> {
        client::connect(&self.layout()).await
    }

    /// The same node, as whoever has the token in the file; as its operator without one.
    async fn admin_as(&self, token_file: Option<&Path>) -> Result<client::Admin, CliError> {
        let Some(file) = token_file else { return Ok(self.admin().await?) };
        Ok(client::connect_as(&self.layout(), &token::secret_of(file)?).await?)
    }

    /// Prints what a node has shown: nothing has changed by it.
    fn show(&self, answer: client::Answer) -> Result<(), CliError> {
        Ok(table::print_document(&client::shown(answer)?, self.json)?)
    }

    /// Prints the document that a node has answered with.
    fn print(&self, answer: client::Answer) -> Result<(), CliError> {
        Ok(table::print_document(&client::document(answer)?, self.json)?)
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run everything on this machine: coordinator, ingress and a runner.
    Up(up::Up),
    /// Run chosen roles.
    Serve(up::Serve),
    /// Issue, fetch, refresh and revoke tokens, and change the key that signs them.
    #[command(subcommand)]
    Token(token::Token),
    /// Make, list and remove programs that fetch tokens with a secret.
    #[command(subcommand)]
    Client(clients::Client),
    /// Print the configuration of an MCP client, with a new token in it.
    McpConfig(mcp_config::McpConfig),
    /// Answer the hooks of a Claude Code that you have started yourself, so that the swarm can stop it.
    Hook(hook::Hook),
    /// Make and list swarms, limit them, and take members out of them.
    #[command(subcommand)]
    Swarm(swarm::Swarm),
    /// Make the certificates of a cluster, show its coordinators, and drain them.
    #[command(subcommand)]
    Cluster(cluster::Cluster),
    /// Print a link to the web console that logs in by itself.
    Console(console::Console),
    /// Show how the node fares.
    Status(status::Status),
    /// List the members of a swarm.
    Agents(list::Of<list::Agents>),
    /// List tasks.
    Tasks(list::Of<list::Tasks>),
    /// List locks.
    Locks(list::Of<list::Locks>),
    /// List calls between agents.
    Calls(list::Of<list::Calls>),
    /// List what instances wait for.
    Waits(list::Of<list::Waits>),
    /// List the runs of agents.
    Instances(list::Of<list::Instances>),
    /// Show what the work cost, by day and agent: as agents, runs and sessions have reported it.
    Costs(costs::Costs),
    /// List runners.
    #[command(subcommand)]
    Runners(runners::Runners),
    /// Show, create and cancel tasks; `skein tasks list` lists them.
    #[command(subcommand)]
    Task(task::Task),
    /// Forget what a swarm remembers.
    #[command(subcommand)]
    Memory(memory::Memory),
    /// List what agents ask people, and answer it.
    #[command(subcommand)]
    Questions(questions::Questions),
    /// List, show and replay what was to run and was given up.
    #[command(subcommand)]
    DeadLetters(dead_letters::DeadLetters),
    /// List, show and replay webhooks as they were taken in, and try subscriptions out.
    #[command(subcommand)]
    Webhooks(webhooks::Webhooks),
    /// Define agents, run them, end their runs, pause and disable them, and look at what they did.
    #[command(subcommand)]
    Agent(agent::Agent),
    /// Write, list and remove the keys and tokens that agents may be lent.
    #[command(subcommand)]
    Credentials(credentials::Keys),
    /// List, find, describe and call the tools that agents have.
    #[command(subcommand)]
    Tools(tools::Tools),
    /// List, replace and drop the keys that seal the swarms' secrets.
    #[command(subcommand)]
    Secrets(secrets::Secrets),
    /// Print events as they are committed, one a line.
    Events(events::Events),
    /// Copy the store of a running node.
    Backup(backup::Backup),
    /// Write all state of a store into a file, while no node runs.
    Export(transfer::Export),
    /// Fill an empty store with what was exported from another, of whatever kind.
    Import(transfer::Import),
    /// Watch a swarm do real work on a git repository: four agents, one node, a report.
    Demo(demo::Options),
    /// One of the demo's agents. Its runner starts it.
    #[command(hide = true)]
    DemoAgent {
        #[arg(value_enum)]
        role: demo::AgentRole,
    },
    /// Becomes an agent's program after closing everything that it may not see. Runners start it.
    #[command(hide = true)]
    ExecAgent(Box<skein_runner::ExecAgent>),
    /// Runs a tool inside an instance. Runners start it there.
    #[command(name = "transport", hide = true)]
    Transport,
}

/// Why a command failed. What a node or an agent says of it may have words of agents in it, so it is told without the
/// characters that a terminal would obey.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error("{}", sentence(.0))]
    Refused(Refusal),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Demo(#[from] demo::DemoError),
    #[error("{}", table::plain(.0))]
    Agent(String),
    #[error("{0}")]
    Certificates(String),
    #[error(transparent)]
    File(#[from] io::Error),
}

fn sentence(refusal: &Refusal) -> String {
    table::plain(&refusal.message)
}

/// A failure to write into a folder of the data directory.
fn unwritten(folder: &Path, error: io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => datadir::denied("write into", folder, &error).into(),
        _ => error.into(),
    }
}

impl From<Refusal> for CliError {
    fn from(refusal: Refusal) -> Self {
        CliError::Refused(refusal)
    }
}

impl CliError {
    /// Whoever read the output has seen enough.
    pub fn is_unread(&self) -> bool {
        matches!(self, CliError::File(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// 1 a failure, 2 bad usage, 3 not allowed, 4 not found, 5 refused, 6 try again.
    pub fn exit(&self) -> u8 {
        match self {
            CliError::Refused(refusal) => refusal.code.exit(),
            CliError::Start(StartError::DataDir(DataDirError::InUse { .. })) => 5,
            CliError::Start(StartError::Setting(_)) => 2,
            CliError::Start(StartError::DataDir(DataDirError::Io { error, .. })) | CliError::File(error)
                if error.kind() == io::ErrorKind::PermissionDenied =>
            {
                Code::Forbidden.exit()
            }
            CliError::Start(_) | CliError::File(_) | CliError::Demo(_) | CliError::Agent(_) => 1,
            CliError::Certificates(_) => 5,
            CliError::Usage(_) => 2,
        }
    }
}

impl Cli {
    /// Whether it serves others, who are told of in its log.
    pub fn serves(&self) -> bool {
        matches!(self.command, Command::Up(_) | Command::Serve(_) | Command::Demo(_))
    }

    /// Does what runners start this program for, if that is why it runs: it turns into an agent, or works inside of
    /// one. Nothing may be started before, since what it may see is decided for the whole process.
    ///
    /// # Errors
    /// The command line itself, for whatever else.
    pub fn inside(self) -> Result<ExitCode, Box<Self>> {
        match self.command {
            Command::ExecAgent(agent) => Ok(skein_runner::exec_agent(&agent)),
            Command::Transport => Ok(skein_runner::transport::serve()),
            command => Err(Box::new(Self { command })),
        }
    }

    /// Runs the command.
    ///
    /// # Errors
    /// When the node refuses or cannot be reached, or a setting is wrong.
    pub async fn run(self) -> Result<(), CliError> {
        match self.command {
            Command::Up(up) => Box::pin(up.run()).await,
            Command::Serve(serve) => Box::pin(serve.run()).await,
            Command::Token(token) => token.run().await,
            Command::Client(client) => client.run().await,
            Command::McpConfig(config) => config.run().await,
            Command::Hook(hook) => hook.run().await,
            Command::Swarm(swarm) => swarm.run().await,
            Command::Cluster(cluster) => cluster.run().await,
            Command::Console(console) => console.run().await,
            Command::Status(status) => status.run().await,
            Command::Agents(list) => list.run().await,
            Command::Tasks(list) => list.run().await,
            Command::Locks(list) => list.run().await,
            Command::Calls(list) => list.run().await,
            Command::Waits(list) => list.run().await,
            Command::Instances(list) => list.run().await,
            Command::Costs(costs) => costs.run().await,
            Command::Runners(runners) => runners.run().await,
            Command::Task(task) => task.run().await,
            Command::Memory(memory) => memory.run().await,
            Command::Questions(questions) => questions.run().await,
            Command::DeadLetters(letters) => letters.run().await,
            Command::Webhooks(webhooks) => webhooks.run().await,
            Command::Agent(agent) => agent.run().await,
            Command::Credentials(keys) => keys.run(),
            Command::Tools(tools) => Box::pin(tools.run()).await,
            Command::Secrets(secrets) => secrets.run().await,
            Command::Events(events) => events.run().await,
            Command::Backup(backup) => backup.run().await,
            Command::Export(export) => export.run().await,
            Command::Import(import) => import.run().await,
            // Files have the names that somebody gave them in the repository.
            Command::Demo(options) => table::print_text(&table::plain(&Box::pin(demo::run(options)).await?)),
            Command::DemoAgent { role } => demo::run_agent(role).await.map_err(CliError::Agent),
            Command::ExecAgent(_) | Command::Transport => {
                Err(CliError::Usage("this command is for runners".to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_commands_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_argument_says_what_it_is() {
        assert_eq!(silent(&Cli::command(), ""), Vec::<String>::new());
    }

    /// The arguments of a command, and of those below it, of which its help says nothing.
    fn silent(command: &clap::Command, above: &str) -> Vec<String> {
        let name = format!("{above} {}", command.get_name());
        let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
        let own = shown.filter(|argument| argument.get_help().is_none());
        let own = own.map(|argument| format!("{name}: {}", argument.get_id()));
        let below = command.get_subcommands().filter(|below| !below.is_hide_set());
        own.chain(below.flat_map(|below| silent(below, &name))).collect()
    }

    #[test]
    fn documented_commands_are_understood() {
        for line in [
            "skein up --data d --listen 127.0.0.1:0 --grpc 127.0.0.1:0 --ingress 127.0.0.1:0 --no-runner",
            "skein serve --roles coordinator,ingress",
            "skein serve --roles ingress --redis redis://127.0.0.1/1",
            "skein serve --redis redis://127.0.0.1/1 --listen 127.0.0.1:0 --node-addr 127.0.0.1:7703",
            "skein serve --node-addr node-1:7703 --cluster-tls certificates",
            "skein cluster init --out certificates --days 90 node-1,10.0.0.1 node-2",
            "skein cluster status --json",
            "skein cluster drain 127.0.0.1:7703",
            "skein token issue --role worker --name w1 --swarm build",
            "skein token issue --role worker --name w1 --lifetime 15m --renewable 30d --scope swarm:read --view full",
            "skein token fetch --client default/ci --secret-file ci.secret --format headers",
            "skein token refresh --token-file lead.token --to w1 --role worker --lifetime 10m",
            "skein token revoke --token-file w1.token",
            "skein token revoke --agent 0190e0a0-0000-7000-8000-000000000001",
            "skein token revoke --everyone --swarm build",
            "skein token revoked",
            "skein token rotate-keys --prepare",
            "skein client add ci --role worker --scope swarm:read --lifetime 15m",
            "skein client list",
            "skein client remove ci",
            "skein mcp-config --client codex --role lead",
            "skein mcp-config --client claude --role worker --agent 0190e0a0-0000-7000-8000-000000000001 --lifetime 12h",
            "skein hook --mcp-config mcp.json --settings",
            "skein hook --url http://127.0.0.1:7700 --token-file w1.token",
            "skein swarm create build",
            "skein swarm remove-member ann --swarm build --token-file lead.token",
            "skein swarm list",
            "skein tasks list --json --limit 5",
            "skein runners list --limit 5",
            "skein task create text --priority 70 --tag a --depends-on 0190e0a0-0000-7000-8000-000000000001",
            "skein task show 0190e0a0-0000-7000-8000-000000000001",
            "skein task cancel 0190e0a0-0000-7000-8000-000000000001 --reason late",
            "skein agent add dev --from https://example.org/agents.git --harness claude-code --credential anthropic_key",
            "skein agent add dev --command sh --command -c --command true --prompt work",
            "skein agent add dev --harness claude-code --command /opt/claude --prompt work",
            "skein agent validate agents",
            "skein agent run lead --prompt go",
            "skein agent kill lead-00000001 --reason late",
            "skein agent logs lead-00000001 -f -n 5",
            "skein agent logs lead --since 1h --grep error",
            "skein agent list --json",
            "skein agent show lead",
            "skein agent scale lead 3",
            "skein agent scale lead defined --swarm build",
            "skein agent pause lead",
            "skein agent resume --all",
            "skein agent enable lead",
            "skein agent disable lead --swarm build",
            "skein agent remove lead",
            "skein agent history lead --limit 5",
            "skein costs --each --limit 5",
            "skein memory forget 0190e0a0-0000-7000-8000-000000000001 --swarm build --token-file lead.token --idempotency-key once",
            "skein questions list --answered --limit 5",
            "skein questions answer 0190e0a0-0000-7000-8000-000000000001 blue",
            "skein questions decline 0190e0a0-0000-7000-8000-000000000001 --reason late",
            "skein dead-letters list --agent lead",
            "skein dead-letters show 0190e0a0-0000-7000-8000-000000000001",
            "skein dead-letters replay 0190e0a0-0000-7000-8000-000000000001",
            "skein webhooks list --limit 5",
            "skein webhooks simulate push.json --provider github --source hub --agents agents",
            "skein webhooks show 0190e0a0-0000-7000-8000-000000000001",
            "skein webhooks replay 0190e0a0-0000-7000-8000-000000000001 --swarm build",
            "skein credentials set github_token:acme",
            "skein credentials set discord_bot bot_token",
            "skein credentials list",
            "skein tools list --view x/scheduler/readonly",
            "skein tools find run something every hour --limit 3",
            "skein tools describe send-task --json",
            "skein tools call send-task task=write priority=70 --role lead --name lead",
            "skein tools call get-swarm",
            "skein secrets keys --json",
            "skein secrets add",
            "skein secrets rotate",
            "skein secrets drop",
            "skein events --follow",
            "skein backup copy.db",
            "skein export state.jsonl --data d",
            "skein import state.jsonl --redis redis://127.0.0.1/1",
            "skein status --json",
            "skein demo --repo . --keep",
        ] {
            Cli::try_parse_from(line.split(' ')).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }

    #[test]
    fn what_a_user_may_not_use_is_not_allowed() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let folder = || Path::new("/of/another");
        let of_node = StartError::from(DataDirError::Io { path: folder().to_owned(), error: denied() });
        let of_folder = unwritten(folder(), denied());
        let said = of_folder.to_string();
        assert!(said.contains("write into /of/another") && said.contains("run as the user who"), "{said}");
        for error in [CliError::File(denied()), CliError::Start(of_node), of_folder] {
            assert_eq!(error.exit(), 3, "{error}");
        }
        assert_eq!(unwritten(folder(), io::ErrorKind::StorageFull.into()).exit(), 1);
    }

    #[test]
    fn what_others_say_of_a_failure_gives_a_terminal_no_orders() {
        let said = "no lock `a\u{1b}]0;title\u{7}`\nfree it";
        for error in [CliError::from(Refusal::new(Code::NotFound, said)), CliError::Agent(said.to_owned())] {
            assert_eq!(error.to_string(), "no lock `a]0;title`\nfree it");
        }
    }

    #[test]
    fn more_lines_than_there_are_at_once_are_refused() {
        let asked = |lines: &str| Cli::try_parse_from(["skein", "agent", "logs", "lead", "-n", lines]);
        asked("2000").unwrap();
        for lines in ["0", "2001"] {
            assert!(asked(lines).is_err_and(|error| error.to_string().contains("1..=2000")), "{lines}");
        }
    }
}
