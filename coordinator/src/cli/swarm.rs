//! `skein swarm create|list`

use clap::Subcommand;
use skein_proto::v1::CreateSwarmRequest;
use skein_shared::id::Name;

use super::{CliError, Common, list, table};
use crate::api::client;

#[derive(Debug, Subcommand)]
pub(super) enum Swarm {
    /// Make a swarm.
    Create {
        name: Name,
        #[command(flatten)]
        common: Common,
    },
    /// List the swarms.
    List {
        #[command(flatten)]
        common: Common,
    },
}

impl Swarm {
    pub(super) async fn run(self) -> Result<(), CliError> {
        match self {
            Swarm::List { common } => list::rows(&common, "swarms", "", &[("NAME", &["name"])], 0).await,
            Swarm::Create { name, common } => {
                let request = CreateSwarmRequest { name: name.to_string() };
                let made = client::connect(&common.layout())
                    .await?
                    .create_swarm(request)
                    .await
                    .map_err(client::refused)?;
                Ok(table::print_document(&client::read(&made.into_inner().json)?, common.json)?)
            }
        }
    }
}
