//! What agents say to people in Slack, and read of what they wrote.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use skein_shared::id::Kind;
use skein_shared::inboxes::{self, Inboxes};
use skein_shared::slack::{mrkdwn, typed};
use skein_shared::{Code, Refusal, limits};
use uuid::Uuid;

use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};
use crate::slack::{Error, Post, Workspace};

/// How long ago a repeat may have posted a message: as long as its key is known, and what Slack's clock may differ.
const EARLIER: Duration = limits::REPLY_KEEP.saturating_add(Duration::from_secs(300));

/// What names a thread: a message of the caller's inbox, a task, or a channel, which only the lead may name.
#[derive(Clone, Debug, Default)]
pub struct Address {
    pub message: Option<Uuid>,
    pub task: Option<Uuid>,
    pub channel: Option<String>,
    pub thread: Option<String>,
}

/// A channel, and a thread in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub channel: String,
    pub thread: Option<String>,
}

/// What was written in a place.
#[derive(Clone, Debug)]
pub struct Conversation {
    pub place: Place,
    /// `{user?, username?, isBot, text, ts, files?}`, as Slack orders them.
    pub messages: Vec<Value>,
    pub more: bool,
}

impl Service {
    /// Answers in a thread. A message of the inbox counts as answered from before the answer is sent; one that did not
    /// come from Slack, a letter or a notice, is ended by that alone, and nothing is sent. With `repeats` the same
    /// request may come again, and an answer that is there already is not sent a second time.
    ///
    /// # Errors
    /// Of the address first, then `wrong_state` without a thread, `slack_not_configured`, and what Slack says;
    /// `not_found` for a letter or notice that has ended.
    pub async fn slack_reply(
        &self,
        who: &Principal,
        request: Uuid,
        address: &Address,
        text: &str,
        repeats: bool,
    ) -> Result<Option<Place>, Refusal> {
        let found = self.addressed(who, address).await?;
        if let (Some(message), Value::Null) = (address.message, &found["slackChannelId"]) {
            self.respond(who, request, message, text.to_owned()).await?;
            return Ok(None);
        }
        let place = place(&found).filter(|place| place.thread.is_some()).ok_or_else(no_context)?;
        let workspace = self.slack.require(&who.swarm)?;
        if let Some(message) = address.message
            && let Err(refusal) = self.respond(who, request, message, text.to_owned()).await
            && refusal.code != Code::NotFound
        {
            // Not found: it has ended before, and a second answer is posted all the same.
            return Err(refusal);
        }
        self.slack_say(who, workspace, request, &place, text, repeats).await?;
        Ok(Some(place))
    }

    /// Posts a message of its own in a channel, and gives its time stamp. Only the lead does. `repeats` as of a reply;
    /// only a repeat looks for what is there, for Slack takes messages for more channels than it lets the bot read.
    ///
    /// # Errors
    /// `forbidden`, `slack_not_configured`, and what Slack says.
    pub async fn slack_post(
        &self,
        who: &Principal,
        request: Uuid,
        channel: &str,
        text: &str,
        repeats: bool,
    ) -> Result<String, Refusal> {
        self.require_member(who).await?;
        self.require_lead(who).await?;
        let workspace = self.slack.require(&who.swarm)?;
        let place = Place { channel: channel.to_owned(), thread: None };
        let mut may_be_there = false;
        if repeats {
            let attempt = Uuid::now_v7().to_string();
            may_be_there = self.first_attempt(who, request, attempt.clone()).await? != attempt;
        }
        self.slack_say(who, workspace, request, &place, text, may_be_there).await
    }

    /// Notes that a request is about to post something, under an id of this try, and gives the one that its first try
    /// has noted. It is noted before anything is sent: so a repeat knows that there may be something, whichever node it
    /// comes to.
    pub(super) async fn first_attempt(
        &self,
        who: &Principal,
        request: Uuid,
        attempt: String,
    ) -> Result<String, Refusal> {
        let command = inboxes::Command::Post { agent: who.agent, attempt };
        match self.change::<Inboxes>(&who.entity(Kind::Inboxes), request, command).await? {
            inboxes::Reply::Posts { attempt } => Ok(attempt),
            _ => Err(unexpected("the inboxes")),
        }
    }

    /// # Errors
    /// Of the address first, then `slack_not_configured`, and what Slack says.
    pub async fn slack_read(
        &self,
        who: &Principal,
        address: &Address,
        limit: u32,
        files: bool,
    ) -> Result<Conversation, Refusal> {
        let place = self.slack_place(who, address).await?;
        let workspace = self.slack.require(&who.swarm)?;
        let page = match &place.thread {
            Some(thread) => workspace.thread(&place.channel, thread, limit).await,
            None => workspace.history(&place.channel, limit).await,
        };
        let page = page.map_err(Error::refusal)?;
        let mut names = BTreeMap::new();
        let mut messages = Vec::new();
        for message in &page.messages {
            if let Some(user) = message["user"].as_str().filter(|_| !is_bot(message))
                && !names.contains_key(user)
            {
                let name = name_of(workspace, user).await;
                names.insert(user.to_owned(), name);
            }
            messages.extend(shown(message, &names, files));
        }
        Ok(Conversation { place, messages, more: page.more })
    }

    /// The channels that the bot is a member of: `{id, name?, type, isMember, numMembers?}`.
    ///
    /// # Errors
    /// `slack_not_configured`, and what Slack says.
    pub async fn slack_channels(
        &self,
        who: &Principal,
        kinds: &[&str],
        limit: usize,
    ) -> Result<Vec<Value>, Refusal> {
        policy::require(who, Right::Read)?;
        self.require_member(who).await?;
        let workspace = self.slack.require(&who.swarm)?;
        let channels = workspace.channels(kinds, limit).await.map_err(Error::refusal)?;
        Ok(channels.iter().map(channel).collect())
    }

    /// Where an address leads, if the caller may go there.
    pub(super) async fn slack_place(&self, who: &Principal, address: &Address) -> Result<Place, Refusal> {
        place(&self.addressed(who, address).await?).ok_or_else(no_context)
    }

    /// What an address names, if the caller may go there: its fields say where in Slack that is.
    async fn addressed(&self, who: &Principal, address: &Address) -> Result<Value, Refusal> {
        self.require_member(who).await?;
        if let Some(message) = address.message {
            self.own_message(who, message).await
        } else if let Some(task) = address.task {
            let task = self.get_task(who, task).await?;
            let me = json!(who.agent);
            if task["agentId"] != me && task["creatorAgentId"] != me {
                return Err(Refusal::new(
                    Code::Forbidden,
                    "this task is neither assigned to you nor made by you; its own agent may write there",
                ));
            }
            Ok(task)
        } else if let Some(channel) = &address.channel {
            self.require_lead(who).await?;
            Ok(json!({ "slackChannelId": channel, "slackThreadTs": address.thread }))
        } else {
            Err(Refusal::new(
                Code::InvalidArgument,
                "give inboxMessageId or taskId to say which thread is meant",
            ))
        }
    }

    async fn slack_say(
        &self,
        who: &Principal,
        workspace: &Workspace,
        request: Uuid,
        place: &Place,
        text: &str,
        may_be_there: bool,
    ) -> Result<String, Refusal> {
        let member = self.body(&who.entity(Kind::Pool), &format!("member/{}", who.agent)).await?;
        let name = member.as_ref().and_then(|member| member["name"].as_str());
        let lead = member.as_ref().is_some_and(|member| member["isLead"] == true);
        let text = mrkdwn(text);
        let post = Post {
            channel: &place.channel,
            thread: place.thread.as_deref(),
            text: &text,
            name,
            icon: Some(if lead { ":crown:" } else { ":robot_face:" }),
        };
        let earlier = may_be_there.then(|| self.clock().wall() - EARLIER);
        workspace.post(&post, request, earlier).await.map_err(Error::refusal)
    }
}

/// Where in Slack something came from, if it did.
fn place(found: &Value) -> Option<Place> {
    let text = |field: &str| found[field].as_str().map(str::to_owned);
    Some(Place { channel: text("slackChannelId")?, thread: text("slackThreadTs") })
}

fn no_context() -> Refusal {
    Refusal::new(
        Code::WrongState,
        "this did not come from Slack, so it has no thread there; use post-message instead",
    )
}

/// People are shown by the name that they gave themselves; without it by their id.
async fn name_of(workspace: &Workspace, user: &str) -> Option<String> {
    let user = workspace.user(user).await.ok()?;
    let names = ["/profile/display_name", "/profile/real_name", "/real_name", "/name"];
    let mut names = names.into_iter().filter_map(|pointer| user.pointer(pointer)?.as_str());
    names.find(|name| !name.is_empty()).map(str::to_owned)
}

fn is_bot(message: &Value) -> bool {
    message["bot_id"].is_string() || message["subtype"] == "bot_message"
}

/// A message as agents see it; none of what has neither text nor files.
fn shown(message: &Value, names: &BTreeMap<String, Option<String>>, files: bool) -> Option<Value> {
    let text = message["text"].as_str().unwrap_or_default();
    let files = message["files"].as_array().filter(|list| files && !list.is_empty());
    if text.is_empty() && files.is_none() {
        return None;
    }
    let user = message["user"].as_str();
    let name = user.and_then(|user| names.get(user)?.as_deref());
    let name = name
        .or_else(|| message["username"].as_str())
        .or_else(|| message.pointer("/bot_profile/name")?.as_str());
    let fields = [
        ("user", json!(user)),
        ("username", json!(name)),
        ("isBot", json!(is_bot(message))),
        ("text", json!(typed(text))),
        ("ts", message["ts"].clone()),
        ("files", json!(files.map(|list| list.iter().map(file).collect::<Vec<_>>()))),
    ];
    Some(some(fields))
}

fn file(file: &Value) -> Value {
    some(
        ["id", "name", "mimetype", "filetype", "size", "url_private_download"]
            .map(|field| (field, file[field].clone())),
    )
}

fn channel(channel: &Value) -> Value {
    let is = |field: &str| channel[field] == true;
    let kind = match () {
        () if is("is_im") => "dm",
        () if is("is_mpim") => "mpim",
        () if is("is_private") || is("is_group") => "private",
        () => "public",
    };
    some([
        ("id", channel["id"].clone()),
        // A conversation with one person has no name of its own.
        ("name", json!(channel["name"].as_str().or_else(|| channel["user"].as_str()))),
        ("type", json!(kind)),
        ("isMember", json!(true)),
        ("numMembers", channel["num_members"].clone()),
    ])
}

/// An object of the fields that have a value.
fn some<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(fields.map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_wrote_is_shown_as_they_typed_it() {
        let text =
            "if a &lt; b &amp;&amp; c &gt; d write &amp;lt;, says <@U2>: <https://a.b/?x=1&amp;y=2|here>";
        let message = json!({ "user": "U1", "text": text, "ts": "5.0" });
        let shown = shown(&message, &BTreeMap::new(), true).unwrap();
        assert_eq!(shown["text"], "if a < b && c > d write &lt;, says <@U2>: <https://a.b/?x=1&y=2|here>");
    }
}
