//! Channels and their messages.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use skein_shared::channels::{
    Author, Channel, Channels, Command, Create, Post, Read, Reply, Type, message_key, order,
};
use skein_shared::id::{Kind, derived};
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal, wire};
use tracing::debug;
use uuid::Uuid;

use super::read::message_shape;
use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};
use crate::projection::{Filter, Query, Test};

/// A message as it was posted, and its channel's name.
#[derive(Clone, Debug)]
pub struct Posted {
    pub channel: String,
    pub message: Value,
    /// The tasks that it made, if it was to make any.
    pub tasks: Option<Vec<Uuid>>,
    /// Who was to be mentioned and is no member.
    pub strangers: Vec<Uuid>,
}

impl Posted {
    /// Whom it mentions it says itself: a repeat is answered as its first try was, whoever has come or gone meanwhile.
    fn new(draft: &Draft, channel: String, message: Value, tasks: Vec<Uuid>) -> Self {
        let mentioned = ids(&message["mentions"]);
        let mut strangers = draft.mentions.clone();
        strangers.retain(|agent| !mentioned.contains(agent));
        let tasks = order(&draft.content).is_some().then_some(tasks);
        Self { channel, message, tasks, strangers }
    }
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
    /// Posts a message as the caller, or as a person for an operator. Those who are no members are not mentioned.
    ///
    /// # Errors
    /// `not_joined`, `not_found` for an unknown channel and for an order whose parent is gone, `too_large`.
    pub async fn post_message(
        &self,
        who: &Principal,
        request: Uuid,
        draft: Draft,
    ) -> Result<Posted, Refusal> {
        policy::require_arranging(who)?;
        let author = self.author(who).await?;
        let strangers = self.strangers(who, &draft.mentions).await?;
        let assignees = self.assignees(who, &draft, &strangers).await?;
        let post = Post {
            author,
            channel: draft.channel.clone(),
            content: draft.content.clone(),
            reply_to: draft.reply_to,
            mentions: draft.mentions.clone(),
            strangers,
            assignees,
        };
        let key = who.entity(Kind::Channels);
        match self.change::<Channels>(&key, request, Command::Post(Box::new(post))).await? {
            Reply::Posted { channel, message, tasks, .. } => {
                self.arrived(who, &tasks).await;
                Ok(Posted::new(&draft, channel, message, tasks))
            }
            _ => Err(unexpected("the channels")),
        }
    }

    /// Who writes what the caller posts. A person has no name.
    ///
    /// # Errors
    /// `not_joined`.
    async fn author(&self, who: &Principal) -> Result<Option<Author>, Refusal> {
        let Some(id) = who.as_agent() else { return Ok(None) };
        let member = self.own_member(who).await?;
        let name = member["name"].as_str().unwrap_or(who.agent_name.as_str()).to_owned();
        Ok(Some(Author { id, name }))
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
                // What retention has just removed its channel still counts for a while.
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
            let (mut earlier, mut later) = (channel.forgotten, channel.last + 1);
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
        policy::require_arranging(who)?;
        let creator = self.author(who).await?.map(|author| author.id);
        let create = Create { name, description, kind, participants, creator, ..Create::default() };
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

    /// Takes away what an agent that left had read, a part at a time. While the channels cannot be asked it stays, and
    /// if the agent joins again it goes on from there.
    pub(super) async fn forget_reader(&self, who: &Principal, request: Uuid, agent: Uuid) {
        let key = who.entity(Kind::Channels);
        for part in 0u32.. {
            let request = derived(request, &format!("marks {part}"));
            match self.change::<Channels>(&key, request, Command::Forget { agent }).await {
                Ok(Reply::Forgot { more: true }) => {}
                Ok(_) => return,
                Err(refusal) => {
                    debug!(problem = %refusal.message, "what an agent that left had read is not forgotten");
                    return;
                }
            }
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
    async fn assignees(
        &self,
        who: &Principal,
        draft: &Draft,
        strangers: &[Uuid],
    ) -> Result<Vec<Uuid>, Refusal> {
        if order(&draft.content).is_none() {
            return Ok(Vec::new());
        }
        let (mut named, strangers) = match draft.reply_to {
            Some(parent) if draft.mentions.is_empty() => {
                let named = self.mentioned_by(who, parent).await?;
                let strangers = self.strangers(who, &named).await?;
                (named, strangers)
            }
            _ => (draft.mentions.clone(), strangers.to_vec()),
        };
        named.retain(|agent| !strangers.contains(agent));
        Ok(named)
    }

    /// Those of the agents who are no members.
    async fn strangers(&self, who: &Principal, agents: &[Uuid]) -> Result<Vec<Uuid>, Refusal> {
        let mut strangers = Vec::new();
        for agent in agents {
            if self.member(who, *agent).await?.is_none() {
                strangers.push(*agent);
            }
        }
        Ok(strangers)
    }

    /// The mentions of a message, in whichever channel it is.
    async fn mentioned_by(&self, who: &Principal, message: Uuid) -> Result<Vec<Uuid>, Refusal> {
        let mut query = Query::new(&who.swarm, Kind::Channels, "message");
        query.filters.push(Filter::new("id", Test::Eq(json!(message)))?);
        query.limit = 1;
        let found = self.list(&who.entity(Kind::Channels), query).await?.whole()?.rows;
        let parent = found.first().ok_or_else(|| {
            let problem = format!(
                "replyTo: there is no message {message}, or not any more, so it is not known whom it mentions; nothing \
                 was posted: mention those who are to have the task"
            );
            Refusal::new(Code::NotFound, problem)
        })?;
        Ok(ids(&parent["mentions"]))
    }
}

fn ids(list: &Value) -> Vec<Uuid> {
    let listed = list.as_array().into_iter().flatten();
    listed.filter_map(|id| Uuid::try_parse(id.as_str()?).ok()).collect()
}

fn posted_at(message: &Value) -> Timestamp {
    message["createdAt"].as_str().and_then(Timestamp::parse_iso).unwrap_or_default()
}
