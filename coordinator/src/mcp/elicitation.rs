//! Questions to people as clients see them: the form that one is asked with, and what came of it.

use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::limits::QUESTION_KEEP;
use skein_shared::questions::State;
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::catalogue::Toolset;
use super::client::{Form, Question};
use super::job::{self, Job};
use super::result::{Answer, Reply};
use crate::service::questions::Word;

/// The key of the one thing that is asked.
pub(super) const ANSWER: &str = "answer";

/// How the ids of their jobs begin.
pub(super) const JOB: &str = "question:";

/// What a person is shown.
pub(super) fn form(question: &str, choices: &[&str]) -> Question {
    let mut answer = json!({ "type": "string", "title": "Answer" });
    if !choices.is_empty() {
        answer["enum"] = json!(choices);
    }
    let schema = json!({ "type": "object", "properties": { ANSWER: answer }, "required": [ANSWER] });
    Question::form(question, schema)
}

/// What a person has said; nothing while the form was only closed.
pub(super) fn word(form: &Form) -> Option<Word> {
    match form {
        Form::Accepted(fields) => {
            Some(Word::Answer(fields.get(ANSWER).and_then(Value::as_str).unwrap_or_default().to_owned()))
        }
        Form::Declined => Some(Word::Decline(None)),
        Form::Cancelled => None,
    }
}

/// What came of a question that was filed; nothing while it is open.
pub(super) fn outcome(question: &Value) -> Option<Answer> {
    let text = |field: &str| question[field].as_str().unwrap_or_default();
    let (state, by) = (state(question), text("answeredBy"));
    let said = match state {
        State::Open => return None,
        State::Answered => format!("{by} answers: {}", text("answer")),
        State::Declined if text("reason").is_empty() => format!("{by} will not answer this."),
        State::Declined => format!("{by} will not answer this: {}", text("reason")),
        State::Expired => "Nobody has answered in time.".to_owned(),
        State::Withdrawn => "The question was taken back.".to_owned(),
    };
    let mut facts = json!({ "outcome": state, "question_id": question["id"] });
    for (fact, field) in [("answer", "answer"), ("reason", "reason"), ("answered_by", "answeredBy")] {
        if question[field].is_string() {
            facts[fact] = question[field].clone();
        }
    }
    Some(Answer::new(said, facts))
}

/// One whose state cannot be read waits on.
fn state(question: &Value) -> State {
    State::deserialize(&question["status"]).unwrap_or(State::Open)
}

/// The job that a filed question is to a client which can follow one: it stands still until anybody has answered.
pub(super) fn job(question: &Value) -> Job {
    let text = |field: &str| question[field].as_str().unwrap_or_default();
    let at = |field: &str| Timestamp::parse_iso(text(field)).unwrap_or_default();
    let became = state(question);
    let state = match outcome(question) {
        None => {
            let choices = question["choices"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let asked = form(text("question"), &choices.collect::<Vec<_>>());
            job::State::Asks([(ANSWER.to_owned(), asked)].into())
        }
        Some(_) if became == State::Withdrawn => job::State::Cancelled,
        Some(outcome) => job::State::Done(Box::new(Reply::shape(Toolset::Skein, Uuid::nil(), Ok(outcome)))),
    };
    let began = at("askedAt");
    let changed = began.max(at("settledAt"));
    let kept = (became != State::Open).then(|| (changed + QUESTION_KEEP).since(began));
    Job { id: format!("{JOB}{}", text("id")), state, began, changed, kept }
}
