//! The rules of channels.

use std::collections::BTreeSet;
use std::time::Duration;

use uuid::Uuid;

use super::apply::created_body;
use super::command::{Batch, Command, Create, Post, Read, Reply};
use super::effects::MentionTask;
use super::event::{Event, Posted};
use super::spans::Spans;
use super::state::{Channel, Channels, Mark};
use super::{GENERAL, order};
use crate::code::{Code, Refusal};
use crate::entity::{Ctx, Decision};
use crate::limits;
use crate::mutation::{self, Mutation};
use crate::time::Timestamp;
use crate::wire;

const NAME: usize = 100;
const DESCRIPTION: usize = 500;
const PARTICIPANTS: usize = 1000;
/// Most messages that a read returns, of one channel and of all together.
const LIMIT: usize = 1000;
/// A mention that woke an agent and is still unread after this time wakes it again.
const CLAIM: Duration = Duration::from_secs(30 * 60);
/// Messages of a deleted channel that one commit removes.
const PURGE: u64 = 1000;
/// Marks of an agent that has left that one commit removes.
pub(super) const MARKS: usize = 1000;

pub(super) fn decide(
    state: &Channels,
    command: &Command,
    ctx: &mut Ctx,
) -> Result<Decision<Channels>, Refusal> {
    match command {
        Command::Create(create) => state.create(create, ctx),
        Command::Delete { channel } => state.delete(channel),
        Command::Post(post) => state.post_message(post, ctx),
        Command::Read(read) => state.read(read),
        Command::List => {
            let by_name = state.ids.values().filter_map(|id| state.channels.get(id));
            Ok(Decision::reply(Reply::List(by_name.cloned().collect())))
        }
        Command::Count { agent } => Ok(Decision::reply(state.count(*agent))),
        Command::ClaimMentions { agent } => Ok(state.claim_mentions(*agent, ctx.now)),
        Command::Trim { channel, through } => Ok(state.trim(*channel, *through)),
        Command::Forget { agent } => Ok(state.forget(*agent)),
        Command::Tick => Ok(state.purge_next()),
    }
}

impl Channels {
    /// By id, else by name: a name of earlier days may be like an id, and takes no other channel's place.
    fn find(&self, channel: &str) -> Result<&Channel, Refusal> {
        let by_id = Uuid::try_parse(channel).ok().and_then(|id| self.channels.get(&id));
        let by_name = || self.channels.get(self.ids.get(channel)?);
        by_id.or_else(by_name).ok_or_else(|| {
            let shown: String = channel.chars().take(NAME).collect();
            Refusal::new(
                Code::NotFound,
                format!("there is no channel `{shown}`; list-channels shows those there are"),
            )
        })
    }

    fn create(&self, create: &Create, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        wire::length("name", &create.name, 1, NAME)?;
        if Uuid::try_parse(&create.name).is_ok() {
            let problem = "name: it is written like an id, and ids name channels too; choose a name in words";
            return Err(Refusal::new(Code::InvalidArgument, problem));
        }
        if let Some(description) = &create.description {
            wire::length("description", description, 0, DESCRIPTION)?;
        }
        few("participants", create.participants.len(), PARTICIPANTS)?;
        if self.channels.len() >= limits::CHANNELS {
            return Err(Refusal::new(
                Code::QueueFull,
                format!(
                    "the swarm has {} channels, the most there may be; delete one first",
                    limits::CHANNELS
                ),
            ));
        }
        let channel = Channel {
            id: create.id.unwrap_or_else(|| ctx.id()),
            name: self.free_name(create)?,
            kind: create.kind,
            last: 0,
            forgotten: 0,
            last_at: Timestamp::ZERO,
            created: ctx.now,
        };
        let taken = self.channels.get(&channel.id).map(|channel| channel.name.clone());
        if taken.is_some() || self.purges.contains_key(&channel.id) {
            let name = taken.unwrap_or_default();
            return Err(Refusal::new(
                Code::AlreadyExists,
                format!("the id {} belongs to the channel `{name}`; choose another id", channel.id),
            ));
        }
        let body =
            created_body(&channel, create.description.as_deref(), &create.participants, create.creator);
        let event = Event::Created {
            channel,
            description: create.description.clone(),
            participants: create.participants.clone(),
            creator: create.creator,
        };
        Ok(Decision::new(Reply::Created(wire::shown(body, &[])), vec![event]))
    }

    fn free_name(&self, create: &Create) -> Result<String, Refusal> {
        let Some(existing) = self.ids.get(&create.name) else { return Ok(create.name.clone()) };
        if !create.suffix {
            let existing = serde_json::json!({ "id": existing, "name": create.name });
            return Err(Refusal::new(
                Code::AlreadyExists,
                format!("a channel named `{}` exists; use it or choose another name", create.name),
            )
            .with(existing));
        }
        let free = (2..=limits::CHANNELS + 2)
            .map(|number| format!("{}-{number}", create.name))
            .find(|name| !self.ids.contains_key(name));
        Ok(free.unwrap_or_else(|| create.name.clone()))
    }

    fn delete(&self, channel: &str) -> Result<Decision<Self>, Refusal> {
        let channel = self.find(channel)?;
        if channel.id == GENERAL {
            return Err(Refusal::new(
                Code::Forbidden,
                "the general channel stays: every swarm has it; delete another one",
            ));
        }
        let reply = Reply::Deleted { id: channel.id, name: channel.name.clone() };
        Ok(Decision::new(reply, vec![Event::Deleted { channel: channel.id }]))
    }

    fn post_message(&self, post: &Post, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        wire::length("content", &post.content, 1, limits::MESSAGE)?;
        few("mentions", post.mentions.len(), limits::MENTIONS)?;
        few("assignees", post.assignees.len(), limits::MENTIONS)?;
        let channel = self.find(post.channel.as_deref().unwrap_or("general"))?;
        let order = order(&post.content);
        if order == Some("") {
            return Err(Refusal::new(
                Code::InvalidArgument,
                "content: nothing follows /task; write what shall be done",
            ));
        }
        let mut posted = Posted {
            channel: channel.id,
            number: channel.last + 1,
            id: ctx.id(),
            author: post.author.clone(),
            content: order.unwrap_or(&post.content).to_owned(),
            reply_to: post.reply_to,
            mentions: known(&post.mentions, &post.strangers),
            at: ctx.now,
        };
        let assignees = if order.is_some() { known(&post.assignees, &[]) } else { Vec::new() };
        let tasks: Vec<MentionTask> =
            assignees.iter().map(|&agent| MentionTask::new(&posted, &channel.name, agent)).collect();
        posted.content.push_str(&links(&tasks));
        let reply = Reply::Posted {
            channel: channel.name.clone(),
            number: posted.number,
            message: wire::shown(posted.body(), &["agentId"]),
            tasks: tasks.iter().map(|task| task.id).collect(),
        };
        let effects = tasks.iter().map(|task| task.effect(&self.swarm)).collect();
        Ok(Decision::new(reply, vec![Event::Posted(Box::new(posted))]).effects(effects))
    }

    fn read(&self, read: &Read) -> Result<Decision<Self>, Refusal> {
        if read.limit == 0 {
            return Err(Refusal::new(Code::InvalidArgument, "limit: it is 0; ask for at least one message"));
        }
        let channels: Vec<&Channel> = match &read.channel {
            Some(channel) => vec![self.find(channel)?],
            None => self.ids.values().filter_map(|id| self.channels.get(id)).collect(),
        };
        let mut batches = Vec::new();
        let mut events = Vec::new();
        let mut total_unread = 0;
        let mut room = LIMIT;
        for channel in channels {
            let mut mark = self.mark(channel, read.agent);
            total_unread += mark.unread(channel.last);
            let numbers = numbers(channel, &mark, read, room);
            room -= numbers.len();
            // A channel that gives nothing is there for what stays unread in it.
            if numbers.is_empty() && read.channel.is_none() && mark.unread(channel.last) == 0 {
                continue;
            }
            let new: Spans = numbers.iter().copied().filter(|&number| mark.is_unread(number)).collect();
            if read.mark_as_read && !new.is_empty() && !mutation::is_on(Mutation::ReadAgain) {
                mark.see(&new);
                events.push(Event::Marked { channel: channel.id, agent: read.agent, numbers: new });
            }
            batches.push(batch(channel, &mark, numbers));
        }
        Ok(Decision::new(Reply::Messages { batches, total_unread }, events))
    }

    fn count(&self, agent: Uuid) -> Reply {
        let mut unread = 0;
        let mut mentions = 0;
        for channel in self.channels.values() {
            let mark = self.mark(channel, agent);
            unread += mark.unread(channel.last);
            mentions += mark.mentions.iter().filter(|&&number| mark.is_unread(number)).count() as u64;
        }
        Reply::Count { unread, mentions }
    }

    fn claim_mentions(&self, agent: Uuid, now: Timestamp) -> Decision<Self> {
        let mut batches = Vec::new();
        let mut claimed = Vec::new();
        for channel in self.channels.values() {
            let mark = self.mark(channel, agent);
            let quiet = if now.since(mark.claimed_at) < CLAIM { mark.claimed } else { 0 };
            let wakes = |number: &u64| *number > quiet && mark.is_unread(*number);
            let numbers: Vec<u64> = mark.mentions.iter().copied().filter(wakes).collect();
            let Some(&newest) = numbers.last() else { continue };
            claimed.push((channel.id, newest));
            batches.push(batch(channel, &mark, numbers));
        }
        let events = if claimed.is_empty() {
            Vec::new()
        } else {
            vec![Event::Claimed { agent, channels: claimed, at: now }]
        };
        Decision::new(Reply::Mentions(batches), events)
    }

    /// Said again, or of a channel that is gone, it changes nothing.
    fn trim(&self, channel: Uuid, through: u64) -> Decision<Self> {
        let is_news = |channel: &&Channel| (channel.forgotten + 1..=channel.last).contains(&through);
        let event = self.channels.get(&channel).filter(is_news).map(|_| Event::Trimmed { channel, through });
        Decision::new(Reply::Done, event.into_iter().collect())
    }

    fn forget(&self, agent: Uuid) -> Decision<Self> {
        let mut marked = self.channels.keys().copied().filter(|id| self.marks.contains_key(&(*id, agent)));
        let channels: Vec<Uuid> = marked.by_ref().take(MARKS).collect();
        let reply = Reply::Forgot { more: marked.next().is_some() };
        if channels.is_empty() {
            return Decision::reply(reply);
        }
        Decision::new(reply, vec![Event::Forgotten { agent, channels }])
    }

    fn purge_next(&self) -> Decision<Self> {
        let event = self.purges.iter().next().map(|(&channel, purge)| Event::Purged {
            channel,
            through: purge.last.min(purge.next + PURGE - 1),
        });
        Decision::new(Reply::Done, event.into_iter().collect())
    }
}

fn batch(channel: &Channel, mark: &Mark, numbers: Vec<u64>) -> Batch {
    Batch {
        channel: channel.id,
        name: channel.name.clone(),
        numbers,
        unread: mark.unread(channel.last),
        mark: mark.read,
    }
}

/// The newest messages that a read asks for and has room for, oldest first. A read of all channels is about unread
/// ones.
fn numbers(channel: &Channel, mark: &Mark, read: &Read, room: usize) -> Vec<u64> {
    if read.since.is_some_and(|since| channel.last_at <= since) {
        return Vec::new();
    }
    let unread_only = read.unread_only || read.channel.is_none();
    let after = read.after.get(&channel.id).copied().unwrap_or(0).max(channel.forgotten);
    let limit = room.min(read.limit as usize);
    let mut numbers: Vec<u64> = if read.mentions_only {
        let wanted = |number: &u64| *number > after && (!unread_only || mark.is_unread(*number));
        mark.mentions.iter().rev().copied().filter(wanted).take(limit).collect()
    } else if unread_only {
        mark.seen.missing(after.max(mark.read), channel.last).take(limit).collect()
    } else {
        (after + 1..=channel.last).rev().take(limit).collect()
    };
    numbers.reverse();
    numbers
}

/// Each once, and of the strangers none.
fn known(agents: &[Uuid], strangers: &[Uuid]) -> Vec<Uuid> {
    let mut seen: BTreeSet<Uuid> = strangers.iter().copied().collect();
    agents.iter().copied().filter(|agent| seen.insert(*agent)).collect()
}

fn few(field: &str, count: usize, most: usize) -> Result<(), Refusal> {
    if count <= most {
        return Ok(());
    }
    Err(Refusal::new(
        Code::TooLarge,
        format!("{field}: there are {count} and at most {most} are taken; name fewer"),
    ))
}

/// A last line that leads from the message to its tasks. It does not count against the message's length.
fn links(tasks: &[MentionTask]) -> String {
    if tasks.is_empty() {
        return String::new();
    }
    let links: Vec<String> = tasks
        .iter()
        .map(|task| {
            let id = task.id.to_string();
            format!("[{}](/tasks/{id})", &id[..8])
        })
        .collect();
    format!("\n\n→ {}", links.join(" "))
}
