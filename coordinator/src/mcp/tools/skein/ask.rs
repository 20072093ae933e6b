//! Asking a person.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::{Code, Refusal, limits, questions};
use uuid::Uuid;

use crate::auth::Right;
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::client::{Ability, Form, Questions};
use crate::mcp::elicitation::{self, ANSWER};
use crate::mcp::result::{Answer, Then};
use crate::mcp::schema::{Args, any_text, integer, list, one_of, text, uuid};
use crate::service::questions::Draft;

/// Longest time that a question is open, seconds.
const LONGEST: i64 = limits::QUESTION_EXPIRY.as_secs().cast_signed();

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("ask_human", "Ask a person", Toolset::Skein, ask)
            .writes(Right::Work)
            .additive()
            .open_world()
            .about(
                "Ask the person in front of your client, or else the lead and the operators.",
                "A client that can ask shows the question. With any other it is filed, and you get its id and a cursor: `wait` with for questions, that id and that cursor has the answer. The first answer counts. The task shows that it waits.",
            )
            .found_by("question input confirm approve approval decide elicitation user human person operator")
            .args(
                Args::none()
                    .need("question", text(limits::QUESTION), "What you want to know, and what you need it for")
                    .take(
                        "choices",
                        list(text(limits::QUESTION_CHOICE), limits::QUESTION_CHOICES),
                        "Answers to choose from; any text without them",
                    )
                    .take("task_id", uuid(), "Your task that waits for it; your only one without it")
                    .take("open_s", integer(1, LONGEST), "Take an answer so long (30 days)")
                    .closed(),
            )
            .output(json!({
                "outcome": one_of(&["answered", "declined", "cancelled", "withdrawn", "expired", "asked"]),
                "answer": any_text(limits::TEXT), "reason": any_text(limits::QUESTION),
                "answered_by": any_text(100), "question_id": uuid(), "cursor": any_text(40),
            })),
    ]
}

#[derive(Deserialize)]
struct Ask {
    question: String,
    #[serde(default)]
    choices: Vec<String>,
    task_id: Option<Uuid>,
    open_s: Option<u64>,
}

async fn ask(call: Call, args: Ask) -> Outcome {
    // What is filed outlives this call, and anybody may answer it: a client that can follow it loses nothing by that.
    if call.client.can(Ability::Tasks) || !call.client.can(Ability::Elicitation) {
        return file(call, args).await;
    }
    Ok(match call.client.form(ANSWER) {
        Some(Form::Accepted(form)) => {
            let said = form.get(ANSWER).and_then(Value::as_str).unwrap_or_default();
            match questions::fitting(&args.choices, said) {
                Ok(answer) => Answer::new(
                    format!("The answer: {answer}"),
                    json!({ "outcome": "answered", "answer": answer }),
                ),
                Err(problem) if call.client.state.is_null() => show(&args, Some(&problem)),
                Err(problem) => return Err(unanswered(problem)),
            }
        }
        Some(Form::Declined) => {
            Answer::new("The person will not answer this.", json!({ "outcome": "declined" }))
        }
        Some(Form::Cancelled) => Answer::new(
            "The person closed the question without an answer.",
            json!({ "outcome": "cancelled" }),
        ),
        None => {
            // Nobody is asked in the name of a task that the answer could not be for.
            call.service.require_own_task(&call.who, args.task_id).await?;
            show(&args, None)
        }
    })
}

/// Has the client show the question, the second time with what was wrong with the answer to the first.
fn show(args: &Ask, unfit: Option<&Refusal>) -> Answer {
    let choices: Vec<&str> = args.choices.iter().map(String::as_str).collect();
    let questions = match unfit {
        None => Questions::one(ANSWER, elicitation::form(&args.question, &choices)),
        Some(problem) => {
            let again = format!("{}\n\n{problem}", args.question);
            Questions::one(ANSWER, elicitation::form(&again, &choices)).keeping(json!("asked again"))
        }
    };
    Answer::new("", json!({})).then(Then::Asks(Box::new(questions)))
}

/// It is no fault of the arguments, so it has not the code of one.
fn unanswered(unfit: Refusal) -> Refusal {
    let problem = format!(
        "the person was asked twice and has given no answer that fits ({}); ask in other words, or without choices",
        unfit.message
    );
    Refusal::new(Code::WrongState, problem).with(unfit.detail)
}

/// Puts the question where the lead and operators answer it.
async fn file(call: Call, args: Ask) -> Outcome {
    let draft = Draft {
        question: args.question,
        choices: args.choices,
        task: args.task_id,
        open_for: args.open_s.map(Duration::from_secs),
    };
    let filed = call.service.ask_question(&call.who, call.request, draft).await?;
    // A repeat of the call may find what the first one asked answered.
    if let Some(outcome) = elicitation::outcome(&filed.question) {
        return Ok(outcome);
    }
    if call.client.can(Ability::Tasks) {
        return Ok(Answer::new("", json!({})).then(Then::Goes(Box::new(elicitation::job(&filed.question)))));
    }
    let id = &filed.question["id"];
    let whom =
        if filed.lead_told { "The lead and the operators are asked" } else { "The operators are asked" };
    let text = format!(
        "{whom}. Call wait with for [\"questions\"], ids [{id}] and cursor \"{}\": it has the answer. Work on meanwhile if you can.",
        filed.cursor
    );
    // As a text: the number is larger than what some clients keep exactly.
    let cursor = filed.cursor.to_string();
    Ok(Answer::new(text, json!({ "outcome": "asked", "question_id": id, "cursor": cursor })))
}
