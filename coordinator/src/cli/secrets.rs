//! `skein secrets keys|add|rotate|drop`: the keys that seal the swarms' secrets.

use clap::Subcommand;
use serde_json::Value;
use skein_proto::v1::SecretKeysRequest;

use super::table::{self, Column};
use super::{CliError, Common};
use crate::api::client;

const COLUMNS: &[Column] = &[("KEY", &["key"]), ("STATE", &["state"]), ("SECRETS", &["secrets"])];

#[derive(Debug, Subcommand)]
pub(super) enum Secrets {
    /// List the keys, and how many secrets each has sealed.
    Keys {
        #[command(flatten)]
        common: Common,
    },
    /// Add a key that `rotate` will seal with, to be copied to the other coordinators before.
    Add {
        #[command(flatten)]
        common: Common,
    },
    /// Seal the secrets of all swarms with a new key.
    Rotate {
        #[command(flatten)]
        common: Common,
    },
    /// Forget the keys that seal nothing any more.
    Drop {
        #[command(flatten)]
        common: Common,
    },
}

impl Secrets {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let (order, common) = match self {
            Secrets::Keys { common } => ("list", common),
            Secrets::Add { common } => ("add", common),
            Secrets::Rotate { common } => ("rotate", common),
            Secrets::Drop { common } => ("drop", common),
        };
        let request = SecretKeysRequest { order: order.to_owned() };
        let answer = common.admin().await?.secret_keys(request).await;
        if order != "list" {
            return common.print(answer);
        }
        let rows: Vec<Value> = client::shown(answer)?["keys"].as_array().cloned().unwrap_or_default();
        Ok(table::print(&rows, COLUMNS, common.json)?)
    }
}
