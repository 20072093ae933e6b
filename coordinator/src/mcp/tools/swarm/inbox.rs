//! The lead's inbox: what people wrote through Slack or mail.

use serde::Deserialize;
use serde_json::json;
use skein_shared::limits;
use uuid::Uuid;

use super::{done, short};
use crate::auth::Right;
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::schema::{Args, agent, any_text, flag, object, text, uuid};
use crate::service::inbox::Delegation;

const SWARM: Toolset = Toolset::Swarm;

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("get-inbox-message", "Get an inbox message", SWARM, get)
            .right(Right::Lead)
            .reads()
            .about(
                "Read a message of your inbox; only the lead has one.",
                "Reading does not change its status.",
            )
            .found_by("slack mail email human request")
            .args(Args::none().need("inboxMessageId", uuid(), "The message"))
            .output(json!({ "success": flag(), "message": any_text(300_000), "inboxMessage": object() })),
        Tool::new("inbox-delegate", "Delegate an inbox message", SWARM, delegate)
            .writes(Right::Lead)
            .additive()
            .about(
                "Make a task of an inbox message and give it to a worker; only the lead does.",
                "The task carries the Slack thread, so the worker can answer there.",
            )
            .found_by("slack mail email assign human request hand over")
            .args(
                Args::none()
                    .need("inboxMessageId", uuid(), "The message")
                    .need("agentId", agent(), "Who shall do it")
                    .of_agents()
                    .take(
                        "taskDescription",
                        text(limits::TEXT),
                        "What is to be done; else the message itself",
                    )
                    .take("offerMode", flag(), "Let the agent accept or reject it")
                    .take("parentTaskId", uuid(), "The task that it continues")
                    .take("allowDuplicate", flag(), "Although a like task is open"),
            )
            .output(json!({ "success": flag(), "message": any_text(4000), "task": object() })),
    ]
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Get {
    inbox_message_id: Uuid,
}

async fn get(call: Call, args: Get) -> Outcome {
    let message = call.service.inbox_message(&call.who, args.inbox_message_id).await?;
    let content = message["content"].as_str().unwrap_or_default().to_owned();
    let status = message["status"].as_str().unwrap_or_default();
    Ok(done(format!("This message is {status}:\n\n{content}"), json!({ "inboxMessage": message })))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Delegate {
    inbox_message_id: Uuid,
    agent_id: Uuid,
    task_description: Option<String>,
    #[serde(default)]
    offer_mode: bool,
    parent_task_id: Option<Uuid>,
    #[serde(default)]
    allow_duplicate: bool,
}

async fn delegate(call: Call, args: Delegate) -> Outcome {
    let delegation = Delegation {
        message: args.inbox_message_id,
        agent: args.agent_id,
        description: args.task_description,
        offer: args.offer_mode,
        parent: args.parent_task_id,
        allow_duplicate: args.allow_duplicate,
    };
    let changed = call.service.delegate(&call.who, call.request, delegation).await?;
    Ok(done(
        format!("Task {} is made of the message.", short(&changed.task)),
        json!({ "task": changed.task }),
    ))
}
