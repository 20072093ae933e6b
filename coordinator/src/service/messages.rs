//! Channels and their messages.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use skein_shared::channels::{
    Author, Channel, Channels, Command, Create, Mark, Post, Read, Reply, Type, message_key,
};
use skein_shared::id::Kind;
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal, wire};
use uuid::Uuid;

use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};

/// A message as it was posted, its channel's name, and the tasks that it made.
#[derive(Clone, Debug)]
pub struct Posted {
    pub channel: String,
    pub message: Value,
    pub tasks: Vec<Uuid>,
}

/// Messages count as read by now and cannot be looked at, so they are no news to whoever asks anew.
fn unseen(problem: Refusal) -> Refusal {
    let message = format!(
        "the messages count as read now and cannot be looked at for the moment: {}; repeat the call with the same \
         idempotency_key, which gives them, or read the channel again without unreadOnly",
        problem.message
    );
    Refusal { code: Code::Unknown, message, ..problem }
}

/// A message that somebody wants to post.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    pub channel: Option<String>,
    pub content: String,
    pub reply_to: Option<Uuid>,
    pub mentions: Vec<Uuid>,
}

/// What a read found.
#[derive(Clone, Debug)]
pub struct Found {
    /// With its channel's name, oldest first.
    pub messages: Vec<(String, Value)>,
    /// Left unread in all channels asked for.
    pub unread: u64,
    /// Unread in all channels asked for, before anything was marked.
    pub total_unread: u64,
}

impl Service {
    /// Posts a message as the caller.
    ///
    /// # Errors
    /// `not_joined`, `not_found` for an unknown channel, `too_large`.
    pub async fn post_message(
        &self,
        who: &Principal,
        request: Uuid,
        draft: Draft,
    ) -> Result<Posted, Refusal> {
        policy::require(who, Right::Work)?;
        let author = self.own_member(who).await?;
        let name = author["name"].as_str().unwrap_or(who.agent_name.as_str()).to_owned();
        let assignees = self.assignees(who, &draft).await?;
        let post = Post {
            author: Some(Author { id: who.agent, name }),
            channel: draft.channel,
            content: draft.content,
            reply_to: draft.reply_to,
            mentions: draft.mentions,
            assignees,
        };
        let key = who.entity(Kind::Channels);
        match self.change::<Channels>(&key, request, Command::Post(Box::new(post))).await? {
            Reply::Posted { channel, message, tasks, .. } => {
                self.arrived(who, &tasks).await;
                Ok(Posted { channel, message, tasks })
            }
            _ => Err(unexpected("the channels")),
        }
    }

    /// Reads messages, and marks as read what it returns.
    ///
    /// # Errors
    /// `not_joined`, `not_found` for an unknown channel.
    pub async fn read_messages(&self, who: &Principal, request: Uuid, read: Read) -> Result<Found, Refusal> {
        policy::require(who, Right::Work)?;
        self.own_member(who).await?;
        let key = who.entity(Kind::Channels);
        let read = Read { after: self.before_then(who, &read).await?, ..read };
        let marks = read.mark_as_read;
        let reply = self.change::<Channels>(&key, request, Command::Read(read)).await?;
        let Reply::Messages { batches, total_unread } = reply else {
            return Err(unexpected("the channels"));
        };
        let unread = batches.iter().map(|batch| batch.unread).sum();
        let mut messages = Vec::new();
        for batch in batches {
            for number in batch.numbers {
                let body = self.body(&key, &message_key(batch.channel, number)).await;
                let body = body.map_err(|problem| if marks { unseen(problem) } else { problem })?;
                messages.extend(body.map(|body| (batch.name.clone(), message_shape(body))));
            }
        }
        messages.sort_by_cached_key(|(_, message)| posted_at(message));
        Ok(Found { messages, unread, total_unread })
    }

    /// What a read's `since` means in each channel that it is about: the number of the newest message that is not
    /// later. Times rise with the numbers.
    async fn before_then(&self, who: &Principal, read: &Read) -> Result<BTreeMap<Uuid, u64>, Refusal> {
        let Some(since) = read.since else { return Ok(BTreeMap::new()) };
        let key = who.entity(Kind::Channels);
        let Reply::List(channels) = self.ask::<Channels>(&key, Command::List).await? else {
            return Err(unexpected("the channels"));
        };
        let asked = |channel: &Channel| {
            let named = |name: &String| *name == channel.name || Uuid::try_parse(name) == Ok(channel.id);
            read.channel.as_ref().is_none_or(named)
        };
        let mut before = BTreeMap::new();
        for channel in channels.iter().filter(|channel| asked(channel)) {
            let (mut earlier, mut later) = (0, channel.last + 1);
            if channel.last_at <= since {
                earlier = channel.last;
            }
            while earlier + 1 < later {
                let middle = earlier.midpoint(later);
                let body = self.body(&key, &message_key(channel.id, middle)).await?;
                match body.is_some_and(|body| posted_at(&body) > since) {
                    true => later = middle,
                    false => earlier = middle,
                }
            }
            before.insert(channel.id, earlier);
        }
        Ok(before)
    }

    /// Makes a channel.
    ///
    /// # Errors
    /// `already_exists`, with the `channel` that has the name.
    pub async fn create_channel(
        &self,
        who: &Principal,
        request: Uuid,
        name: String,
        description: Option<String>,
        kind: Type,
        participants: Vec<Uuid>,
    ) -> Result<Value, Refusal> {
        policy::require(who, Right::Work)?;
        self.own_member(who).await?;
        let create =
            Create { name, description, kind, participants, creator: Some(who.agent), ..Create::default() };
        match self.change::<Channels>(&who.entity(Kind::Channels), request, Command::Create(create)).await {
            Ok(Reply::Created(channel)) => Ok(channel),
            Ok(_) => Err(unexpected("the channels")),
            Err(refusal) if refusal.code == Code::AlreadyExists => {
                let id = refusal.detail["id"].as_str().unwrap_or_default();
                let existing = self.body(&who.entity(Kind::Channels), &format!("channel/{id}")).await;
                let shown = existing.ok().flatten().map(|body| wire::shown(body, &[]));
                let shown = shown.unwrap_or_else(|| refusal.detail.clone());
                Err(refusal.with(json!({ "channel": shown })))
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// Deletes a channel with its messages.
    ///
    /// # Errors
    /// `forbidden` unless the caller leads; `not_found`; `wrong_state` for the general channel.
    pub async fn delete_channel(
        &self,
        who: &Principal,
        request: Uuid,
        channel: String,
    ) -> Result<(Uuid, String), Refusal> {
        self.require_lead(who).await?;
        let key = who.entity(Kind::Channels);
        match self.change::<Channels>(&key, request, Command::Delete { channel }).await? {
            Reply::Deleted { id, name } => Ok((id, name)),
            _ => Err(unexpected("the channels")),
        }
    }

    /// Every channel, by name.
    pub async fn list_channels(&self, who: &Principal) -> Result<Vec<Value>, Refusal> {
        policy::require(who, Right::Read)?;
        let key = who.entity(Kind::Channels);
        let Reply::List(channels) = self.ask::<Channels>(&key, Command::List).await? else {
            return Err(unexpected("the channels"));
        };
        let mut shown = Vec::with_capacity(channels.len());
        for channel in channels {
            let body = self.body(&key, &format!("channel/{}", channel.id)).await?;
            shown.push(body.map_or_else(
                || {
                    json!({
                        "id": channel.id, "name": channel.name, "type": channel.kind, "participants": [],
                        "createdAt": channel.created.iso(),
                    })
                },
                |body| wire::shown(body, &[]),
            ));
        }
        Ok(shown)
    }

    /// How much is unread to the caller, in all channels, and how many of it mention it.
    pub async fn unread(&self, who: &Principal) -> Result<(u64, u64), Refusal> {
        policy::require(who, Right::Work)?;
        match self.ask::<Channels>(&who.entity(Kind::Channels), Command::Count { agent: who.agent }).await? {
            Reply::Count { unread, mentions } => Ok((unread, mentions)),
            _ => Err(unexpected("the channels")),
        }
    }

    /// Refuses everybody but the swarm's lead and the operator.
    ///
    /// # Errors
    /// `forbidden`.
    pub async fn require_lead(&self, who: &Principal) -> Result<(), Refusal> {
        policy::require(who, Right::Lead)?;
        if self.caller(who).await?.lead {
            return Ok(());
        }
        let problem =
            "only the lead of this swarm may do this; if it has none, call join-swarm with lead: true first";
        Err(Refusal::new(Code::Forbidden, problem))
    }

    /// Whom a `/task` message makes tasks for: those mentioned, or those whom the parent mentions.
    async fn assignees(&self, who: &Principal, draft: &Draft) -> Result<Vec<Uuid>, Refusal> {
        if !draft.content.trim_start().starts_with("/task ") {
            return Ok(Vec::new());
        }
        let named = match (draft.mentions.is_empty(), draft.reply_to) {
            (true, Some(parent)) => self.mentioned_by(who, draft.channel.as_deref(), parent).await?,
            _ => draft.mentions.clone(),
        };
        let mut known = Vec::new();
        for agent in named {
            if !known.contains(&agent) && self.member(who, agent).await?.is_some() {
                known.push(agent);
            }
        }
        Ok(known)
    }

    /// The mentions of a message among the latest of its channel.
    async fn mentioned_by(
        &self,
        who: &Principal,
        channel: Option<&str>,
        message: Uuid,
    ) -> Result<Vec<Uuid>, Refusal> {
        let read = Read {
            channel: Some(channel.unwrap_or("general").to_owned()),
            limit: u32::try_from(Mark::MENTIONS).unwrap_or(50) * 4,
            mark_as_read: false,
            ..Read::new(who.agent)
        };
        let found = self.read_messages(who, Uuid::now_v7(), read).await?;
        let id = message.to_string();
        let parent = found.messages.iter().find(|(_, message)| message["id"] == id.as_str());
        let mentions = parent.and_then(|(_, message)| message["mentions"].as_array());
        Ok(mentions.into_iter().flatten().filter_map(|id| Uuid::try_parse(id.as_str()?).ok()).collect())
    }
}

fn message_shape(body: Value) -> Value {
    let mut shown = wire::shown(body, &["agentId"]);
    if shown["agentId"].is_null() {
        shown["agentName"] = json!("Human");
    }
    shown
}

fn posted_at(message: &Value) -> Timestamp {
    message["createdAt"].as_str().and_then(Timestamp::parse_iso).unwrap_or_default()
}
