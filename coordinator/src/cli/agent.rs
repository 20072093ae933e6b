//! `skein agent run` and `skein agent kill`

use clap::{Args, Subcommand};
use skein_proto::v1::{KillInstanceRequest, RunAgentRequest};
use skein_shared::id::Name;

use super::{CliError, Common, table};
use crate::api::client;

#[derive(Debug, Subcommand)]
pub(super) enum Agent {
    /// Run an agent by hand.
    Run(Run),
    /// End a run, also one that waits.
    Kill(Kill),
}

impl Agent {
    pub(super) async fn run(self) -> Result<(), CliError> {
        match self {
            Agent::Run(run) => run.run().await,
            Agent::Kill(kill) => kill.run().await,
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct Run {
    name: Name,
    /// What the run is given to do.
    #[arg(long, default_value = "")]
    prompt: String,
    #[command(flatten)]
    common: Common,
}

impl Run {
    async fn run(self) -> Result<(), CliError> {
        let Run { name, prompt, common } = self;
        let request = RunAgentRequest { swarm: common.swarm.to_string(), agent: name.to_string(), prompt };
        let queued =
            client::connect(&common.layout()).await?.run_agent(request).await.map_err(client::refused)?;
        Ok(table::print_document(&client::read(&queued.into_inner().json)?, common.json)?)
    }
}

#[derive(Debug, Args)]
pub(super) struct Kill {
    /// As `skein instances list` shows it.
    instance: String,
    /// What its callers are told.
    #[arg(long, default_value = "")]
    reason: String,
    #[command(flatten)]
    common: Common,
}

impl Kill {
    async fn run(self) -> Result<(), CliError> {
        let Kill { instance, reason, common } = self;
        let request = KillInstanceRequest { swarm: common.swarm.to_string(), instance, reason };
        let killed =
            client::connect(&common.layout()).await?.kill_instance(request).await.map_err(client::refused)?;
        Ok(table::print_document(&client::read(&killed.into_inner().json)?, common.json)?)
    }
}
