//! `skein status`

use clap::Args;
use serde_json::{Value, json};
use skein_proto::v1::StatusRequest;

use super::{CliError, Common, table};
use crate::api::client;

/// What a node has from its store, and leaves out while that does not answer.
const OF_THE_STORE: [&str; 2] = ["swarms", "effectsGivenUp"];

#[derive(Debug, Args)]
pub(super) struct Status {
    #[command(flatten)]
    common: Common,
}

impl Status {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let mut admin = self.common.admin().await?;
        let reply = admin.status(StatusRequest {}).await.map_err(client::untold)?.into_inner();
        let mut status = client::read(&reply.json)?;
        if !self.common.json {
            status = for_people(status);
        }
        Ok(table::print_document(&status, self.common.json)?)
    }
}

/// With a word for what is not known, for what has no value is not shown.
fn for_people(mut status: Value) -> Value {
    for field in OF_THE_STORE {
        if status[field].is_null() {
            status[field] = json!("unknown");
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_store_does_not_tell_is_unknown() {
        let shown = for_people(json!({"swarms": null, "effectsGivenUp": null, "ingress": null}));
        assert_eq!(shown, json!({"swarms": "unknown", "effectsGivenUp": "unknown", "ingress": null}));
        let known = json!({"swarms": ["default"], "effectsGivenUp": 0});
        assert_eq!(for_people(known.clone()), known);
    }
}
