//! Slack: replies to people and reads what they wrote.
//!
//! Addressing and permission are checked first, as in the original, so that a caller learns of its own
//! mistakes before it learns that no workspace is connected.

use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::{Code, Refusal, limits};
use uuid::Uuid;

use crate::auth::{Right, policy};
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::schema::{Args, any_text, flag, integer, list, object, one_of, text, uuid};

const SWARM: Toolset = Toolset::Swarm;

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("slack-reply", "Reply in Slack", SWARM, reply)
            .core()
            .writes(Right::Work)
            .open_world()
            .about(
                "Answer a person in the Slack thread of a task or inbox message.",
                "One of inboxMessageId and taskId is needed; the task must be yours.",
            )
            .found_by("answer human person user thread post")
            .args(
                Args::none()
                    .need("message", text(limits::MESSAGE), "What you say, in Markdown")
                    .take("inboxMessageId", uuid(), "The inbox message that you answer")
                    .take("taskId", uuid(), "Or the task whose thread it is"),
            )
            .output(json!({ "success": flag(), "message": any_text(4000) })),
        Tool::new("slack-read", "Read from Slack", SWARM, read)
            .core()
            .reads()
            .open_world()
            .about(
                "Read the Slack thread of a task or inbox message.",
                "The lead may read a channel by channelId.",
            )
            .found_by("thread history conversation human person user files")
            .args(
                Args::none()
                    .take("inboxMessageId", uuid(), "The inbox message")
                    .take("taskId", uuid(), "Or the task")
                    .take("channelId", any_text(100), "Or a channel, for the lead")
                    .rare("threadTs", any_text(100), "The thread in the channel")
                    .take("limit", integer(1, 100), "At most so many (20)")
                    .rare("includeFiles", flag(), "With attached files (true)"),
            )
            .output(json!({ "success": flag(), "message": any_text(4000), "messages": list(object(), 100) })),
        Tool::new("slack-post", "Post in Slack", SWARM, post)
            .writes(Right::Lead)
            .open_world()
            .about("Post a new message in a Slack channel; only the lead does.", "")
            .found_by("announce tell humans people channel write")
            .args(Args::none().need("channelId", text(100), "The Slack channel").need(
                "message",
                text(limits::MESSAGE),
                "What you say, in Markdown",
            ))
            .output(json!({ "success": flag(), "message": any_text(4000), "messageTs": any_text(100) })),
        Tool::new("slack-list-channels", "List Slack channels", SWARM, list_channels)
            .reads()
            .open_world()
            .about("List the Slack channels that the bot is a member of.", "")
            .found_by("show rooms humans people")
            .args(
                Args::none()
                    .take("types", list(one_of(&["public", "private", "dm", "mpim"]), 4), "Kinds of channels")
                    .take("limit", integer(1, 200), "At most so many (100)"),
            )
            .output(json!({ "success": flag(), "message": any_text(4000), "channels": list(object(), 200) })),
    ]
}

#[derive(Deserialize)]
struct Ignored {}

async fn post(call: Call, _: Ignored) -> Outcome {
    call.service.require_lead(&call.who).await?;
    Err(not_configured())
}

async fn list_channels(call: Call, _: Ignored) -> Outcome {
    policy::require(&call.who, Right::Read)?;
    Err(not_configured())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Address {
    inbox_message_id: Option<Uuid>,
    task_id: Option<Uuid>,
    channel_id: Option<String>,
}

async fn reply(call: Call, address: Address) -> Outcome {
    let thread = thread(&call, &Address { channel_id: None, ..address }).await?;
    if !thread["slackThreadTs"].is_string() {
        return Err(no_context());
    }
    Err(not_configured())
}

async fn read(call: Call, address: Address) -> Outcome {
    thread(&call, &address).await?;
    Err(not_configured())
}

/// The task or message whose Slack fields say where to write.
async fn thread(call: &Call, address: &Address) -> Result<Value, Refusal> {
    let found = if let Some(message) = address.inbox_message_id {
        call.service.inbox_message(&call.who, message).await?
    } else if let Some(task) = address.task_id {
        let task = call.service.get_task(&call.who, task).await?;
        let me = json!(call.who.agent);
        if task["agentId"] != me && task["creatorAgentId"] != me {
            return Err(Refusal::new(
                Code::Forbidden,
                "this task is neither assigned to you nor made by you; its own agent may write there",
            ));
        }
        task
    } else if let Some(channel) = &address.channel_id {
        call.service.require_lead(&call.who).await?;
        json!({ "slackChannelId": channel })
    } else {
        return Err(Refusal::new(
            Code::InvalidArgument,
            "give inboxMessageId or taskId to say which thread is meant",
        ));
    };
    if found["slackChannelId"].is_string() { Ok(found) } else { Err(no_context()) }
}

fn no_context() -> Refusal {
    Refusal::new(
        Code::WrongState,
        "this did not come from Slack, so it has no thread there; use post-message instead",
    )
}

fn not_configured() -> Refusal {
    Refusal::new(
        Code::SlackNotConfigured,
        "no Slack workspace is connected; an operator connects one, until then use post-message",
    )
}
