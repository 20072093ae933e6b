//! `skein questions list|answer|decline`

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use skein_proto::v1::AnswerQuestionRequest;
use uuid::Uuid;

use super::table::Column;
use super::{CliError, InSwarm, ids, list};

const OPEN: &[Column] = &[
    ("ID", &["id"]),
    ("AGENT", &["agentName"]),
    ("ASKED", &["askedAt"]),
    ("CHOICES", &["choices"]),
    ("QUESTION", &["question"]),
];
const OVER: &[Column] = &[
    ("ID", &["id"]),
    ("AGENT", &["agentName"]),
    ("STATUS", &["status"]),
    ("BY", &["answeredBy"]),
    ("ANSWER", &["answer", "reason"]),
    ("QUESTION", &["question"]),
];

#[derive(Debug, Subcommand)]
pub(super) enum Questions {
    /// List those that wait for an answer, the oldest first.
    List {
        /// Those that are over instead, the last first.
        #[arg(long)]
        answered: bool,
        /// Most rows.
        #[arg(long, default_value_t = 100)]
        limit: u32,
        #[command(flatten)]
        at: InSwarm,
    },
    /// Answer one. The first answer counts.
    Answer {
        /// As `skein questions list` shows it.
        #[arg(value_parser = ids::id)]
        id: Uuid,
        /// One of its choices, if it has any.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        answer: String,
        #[command(flatten)]
        at: InSwarm,
    },
    /// Say that nobody will answer one.
    Decline {
        /// As `skein questions list` shows it.
        #[arg(value_parser = ids::id)]
        id: Uuid,
        /// Why, for the agent that has asked.
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
        #[command(flatten)]
        at: InSwarm,
    },
}

impl Questions {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let (id, answer, reason, at) = match self {
            Questions::List { answered, limit, at } => {
                let (view, columns) = if answered { ("answers", OVER) } else { ("questions", OPEN) };
                return list::rows(&at, view, "", columns, limit).await;
            }
            Questions::Answer { id, answer, at } => (id, answer, String::new(), at),
            Questions::Decline { id, reason, at } => (id, String::new(), reason, at),
        };
        let (swarm, question) = (at.swarm.to_string(), id.to_string());
        let request = AnswerQuestionRequest { swarm, question, answer, reason };
        at.common.print(at.common.admin().await?.answer_question(request).await)
    }
}
