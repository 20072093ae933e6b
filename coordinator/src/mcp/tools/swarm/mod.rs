//! The tools of Agent Swarm, under their names, schemas and manners: a refusal is a normal result with
//! `success: false`.

mod config;
mod epics;
mod inbox;
pub mod log;
mod memory;
mod messages;
mod profile;
mod profile_versions;
mod reports;
mod schedules;
mod services;
mod session;
mod slack;
mod slack_files;
mod tasks;

use serde_json::{Value, json};
use skein_shared::Refusal;

use crate::mcp::catalogue::Tool;
use crate::mcp::result::Answer;
use crate::service::lists::List;

pub fn tools() -> Vec<Tool> {
    [
        session::tools(),
        tasks::tools(),
        reports::tools(),
        messages::tools(),
        profile::tools(),
        profile_versions::tools(),
        slack::tools(),
        slack_files::tools(),
        memory::tools(),
        epics::tools(),
        schedules::tools(),
        services::tools(),
        config::tools(),
        inbox::tools(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A success with its sentence, and the facts beside `success` and `message`.
fn done(message: impl Into<String>, facts: Value) -> Answer {
    let message = message.into();
    let mut json = json!({ "success": true, "message": message });
    if let (Value::Object(all), Value::Object(facts)) = (&mut json, facts) {
        all.extend(facts.into_iter().filter(|(_, value)| !value.is_null()));
    }
    Answer::new(message, json)
}

/// A refusal whose facts stand beside its sentence, where Agent Swarm has them there.
fn refused(refusal: Refusal) -> Answer {
    let Refusal { code, message, detail, .. } = refusal;
    let mut answer = done(message, detail);
    answer.json.extend([("success".to_owned(), json!(false)), ("code".to_owned(), json!(code))]);
    answer.code = Some(code);
    answer
}

/// What a list that has an end shows, and how to see the rest.
fn listed(shown: &str, left_out: usize) -> String {
    match left_out {
        0 => format!("{shown}."),
        more => format!("{shown}. {more} more are left out; ask for those with `name` in their names."),
    }
}

/// Adds to an answer that a list may lack something.
fn warned<T>(answer: Answer, list: &List<T>) -> Answer {
    with_warning(answer, list.warning())
}

/// Adds a warning to an answer, behind one that it may have.
fn with_warning(mut answer: Answer, warning: Option<&str>) -> Answer {
    let Some(warning) = warning else { return answer };
    answer.text = format!("{} ({warning})", answer.text);
    let before = answer.json.get("warning").and_then(Value::as_str);
    let all = before.map_or_else(|| warning.to_owned(), |before| format!("{before}; {warning}"));
    answer.json.insert("warning".to_owned(), json!(all));
    answer
}

/// Adds to a part of a list where the next one begins.
fn continued<T>(mut answer: Answer, list: &List<T>) -> Answer {
    if let Some(next) = &list.next {
        answer.json.insert("cursor".to_owned(), json!(next));
    }
    answer
}

/// The short form of an id, as texts show it: its end, for ids begin with their time.
fn short(value: &Value) -> String {
    let id = value["id"].as_str().unwrap_or_default();
    id.get(id.len().saturating_sub(8)..).unwrap_or(id).to_owned()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_was_made_at_once_differs_in_the_short_form_of_its_id() {
        let [one, other] = [(); 2].map(|()| short(&json!({ "id": Uuid::now_v7() })));
        assert_eq!((one.len(), other.len()), (8, 8));
        assert_ne!(one, other);
        assert_eq!(short(&Value::Null), "");
    }
}
