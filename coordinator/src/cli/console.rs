//! `skein console`: a link to the web console that logs in by itself.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use skein_shared::id::Name;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::mcp_config::callable;
use super::{CliError, InSwarm, table, token};
use crate::api::client;
use crate::auth::{Right, Rights, Role};
use crate::console::SESSION;
use crate::node::Endpoint;

/// How long the link is good for.
const LINK: Duration = Duration::from_secs(300);

#[derive(Debug, Args)]
pub(super) struct Console {
    /// Of one who may look and change nothing.
    #[arg(long)]
    observer: bool,
    #[command(flatten)]
    at: InSwarm,
}

impl Console {
    pub(super) async fn run(self) -> Result<(), CliError> {
        self.require_swarm().await?;
        let endpoint = Endpoint::of_a_node(&self.at.common.layout())?;
        let role = if self.observer { Role::Observer } else { Role::Operator };
        let name = Name::parse(if self.observer { "onlooker" } else { "operator" })?;
        // The session comes of the link's token, and outlasts it.
        let issued = token::issue(&self.at, role, name, Uuid::new_v4(), LINK, Some(SESSION))?;
        // Behind the `#` it is sent to no server, so that no log has it.
        let link = format!("{}/login#token={}", callable(endpoint.console(), endpoint.http), issued.text());
        if self.at.common.json {
            let document = json!({ "url": link, "expiresAt": issued.expires_at.iso() });
            return Ok(table::print_document(&document, true)?);
        }
        let may = reach(role, &self.at.swarm);
        table::note(format_args!("open this link within five minutes; whoever has it is {may}"));
        table::print_text(&link)
    }

    async fn require_swarm(&self) -> Result<(), CliError> {
        let swarm = &self.at.swarm;
        let swarms = client::list(&mut self.at.common.admin().await?, "swarms", "", u32::MAX).await?;
        if swarms.rebuilding || swarms.rows.iter().any(|known| known["name"] == swarm.as_str()) {
            return Ok(());
        }
        let problem = format!("there is no swarm {swarm}; `skein swarm list` shows those there are");
        Err(Refusal::new(Code::NotFound, problem).into())
    }
}

/// What the link's holder is: who administers goes to every swarm of the node, all others stay in their own.
fn reach(role: Role, swarm: &Name) -> String {
    if Rights::of(role).has(Right::Administer) {
        return format!("{role} of all swarms of this node");
    }
    format!("{role} of the swarm {swarm}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observer_is_told_of_one_swarm_and_an_operator_of_all() {
        let build = Name::parse("build").unwrap();
        assert_eq!(reach(Role::Observer, &build), "observer of the swarm build");
        assert_eq!(reach(Role::Operator, &build), "operator of all swarms of this node");
    }
}
