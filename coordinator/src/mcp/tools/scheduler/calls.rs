//! Calls between agents.

use serde::Deserialize;
use serde_json::json;
use skein_shared::agent::{CallStatus, CallView};
use skein_shared::{Code, Refusal, limits};
use uuid::Uuid;

use super::{granted, refused};
use crate::auth::Right;
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::result::Answer;
use crate::mcp::schema::{Args, any_text, flag, one_of, text};

const SCHEDULER: Toolset = Toolset::Scheduler;

pub(super) fn tools() -> Vec<Tool> {
    let call_result = || {
        json!({
            "ok": flag(), "call_id": any_text(64), "reason": any_text(4000), "code": any_text(64),
            "status": one_of(&["pending", "running", "completed", "error"]),
            "return_value": any_text(limits::TEXT), "error_message": any_text(limits::TEXT),
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
            .about("Ask for the result of a call that you made.", "")
            .found_by("poll result answer return call status")
            .args(Args::none().need("call_id", text(64), "From call_agent"))
            .output(call_result()),
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
        Ok(view) => Ok(granted(
            format!("Call dispatched. call_id: {}", view.call_id),
            json!({ "call_id": view.call_id, "status": view.status }),
        )),
        Err(refusal) => refused("Call rejected:", refusal),
    }
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
        Ok(view) => Ok(checked(view)),
        Err(refusal) if refusal.code == Code::NotFound => refused("Call failed:", unknown()),
        Err(refusal) => refused("Call failed:", refusal),
    }
}

fn checked(view: CallView) -> Answer {
    let text = match (view.status, &view.return_value, &view.error_message) {
        (CallStatus::Pending, ..) => {
            "Call status: pending. It has not started yet; check again later.".to_owned()
        }
        (CallStatus::Running, ..) => "Call status: running. Check again later.".to_owned(),
        (CallStatus::Completed, Some(value), _) => format!("Call completed. Return value: {value}"),
        (CallStatus::Completed, None, _) => "Call completed.".to_owned(),
        (CallStatus::Error, _, message) => {
            format!("Call failed: {}", message.as_deref().unwrap_or("the agent's run failed"))
        }
    };
    granted(
        text,
        json!({
            "call_id": view.call_id, "status": view.status, "return_value": view.return_value,
            "error_message": view.error_message,
        }),
    )
}
