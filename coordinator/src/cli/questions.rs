//! `skein questions list|answer|decline`

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use skein_proto::v1::AnswerQuestionRequest;
use uuid::Uuid;

use super::table::Column;
use super::{CliError, Common, ids, list};

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
        common: Common,
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
        common: Common,
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
        common: Common,
    },
}

impl Questions {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let (id, answer, reason, common) = match self {
            Questions::List { answered, limit, common } => {
                let (view, columns) = if answered { ("answers", OVER) } else { ("questions", OPEN) };
                return list::rows(&common, view, "", columns, limit).await;
            }
            Questions::Answer { id, answer, common } => (id, answer, String::new(), common),
            Questions::Decline { id, reason, common } => (id, String::new(), reason, common),
        };
        let (swarm, question) = (common.swarm.to_string(), id.to_string());
        let request = AnswerQuestionRequest { swarm, question, answer, reason };
        common.print(common.admin().await?.answer_question(request).await)
    }
}
