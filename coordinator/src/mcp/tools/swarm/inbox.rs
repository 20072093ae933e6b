//! The lead's inbox: what people wrote through Slack or mail.

use serde::Deserialize;
use serde_json::json;
use skein_shared::{Code, Refusal, limits};
use uuid::Uuid;

use super::{done, short};
use crate::auth::Right;
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::result::counted;
use crate::mcp::schema::{Args, agent, any_text, flag, list, object, one_of, text, uuid};
use crate::service::inbox::Delegation;

const SWARM: Toolset = Toolset::Swarm;

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("register-agentmail-inbox", "Register an AgentMail inbox", SWARM, register)
            .writes(Right::Work)
            .idempotent()
            .about(
                "Let the mail of an AgentMail inbox come to you, give one up, or list yours.",
                "A worker gets each letter as a task, the lead as a message of its inbox. Another agent's inbox only the lead takes over.",
            )
            .found_by("email mail e-mail address receive letters unregister list")
            .args(
                Args::none()
                    .need("action", one_of(&["register", "unregister", "list"]), "What to do")
                    .take("inboxId", any_text(500), "The inbox's id at AgentMail; not for list")
                    .take("inboxEmail", any_text(500), "Its address, for the reader"),
            )
            .output(json!({ "success": flag(), "message": any_text(4000), "mappings": list(object(), 1000) })),
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

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Register,
    Unregister,
    List,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Register {
    action: Action,
    inbox_id: Option<String>,
    inbox_email: Option<String>,
}

async fn register(call: Call, args: Register) -> Outcome {
    let inbox = || {
        args.inbox_id.clone().ok_or_else(|| {
            Refusal::new(
                Code::InvalidArgument,
                "inboxId: say which inbox; action list shows those that are yours",
            )
        })
    };
    let (said, mappings) = match args.action {
        Action::Register => {
            let inbox = inbox()?;
            let email = args.inbox_email;
            let own = call.service.register_inbox(&call.who, call.request, inbox.clone(), email).await?;
            (format!("The mail of {inbox} comes to you."), own)
        }
        Action::Unregister => {
            let inbox = inbox()?;
            let own = call.service.unregister_inbox(&call.who, call.request, inbox.clone()).await?;
            (format!("The mail of {inbox} comes to you no more."), own)
        }
        Action::List => {
            let own = call.service.inboxes(&call.who).await?;
            (format!("You have {}.", counted(own.len(), "inbox", "inboxes")), own)
        }
    };
    Ok(done(said, json!({ "mappings": mappings })))
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
    Ok(done(format!("This message is {status}:\n\n{content}"), facts!({ "inboxMessage": message })))
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
        facts!({ "task": changed.task }),
    ))
}
