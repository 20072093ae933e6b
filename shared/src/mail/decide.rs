//! The rules of mail.

use uuid::Uuid;

use super::command::{Command, Reply};
use super::event::Event;
use super::letter::Letter;
use super::state::{Address, Mail, Thread};
use crate::caller::Caller;
use crate::code::{Code, Refusal};
use crate::entity::{Ctx, Decision, Effect};
use crate::id::{EntityKey, Kind};
use crate::pool::{self, Pool};
use crate::wire;

/// Most inboxes of a swarm, and longest id and address, characters.
const INBOXES: usize = 1000;
const ID: usize = 500;

pub(super) fn decide(state: &Mail, command: &Command, ctx: &mut Ctx) -> Result<Decision<Mail>, Refusal> {
    match command {
        Command::Register { by, agent, inbox, email } => {
            state.register(by, *agent, inbox, email.as_deref(), ctx)
        }
        Command::Unregister { agent, inbox } => state.unregister(*agent, inbox),
        Command::List { agent } => {
            Ok(Decision::reply(Reply::Addresses(listed(state.addresses.values(), *agent))))
        }
        Command::Receive(letter) => Ok(state.receive(letter)),
        Command::Follow { thread, task, agent } => {
            let thread = Event::ThreadFollowed {
                digest: Mail::digest(thread),
                thread: Thread { task: *task, agent: *agent, at: ctx.now },
            };
            Ok(Decision::new(Reply::Done, vec![thread]))
        }
        Command::Tick => {
            let due = state.ends.iter().take_while(|(at, _)| *at <= ctx.now);
            let digests: Vec<Uuid> = due.map(|(_, digest)| *digest).collect();
            let events =
                if digests.is_empty() { Vec::new() } else { vec![Event::ThreadsForgotten { digests }] };
            Ok(Decision::new(Reply::Done, events))
        }
    }
}

impl Mail {
    fn register(
        &self,
        by: &Caller,
        agent: Uuid,
        inbox: &str,
        email: Option<&str>,
        ctx: &mut Ctx,
    ) -> Result<Decision<Self>, Refusal> {
        let inbox = inbox.trim();
        wire::length("inboxId", inbox, 1, ID)?;
        wire::length("inboxEmail", email.unwrap_or_default(), 0, ID)?;
        let known = self.find(inbox);
        if known.is_some_and(|known| known.agent != agent) && !by.lead {
            return Err(Refusal::new(
                Code::Forbidden,
                "the mail of this inbox goes to another agent; only the lead takes one over, or that agent gives it up with action unregister",
            ));
        }
        if known.is_none() && self.addresses.len() >= INBOXES {
            return Err(Refusal::new(
                Code::QueueFull,
                format!("the swarm has {INBOXES} inboxes, the most there may be; unregister one first"),
            ));
        }
        let address = Address {
            id: known.map_or_else(|| ctx.id(), |known| known.id),
            inbox: inbox.to_owned(),
            agent,
            email: email.map(str::to_owned).or_else(|| known.and_then(|known| known.email.clone())),
            created: known.map_or(ctx.now, |known| known.created),
        };
        let others = self.addresses.values().filter(|other| other.id != address.id);
        let reply = Reply::Addresses(listed(others.chain([&address]), agent));
        if known == Some(&address) {
            return Ok(Decision::reply(reply));
        }
        Ok(Decision::new(reply, vec![Event::InboxRegistered { address }]))
    }

    fn unregister(&self, agent: Uuid, inbox: &str) -> Result<Decision<Self>, Refusal> {
        let known = self.find(inbox).ok_or_else(|| {
            Refusal::new(Code::NotFound, "no agent has this inbox; action list shows those that are yours")
        })?;
        if known.agent != agent {
            return Err(Refusal::new(
                Code::Forbidden,
                "the mail of this inbox goes to another agent, which alone gives it up; the lead may take it over \
                 first, with action register",
            ));
        }
        let others = self.addresses.values().filter(|other| other.id != known.id);
        let reply = Reply::Addresses(listed(others, agent));
        Ok(Decision::new(reply, vec![Event::InboxUnregistered { address: known.id }]))
    }

    /// The pool knows who is there; from here it hears whose the inbox is, and what the thread is about.
    fn receive(&self, letter: &Letter) -> Decision<Self> {
        let thread = letter.ids.thread.as_deref().and_then(|thread| self.threads.get(&Self::digest(thread)));
        let mailed = pool::Mailed {
            letter: letter.clone(),
            agent: self.find(&letter.ids.inbox).map(|address| address.agent),
            task: thread.map(|thread| thread.task),
            worker: thread.and_then(|thread| thread.agent),
        };
        let command = pool::Command::Mail(Box::new(mailed));
        let effect = Effect::entity::<Pool>(EntityKey::of(Kind::Pool, &self.swarm), &command);
        Decision::reply(Reply::Done).effects(vec![effect])
    }
}

fn listed<'a>(addresses: impl Iterator<Item = &'a Address>, agent: Uuid) -> Vec<serde_json::Value> {
    let mut own: Vec<&Address> = addresses.filter(|address| address.agent == agent).collect();
    own.sort_by_key(|address| std::cmp::Reverse((address.created, address.id)));
    own.into_iter().map(Address::view).collect()
}
