//! Waiting for anything to change.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::{Code, Refusal};

use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::result::{Answer, counted};
use crate::mcp::schema::{Args, any_text, flag, integer, list, object, one_of, text};
use crate::service::changes::{Awaited, Topic};

const DEFAULT: Duration = Duration::from_secs(45);
/// Changes in one answer.
const SHOWN: usize = 50;
const CHANGE: [&str; 9] = ["topic", "id", "event", "at", "outcome", "agent", "answer", "reason", "by"];

pub(super) fn tools() -> Vec<Tool> {
    let topics: Vec<&str> = Topic::ALL.iter().map(|topic| topic.as_str()).collect();
    vec![
        Tool::new("wait", "Wait for changes", Toolset::Skein, wait)
            .core()
            .waiting()
            .reads()
            .about(
                "Wait until tasks, messages, calls, triggers, locks or questions change.",
                "It answers with what changed and a cursor. Give the cursor to the next call: nothing in between is lost. Without one it begins now.",
            )
            .found_by("watch block until change news notification poll subscribe events")
            .args(
                Args::none()
                    .take("for", list(one_of(&topics), topics.len()), "What to wait for; all without it")
                    .take("ids", list(text(2048), 100), "Only these tasks, calls, channels, locks or questions")
                    .take("cursor", any_text(40), "From the last answer")
                    .take("timeout_s", integer(0, 3600), "At most so long (45)")
                    .rare("limit", integer(1, SHOWN as i64), "At most so many changes (50)")
                    .closed(),
            )
            .output(json!({ "changed": list(object(), SHOWN), "cursor": any_text(40), "timed_out": flag() }))
            .lists("changed", &CHANGE),
    ]
}

#[derive(Deserialize)]
struct Wait {
    #[serde(rename = "for", default)]
    topics: Vec<String>,
    #[serde(default)]
    ids: Vec<String>,
    cursor: Option<String>,
    timeout_s: Option<u64>,
    limit: Option<usize>,
}

async fn wait(call: Call, args: Wait) -> Outcome {
    let cursor = match args.cursor.as_deref().map(str::parse::<u64>).transpose() {
        Ok(cursor) => cursor,
        Err(_) => {
            return Err(Refusal::new(
                Code::InvalidArgument,
                "cursor: this is none; give the one of the last answer, or leave it out to begin now",
            ));
        }
    };
    let topics = Topic::ALL.into_iter().filter(|topic| args.topics.iter().any(|name| name == topic.as_str()));
    let (topics, subjects) = (topics.collect(), args.ids.into_iter().collect());
    let awaited = Awaited { topics, subjects, cursor, limit: args.limit.unwrap_or(SHOWN) };
    call.progress.say("nothing has changed yet");
    let patience = call.progress.patience(args.timeout_s.map_or(DEFAULT, Duration::from_secs));
    let changes = call.service.wait(&call.who, awaited, patience).await?;
    let text = match changes.changed.len() {
        0 => "Nothing changed; call again with the cursor.".to_owned(),
        count => format!("{}; call again with the cursor for more.", counted(count, "change", "changes")),
    };
    let changed: Vec<Value> = changes.changed;
    // As a text: the number is larger than what some clients keep exactly.
    let cursor = changes.cursor.to_string();
    Ok(Answer::new(text, facts!({ "changed": changed, "cursor": cursor, "timed_out": changes.timed_out })))
}
