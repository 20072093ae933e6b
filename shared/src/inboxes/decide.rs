//! The rules of inboxes.

use uuid::Uuid;

use super::apply::ended;
use super::command::{Command, Deliver, Reply, Slack};
use super::effects::handed_over;
use super::event::Event;
use super::state::{End, Inboxes, Message, PROCESSING, Source, Status};
use crate::code::{Code, Refusal};
use crate::entity::{Ctx, Decision, Effect};
use crate::slack::Said;
use crate::wire;

/// Most messages that one question hands out: a lead that gets more treats none of them well.
const TAKE: u32 = 5;
/// Most unread messages of an agent.
const UNREAD: usize = 10_000;
/// Longest key of a delivery, and longest foreign id, characters.
const KEY: usize = 1000;

pub(super) fn decide(
    state: &Inboxes,
    command: &Command,
    ctx: &mut Ctx,
) -> Result<Decision<Inboxes>, Refusal> {
    match command {
        Command::Deliver(deliver) => state.accept(deliver, ctx),
        Command::Hear { said, request, otherwise, lead, note } => {
            let heard = state.hear(said, request, *otherwise, *lead, ctx)?;
            let is_new = matches!(heard.reply, Reply::Delivered { repeated: false, .. });
            let note = note.as_deref().filter(|_| is_new).cloned();
            let told = note.map(|note| Effect::Slack { swarm: state.swarm.clone(), note });
            Ok(heard.effects(told.into_iter().collect()))
        }
        Command::Take { agent, limit } => state.take(*agent, *limit, ctx),
        Command::Respond { agent, message, text } => {
            state.owned(*agent, *message)?;
            wire::text("message", text, 1)?;
            let mut fields = ended(Status::Responded, ctx.now);
            fields["responseText"] = text.as_str().into();
            let event = Event::Responded { message: *message, text: text.clone(), at: ctx.now };
            Ok(Decision::new(Reply::Ended(fields), vec![event]))
        }
        Command::Delegate { agent, message, task } => {
            state.owned(*agent, *message)?;
            let id = task.spec.id.unwrap_or_else(|| ctx.id());
            let mut fields = ended(Status::Delegated, ctx.now);
            fields["delegatedToTaskId"] = id.to_string().into();
            let event = Event::Delegated { message: *message, task: id, at: ctx.now };
            let effect = handed_over(task, *agent, *message, id, &state.swarm);
            Ok(Decision::new(Reply::Ended(fields), vec![event]).effects(vec![effect]))
        }
        Command::Return { agent, message, task, refusal } => {
            if state.messages.contains_key(message) {
                return Ok(Decision::reply(Reply::Done));
            }
            let event = Event::Returned {
                message: *message,
                number: state.last + 1,
                agent: state.reader(*agent),
                task: *task,
                refusal: refusal.clone(),
                at: ctx.now,
            };
            Ok(Decision::new(Reply::Done, vec![event]))
        }
        Command::Post { agent, attempt } => {
            wire::length("attempt", attempt, 1, KEY)?;
            let event = Event::Posting { agent: *agent, attempt: attempt.clone(), at: ctx.now };
            Ok(Decision::new(Reply::Posts { attempt: attempt.clone() }, vec![event]))
        }
        Command::Get { agent, message } => {
            let message = state.owned(*agent, *message)?;
            Ok(Decision::reply(Reply::Message(message.clone())))
        }
        Command::Count { agent } => {
            let unread = state.of(*agent, Status::Unread).count() as u64;
            Ok(Decision::reply(Reply::Count { unread }))
        }
        Command::Open { agent, limit } => Ok(Decision::reply(state.open(*agent, *limit))),
        Command::Inherit { lead } => Ok(state.inherit(*lead, ctx)),
        Command::Denied(denied) => Err(denied.refusal.clone()),
        Command::Tick => Ok(state.sweep(ctx)),
    }
}

impl Slack {
    /// The digest of the thread, if it came from one.
    pub(super) fn thread(&self) -> Option<Uuid> {
        let (channel, thread) = self.channel_id.as_ref().zip(self.thread_ts.as_ref())?;
        Some(Inboxes::digest(&format!("{channel}\n{thread}")))
    }
}

impl Inboxes {
    /// Leads alone read their inboxes, so a thread goes on with whoever leads now.
    fn hear(
        &self,
        said: &Said,
        request: &str,
        otherwise: Option<Uuid>,
        lead: Option<Uuid>,
        ctx: &mut Ctx,
    ) -> Result<Decision<Self>, Refusal> {
        let slack = Slack {
            channel_id: Some(said.channel.clone()),
            thread_ts: Some(said.thread.clone()),
            user_id: Some(said.user.clone()),
            matched_text: None,
        };
        let owner = slack.thread().and_then(|digest| self.threads.get(&digest));
        let owner = owner.map(|owner| lead.unwrap_or(owner.agent));
        let Some(agent) = owner.or(otherwise) else { return Ok(Decision::reply(Reply::Done)) };
        let content = request.to_owned();
        let dedupe = Some(said.key());
        self.accept(&Deliver { agent, content, source: Source::Slack, slack, mail: None, dedupe }, ctx)
    }

    fn accept(&self, deliver: &Deliver, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        wire::text("content", &deliver.content, 1)?;
        let slack = &deliver.slack;
        for (field, text) in [
            ("slackChannelId", &slack.channel_id),
            ("slackThreadTs", &slack.thread_ts),
            ("slackUserId", &slack.user_id),
            ("matchedText", &slack.matched_text),
            ("dedupe", &deliver.dedupe),
        ] {
            wire::length(field, text.as_deref().unwrap_or_default(), 0, KEY)?;
        }
        let digest = deliver.dedupe.as_deref().map(Self::digest);
        if let Some(seen) = digest.and_then(|digest| self.seen.get(&digest)) {
            return Ok(Decision::reply(Reply::Delivered { message: seen.message, repeated: true }));
        }
        let agent = self.reader(deliver.agent);
        let gives_way = self.make_room(agent, ctx)?;
        let message = ctx.id();
        let event = Event::Delivered {
            message,
            number: self.last + 1,
            agent,
            content: deliver.content.clone(),
            source: deliver.source,
            slack: deliver.slack.clone(),
            mail: deliver.mail.clone().map(Box::new),
            seen: digest,
            at: ctx.now,
        };
        let events = gives_way.into_iter().chain([event]).collect();
        Ok(Decision::new(Reply::Delivered { message, repeated: false }, events))
    }

    /// Of a full inbox the oldest notice goes: whoever wrote all else waits for an answer.
    fn make_room(&self, agent: Uuid, ctx: &Ctx) -> Result<Option<Event>, Refusal> {
        let unread = || self.of(agent, Status::Unread);
        if unread().count() < UNREAD {
            return Ok(None);
        }
        let oldest = unread().filter(|message| message.notice).min_by_key(|message| message.number);
        let oldest = oldest.ok_or_else(|| {
            Refusal::new(
                Code::QueueFull,
                format!(
                    "the agent's inbox holds {UNREAD} unread messages; let it work some off and deliver again"
                ),
            )
            .retry_after(60_000)
        })?;
        Ok(Some(Event::GaveWay { message: oldest.id, at: ctx.now }))
    }

    fn take(&self, agent: Uuid, limit: u32, ctx: &Ctx) -> Result<Decision<Self>, Refusal> {
        if !(1..=TAKE).contains(&limit) {
            return Err(Refusal::new(Code::InvalidArgument, format!("limit: ask for 1 to {TAKE} messages")));
        }
        let messages = oldest(self.of(agent, Status::Unread), limit as usize);
        if messages.is_empty() {
            return Ok(Decision::reply(Reply::Taken(messages)));
        }
        let event = Event::Taken { agent, messages: messages.clone(), at: ctx.now };
        Ok(Decision::new(Reply::Taken(messages), vec![event]))
    }

    fn open(&self, agent: Uuid, limit: u32) -> Reply {
        let own = self.messages.values().filter(|message| message.agent == agent);
        Reply::Open { messages: oldest(own, limit as usize), count: self.messages.len() as u64 }
    }

    /// Who reads what is for an agent: whoever leads by the pool's last word, for the lead may have changed since.
    /// Should that word be older, the next one is on its way, and hands on what is here by then.
    fn reader(&self, agent: Uuid) -> Uuid {
        self.lead.unwrap_or(agent)
    }

    /// There is one lead, so what others have open nobody reads any more. All of it goes, also what was handed out
    /// beside a full inbox: nobody would ask for the rest.
    fn inherit(&self, lead: Uuid, ctx: &Ctx) -> Decision<Self> {
        let left = self.messages.values().filter(|message| message.agent != lead);
        let messages = oldest(left, self.messages.len());
        if messages.is_empty() && self.lead == Some(lead) {
            return Decision::reply(Reply::Done);
        }
        Decision::new(Reply::Done, vec![Event::HandedOn { lead, messages, at: ctx.now }])
    }

    /// An open message of the agent's own.
    fn owned(&self, agent: Uuid, message: Uuid) -> Result<&Message, Refusal> {
        let found = self.messages.get(&message).ok_or_else(|| {
            Refusal::new(
                Code::NotFound,
                format!(
                    "there is no open message {message}: it was answered, delegated, or never came; get-inbox-message shows one that ended"
                ),
            )
        })?;
        if found.agent != agent {
            return Err(Refusal::new(
                Code::Forbidden,
                format!("the message {message} is in another agent's inbox; ask that agent or the lead"),
            ));
        }
        Ok(found)
    }

    /// What people wrote was forgotten when its period is over, a notice was read. Messages whose period ended while
    /// nobody served the inboxes get a full one first.
    fn sweep(&self, ctx: &Ctx) -> Decision<Self> {
        let (mut released, mut read, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        let is_notice = |message: &Uuid| self.messages.get(message).is_some_and(|message| message.notice);
        let (mut seen, mut threads) = (Vec::new(), Vec::new());
        for (at, end) in self.ends.iter().take_while(|(at, _)| *at <= ctx.now) {
            match end {
                End::Seen(digest) => seen.push(*digest),
                End::Thread(digest) => threads.push(*digest),
                End::Processing(message) if ctx.grace(*at, PROCESSING) > ctx.now => kept.push(*message),
                End::Processing(message) if is_notice(message) => read.push(*message),
                End::Processing(message) => released.push(*message),
            }
        }
        let mut events = Vec::new();
        if !released.is_empty() {
            events.push(Event::Released { messages: released, at: ctx.now });
        }
        if !read.is_empty() {
            events.push(Event::Read { messages: read, at: ctx.now });
        }
        if !kept.is_empty() {
            events.push(Event::Kept { messages: kept, since: ctx.serving_since });
        }
        if !seen.is_empty() || !threads.is_empty() {
            events.push(Event::Forgotten { seen, threads });
        }
        Decision::new(Reply::Done, events)
    }
}

/// The ids of these messages in the order in which they came, so many at most.
fn oldest<'a>(messages: impl Iterator<Item = &'a Message>, most: usize) -> Vec<Uuid> {
    let mut messages: Vec<&Message> = messages.collect();
    messages.sort_by_key(|message| message.number);
    messages.iter().take(most).map(|message| message.id).collect()
}
