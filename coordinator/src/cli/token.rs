//! `skein token issue`: works beside a running node, since a signature needs nothing but the key.

use std::time::Duration;

use clap::{Args, Subcommand};
use skein_shared::id::Name;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::{CliError, Common};
use crate::auth::Role;
use crate::auth::token::{Claims, Issued, Keys};
use crate::entity::Clock;

#[derive(Debug, Subcommand)]
pub(super) enum Token {
    /// Issue a token. It is the last line of the output.
    Issue(Issue),
}

#[derive(Debug, Args)]
pub(super) struct Issue {
    /// lead, worker, observer, operator or runner.
    #[arg(long)]
    role: Role,
    /// The name of the agent, operator or runner.
    #[arg(long)]
    name: Name,
    /// The agent's id; a new one if left out.
    #[arg(long)]
    agent: Option<Uuid>,
    /// How long it is good for.
    #[arg(long, default_value = "30d", value_parser = lifetime)]
    lifetime: Duration,
    #[command(flatten)]
    common: Common,
}

fn lifetime(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => {
            Err("a token that has ended already is of no use; write 30d, for example".to_owned())
        }
        Ok(span) => Ok(span),
        Err(error) => Err(format!("{error}; write 12h or 30d, for example")),
    }
}

impl Issue {
    pub(super) fn run(self) -> Result<(), CliError> {
        let agent = self.agent.unwrap_or_else(Uuid::new_v4);
        let issued = issue(&self.common, self.role, self.name.clone(), agent, self.lifetime)?;
        if self.common.json {
            let (expires, token) = (issued.expires_at.iso(), issued.text());
            println!("{}", serde_json::json!({"agent": agent, "expiresAt": expires, "token": token}));
            return Ok(());
        }
        eprintln!("{} `{}` ({agent}), good until {}", self.role, self.name, issued.expires_at);
        println!("{}", issued.text());
        Ok(())
    }
}

/// Signs a token with the key of the data directory.
pub(super) fn issue(
    common: &Common,
    role: Role,
    name: Name,
    agent: Uuid,
    lifetime: Duration,
) -> Result<Issued, CliError> {
    if !common.data.is_dir() {
        let data = common.data.display();
        let problem =
            format!("there is no data directory {data}; start a node with `skein up --data {data}` first");
        return Err(CliError::Refused(Refusal::new(Code::NotFound, problem)));
    }
    let keys = Keys::load_or_create(&common.data).map_err(|error| {
        let problem = format!("the signing key in {} cannot be used: {error}", common.data.display());
        Refusal::new(Code::Unauthenticated, problem)
    })?;
    let claims = Claims {
        swarm: common.swarm.clone(),
        agent,
        agent_name: name,
        role,
        view: None,
        instance: None,
        lifetime,
    };
    Ok(keys.issue(claims, Clock::start().now())?)
}
