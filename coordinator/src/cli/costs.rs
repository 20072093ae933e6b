//! `skein costs`

use clap::Args;

use super::table::Column;
use super::{CliError, InSwarm, list};

const SUMS: &[Column] = &[
    ("DAY", &["date"]),
    ("AGENT", &["agentId"]),
    ("USD", &["costUsd"]),
    ("SESSIONS", &["sessions"]),
    ("INPUT", &["inputTokens"]),
    ("OUTPUT", &["outputTokens"]),
];
const REPORTS: &[Column] = &[
    ("AT", &["createdAt"]),
    ("AGENT", &["agentId"]),
    ("USD", &["totalCostUsd"]),
    ("SOURCE", &["source"]),
    ("SESSION", &["sessionId"]),
    ("TASK", &["taskId"]),
    ("MODEL", &["model"]),
];

#[derive(Debug, Args)]
pub(super) struct Costs {
    /// Each report, the latest first, instead of the sums of each day.
    #[arg(long)]
    each: bool,
    /// Most rows.
    #[arg(long, default_value_t = 100)]
    limit: u32,
    #[command(flatten)]
    at: InSwarm,
}

impl Costs {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let (view, columns) = if self.each { ("costs", REPORTS) } else { ("costs-by-day", SUMS) };
        list::rows(&self.at, view, "", columns, self.limit).await
    }
}
