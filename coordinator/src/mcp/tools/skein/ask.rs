//! Asking a person.

use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::limits;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use crate::auth::Right;
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::client::{Ability, Form, Question, Questions};
use crate::mcp::result::{Answer, Then};
use crate::mcp::schema::{Args, any_text, list, one_of, text};
use crate::service::messages::Draft;

/// The key of the one question that is asked.
const QUESTION: &str = "answer";
/// Most answers to choose from.
const CHOICES: usize = 20;

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("ask_human", "Ask a person", Toolset::Skein, ask)
            .writes(Right::Work)
            .additive()
            .open_world()
            .about(
                "Ask the person in front of your client, or else the lead.",
                "A client that can ask shows the question and gives the answer. With any other the question becomes a message \
                 to the lead in the channel general: wait for messages, and read-messages has the answer.",
            )
            .found_by("question input confirm approve approval decide elicitation user human person operator")
            .args(
                Args::none()
                    .need("question", text(4000), "What you want to know, and what you need it for")
                    .take("choices", list(text(200), CHOICES), "Answers to choose from; any text without them")
                    .closed(),
            )
            .output(json!({
                "outcome": one_of(&["answered", "declined", "cancelled", "passed_on"]),
                "answer": any_text(limits::TEXT), "messageId": any_text(64),
            })),
    ]
}

#[derive(Deserialize)]
struct Ask {
    question: String,
    #[serde(default)]
    choices: Vec<String>,
}

async fn ask(call: Call, args: Ask) -> Outcome {
    if !call.client.can(Ability::Elicitation) {
        return pass_on(call, args).await;
    }
    Ok(match call.client.form(QUESTION) {
        Some(Form::Accepted(form)) => {
            let answer = form.get(QUESTION).and_then(Value::as_str).unwrap_or_default();
            Answer::new(format!("The answer: {answer}"), json!({ "outcome": "answered", "answer": answer }))
        }
        Some(Form::Declined) => {
            Answer::new("The person will not answer this.", json!({ "outcome": "declined" }))
        }
        Some(Form::Cancelled) => Answer::new(
            "The person closed the question without an answer.",
            json!({ "outcome": "cancelled" }),
        ),
        None => {
            let questions = Questions::one(QUESTION, Question::form(args.question, form(&args.choices)));
            Answer::new("", json!({})).then(Then::Asks(Box::new(questions)))
        }
    })
}

fn form(choices: &[String]) -> Value {
    let mut answer = json!({ "type": "string", "title": "Answer" });
    if !choices.is_empty() {
        answer["enum"] = json!(choices);
    }
    json!({ "type": "object", "properties": { QUESTION: answer }, "required": [QUESTION] })
}

/// Puts the question to the lead.
async fn pass_on(call: Call, args: Ask) -> Outcome {
    let members = call.service.list_members(&call.who).await?.rows;
    let lead = members.iter().find(|member| member["isLead"] == true);
    let lead = lead.and_then(|lead| Uuid::try_parse(lead["id"].as_str()?).ok());
    let Some(lead) = lead.filter(|lead| *lead != call.who.agent) else {
        return Err(Refusal::new(
            Code::Unavailable,
            "nobody can be asked: your client shows no questions, and there is no other agent that leads; slack-post reaches \
             people where a workspace is connected",
        ));
    };
    let mut content = args.question;
    if !args.choices.is_empty() {
        content.push_str(&format!("\n\nChoices: {}", args.choices.join(" | ")));
    }
    let draft = Draft { content, mentions: vec![lead], ..Draft::default() };
    let posted = call.service.post_message(&call.who, call.request, draft).await?;
    Ok(Answer::new(
        "Your client shows no questions, so the lead was asked; wait for messages, and read-messages has the answer.",
        json!({ "outcome": "passed_on", "messageId": posted.message["id"] }),
    ))
}
