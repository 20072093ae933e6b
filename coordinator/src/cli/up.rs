//! `skein up` and `skein serve`: this process becomes a node.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use secrecy::SecretString;
use skein_runner::supervisor::Supervisor;

use super::CliError;
use crate::config::{self, Config, ConfigError, Dialect, Overrides};
use crate::node::datadir::{DataDir, Layout};
use crate::node::{self, Endpoint, Roles, Signals, StartError};

/// Where a node keeps its data and listens.
#[derive(Debug, Args)]
struct Place {
    /// The data directory; it is made if need be.
    #[arg(long, value_name = "DIR", env = "SKEIN_DATA", default_value = ".skein")]
    data: PathBuf,
    /// Address of MCP and health [default: 127.0.0.1:7700].
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Address for runners and administration [default: 127.0.0.1:7701].
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    grpc: Option<SocketAddr>,
    /// Let programs of another system in as they are, by the one key that they share (SKEIN_COMPAT__KEY).
    #[arg(long, value_enum, value_name = "SYSTEM")]
    compat: Option<Dialect>,
    /// Let them in from other machines too, where whoever has that key can act as any agent.
    #[arg(long)]
    compat_beyond_loopback: bool,
    /// Address for webhooks [default: 127.0.0.1:7702].
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    ingress: Option<SocketAddr>,
    /// Offer agents what the official conformance suite of MCP asks for, and nothing else.
    #[arg(long, hide = true)]
    conformance_fixture: bool,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "write an address and a port, such as 127.0.0.1:7700; a name is none, and 0.0.0.0 is all addresses".to_owned()
    })
}

#[derive(Debug, Args)]
pub(super) struct Up {
    #[command(flatten)]
    place: Place,
    /// Start no runner in this process.
    #[arg(long)]
    no_runner: bool,
}

#[derive(Debug, Args)]
pub(super) struct Serve {
    #[command(flatten)]
    place: Place,
    /// What this process does, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "coordinator,ingress")]
    roles: Vec<Role>,
    /// Keep everything in this Redis instead of the data directory. A URL with a password is better written into
    /// config.toml (`[store] redis`), where no list of processes shows it.
    #[arg(long, value_name = "URL", env = "SKEIN_REDIS", hide_env_values = true)]
    redis: Option<SecretString>,
    /// Where the other coordinators that share the Redis reach this one [default: a free port of this machine alone].
    #[arg(long, value_name = "HOST:PORT")]
    node_addr: Option<String>,
    /// The folder with the certificate by which the other coordinators know this one, from `skein cluster init`.
    #[arg(long, value_name = "DIR")]
    cluster_tls: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    Coordinator,
    Ingress,
}

impl Up {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let (data, config) =
            self.place.open(Overrides { runner: self.no_runner.then_some(false), ..Overrides::default() })?;
        let roles = Roles { coordinator: true, ingress: true, runner: config.runner.enabled };
        serve(data, config, roles).await
    }
}

impl Serve {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let roles = Roles {
            coordinator: self.roles.contains(&Role::Coordinator),
            ingress: self.roles.contains(&Role::Ingress),
            runner: false,
        };
        let (data, config) = self.place.open(Overrides {
            runner: Some(false),
            redis: self.redis,
            node: self.node_addr,
            tls: self.cluster_tls,
            ..Overrides::default()
        })?;
        if !roles.coordinator && config.store.redis.is_none() {
            let problem = "--roles ingress: it passes on to the coordinators that share a Redis; name that with --redis, or \
                           use coordinator,ingress";
            return Err(CliError::Usage(problem.to_owned()));
        }
        serve(data, config, roles).await
    }
}

impl Place {
    /// Its own addresses go over what else the command line says.
    fn open(self, others: Overrides) -> Result<(DataDir, Config), CliError> {
        let overrides = Overrides {
            http: self.listen,
            grpc: self.grpc,
            ingress: self.ingress,
            compat: self.compat,
            beyond_loopback: self.compat_beyond_loopback,
            ..others
        };
        let usage = |error: ConfigError| CliError::Usage(error.to_string());
        let mut config = config::load(&Layout::new(&self.data).config(), &overrides).map_err(usage)?;
        config::check_sharing(&config).map_err(usage)?;
        config.conformance_fixture = self.conformance_fixture;
        let data = DataDir::open(&self.data).map_err(StartError::from)?;
        Ok((data, config))
    }
}

async fn serve(data: DataDir, config: Config, roles: Roles) -> Result<(), CliError> {
    let mut signals = Signals::catch()?;
    let node = tokio::select! {
        started = Box::pin(node::start(data, config, roles)) => started?,
        // Nobody was served yet: it ends as by a crash, which loses nothing.
        _ = signals.come() => return Ok(()),
    };
    // The disk behind stderr may be full, and the node serves all the same: `eprintln!` would end it.
    let _ = say_where(node.endpoint(), node.layout(), roles, &mut io::stderr());
    Ok(node.run(signals, &Supervisor::of_this_process()).await?)
}

/// Tells whoever has started the node where it is found.
fn say_where(endpoint: &Endpoint, layout: &Layout, roles: Roles, out: &mut impl Write) -> io::Result<()> {
    let data = layout.root().display();
    if roles.coordinator {
        let grpc = Endpoint::near(endpoint.grpc);
        writeln!(out, "skein is ready: MCP at {}/mcp, administration at {grpc}", endpoint.url)?;
        writeln!(out, "console at {}/, where `skein console --data {data}` logs you in", endpoint.console())?;
    }
    if let Some(ingress) = endpoint.ingress {
        writeln!(out, "webhooks at http://{}/webhooks/<source>", Endpoint::near(ingress))?;
    }
    writeln!(out, "try `skein status --data {data}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_gives_half_an_address_is_told_what_a_whole_one_is() {
        assert_eq!(address("127.0.0.1:0"), Ok(SocketAddr::from(([127, 0, 0, 1], 0))));
        for text in ["7700", ":7700", "localhost:7700", "127.0.0.1"] {
            assert!(address(text).is_err_and(|said| said.contains("such as 127.0.0.1:7700")), "{text}");
        }
    }

    #[test]
    fn whoever_starts_a_node_that_listens_everywhere_is_told_addresses_that_can_be_called() {
        let all = |port| SocketAddr::from(([0, 0, 0, 0], port));
        let url = "http://127.0.0.1:7700".to_owned();
        let endpoint =
            Endpoint { http: all(7700), grpc: all(7701), ingress: Some(all(7702)), node: None, url };
        let roles = Roles { coordinator: true, ingress: true, runner: false };
        let mut said = Vec::new();
        say_where(&endpoint, &Layout::new("/data"), roles, &mut said).unwrap();
        let said = String::from_utf8(said).unwrap();
        assert!(!said.contains("0.0.0.0"), "{said}");
        for address in ["http://127.0.0.1:7700/mcp", "at 127.0.0.1:7701", "http://127.0.0.1:7702/webhooks/"] {
            assert!(said.contains(address), "{said}");
        }
    }

    #[test]
    fn a_node_with_settings_of_a_cluster_and_no_redis_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let place = || Place {
            data: data.clone(),
            listen: None,
            grpc: None,
            compat: None,
            compat_beyond_loopback: false,
            ingress: None,
            conformance_fixture: false,
        };
        let of_a_cluster = || Overrides { node: Some("node-1:7703".to_owned()), ..Overrides::default() };
        let Err(refused) = place().open(of_a_cluster()) else { panic!("it would keep tasks of its own") };
        assert!(refused.exit() == 2 && refused.to_string().contains("--node-addr"), "{refused}");
        assert!(!data.exists());
        let redis = Some(SecretString::from("redis://box"));
        place().open(Overrides { redis, ..of_a_cluster() }).unwrap();
        assert!(data.exists());
    }
}
