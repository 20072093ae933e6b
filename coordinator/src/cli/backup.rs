//! `skein backup`

use std::path::PathBuf;

use clap::Args;
use skein_proto::v1::BackupRequest;

use super::{CliError, Common};

#[derive(Debug, Args)]
pub(super) struct Backup {
    /// The new file. It must not be there yet.
    file: PathBuf,
    #[command(flatten)]
    common: Common,
}

impl Backup {
    pub(super) async fn run(self) -> Result<(), CliError> {
        // The node may have another working directory.
        let path = std::path::absolute(&self.file)?.to_string_lossy().into_owned();
        self.common.print(self.common.admin().await?.backup(BackupRequest { path }).await)
    }
}
