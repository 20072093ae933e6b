//! `skein mcp-config`: what to paste into an MCP client.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;
use skein_shared::id::Name;
use url::{Host, Url};
use uuid::Uuid;

use super::{CliError, Common, InSwarm, ids, table, token};
use crate::auth::Role;
use crate::config::{self, Overrides};
use crate::node::Endpoint;

/// A wait may last an hour; clients end calls much sooner unless they are told.
const PATIENCE: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Client {
    /// Claude Code: JSON for `--mcp-config` or `.mcp.json`.
    Claude,
    /// Codex: TOML for `config.toml`.
    Codex,
    /// Any other: the URL and the header.
    Generic,
}

#[derive(Debug, Args)]
pub(super) struct McpConfig {
    /// The program that is to be configured.
    #[arg(long, value_enum)]
    client: Client,
    /// lead, worker or observer.
    #[arg(long)]
    role: Role,
    /// The agent's name; the role's if left out.
    #[arg(long)]
    name: Option<Name>,
    /// The agent's id. If left out it is that of the swarm's member of this name, as the node that runs knows it, so
    /// that the agent stays the same with its next token; and a new one where no node runs, or for an observer.
    #[arg(long, value_parser = ids::id)]
    agent: Option<Uuid>,
    /// How long the token is good for.
    #[arg(long, default_value = "30d", value_parser = token::lifetime)]
    lifetime: Duration,
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "SKEIN_DATA", default_value = ".skein")]
    data: PathBuf,
    /// The swarm.
    #[arg(long, value_name = "NAME", env = "SKEIN_SWARM", default_value = "default")]
    swarm: Name,
}

impl McpConfig {
    pub(super) async fn run(self) -> Result<(), CliError> {
        if !matches!(self.role, Role::Lead | Role::Worker | Role::Observer) {
            return Err(CliError::Usage(
                "--role: an MCP client is a lead, a worker or an observer".to_owned(),
            ));
        }
        let name = match self.name {
            Some(name) => name,
            None => Name::parse(self.role.as_str())?,
        };
        // The client says which form it prints.
        let at = InSwarm { swarm: self.swarm, common: Common { data: self.data, json: false } };
        let known = match self.agent {
            None if self.role != Role::Observer => at.member(&name).await?,
            given => given,
        };
        let agent = known.unwrap_or_else(Uuid::new_v4);
        let issued = token::issue(&at, self.role, name.clone(), agent, self.lifetime, None)?;
        table::note(format_args!("{} `{name}` ({agent}), good until {}", self.role, issued.expires_at));
        let (base, listens) = base_url(&at.common)?;
        let base = callable(base, listens);
        table::print_text(&render(self.client, &base, issued.text()))
    }
}

/// A base URL that can be called, for which that of all addresses at once is none. If it leads to this machine alone
/// though the node `listens` on all addresses, that is said.
pub(super) fn callable(base: String, listens: SocketAddr) -> String {
    let base = here(&base).unwrap_or(base);
    if listens.ip().is_unspecified() && is_here(&base) {
        table::note(format_args!(
            "skein: the node listens on all of its addresses, and {base} is for this machine alone; set \
             listen.public_url to what others call it"
        ));
    }
    base
}

/// Whether another machine would call itself by it.
fn is_here(base: &str) -> bool {
    let url = Url::parse(base).ok();
    match url.as_ref().and_then(Url::host) {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// What a program of this machine calls instead of all addresses at once.
fn here(base: &str) -> Option<String> {
    let url = Url::parse(base).ok()?;
    let is_everywhere = match url.host()? {
        Host::Ipv4(ip) => ip.is_unspecified(),
        Host::Ipv6(ip) => ip.is_unspecified(),
        Host::Domain(_) => false,
    };
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    is_everywhere.then(|| format!("http://127.0.0.1{port}"))
}

/// Where the running node is, or else where the next one will be, and on what it listens.
fn base_url(common: &Common) -> Result<(String, SocketAddr), CliError> {
    if let Ok(endpoint) = Endpoint::read(&common.layout()) {
        return Ok((endpoint.url, endpoint.http));
    }
    let config = config::load(&common.layout().config(), &Overrides::default())
        .map_err(|error| CliError::Usage(error.to_string()))?;
    let listen = config.listen;
    let url = listen.public_url.unwrap_or_else(|| format!("http://{}", listen.http));
    Ok((url.trim_end_matches('/').to_owned(), listen.http))
}

fn render(client: Client, base: &str, token: &str) -> String {
    match client {
        // Claude Code searches deferred tools by itself, so it gets the whole catalogue.
        Client::Claude => pretty(&json!({"mcpServers": {"skein": {
            "type": "http",
            "url": format!("{base}/mcp/full"),
            "headers": {"Authorization": format!("Bearer {token}")},
            "timeout": PATIENCE.as_millis() as u64,
        }}})),
        Client::Codex => format!(
            "# Codex takes the token from the environment:\n#   export SKEIN_TOKEN={token}\n\
             [mcp_servers.skein]\nurl = \"{base}/mcp\"\nbearer_token_env_var = \"SKEIN_TOKEN\"\n\
             tool_timeout_sec = {}\nstartup_timeout_sec = 20",
            PATIENCE.as_secs()
        ),
        Client::Generic => pretty(&json!({
            "transport": "streamable-http",
            "url": format!("{base}/mcp"),
            "headers": {"Authorization": format!("Bearer {token}")},
        })),
    }
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_all_addresses_at_once() {
        for (base, called) in [
            ("http://0.0.0.0:7700", Some("http://127.0.0.1:7700")),
            ("http://[::]:7700", Some("http://127.0.0.1:7700")),
            ("http://10.0.0.1:7700", None),
            ("http://[::1]:7700", None),
            ("https://skein.example.com/a", None),
        ] {
            assert_eq!(here(base).as_deref(), called, "{base}");
        }
    }

    #[test]
    fn what_leads_to_this_machine_alone_is_told_from_what_others_may_call() {
        for (base, is_of_here) in [
            ("http://127.0.0.1:7700", true),
            ("http://[::1]:7700", true),
            ("http://localhost:7700", true),
            ("http://node-1:7700", false),
            ("http://10.0.0.1:7700", false),
            ("https://skein.example.com/a", false),
        ] {
            assert_eq!(is_here(base), is_of_here, "{base}");
        }
    }

    #[test]
    fn each_client_gets_its_own_form() {
        let claude = render(Client::Claude, "http://127.0.0.1:7700", "t0k");
        let claude: serde_json::Value = serde_json::from_str(&claude).unwrap();
        assert_eq!(claude["mcpServers"]["skein"]["headers"]["Authorization"], "Bearer t0k");
        assert_eq!(claude["mcpServers"]["skein"]["timeout"], 3_600_000);
        let codex = render(Client::Codex, "http://127.0.0.1:7700", "t0k");
        let codex: toml::Table = codex.parse().unwrap();
        assert_eq!(codex["mcp_servers"]["skein"]["url"].as_str(), Some("http://127.0.0.1:7700/mcp"));
    }
}
