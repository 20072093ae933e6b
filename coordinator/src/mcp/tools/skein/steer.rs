//! Talking to whoever works on a task.

use serde::Deserialize;
use serde_json::json;
use skein_shared::limits;
use uuid::Uuid;

use crate::auth::Right;
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::result::Answer;
use crate::mcp::schema::{Args, any_text, text, uuid};

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("task_steer", "Steer a task", Toolset::Skein, steer)
            .writes(Right::Work)
            .additive()
            .about(
                "Say something to the agent that works on a task, while it works.",
                "It comes with the result of the next tool that this agent calls, once. The lead and the task's creator may. get-task-details shows when it was taken; `wait` for tasks tells of it.",
            )
            .found_by("steer redirect correct tell message running task agent interrupt talk mid-run course change")
            .args(
                Args::none()
                    .need("task_id", uuid(), "The task")
                    .need("message", text(limits::MESSAGE), "What its agent has to know")
                    .closed(),
            )
            .output(json!({ "message_id": uuid(), "status": any_text(20) })),
    ]
}

#[derive(Deserialize)]
struct Steer {
    task_id: Uuid,
    message: String,
}

async fn steer(call: Call, args: Steer) -> Outcome {
    let (message, task) =
        call.service.steer_task(&call.who, call.request, args.task_id, args.message).await?;
    let text = match task["status"].as_str() {
        Some("in_progress") => "Its agent gets this with the result of its next tool call.",
        _ => "Its agent gets this when it begins the task.",
    };
    Ok(Answer::new(text, json!({ "message_id": message, "status": task["status"] })))
}
