//! `skein mcp-config`: what to paste into an MCP client.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;
use skein_shared::id::Name;
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
        table::print_text(&render(self.client, &base_url(&at.common)?, issued.text()))
    }
}

/// Where the running node is, or else where the next one will be.
fn base_url(common: &Common) -> Result<String, CliError> {
    if let Ok(endpoint) = Endpoint::read(&common.layout()) {
        return Ok(endpoint.url);
    }
    let config = config::load(&common.layout().config(), &Overrides::default())
        .map_err(|error| CliError::Usage(error.to_string()))?;
    let listen = config.listen;
    Ok(listen
        .public_url
        .unwrap_or_else(|| format!("http://{}", listen.http))
        .trim_end_matches('/')
        .to_owned())
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
