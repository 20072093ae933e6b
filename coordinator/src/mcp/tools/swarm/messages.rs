//! Channels and messages.

use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::channels::{Read, Type};
use skein_shared::limits;
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::{done, refused};
use crate::auth::Right;
use crate::mcp::catalogue::{Call, Hints, Outcome, Tool, Toolset};
use crate::mcp::result::counted;
use crate::mcp::schema::{
    Args, agent, any_text, at_least, flag, instant, integer, list, object, one_of, text, uuid,
};
use crate::service::messages::Draft;

const SWARM: Toolset = Toolset::Swarm;
const MESSAGE: [&str; 10] = [
    "id",
    "channelId",
    "channelName",
    "agentId",
    "agentName",
    "content",
    "replyToId",
    "mentions",
    "createdAt",
    "number",
];
/// So many who could not be mentioned are named in words.
const SHOWN: usize = 10;
const NO_TASK: &str = " No task was made of it, for neither it nor the message that it answers mentions a member; post \
                       it again and mention those who are to have one.";
const CHANNEL: [&str; 7] = ["id", "name", "description", "type", "createdBy", "participants", "createdAt"];

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("post-message", "Post a message", SWARM, post)
            .core()
            .writes(Right::Work)
            .additive()
            .about(
                "Write into a channel; mentions wake those agents.",
                "A message that begins with /task makes a task for each agent mentioned. Without a channel it goes to general.",
            )
            .found_by("chat talk say tell ask notify reply channel mention broadcast")
            .args(
                Args::none()
                    .take("channel", any_text(100), "Name or id (general)")
                    .need("content", text(limits::MESSAGE), "What you say")
                    .take("replyTo", uuid(), "The message that you answer")
                    .take("mentions", list(agent(), limits::MENTIONS), "Agents to wake").of_agents(),
            )
            .output(json!({ "success": flag(), "message": any_text(4000), "posted": object() })),
        Tool::new("read-messages", "Read messages", SWARM, read)
            .core()
            .writes(Right::Work)
            // The seed's hint, although what is returned is marked as read.
            .hinted(Hints { read_only: Some(true), ..Hints::default() })
            .about(
                "Read new messages of all channels, or of one.",
                "Without a channel the unread ones of all are given, 1000 at most. Only what was returned is marked as read.",
            )
            .found_by("chat unread inbox channel history mentions")
            .args(
                Args::none()
                    .take("channel", any_text(100), "Name or id; all unread without one")
                    .take("limit", integer(1, 1000), "The newest so many of each channel (20)")
                    .rare("since", instant(), "Only later ones")
                    .take("unreadOnly", flag(), "Only unread ones")
                    .take("mentionsOnly", flag(), "Only those that mention you")
                    .rare("markAsRead", flag(), "Mark them as read (true)"),
            )
            .output(json!({
                "success": flag(), "message": any_text(4000), "messages": list(object(), 1000),
                "unreadCount": at_least(0), "totalUnreadCount": at_least(0),
            }))
            .lists("messages", &MESSAGE),
        Tool::new("list-channels", "List channels", SWARM, channels)
            .reads()
            .about("List the channels of the swarm.", "")
            .found_by("rooms chat groups show")
            .output(json!({ "success": flag(), "message": any_text(4000), "channels": list(object(), 10_000) }))
            .lists("channels", &CHANNEL),
        Tool::new("create-channel", "Create a channel", SWARM, create)
            .writes(Right::Work)
            .additive()
            .about("Make a channel for messages.", "")
            .found_by("new room chat group")
            .args(
                Args::none()
                    .need("name", text(100), "Its name, unique in the swarm")
                    .take("description", any_text(500), "What it is for")
                    .take("type", one_of(&["public", "dm"]), "public, or dm between few")
                    .take("participants", list(agent(), 100), "Who takes part").of_agents(),
            )
            .output(json!({ "success": flag(), "message": any_text(4000), "channel": object() })),
        Tool::new("delete-channel", "Delete a channel", SWARM, delete)
            .writes(Right::Lead)
            .destructive()
            .about("Delete a channel with its messages; only the lead does.", "The general channel stays.")
            .found_by("remove room chat group")
            .args(
                Args::none()
                    .take("channelId", uuid(), "Its id")
                    .take("name", any_text(100), "Or its name"),
            )
            .output(json!({ "success": flag(), "message": any_text(4000) })),
    ]
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Post {
    channel: Option<String>,
    content: String,
    reply_to: Option<Uuid>,
    #[serde(default)]
    mentions: Vec<Uuid>,
}

async fn post(call: Call, args: Post) -> Outcome {
    let draft = Draft {
        channel: args.channel,
        content: args.content,
        reply_to: args.reply_to,
        mentions: args.mentions,
    };
    let posted = call.service.post_message(&call.who, call.request, draft).await?;
    let mut message = format!("Posted in {}.", posted.channel);
    let mut facts = facts!({ "posted": posted.message });
    match posted.tasks {
        Some(tasks) if tasks.is_empty() => message.push_str(NO_TASK),
        Some(tasks) => {
            message = format!("{message} {} made of it.", counted(tasks.len(), "task was", "tasks were"));
            facts["taskIds"] = json!(tasks);
        }
        None => {}
    }
    if !posted.strangers.is_empty() {
        message = format!("{message} {}", left_out(&posted.strangers));
        facts["strangers"] = json!(posted.strangers);
    }
    Ok(done(message, facts))
}

fn left_out(strangers: &[Uuid]) -> String {
    let shown: Vec<String> = strangers.iter().take(SHOWN).map(Uuid::to_string).collect();
    let more = match strangers.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "Not mentioned, for they are no members of this swarm (get-swarm lists those): {}{more}.",
        shown.join(", ")
    )
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReadArgs {
    channel: Option<String>,
    limit: u32,
    since: Option<String>,
    unread_only: bool,
    mentions_only: bool,
    mark_as_read: bool,
}

impl Default for ReadArgs {
    fn default() -> Self {
        Self {
            channel: None,
            limit: 20,
            since: None,
            unread_only: false,
            mentions_only: false,
            mark_as_read: true,
        }
    }
}

async fn read(call: Call, args: ReadArgs) -> Outcome {
    let one = args.channel.is_some();
    let since = match args.since.as_deref() {
        Some(text) => Some(Timestamp::parse_iso(text).ok_or_else(|| {
            Refusal::new(Code::InvalidArgument, "since is no point in time; write it as 2026-01-31T12:00:00Z")
        })?),
        None => None,
    };
    let wanted = Read {
        channel: args.channel.clone(),
        limit: args.limit,
        since,
        unread_only: args.unread_only,
        mentions_only: args.mentions_only,
        mark_as_read: args.mark_as_read,
        ..Read::new(call.who.agent)
    };
    let unfiltered = args.mark_as_read && args.since.is_none() && !args.mentions_only;
    let found = call.service.read_messages(&call.who, call.request, wanted).await?;
    let count = found.messages.len();
    let name = found.messages.first().map(|(channel, _)| channel.clone()).or(args.channel);
    let messages: Vec<Value> = found
        .messages
        .into_iter()
        .map(|(channel, mut message)| {
            if !one {
                let author = message["agentName"].as_str().unwrap_or_default().to_owned();
                message["agentName"] = json!(format!("{author} in #{channel}"));
                message["channelName"] = json!(channel);
            }
            message
        })
        .collect();
    let mut facts = facts!({ "messages": messages, "totalUnreadCount": found.total_unread });
    if one {
        facts["channelName"] = json!(name);
        facts["unreadCount"] = json!(found.unread);
    }
    let message = match count {
        0 => "No messages.".to_owned(),
        count if unfiltered && found.unread > 0 => {
            let left = found.unread;
            format!(
                "{}; {left} more are still unread; unreadOnly gives them.",
                counted(count, "message", "messages")
            )
        }
        count => format!("{}.", counted(count, "message", "messages")),
    };
    Ok(done(message, facts))
}

#[derive(Deserialize)]
struct Nothing {}

async fn channels(call: Call, _: Nothing) -> Outcome {
    let channels = call.service.list_channels(&call.who).await?;
    Ok(done(format!("{}.", counted(channels.len(), "channel", "channels")), facts!({ "channels": channels })))
}

#[derive(Deserialize)]
struct Create {
    name: String,
    description: Option<String>,
    #[serde(rename = "type", default)]
    kind: Type,
    #[serde(default)]
    participants: Vec<Uuid>,
}

async fn create(call: Call, args: Create) -> Outcome {
    let Create { name, description, kind, participants } = args;
    let made = call
        .service
        .create_channel(&call.who, call.request, name.clone(), description, kind, participants)
        .await;
    match made {
        Ok(channel) => {
            let message = format!("Channel {name} is there; post-message writes into it.");
            Ok(done(message, facts!({ "channel": channel })))
        }
        // It says which one has the name.
        Err(refusal) if refusal.code == Code::AlreadyExists => Ok(refused(refusal)),
        Err(refusal) => Err(refusal),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Delete {
    channel_id: Option<Uuid>,
    name: Option<String>,
}

async fn delete(call: Call, args: Delete) -> Outcome {
    let which = args
        .channel_id
        .map(|id| id.to_string())
        .or(args.name)
        .ok_or_else(|| Refusal::new(Code::InvalidArgument, "give channelId or name"))?;
    let (_, name) = call.service.delete_channel(&call.who, call.request, which).await?;
    Ok(done(format!("Channel {name} is deleted."), json!({})))
}
