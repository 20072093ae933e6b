//! `skein webhooks list|show|replay|simulate`

use clap::{Args, Subcommand};
use skein_proto::v1::WebhookRequest;
use uuid::Uuid;

use super::simulate::Simulate;
use super::table::Column;
use super::{CliError, InSwarm, ids, list};

const COLUMNS: &[Column] = &[
    ("ID", &["receiptId"]),
    ("AT", &["receivedAt"]),
    ("SOURCE", &["source"]),
    ("EVENT", &["event"]),
    ("STATUS", &["status"]),
    ("REASON", &["reason"]),
    ("MATCHED", &["matched"]),
    ("REPLAY OF", &["replayOf"]),
];

#[derive(Debug, Subcommand)]
pub(super) enum Webhooks {
    /// List those of the last seven days, the newest first. What nobody took says why.
    List {
        /// Most rows.
        #[arg(long, default_value_t = 100)]
        limit: u32,
        #[command(flatten)]
        at: InSwarm,
    },
    /// Show one as it came, and what it led to.
    Show(One),
    /// Hand the event on once more, under a new receipt.
    Replay(One),
    /// Say which subscriptions an event would match, and why not. Needs no node.
    Simulate(Simulate),
}

#[derive(Debug, Args)]
pub(super) struct One {
    /// The receipt, as `skein webhooks list` shows it.
    #[arg(value_parser = ids::id)]
    id: Uuid,
    #[command(flatten)]
    at: InSwarm,
}

impl One {
    fn request(&self) -> WebhookRequest {
        WebhookRequest { swarm: self.at.swarm.to_string(), receipt: self.id.to_string() }
    }
}

impl Webhooks {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let (answer, at) = match self {
            Webhooks::List { limit, at } => {
                return list::rows(&at, "webhooks", "", COLUMNS, limit).await;
            }
            Webhooks::Simulate(simulate) => return simulate.run(),
            Webhooks::Show(one) => {
                let common = &one.at.common;
                return common.show(common.admin().await?.show_webhook(one.request()).await);
            }
            Webhooks::Replay(one) => {
                (one.at.common.admin().await?.replay_webhook(one.request()).await, one.at)
            }
        };
        at.common.print(answer)
    }
}
