//! `skein status`

use clap::Args;
use skein_proto::v1::StatusRequest;

use super::{CliError, Common, table};
use crate::api::client;

#[derive(Debug, Args)]
pub(super) struct Status {
    #[command(flatten)]
    common: Common,
}

impl Status {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let mut admin = self.common.admin().await?;
        let reply = admin.status(StatusRequest {}).await.map_err(client::refused)?.into_inner();
        Ok(table::print_document(&client::read(&reply.json)?, self.common.json)?)
    }
}
