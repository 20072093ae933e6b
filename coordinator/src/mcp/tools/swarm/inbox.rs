//! The lead's inbox: what people wrote through Slack or mail.

use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::{Code, Refusal, limits};
use uuid::Uuid;

use super::{done, short};
use crate::auth::{Principal, Right, Role};
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::result::counted;
use crate::mcp::schema::{Args, agent, any_text, at_least, flag, list, object, one_of, text, uuid};
use crate::service::Service;
use crate::service::inbox::{Delegation, Waiting};

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
                "Without an id the oldest that are open. Reading does not change their status.",
            )
            .found_by("slack mail email human request")
            .args(Args::none().take("inboxMessageId", uuid(), "The message"))
            .output(json!({
                "success": flag(),
                "message": any_text(300_000),
                "inboxMessage": object(),
                "inboxMessages": list(object(), 5),
                "openInboxMessages": at_least(0),
            })),
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
    inbox_message_id: Option<Uuid>,
}

async fn get(call: Call, args: Get) -> Outcome {
    let Some(id) = args.inbox_message_id else { return open(call).await };
    let message = call.service.inbox_message(&call.who, id).await?;
    let content = message["content"].as_str().unwrap_or_default().to_owned();
    let status = message["status"].as_str().unwrap_or_default();
    Ok(done(format!("This message is {status}:\n\n{content}"), facts!({ "inboxMessage": message })))
}

async fn open(call: Call) -> Outcome {
    let Waiting { messages, count } = call.service.open_messages(&call.who).await?;
    let mut said = are_open(count, messages.len(), call.who.role);
    for message in &messages {
        let field = |name: &str| message[name].as_str().unwrap_or_default();
        let (id, source, status) = (field("id"), field("source"), field("status"));
        said.push_str(&format!("\n\n{id} ({source}, {status}):\n{}", field("content")));
    }
    Ok(done(said, facts!({ "inboxMessages": messages, "openInboxMessages": count })))
}

/// How many messages are open, and how many of them are shown. Operators may look, and have no inbox; to a lead those
/// that others have left come a moment after it has begun to lead.
fn are_open(count: usize, shown: usize, role: Role) -> String {
    let (open, are) = (counted(count, "message", "messages"), are(count));
    match shown {
        0 if role == Role::Operator => {
            format!("{open} of the lead's inbox {are} open; the lead alone is shown what they say.")
        }
        _ if shown == count => format!("{open} of your inbox {are} open."),
        0 => {
            format!("{open} that others have left {are} open and on the way to you; look again in a moment.")
        }
        _ => format!("{open} of your inbox {are} open; these are the oldest {shown}."),
    }
}

fn are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

/// What the lead is told of its inbox beside what it has asked: if something waits there, how much, and how to see it.
pub(super) async fn waiting(service: &Service, who: &Principal, agent: &Value) -> (String, Option<usize>) {
    let open = match agent["isLead"] == true {
        true => service.count_open_messages(who).await.filter(|count| *count > 0),
        false => None,
    };
    let told = open.map(|count| {
        let messages = counted(count, "message", "messages");
        format!(" {messages} of your inbox {} open; get-inbox-message shows the oldest.", are(count))
    });
    (told.unwrap_or_default(), open)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_told_of_messages_that_are_not_shown() {
        for (count, shown, role, says) in [
            (0, 0, Role::Lead, "0 messages of your inbox are open."),
            (1, 1, Role::Lead, "1 message of your inbox is open."),
            (6, 5, Role::Lead, "6 messages of your inbox are open; these are the oldest 5."),
            (2, 0, Role::Lead, "2 messages that others have left are open and on the way to you; "),
            (2, 0, Role::Operator, "2 messages of the lead's inbox are open; the lead alone "),
        ] {
            let told = are_open(count, shown, role);
            assert!(told.starts_with(says), "{told}");
        }
    }
}
