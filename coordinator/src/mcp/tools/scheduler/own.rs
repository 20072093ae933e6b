//! What an instance says of its own run.

use serde::Deserialize;
use serde_json::json;
use skein_shared::limits;

use super::{granted, refused};
use crate::auth::Right;
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::schema::{Args, any_text, flag, integer};

const SCHEDULER: Toolset = Toolset::Scheduler;

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("return_value", "Return a value", SCHEDULER, return_value)
            .core()
            .writes(Right::Work)
            .idempotent()
            .about(
                "Set the result that your caller gets when you end.",
                "The last value wins. It is delivered when the run ends successfully. At most 16 MiB are taken, in a request of \
                 20 MiB as JSON.",
            )
            .found_by("answer result reply caller output")
            .known_as(&["al-return"])
            .args(Args::none().need("value", any_text(limits::RESULT), "The result"))
            .output(json!({ "ok": flag(), "reason": any_text(4000), "code": any_text(64) })),
        Tool::new("set_status", "Set your status", SCHEDULER, set_status)
            .writes(Right::Work)
            .idempotent()
            .about("Set the line that people see beside your run.", "At most 500 characters are kept.")
            .found_by("progress show display activity text")
            .known_as(&["al-status"])
            .args(Args::none().need("text", any_text(limits::TEXT), "What you are doing"))
            .output(json!({ "ok": flag() })),
        Tool::new("request_rerun", "Ask to be run again", SCHEDULER, request_rerun)
            .writes(Right::Work)
            .idempotent()
            .about(
                "Have this run followed by another with the same input once it is done.",
                "For runs by schedule or by hand, so many times at most. Exit status 42 does the same.",
            )
            .found_by("repeat again loop continue backlog restart more work")
            .known_as(&["al-rerun"])
            .args(Args::none())
            .output(json!({
                "ok": flag(), "rerun": integer(1, 1000), "most": integer(0, 1000), "reason": any_text(4000),
                "code": any_text(64),
            })),
        Tool::new("exit_run", "End your run", SCHEDULER, exit_run)
            .writes(Right::Work)
            .destructive()
            .about(
                "End your run at once with an exit status.",
                "0 is a success, after which your caller gets the value that you returned; 42 also asks for a rerun; anything else is a failure. Your processes are ended whatever they are at, and hooks after the run are left out.",
            )
            .found_by("quit stop abort fail failure finish status code terminate")
            .known_as(&["al-exit"])
            .args(Args::none().need("status", integer(0, 255), "The exit status"))
            .output(json!({ "ok": flag(), "status": integer(0, 255) })),
    ]
}

#[derive(Deserialize)]
struct Value {
    value: String,
}

async fn return_value(call: Call, args: Value) -> Outcome {
    match call.service.return_value(&call.who, call.request, args.value).await {
        Ok(()) => Ok(granted("Return value set. Your caller gets it when you end.", json!({}))),
        Err(refusal) => refused("Return value not set:", refusal),
    }
}

#[derive(Deserialize)]
struct Status {
    text: String,
}

async fn set_status(call: Call, args: Status) -> Outcome {
    let text: String = args.text.chars().take(limits::STATUS).collect();
    match call.service.set_status(&call.who, call.request, text.clone()).await {
        Ok(()) => Ok(granted(format!("Status updated: {text}"), json!({}))),
        Err(refusal) => refused("Status not updated:", refusal),
    }
}

#[derive(Deserialize)]
struct Nothing {}

async fn request_rerun(call: Call, _: Nothing) -> Outcome {
    match call.service.request_rerun(&call.who, call.request).await {
        Ok((number, most)) => Ok(granted(
            format!("Rerun requested. It starts when this run is done: rerun {number} of at most {most}."),
            json!({ "rerun": number, "most": most }),
        )),
        Err(refusal) => refused("Rerun not requested:", refusal),
    }
}

#[derive(Deserialize)]
struct ExitRun {
    status: u8,
}

async fn exit_run(call: Call, args: ExitRun) -> Outcome {
    let status = args.status;
    match call.service.finish(&call.who, call.request, status).await {
        Ok(()) => Ok(granted(format!("Your run ends with status {status}."), json!({ "status": status }))),
        Err(refusal) => refused("Run not ended:", refusal),
    }
}
