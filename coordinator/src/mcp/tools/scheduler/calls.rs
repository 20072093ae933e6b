//! Calls between agents.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use skein_shared::agent::{CallStatus, CallView};
use skein_shared::{Code, Refusal, limits};
use uuid::Uuid;

use super::{granted, refused};
use crate::auth::Right;
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::client::Ability;
use crate::mcp::product::job_of;
use crate::mcp::result::{Answer, Then};
use crate::mcp::schema::{Args, any_text, flag, integer, list, object, one_of, text};
use crate::service::Service;
use crate::service::values::{PART, PART_MAX, Part};

const SCHEDULER: Toolset = Toolset::Scheduler;
const CALL: [&str; 6] = ["call_id", "status", "return_value", "value_id", "value_bytes", "error_message"];
/// How long a wait for calls that names no time goes on.
const PATIENCE: Duration = Duration::from_secs(45);

pub(super) fn tools() -> Vec<Tool> {
    let call_result = || {
        json!({
            "ok": flag(), "call_id": any_text(64), "reason": any_text(4000), "code": any_text(64),
            "status": one_of(&["pending", "running", "completed", "error"]),
            "return_value": any_text(limits::TEXT), "error_message": any_text(limits::TEXT),
            "value_id": any_text(64), "value_bytes": integer(0, limits::RESULT as i64),
        })
    };
    vec![
        Tool::new("call_agent", "Call an agent", SCHEDULER, call_agent)
            .core()
            .writes(Right::Work)
            .additive()
            .about(
                "Have another agent do something and give you its result.",
                "It gives a call_id at once; check_call asks for the result. An agent cannot call itself or any of its callers.",
            )
            .found_by("invoke run start sub agent delegate rpc trigger")
            .known_as(&["al-subagent"])
            .args(
                Args::none()
                    .need("target_agent", text(64), "Name of the agent")
                    .need("context", any_text(limits::TEXT), "What it needs to know"),
            )
            .output(call_result()),
        Tool::new("check_call", "Check a call", SCHEDULER, check_call)
            .core()
            .right(Right::Work)
            .reads()
            .about(
                "Ask for the result of a call that you made.",
                "Of a value longer than 256 KiB it gives the beginning, and how many bytes there are.",
            )
            .found_by("poll result answer return call status")
            .known_as(&["al-subagent-check"])
            .args(Args::none().need("call_id", text(64), "From call_agent"))
            .output(call_result()),
        Tool::new("wait_for_calls", "Wait for calls", SCHEDULER, wait_for_calls)
            .right(Right::Work)
            .waiting()
            .reads()
            .about(
                "Wait until one of several calls that you made is over, or all of them.",
                "It answers with how each stands. Leave out what is over when you call it again for the rest.",
            )
            .found_by("fan out join gather any all results poll calls")
            .known_as(&["al-subagent-wait"])
            .args(
                Args::none()
                    .need("call_ids", list(text(64), 50), "From call_agent")
                    .take("all", flag(), "Wait for all of them, not for the first")
                    .take("timeout_s", integer(0, 3600), "At most so long (45)")
                    .closed(),
            )
            .output(json!({
                "ok": flag(), "calls": list(object(), 50), "timed_out": flag(), "reason": any_text(4000),
                "code": any_text(64),
            }))
            .lists("calls", &CALL),
        Tool::new("read_call_value", "Read a call's value", SCHEDULER, read_call_value)
            .right(Right::Work)
            .reads()
            .about(
                "Read a part of the value that a call of yours gave back.",
                "A cursor is a byte of the value, 0 without one. It answers with the cursor of the next part, and none at the \
                 end. The value is kept for ten minutes after the call has ended.",
            )
            .found_by("large long result value blob range page offset fetch return")
            .args(
                Args::none()
                    .need("call_id", text(64), "From call_agent")
                    .take("cursor", any_text(40), "From the last answer")
                    .take("limit", integer(16, PART_MAX as i64), "At most so many bytes (32768)")
                    .closed(),
            )
            .output(json!({
                "ok": flag(), "text": any_text(PART_MAX), "cursor": any_text(40),
                "value_bytes": integer(0, limits::RESULT as i64), "reason": any_text(4000), "code": any_text(64),
            })),
        Tool::new("cancel_call", "Cancel a call", SCHEDULER, cancel_call)
            .writes(Right::Work)
            .destructive()
            .about("Give up a call that you made.", "A run that was started for it alone is stopped.")
            .found_by("abort stop kill invoke agent")
            .args(Args::none().need("call_id", text(64), "From call_agent"))
            .output(call_result()),
    ]
}

#[derive(Deserialize)]
struct CallAgent {
    target_agent: String,
    context: String,
}

async fn call_agent(call: Call, args: CallAgent) -> Outcome {
    let CallAgent { target_agent, context } = args;
    match call.service.call_agent(&call.who, call.request, &target_agent, context).await {
        Ok(view) if view.status == CallStatus::Error => Ok(rejected(&view)),
        Ok(view) => {
            let answer = granted(
                format!("Call dispatched. call_id: {}", view.call_id),
                json!({ "call_id": view.call_id, "status": view.status }),
            );
            Ok(match call.client.can(Ability::Tasks) {
                true => answer.then(followed(&call.service, view.call_id)),
                false => answer,
            })
        }
        Err(refusal) => refused("Call rejected:", refusal),
    }
}

/// A client that can follow a call gets its result without asking check_call.
fn followed(service: &Service, call: Uuid) -> Then {
    Then::Goes(Box::new(job_of(call, service.clock().wall())))
}

/// A rejected call leaves a record that says why.
fn rejected(view: &CallView) -> Answer {
    let reason = view.error_message.as_deref().unwrap_or("it could not be dispatched");
    Answer::new(
        format!("Call rejected: {reason}"),
        json!({ "ok": false, "call_id": view.call_id, "status": view.status, "reason": reason }),
    )
}

#[derive(Deserialize)]
struct CheckCall {
    call_id: String,
}

fn unknown() -> Refusal {
    Refusal::new(Code::NotFound, "not found or not owned by you; use the call_id that call_agent gave you")
}

async fn cancel_call(call: Call, args: CheckCall) -> Outcome {
    let Ok(id) = Uuid::try_parse(&args.call_id) else { return refused("Call not cancelled:", unknown()) };
    match call.service.cancel_call(&call.who, call.request, id).await {
        Ok(view) => Ok(granted("Call cancelled.", json!({ "call_id": view.call_id, "status": view.status }))),
        Err(refusal) => refused("Call not cancelled:", refusal),
    }
}

async fn check_call(call: Call, args: CheckCall) -> Outcome {
    let Ok(id) = Uuid::try_parse(&args.call_id) else { return refused("Call failed:", unknown()) };
    match call.service.check_call(&call.who, id).await {
        Ok(view) => Ok(checked(&view)),
        Err(refusal) if refusal.code == Code::NotFound => refused("Call failed:", unknown()),
        Err(refusal) => refused("Call failed:", refusal),
    }
}

#[derive(Deserialize)]
struct ReadCallValue {
    call_id: String,
    cursor: Option<String>,
    limit: Option<usize>,
}

async fn read_call_value(call: Call, args: ReadCallValue) -> Outcome {
    const LEAD: &str = "Value not read:";
    let Ok(id) = Uuid::try_parse(&args.call_id) else { return refused(LEAD, unknown()) };
    let cursor = args.cursor.filter(|cursor| !cursor.is_empty());
    let Ok(offset) = cursor.as_deref().map_or(Ok(0), str::parse::<u64>) else {
        let problem = "cursor: this is none; give the one of the last answer, or leave it out to begin";
        return refused(LEAD, Refusal::new(Code::InvalidArgument, problem));
    };
    let limit = args.limit.unwrap_or(PART);
    match call.service.read_value(&call.who, id, offset, limit).await {
        Ok(Part { text, next, bytes }) => {
            let more = match next {
                Some(next) => format!("\n[bytes {offset} to {next} of {bytes}; go on with cursor {next}]"),
                None => String::new(),
            };
            let cursor = next.map(|next| next.to_string());
            let facts = json!({ "text": text, "cursor": cursor, "value_bytes": bytes });
            Ok(granted(text + &more, facts))
        }
        Err(refusal) => refused(LEAD, refusal),
    }
}

#[derive(Deserialize)]
struct WaitForCalls {
    call_ids: Vec<String>,
    #[serde(default)]
    all: bool,
    timeout_s: Option<u64>,
}

async fn wait_for_calls(call: Call, args: WaitForCalls) -> Outcome {
    let ids: Result<Vec<Uuid>, _> = args.call_ids.iter().map(|id| Uuid::try_parse(id)).collect();
    let Ok(ids) = ids else { return refused("Call failed:", unknown()) };
    if ids.is_empty() {
        let problem = "call_ids: name the calls to wait for, as call_agent gave them";
        return refused("Call failed:", Refusal::new(Code::InvalidArgument, problem));
    }
    call.progress.say("none of the calls is over yet");
    let patience = call.progress.patience(args.timeout_s.map_or(PATIENCE, Duration::from_secs));
    match call.service.wait_for_calls(&call.who, &ids, args.all, patience).await {
        Ok(views) => {
            let over = views.iter().filter(|view| view.status.is_over()).count();
            let timed_out = if args.all { over < views.len() } else { over == 0 };
            let text = format!("{over} of {} calls are over.", views.len());
            let calls: Vec<_> = views.iter().map(facts).collect();
            Ok(granted(text, json!({ "calls": calls, "timed_out": timed_out })))
        }
        Err(refusal) if refusal.code == Code::NotFound => refused("Call failed:", unknown()),
        Err(refusal) => refused("Call failed:", refusal),
    }
}

/// A call without what it does not have.
fn facts(view: &CallView) -> serde_json::Value {
    let mut facts = json!({ "call_id": view.call_id, "status": view.status });
    if let Some(value) = &view.return_value {
        facts["return_value"] = json!(value);
    }
    if let Some(blob) = view.blob {
        (facts["value_id"], facts["value_bytes"]) = (json!(blob.id), json!(blob.bytes));
    }
    if let Some(message) = &view.error_message {
        facts["error_message"] = json!(message);
    }
    facts
}

fn checked(view: &CallView) -> Answer {
    let text = match (view.status, &view.return_value, &view.error_message) {
        (CallStatus::Pending, ..) => {
            "Call status: pending. It has not started yet; check again later.".to_owned()
        }
        (CallStatus::Running, ..) => "Call status: running. Check again later.".to_owned(),
        (CallStatus::Completed, Some(value), _) => {
            let more = view.blob.map(|blob| {
                format!("\n[this is how its {} bytes begin; read_call_value gives all of it]", blob.bytes)
            });
            format!("Call completed. Return value: {value}{}", more.unwrap_or_default())
        }
        (CallStatus::Completed, None, _) => "Call completed.".to_owned(),
        (CallStatus::Error, _, message) => {
            format!("Call failed: {}", message.as_deref().unwrap_or("the agent's run failed"))
        }
    };
    granted(text, facts(view))
}
