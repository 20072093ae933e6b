//! Waiting for a trigger.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::text::excerpt;
use skein_shared::triggers::{Envelope, Filter, FilterKind};
use skein_shared::{Code, Refusal, limits, span};

use super::{granted, refused};
use crate::auth::Right;
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::result::Answer;
use crate::mcp::schema::{Args, any_text, flag, object, one_of};
use crate::service::waits::{Waited, Wish};

/// Longest payload that the sentence shows whole, characters. The JSON has all of it, and is a text as well.
const SHOWN: usize = 16 * 1024;

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("wait_for_trigger", "Wait for a trigger", Toolset::Scheduler, wait)
            .core()
            .waiting()
            .writes(Right::Work)
            .additive()
            .about(
                "Sleep until a webhook or another agent's call arrives, and get its payload.",
                "Your container may be paused meanwhile; locks and tasks are kept. If it answers that you still wait, call it again with the same arguments. All that is set must match; match compares dotted paths in the event with values, an array meaning any of them.",
            )
            .found_by("webhook event pause suspend sleep await github notification")
            .args(
                Args::none()
                    .need("type", one_of(&["webhook", "agent_trigger"]), "What to wait for")
                    .take("source", any_text(200), "webhook: name or kind of the source, such as github")
                    .take("event", any_text(200), "webhook: name of the event, such as pull_request")
                    .take("match", object(), "Dotted path to the wanted value")
                    .take("source_agent", any_text(64), "agent_trigger: the agent that calls")
                    .take("timeout", any_text(60), "Such as 30m or 1h30m (30m)")
                    .rare("since", one_of(&["run_start"]), "run_start: an event counts too that came since your run began")
                    .rare("broadcast", flag(), "Do not use the event up: others that wait for it get it too"),
            )
            .output(json!({
                "ok": flag(), "payload": object(), "redelivered": flag(), "status": any_text(20),
                "wait_id": any_text(64), "deadline": any_text(64), "reason": any_text(4000), "code": any_text(64),
            })),
    ]
}

#[derive(Deserialize)]
struct Wait {
    #[serde(rename = "type")]
    kind: String,
    source: Option<String>,
    event: Option<String>,
    #[serde(rename = "match", default)]
    matches: BTreeMap<String, Value>,
    source_agent: Option<String>,
    timeout: Option<String>,
    since: Option<String>,
    #[serde(default)]
    broadcast: bool,
}

async fn wait(call: Call, args: Wait) -> Outcome {
    let timeout = match args.timeout.as_deref().map(|text| span::parse("timeout", text)).transpose() {
        Ok(timeout) => timeout,
        Err(refusal) => return refused("Wait failed:", refusal),
    };
    let webhook = args.kind == "webhook";
    let filter = Filter {
        kind: if webhook { FilterKind::Webhook } else { FilterKind::AgentTrigger },
        source: args.source.filter(|_| webhook),
        event: args.event.filter(|_| webhook),
        matches: args.matches,
        only: BTreeMap::new(),
        source_agent: args.source_agent.filter(|_| !webhook),
    };
    call.progress.say("waiting for a trigger");
    // The service waits no longer than for the end of the wait, which its outcome follows a moment later.
    let patience = call.progress.patience(limits::WAIT_MAX);
    let wish = Wish { filter, timeout, broadcast: args.broadcast, look_back: args.since.is_some() };
    let waited = call.service.wait_for_trigger(&call.who, call.request, wish, patience).await;
    match waited {
        Ok(Waited::Triggered { payload, again, unread }) => {
            unread.into_iter().for_each(|unread| call.delivery.carries(unread));
            Ok(triggered(&payload, again))
        }
        Ok(Waited::TimedOut) => refused(
            "Wait failed:",
            Refusal::new(Code::WaitTimeout, "timeout expired, and no such event came"),
        ),
        Ok(Waited::Pending { wait, deadline }) => Ok(Answer::new(
            format!(
                "Still waiting until {deadline}. Call wait_for_trigger again with the same arguments; no event is lost."
            ),
            json!({ "ok": true, "status": "waiting", "wait_id": wait, "deadline": deadline.iso() }),
        )),
        Err(refusal) => refused("Wait failed:", refusal),
    }
}

/// Its text is short whatever the payload is: a deep one set out in lines would be many times as long as it came.
fn triggered(payload: &Envelope, again: bool) -> Answer {
    let whole = serde_json::to_string(payload).unwrap_or_default();
    let mut text = format!("Trigger received. Payload:\n{}", excerpt(&whole, SHOWN));
    if whole.len() > SHOWN {
        text.push_str("\nThis is its beginning; `payload` in the JSON of this answer is the whole.");
    }
    granted(text, json!({ "payload": payload, "redelivered": again }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_shown_whole_while_it_is_short() {
        let answer = triggered(&Envelope::agent_trigger("lead", json!({ "a": ["b", 1] })), false);
        assert!(answer.text.contains(r#"{"a":["b",1]}"#) && !answer.text.contains("beginning"), "{answer:?}");
        assert_eq!(answer.json["payload"]["context"]["a"], json!(["b", 1]));
    }

    #[test]
    fn a_long_payload_shows_its_beginning_in_the_text_and_is_whole_in_the_json() {
        let numbers = json!(vec![0; 100_000]);
        let deep = (0..60).fold(numbers, |inner, _| json!([inner]));
        for payload in [deep, json!("\"\\".repeat(50_000)), json!("ä".repeat(50_000))] {
            let Answer { text, json, .. } =
                triggered(&Envelope::agent_trigger("lead", payload.clone()), true);
            assert!(text.len() < 3 * SHOWN && text.contains("the whole"), "{} bytes", text.len());
            assert!(json["payload"]["context"] == payload);
        }
    }
}
