//! `skein agent run`

use clap::{Args, Subcommand};
use skein_proto::v1::RunAgentRequest;
use skein_shared::id::Name;

use super::{CliError, Common, table};
use crate::api::client;

#[derive(Debug, Subcommand)]
pub(super) enum Agent {
    /// Run an agent by hand.
    Run(Run),
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
    pub(super) async fn run(self) -> Result<(), CliError> {
        let Run { name, prompt, common } = self;
        let request = RunAgentRequest { swarm: common.swarm.to_string(), agent: name.to_string(), prompt };
        let queued =
            client::connect(&common.layout()).await?.run_agent(request).await.map_err(client::refused)?;
        Ok(table::print_document(&client::read(&queued.into_inner().json)?, common.json)?)
    }
}
