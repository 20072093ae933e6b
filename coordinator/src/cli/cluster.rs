//! `skein cluster status|drain`

use clap::Subcommand;
use serde_json::{Value, json};
use skein_proto::v1::{ClusterRequest, DrainRequest};

use super::{CliError, Common, table};
use crate::api::client;

#[derive(Debug, Subcommand)]
pub(super) enum Cluster {
    /// Show the coordinators, their shards and epochs.
    Status {
        #[command(flatten)]
        common: Common,
    },
    /// Let a coordinator give all its shards to the others. It goes on answering, through them.
    Drain {
        /// Its id or its address.
        node: String,
        #[command(flatten)]
        common: Common,
    },
}

impl Cluster {
    pub(super) async fn run(self) -> Result<(), CliError> {
        match self {
            Cluster::Status { common } => {
                let mut admin = client::connect(&common.layout()).await?;
                let reply = admin.cluster(ClusterRequest {}).await.map_err(client::refused)?.into_inner();
                let status = client::read(&reply.json)?;
                if common.json {
                    return Ok(table::print_document(&status, true)?);
                }
                let nodes: Vec<Value> = status["nodes"].as_array().into_iter().flatten().map(row).collect();
                let columns: [table::Column; 5] = [
                    ("NODE", &["id"]),
                    ("ADDRESS", &["address"]),
                    ("STATE", &["state"]),
                    ("SHARDS", &["shards"]),
                    ("EPOCHS", &["epochs"]),
                ];
                table::print(&nodes, &columns, false)?;
                if status["unowned"] != json!(0) {
                    eprintln!("{} shards have no owner at the moment", status["unowned"]);
                }
                Ok(())
            }
            Cluster::Drain { node, common } => {
                let mut admin = client::connect(&common.layout()).await?;
                let reply = admin.drain(DrainRequest { node }).await.map_err(client::refused)?.into_inner();
                Ok(table::print_document(&client::read(&reply.json)?, common.json)?)
            }
        }
    }
}

fn row(node: &Value) -> Value {
    let epochs: Vec<u64> =
        node["shards"].as_object().into_iter().flatten().filter_map(|(_, e)| e.as_u64()).collect();
    let between = match (epochs.iter().min(), epochs.iter().max()) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        _ => String::new(),
    };
    let state = match (&node["passesOn"], &node["draining"]) {
        (Value::Bool(true), _) => "passing on",
        (_, Value::Bool(true)) => "draining",
        _ => "serving",
    };
    json!({
        "id": node["id"], "address": node["address"], "state": state, "shards": epochs.len(), "epochs": between,
    })
}
