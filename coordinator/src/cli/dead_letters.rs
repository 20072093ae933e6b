//! `skein dead-letters list|show|replay`

use clap::{Args, Subcommand};
use skein_proto::v1::DeadLetterRequest;
use skein_shared::id::Name;
use uuid::Uuid;

use super::table::Column;
use super::{CliError, InSwarm, ids, list};

const COLUMNS: &[Column] = &[
    ("ID", &["id"]),
    ("AGENT", &["agent"]),
    ("SOURCE", &["source"]),
    ("REASON", &["reason"]),
    ("AT", &["at"]),
    ("REPLAYED AS", &["replayedAs"]),
];

#[derive(Debug, Subcommand)]
pub(super) enum DeadLetters {
    /// List them, the newest first.
    List {
        /// Only those of this agent.
        #[arg(long)]
        agent: Option<Name>,
        /// Most rows.
        #[arg(long, default_value_t = 100)]
        limit: u32,
        #[command(flatten)]
        at: InSwarm,
    },
    /// Show one with all that the run would have been given.
    Show(One),
    /// Queue what one holds, once.
    Replay(One),
}

#[derive(Debug, Args)]
pub(super) struct One {
    /// As `skein dead-letters list` shows it.
    #[arg(value_parser = ids::id)]
    id: Uuid,
    #[command(flatten)]
    at: InSwarm,
}

impl One {
    fn request(&self) -> DeadLetterRequest {
        DeadLetterRequest { swarm: self.at.swarm.to_string(), letter: self.id.to_string() }
    }
}

impl DeadLetters {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let (answer, at) = match self {
            DeadLetters::List { agent, limit, at } => {
                let agent = agent.as_ref().map(Name::as_str).unwrap_or_default();
                return list::rows(&at, "dead-letters", agent, COLUMNS, limit).await;
            }
            DeadLetters::Show(one) => {
                let common = &one.at.common;
                return common.show(common.admin().await?.show_dead_letter(one.request()).await);
            }
            DeadLetters::Replay(one) => {
                (one.at.common.admin().await?.replay_dead_letter(one.request()).await, one.at)
            }
        };
        at.common.print(answer)
    }
}
