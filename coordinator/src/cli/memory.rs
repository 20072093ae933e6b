//! `skein memory forget`

use std::path::PathBuf;

use clap::Subcommand;
use skein_proto::v1::ForgetMemoryRequest;
use uuid::Uuid;

use super::{CliError, InSwarm, ids};

#[derive(Debug, Subcommand)]
pub(super) enum Memory {
    /// Forget something for good: no search finds it any more. Its event and its task keep their words for their time.
    Forget {
        /// Its id, as `memory-search` shows it.
        #[arg(value_parser = ids::id)]
        id: Uuid,
        /// A file with the token of the swarm's lead, or of the agent whose it is, to do it as that one; - reads it
        /// from standard input [default: as the operator].
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
        /// A second command with the same key gets the answer of the first.
        #[arg(long, default_value = "", hide_default_value = true)]
        idempotency_key: String,
        #[command(flatten)]
        at: InSwarm,
    },
}

impl Memory {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let Memory::Forget { id, token_file, idempotency_key, at } = self;
        let request =
            ForgetMemoryRequest { swarm: at.swarm.to_string(), memory: id.to_string(), idempotency_key };
        let mut admin = at.common.admin_as(token_file.as_deref()).await?;
        at.common.print(admin.forget_memory(request).await)
    }
}
