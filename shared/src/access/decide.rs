//! The rules of access.

use std::time::Duration;

use uuid::Uuid;

use super::command::{Command, Reply, Wish};
use super::event::Event;
use super::state::{Access, Client, Of, Revocation};
use crate::code::{Code, Refusal};
use crate::entity::{Ctx, Decision};
use crate::id::Name;
use crate::time::Timestamp;

/// Most clients of a swarm, and most revocations that hold at a time: each node keeps them in memory.
const CLIENTS: usize = 1000;
const REVOCATIONS: usize = 10_000;
/// Places for those who administer. Holders who give tokens back leave them free.
const KEPT_FREE: usize = 1000;
/// Once so many hold, an agent gives tokens back only while fewer of its own are among them than [`SHARE`]: one that
/// makes and ends tokens without end keeps no other from logging out.
const UNSHARED: usize = REVOCATIONS / 2;
const SHARE: usize = 100;

pub(super) fn decide(state: &Access, command: &Command, ctx: &mut Ctx) -> Result<Decision<Access>, Refusal> {
    match command {
        Command::AddClient(wish) => state.add(wish, ctx),
        Command::RemoveClient { name, by, until } => state.remove(name, by, *until, ctx),
        Command::Client { name } => {
            let client = state.clients.get(name).cloned().map(Box::new);
            Ok(Decision::reply(Reply::Client(client)))
        }
        Command::Revoke { of, by, until, began, holder } => {
            let is_given_back = *began > Timestamp::ZERO;
            if let Some(holder) = holder {
                state.leaves_room(*of, *holder)?;
            }
            let most = if is_given_back { REVOCATIONS } else { REVOCATIONS + KEPT_FREE };
            let mut revocation = state.revocation(*of, most, by, *until, ctx)?;
            // What is given back ends, however far the clock that dated it is ahead of this one.
            revocation.at = revocation.at.max(*began);
            revocation.holder = revocation.holder.or(*holder);
            let reply = Reply::Revocation(revocation.body());
            Ok(Decision::new(reply, vec![Event::TokensRevoked { revocation }]))
        }
        Command::Revoked { after } => {
            let mut news: Vec<_> = state.revoked.values().filter(|one| one.at > *after).cloned().collect();
            news.sort_by_key(|one| one.at);
            Ok(Decision::reply(Reply::Revoked(news)))
        }
        Command::Tick => Ok(state.forget(ctx.now)),
    }
}

impl Access {
    fn add(&self, wish: &Wish, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        if self.clients.contains_key(&wish.name) {
            let problem =
                format!("there is a client `{}` already; remove it, or choose another name", wish.name);
            return Err(Refusal::new(Code::AlreadyExists, problem));
        }
        if self.clients.len() >= CLIENTS {
            let problem = format!("the swarm has {CLIENTS} clients, the most there may be; remove one first");
            return Err(Refusal::new(Code::QueueFull, problem));
        }
        let wish = wish.clone();
        let client = Client {
            id: ctx.id(),
            name: wish.name,
            digest: wish.digest,
            agent: wish.agent.unwrap_or_else(|| ctx.id()),
            agent_name: wish.agent_name,
            role: wish.role,
            scope: wish.scope,
            view: wish.view,
            lifetime_s: wish.lifetime_s,
            created: ctx.now,
        };
        let reply = Reply::Added(client.body());
        Ok(Decision::new(reply, vec![Event::ClientAdded { client: Box::new(client) }]))
    }

    fn remove(&self, name: &Name, by: &str, until: Timestamp, ctx: &Ctx) -> Result<Decision<Self>, Refusal> {
        let client = self.clients.get(name).ok_or_else(|| {
            Refusal::new(Code::NotFound, format!("there is no client `{name}`; list those there are"))
        })?;
        let revocation = self.revocation(Of::Token(client.id), REVOCATIONS + KEPT_FREE, by, until, ctx)?;
        let events = vec![Event::ClientRemoved { name: name.clone() }, Event::TokensRevoked { revocation }];
        Ok(Decision::new(Reply::Done, events))
    }

    /// Whether an agent that gives a token back leaves enough places to the others. Again it may always.
    fn leaves_room(&self, of: Of, holder: Uuid) -> Result<(), Refusal> {
        if self.revoked.len() < UNSHARED || self.revoked.contains_key(&of) {
            return Ok(());
        }
        let own = self.revoked.values().filter(|one| one.holder == Some(holder)).count();
        if own < SHARE {
            return Ok(());
        }
        let problem = format!(
            "{own} tokens of this agent were given back and have not ended yet, and the places that are left are for \
             others; let this one end by itself, ask for tokens of shorter lives, or have an operator end all of the \
             agent's with `skein token revoke --agent {holder}`"
        );
        Err(Refusal::new(Code::QueueFull, problem))
    }

    /// Each has a moment of its own, so that whoever knows the newest can ask for what came after it.
    fn revocation(
        &self,
        of: Of,
        most: usize,
        by: &str,
        until: Timestamp,
        ctx: &Ctx,
    ) -> Result<Revocation, Refusal> {
        let known = self.revoked.get(&of);
        if known.is_none() && self.revoked.len() >= most {
            let problem = format!(
                "{most} revocations hold already; revoke all tokens of an agent at once, or take the signing key out with `skein token rotate-keys` and `--retire`"
            );
            return Err(Refusal::new(Code::QueueFull, problem));
        }
        // Tokens are dated by the wall clock, which may be ahead of this one.
        let at = ctx.now.max(ctx.wall).max(self.newest + Duration::from_millis(1));
        // It is forgotten by this clock, and they end by the wall clock, which may be behind this one.
        let until = until + ctx.now.since(ctx.wall);
        let until = known.map_or(until, |known| known.until.max(until));
        let (by, holder) = (by.chars().take(Name::MAX).collect(), known.and_then(|known| known.holder));
        Ok(Revocation { of, at, until, by, holder })
    }

    fn forget(&self, now: Timestamp) -> Decision<Self> {
        let of: Vec<Of> = self.revoked.values().filter(|one| one.until <= now).map(|one| one.of).collect();
        if of.is_empty() {
            return Decision::reply(Reply::Done);
        }
        Decision::new(Reply::Done, vec![Event::RevocationsForgotten { of }])
    }
}
