//! All that a good token says.

use serde::{Deserialize, Serialize};
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::principal::{Principal, Role};
use super::token::{LEEWAY, LONGEST, OWN, moment, refuse};

/// How often a token may be made narrower from another: each step stands in the token.
pub const STEPS: usize = 4;

/// A token that was verified: who holds it, and what it takes to end it.
#[derive(Clone, Debug)]
pub struct Credential {
    pub who: Principal,
    pub id: Uuid,
    /// The client, or the first of the tokens that this one continues, or the worker that it was handed to.
    pub family: Option<Uuid>,
    /// The first of the tokens that this one continues, where the family is a worker and does not name it.
    pub first: Option<Uuid>,
    /// The client that asked for it.
    pub client: Option<String>,
    /// Until when it may be exchanged for a later one.
    pub renewable: Option<Timestamp>,
    /// When the last of its family has ended, if it is not the first one. Tokens of before did not say it.
    pub family_ends: Option<Timestamp>,
    /// The token that it was made narrower from.
    pub actor: Option<Actor>,
    /// A session of the console, which opens nothing else.
    pub for_console: bool,
    pub issued: Timestamp,
    /// When the first of those that it continues was issued. A revocation counts from there: a node that has not heard
    /// of it yet may have continued a token that holds no more.
    pub since: Timestamp,
    pub expires: Timestamp,
}

/// Who handed some of their own rights on (RFC 8693, `act`). What ends their token ends those that came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    pub sub: Uuid,
    pub jti: Uuid,
    /// When that token, or the first of those that it continued, was issued, milliseconds.
    pub iat_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub act: Option<Box<Actor>>,
}

/// What a revocation may name of a token, or of one that it came of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub agent: Uuid,
    pub id: Uuid,
    pub family: Option<Uuid>,
    pub first: Option<Uuid>,
    pub since: Timestamp,
    /// Another agent gave it. Its family is then known by the worker's name, and goes on with each that is handed on
    /// anew.
    pub is_handed_on: bool,
}

impl Credential {
    /// # Errors
    /// `unauthenticated` for one that has ended, or has not begun.
    pub fn in_time(&self, now: Timestamp) -> Result<(), Refusal> {
        if now > self.expires + LEEWAY {
            // With another id the next one would be for a stranger, without this agent's name, tasks and messages.
            let problem = format!(
                "the token has expired; ask the operator for the next one of the same agent (`skein token issue --agent {}`)",
                self.who.agent
            );
            return Err(Refusal::new(Code::Unauthenticated, problem));
        }
        if self.issued > now + LEEWAY {
            return Err(refuse("the token was issued in the future; check the clocks"));
        }
        Ok(())
    }

    /// The token itself and those that it came of.
    pub fn line(&self) -> impl Iterator<Item = Link> {
        let Self { who, id, family, first, since, actor, .. } = self;
        let own = Link {
            agent: who.agent,
            id: *id,
            family: *family,
            first: *first,
            since: *since,
            is_handed_on: self.is_handed_on(),
        };
        let actors = std::iter::successors(actor.as_ref(), |actor| actor.act.as_deref());
        std::iter::once(own).chain(actors.map(|actor| Link {
            agent: actor.sub,
            id: actor.jti,
            family: actor.family,
            first: actor.first,
            since: Timestamp(actor.iat_ms),
            is_handed_on: is_anothers(actor.sub, actor.act.as_deref()),
        }))
    }

    fn is_handed_on(&self) -> bool {
        is_anothers(self.who.agent, self.actor.as_ref())
    }

    /// How those that continue this one name the first of them; nothing where their family does.
    pub fn first_handed_on(&self) -> Option<Uuid> {
        self.is_handed_on().then_some(self.first.unwrap_or(self.id))
    }

    /// When it has ended, and what may yet come of it.
    pub fn ends(&self) -> Timestamp {
        self.renewable.unwrap_or(self.expires).max(self.expires)
    }

    /// When the last of those has ended that continue the same first token, or that a lead hands to the same worker;
    /// nothing for a token of before, which does not say it.
    pub fn last_ends(&self) -> Option<Timestamp> {
        // A client is the family of all its tokens, and what was renewed from one of them names that one.
        let is_first = match self.client {
            Some(_) => self.actor.is_none(),
            None => self.family.is_none(),
        };
        if is_first { Some(self.ends()) } else { self.family_ends }
    }

    /// When the last of those has ended that may be handed to one worker as long as this token is good.
    pub fn handed_on_ends(&self) -> Option<Timestamp> {
        let ends = self.last_ends()?;
        if self.client.is_none() {
            return Some(ends);
        }
        // Up to that moment its client may fetch another, which lasts as long and is a lead of the same worker.
        Some(ends + ends.since(self.since) + LEEWAY)
    }

    /// When the last of those has ended that end if its family is revoked now.
    pub fn revoked_ends(&self, now: Timestamp) -> Timestamp {
        let said = self.last_ends();
        if self.is_handed_on() {
            // Those that were handed on until now, on a node whose clock may be ahead, hold for a year at most. What
            // handed them on may hold much longer, as a run's token does.
            let latest = now + LEEWAY + LONGEST;
            return said.map_or(latest, |said| said.min(latest));
        }
        said.unwrap_or_else(|| self.first_ends(now))
    }

    /// When the first of its family has ended at the latest, where nobody says it. What a node makes for itself holds
    /// longest; the id of any other says when it was made, unless it is another issuer's.
    fn first_ends(&self, now: Timestamp) -> Timestamp {
        let is_a_nodes = matches!(self.who.role, Role::Operator | Role::Runner);
        match self.family.and_then(moment) {
            Some(made) if !is_a_nodes => made + LONGEST,
            _ => now + OWN,
        }
    }

    /// How those that come of this token name it.
    pub fn as_actor(&self) -> Actor {
        Actor {
            sub: self.who.agent,
            jti: self.id,
            iat_ms: self.since.millis(),
            family: self.family,
            first: self.first,
            act: self.actor.clone().map(Box::new),
        }
    }
}

/// Whether an agent's token came of one of another agent.
fn is_anothers(agent: Uuid, from: Option<&Actor>) -> bool {
    from.is_some_and(|from| from.sub != agent)
}
