//! `skein cluster status|drain`; `init` has a file of its own.

use clap::Subcommand;
use serde_json::{Value, json};
use skein_proto::v1::{ClusterRequest, DrainRequest};
use skein_shared::time::Timestamp;

use super::cluster_init::Init;
use super::{CliError, Common, table};
use crate::api::client;

#[derive(Debug, Subcommand)]
pub(super) enum Cluster {
    /// Make the certificates by which coordinators know one another.
    Init(Init),
    /// Show the coordinators, the format that each writes, their shards and epochs.
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
            Cluster::Init(init) => init.run(),
            Cluster::Status { common } => {
                let mut admin = common.admin().await?;
                let reply = admin.cluster(ClusterRequest {}).await.map_err(client::untold)?.into_inner();
                let status = client::read(&reply.json)?;
                if common.json {
                    return Ok(table::print_document(&status, true)?);
                }
                let nodes: Vec<Value> = status["nodes"].as_array().into_iter().flatten().map(row).collect();
                let columns: [table::Column; 7] = [
                    ("NODE", &["id"]),
                    ("ADDRESS", &["address"]),
                    ("FORMAT", &["format"]),
                    ("STATE", &["state"]),
                    ("SHARDS", &["shards"]),
                    ("EPOCHS", &["epochs"]),
                    ("LAG", &["lag"]),
                ];
                table::print(&nodes, &columns, false)?;
                let generation =
                    |part: &str| status["generation"][part].as_str().unwrap_or_default().to_owned();
                table::note(format_args!(
                    "Redis: run {}, replication {}",
                    generation("run"),
                    generation("replication")
                ));
                if status["unowned"] != json!(0) {
                    table::note(format_args!("{} shards have no owner at the moment", status["unowned"]));
                }
                if let Some(owner) = status["soleOwner"].as_str() {
                    table::note(format_args!(
                        "waiting: skein export or skein import ({owner}) has the store for itself"
                    ));
                }
                for alarm in status["alarms"].as_array().into_iter().flatten() {
                    let text = |field: &str| alarm[field].as_str().unwrap_or_default();
                    table::note(format_args!(
                        "alarm ({}): {}",
                        text("kind"),
                        table::plain_line(text("problem"))
                    ));
                }
                if status["incidents"].is_null() {
                    table::note("the incidents cannot be read; the alarms and the log say why");
                }
                for incident in status["incidents"].as_array().into_iter().flatten() {
                    table::note(told(incident));
                }
                Ok(())
            }
            Cluster::Drain { node, common } => {
                common.print(common.admin().await?.drain(DrainRequest { node }).await)
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
    // How old the oldest effect is that waits for its delivery.
    let lag = node["lag"]["oldest_effect_ms"].as_f64();
    let lag = lag.map_or_else(|| "unknown".to_owned(), |ms| format!("{:.1} s", ms / 1000.0));
    json!({
        "id": node["id"], "address": node["address"], "format": node["format"], "state": state,
        "shards": epochs.len(), "epochs": between, "lag": lag,
    })
}

/// What was lost, in a line; `--json` has all of it. Agents have named some of the documents.
fn told(incident: &Value) -> String {
    let lost: Vec<&Value> = incident["lost"].as_array().into_iter().flatten().collect();
    let commits: u64 = lost.iter().filter_map(|writes| writes["commits"].as_u64()).sum();
    let documents = lost.iter().filter_map(|writes| writes["documents"].as_array()).flatten();
    let documents: Vec<&str> = documents.filter_map(Value::as_str).collect();
    table::plain_line(&format!(
        "{}: Redis had lost {commits} writes that {} had acknowledged: {}",
        incident["at"].as_u64().map_or_else(String::new, |at| Timestamp(at).to_string()),
        incident["node"].as_str().unwrap_or_default(),
        documents.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incident_names_who_had_acknowledged_what() {
        let lost = json!([
            {"entity": "pool/default", "commits": 2, "since": 5, "documents": ["task/1", "task/2"]},
            {"entity": "lockspace/default", "commits": 1, "since": 5, "documents": ["lock/x"]},
        ]);
        let line = told(&json!({"at": 1_790_000_000_000_u64, "node": "n1", "lost": lost}));
        assert!(
            line.ends_with("Redis had lost 3 writes that n1 had acknowledged: task/1, task/2, lock/x"),
            "{line}"
        );
        assert!(line.starts_with("2026-"), "{line}");
    }

    #[test]
    fn the_documents_of_an_incident_give_a_terminal_no_orders() {
        let lost = json!([{"commits": 1, "documents": ["lock/\u{1b}]0;title\u{7}x\nlater", "task/1"]}]);
        let line = told(&json!({"at": 0, "node": "n1", "lost": lost}));
        assert!(line.ends_with("acknowledged: lock/]0;titlex later, task/1"), "{line}");
    }
}
