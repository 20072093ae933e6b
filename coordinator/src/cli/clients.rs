//! `skein client add|list|remove`: programs that fetch tokens with a secret of their own.

use std::time::Duration;

use clap::{Args, Subcommand};
use skein_proto::v1::{AddClientRequest, RemoveClientRequest};
use skein_shared::id::Name;
use uuid::Uuid;

use super::table::Column;
use super::token::lifetime;
use super::{CliError, InSwarm, ids, list};
use crate::auth::{Rights, Role, View};

const COLUMNS: &[Column] = &[
    ("CLIENT", &["client"]),
    ("ROLE", &["role"]),
    ("AGENT", &["agent"]),
    ("AGENT ID", &["agentId"]),
    ("SCOPE", &["scope"]),
    ("LIFETIME", &["lifetime"]),
    ("CREATED", &["createdAt"]),
];

#[derive(Debug, Subcommand)]
pub(super) enum Client {
    /// Make a client and print its secret, which is shown this once.
    Add(Add),
    /// List the clients of the swarm.
    List {
        #[command(flatten)]
        at: InSwarm,
    },
    /// Remove a client; its tokens hold no more.
    Remove {
        /// The client, as `skein client list` shows it.
        name: Name,
        #[command(flatten)]
        at: InSwarm,
    },
}

#[derive(Debug, Args)]
pub(super) struct Add {
    /// Its name, unique in the swarm.
    name: Name,
    /// lead, worker, observer or operator.
    #[arg(long)]
    role: Role,
    /// The agent that its tokens are for; the client's name if left out.
    #[arg(long, value_name = "NAME")]
    agent_name: Option<Name>,
    /// The agent's id; a new one if left out.
    #[arg(long, value_parser = ids::id)]
    agent: Option<Uuid>,
    /// The scopes of its tokens, such as "swarm:read"; all of the role if left out.
    #[arg(long)]
    scope: Option<Rights>,
    /// The view of the tools that its tokens show.
    #[arg(long)]
    view: Option<View>,
    /// How long each of its tokens is good for.
    #[arg(long, default_value = "15m", value_parser = lifetime)]
    lifetime: Duration,
    #[command(flatten)]
    at: InSwarm,
}

impl Client {
    pub(super) async fn run(self) -> Result<(), CliError> {
        match self {
            Client::Add(add) => add.run().await,
            Client::List { at } => list::rows(&at, "clients", "", COLUMNS, list::ALL).await,
            Client::Remove { name, at } => {
                let request = RemoveClientRequest { swarm: at.swarm.to_string(), name: name.to_string() };
                at.common.print(at.common.admin().await?.remove_client(request).await)
            }
        }
    }
}

impl Add {
    async fn run(self) -> Result<(), CliError> {
        let request = AddClientRequest {
            swarm: self.at.swarm.to_string(),
            name: self.name.to_string(),
            agent: self.agent.map(|id| id.to_string()).unwrap_or_default(),
            agent_name: self.agent_name.map(|name| name.to_string()).unwrap_or_default(),
            role: self.role.to_string(),
            scope: self.scope.map(|scope| scope.to_string()).unwrap_or_default(),
            view: self.view.map(|view| view.to_string()).unwrap_or_default(),
            lifetime_ms: u64::try_from(self.lifetime.as_millis()).unwrap_or(u64::MAX),
        };
        self.at.common.print(self.at.common.admin().await?.add_client(request).await)
    }
}
