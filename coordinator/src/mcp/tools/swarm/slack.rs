//! Slack: replies to people and reads what they wrote.
//!
//! Addressing and permission are checked first, as in the original, so that a caller learns of its own
//! mistakes before it learns that no workspace is connected.

use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::limits;
use uuid::Uuid;

use super::done;
use crate::auth::Right;
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::schema::{Args, any_text, flag, integer, list, object, one_of, text, uuid};
use crate::service::slack::Address;

const SWARM: Toolset = Toolset::Swarm;
const MESSAGE: [&str; 6] = ["user", "username", "isBot", "text", "ts", "files"];
const CHANNEL: [&str; 5] = ["id", "name", "type", "isMember", "numMembers"];
/// How much is shown without a limit.
const MESSAGES: u32 = 20;
const CHANNELS: usize = 100;
/// Longest transcript, characters: a hundred messages as long as Slack takes them.
const TRANSCRIPT: usize = 4_100_000;
/// Kinds of channels, and Slack's words for them.
const KINDS: [(&str, &str); 4] =
    [("public", "public_channel"), ("private", "private_channel"), ("dm", "im"), ("mpim", "mpim")];

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("slack-reply", "Reply in Slack", SWARM, reply)
            .core()
            .writes(Right::Work)
            .open_world()
            .about(
                "Answer a person in the Slack thread of a task or inbox message.",
                "Needs inboxMessageId or the taskId of a task of yours. A letter or notice it ends unsent.",
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
            .output(json!({
                "success": flag(),
                "message": any_text(TRANSCRIPT),
                "channelId": any_text(100),
                "threadTs": any_text(100),
                "messages": list(object(), 100),
            }))
            .lists("messages", &MESSAGE),
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
            .output(
                json!({ "success": flag(), "message": any_text(30_000), "channels": list(object(), 200) }),
            )
            .lists("channels", &CHANNEL),
    ]
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PostArgs {
    channel_id: String,
    message: String,
}

async fn post(call: Call, args: PostArgs) -> Outcome {
    let PostArgs { channel_id, message } = args;
    let repeats = call.key.is_some();
    let ts = call.service.slack_post(&call.who, call.request, &channel_id, &message, repeats).await?;
    Ok(done("The message is posted.", json!({ "messageTs": ts })))
}

#[derive(Deserialize)]
struct ChannelsArgs {
    types: Option<Vec<String>>,
    limit: Option<usize>,
}

async fn list_channels(call: Call, args: ChannelsArgs) -> Outcome {
    let wanted = args.types.as_ref().filter(|types| !types.is_empty());
    let is_wanted = |kind: &str| wanted.is_none_or(|types| types.iter().any(|one| one == kind));
    let kinds = KINDS.iter().filter(|(kind, _)| is_wanted(kind)).map(|(_, slack)| *slack).collect::<Vec<_>>();
    let limit = args.limit.unwrap_or(CHANNELS);
    let channels = call.service.slack_channels(&call.who, &kinds, limit).await?;
    let line = |channel: &Value| {
        format!(
            "{} {} ({})",
            channel["id"].as_str().unwrap_or_default(),
            channel["name"].as_str().unwrap_or_default(),
            channel["type"].as_str().unwrap_or_default()
        )
    };
    let text = match channels.is_empty() {
        true => "The bot is in no such channel; people invite it with /invite.".to_owned(),
        false => channels.iter().map(line).collect::<Vec<_>>().join("\n"),
    };
    Ok(done(text, facts!({ "channels": channels })))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReplyArgs {
    message: String,
    inbox_message_id: Option<Uuid>,
    task_id: Option<Uuid>,
}

async fn reply(call: Call, args: ReplyArgs) -> Outcome {
    let address = Address { message: args.inbox_message_id, task: args.task_id, channel: None, thread: None };
    let repeats = call.key.is_some();
    let place = call.service.slack_reply(&call.who, call.request, &address, &args.message, repeats).await?;
    let said = match place {
        Some(_) => "The answer is in its Slack thread.",
        None => {
            "The message counts as answered and will not come again. It did not come from Slack, so nothing was sent: \
             answer a letter with AgentMail's own tools."
        }
    };
    Ok(done(said, json!({})))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadArgs {
    inbox_message_id: Option<Uuid>,
    task_id: Option<Uuid>,
    channel_id: Option<String>,
    thread_ts: Option<String>,
    limit: Option<u32>,
    include_files: Option<bool>,
}

async fn read(call: Call, args: ReadArgs) -> Outcome {
    let address = Address {
        message: args.inbox_message_id,
        task: args.task_id,
        channel: args.channel_id,
        thread: args.thread_ts,
    };
    let (limit, files) = (args.limit.unwrap_or(MESSAGES), args.include_files.unwrap_or(true));
    let found = call.service.slack_read(&call.who, &address, limit, files).await?;
    let mut text = found.messages.iter().map(transcribed).collect::<Vec<_>>().join("\n");
    if found.messages.is_empty() {
        text.push_str("Nothing is written there.");
    }
    if found.more {
        text.push_str("\n(There is more; ask with a higher limit.)");
    }
    let facts = json!({
        "channelId": found.place.channel,
        "threadTs": found.place.thread,
        "messages": found.messages,
    });
    Ok(done(text, facts))
}

/// A message on a line of its own, with its files on lines below.
fn transcribed(message: &Value) -> String {
    let text = |field: &str| message[field].as_str();
    let name = text("username").or_else(|| text("user")).unwrap_or("somebody");
    let mark = if message["isBot"] == true { " (bot)" } else { "" };
    let mut line = format!("{name}{mark}: {}", text("text").unwrap_or_default());
    for file in message["files"].as_array().into_iter().flatten() {
        let field = |name: &str| file[name].as_str().unwrap_or("?");
        line.push_str(&format!("\n  [file {}: {}, {}]", field("id"), field("name"), field("mimetype")));
    }
    line
}
