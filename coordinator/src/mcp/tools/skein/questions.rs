//! What agents have asked people: looked at, answered, taken back.

use serde::Deserialize;
use serde_json::json;
use skein_shared::{Code, Refusal, limits};
use uuid::Uuid;

use crate::auth::Right;
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::result::{Answer, counted};
use crate::mcp::schema::{Args, any_text, flag, integer, list, object, text, uuid};
use crate::service::lists::Page;
use crate::service::questions::{Wanted, Word};

/// Questions of a list, at most and by default.
const MOST: i64 = 100;
const USUAL: usize = 20;
/// What a question has.
const QUESTION: [&str; 15] = [
    "id",
    "status",
    "agentName",
    "taskId",
    "question",
    "choices",
    "askedAt",
    "expiresAt",
    "answer",
    "reason",
    "answeredBy",
    "settledAt",
    "agentId",
    "instance",
    "answeredByAgentId",
];

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("answer_question", "Answer a question", Toolset::Skein, answer)
            .writes(Right::Lead)
            .additive()
            .about(
                "Answer what an agent asked with ask_human, or say that nobody will.",
                "The first answer counts. Where the question has choices, it has to be one of them.",
            )
            .found_by("reply approve approval decide decline human person confirm respond worker asked")
            .args(
                Args::none()
                    .need("question_id", uuid(), "The question")
                    .take("answer", text(limits::QUESTION), "What its agent gets")
                    .take("declined", any_text(limits::QUESTION), "Without an answer: why there is none")
                    .closed(),
            )
            .output(json!({ "question": object() })),
        Tool::new("list_questions", "List questions", Toolset::Skein, questions)
            .reads()
            .about(
                "Show the questions that wait for an answer of a person, the oldest first.",
                "With `answered` those that are over, the last first: they are kept for a week.",
            )
            .found_by("open pending unanswered asked human person answers approval input required who waits")
            .args(
                Args::none()
                    .take("answered", flag(), "Those that are over")
                    .take("mine", flag(), "Your own alone")
                    .take("limit", integer(1, MOST), "At most so many (20)")
                    .closed(),
            )
            .output(json!({ "questions": list(object(), 100), "warning": any_text(200) }))
            .lists("questions", &QUESTION)
            .paged(),
        Tool::new("withdraw_question", "Take a question back", Toolset::Skein, withdraw)
            .writes(Right::Work)
            .destructive()
            .about("Take back a question of yours that nobody has answered.", "")
            .found_by("cancel question undo asked human person no longer needed")
            .args(Args::none().need("question_id", uuid(), "The question").closed())
            .output(json!({ "question": object() })),
    ]
}

#[derive(Deserialize)]
struct Reply {
    question_id: Uuid,
    answer: Option<String>,
    declined: Option<String>,
}

async fn answer(call: Call, args: Reply) -> Outcome {
    let word = match (args.answer, args.declined) {
        (Some(answer), None) => Word::Answer(answer),
        (None, Some(reason)) => Word::Decline(Some(reason).filter(|reason| !reason.is_empty())),
        _ => {
            return Err(Refusal::new(
                Code::InvalidArgument,
                "give either an answer, or in `declined` why there is none",
            ));
        }
    };
    let question = call.service.answer_question(&call.who, call.request, args.question_id, word).await?;
    Ok(Answer::new("Its agent is told.", facts!({ "question": question })))
}

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    answered: bool,
    #[serde(default)]
    mine: bool,
    limit: Option<usize>,
    #[serde(default)]
    cursor: String,
}

async fn questions(call: Call, args: List) -> Outcome {
    let page = Page { limit: Some(args.limit.unwrap_or(USUAL)), cursor: args.cursor };
    let wanted = Wanted { open: !args.answered, mine: args.mine, page };
    let mut found = call.service.list_questions(&call.who, wanted).await?;
    let questions = std::mem::take(&mut found.rows);
    let text = match (questions.len(), args.answered) {
        (0, false) => "No question waits for an answer.".to_owned(),
        (0, true) => "There is none that is over.".to_owned(),
        (count, false) => {
            let waiting = counted(count, "question waits", "questions wait");
            format!("{waiting} for an answer; the lead answers with answer_question.")
        }
        (count, true) => format!("{}, the last first.", counted(count, "question", "questions")),
    };
    let mut facts = facts!({ "questions": questions });
    if let Some(warning) = found.warning() {
        facts["warning"] = json!(warning);
    }
    if let Some(next) = found.next {
        facts["cursor"] = json!(next);
    }
    Ok(Answer::new(text, facts))
}

#[derive(Deserialize)]
struct Own {
    question_id: Uuid,
}

async fn withdraw(call: Call, args: Own) -> Outcome {
    let question = call.service.withdraw_question(&call.who, call.request, args.question_id).await?;
    Ok(Answer::new("The question is taken back.", facts!({ "question": question })))
}
