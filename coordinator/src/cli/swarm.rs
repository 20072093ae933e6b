//! `skein swarm create|list`

use clap::Subcommand;
use skein_proto::v1::CreateSwarmRequest;
use skein_shared::id::Name;

use super::{CliError, Common, list};

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
                common.print(common.admin().await?.create_swarm(request).await)
            }
        }
    }
}
