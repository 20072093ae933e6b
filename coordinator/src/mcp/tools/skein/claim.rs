//! Claiming a task of the pool without looking for one first.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use skein_shared::limits;

use crate::auth::Right;
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::result::Answer;
use crate::mcp::schema::{Args, at_least, flag, integer, list, object, text};

/// Longest wait of one call, seconds; call again to wait on.
const LONGEST: i64 = 3600;

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("task_claim_next", "Claim the next task", Toolset::Skein, claim)
            .waiting()
            .writes(Right::Work)
            .additive()
            .about(
                "Take the most urgent task of the pool that has any of your tags.",
                "Of equals the oldest. The task is in progress and yours; end it with store-progress. Without tags it may be any task of the pool. Tasks that wait for others are not given. With wait_seconds it waits for one.",
            )
            .found_by("take grab get job work pool priority urgent tag tags skill queue pull dequeue wait")
            .args(
                Args::none()
                    .take("tags", list(text(limits::TAG), limits::TAGS), "Any of these; any task without them")
                    .take("wait_seconds", integer(0, LONGEST), "Wait at most so long for a task (0)")
                    .closed(),
            )
            .output(json!({
                "task": object(), "redelivered": flag(), "waited_seconds": at_least(0),
            })),
    ]
}

#[derive(Deserialize)]
struct ClaimNext {
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    wait_seconds: u64,
}

async fn claim(call: Call, args: ClaimNext) -> Outcome {
    call.progress.say("waiting for a task");
    let patience = call.progress.patience(Duration::from_secs(args.wait_seconds));
    let claimed = call.service.claim_next(&call.who, call.request, args.tags, patience).await?;
    let mut facts = json!({ "waited_seconds": claimed.waited.as_secs() });
    let Some((task, redelivered)) = claimed.task else {
        return Ok(Answer::new("No task of the pool fits; wait_seconds waits for one.", facts));
    };
    let again =
        if redelivered { " It was handed to you before, and you have not reported on it." } else { "" };
    facts["task"] = task;
    facts["redelivered"] = json!(redelivered);
    Ok(Answer::new(format!("The task is yours and in progress; end it with store-progress.{again}"), facts))
}
