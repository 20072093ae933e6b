//! All that a good token says.

use serde::{Deserialize, Serialize};
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::principal::Principal;
use super::token::{LEEWAY, refuse};

/// How often a token may be made narrower from another: each step stands in the token.
pub const STEPS: usize = 4;

/// A token that was verified: who holds it, and what it takes to end it.
#[derive(Clone, Debug)]
pub struct Credential {
    pub who: Principal,
    pub id: Uuid,
    /// The client, or the first of the tokens that this one continues.
    pub family: Option<Uuid>,
    /// The client that asked for it.
    pub client: Option<String>,
    /// Until when it may be exchanged for a later one.
    pub renewable: Option<Timestamp>,
    /// The token that it was made narrower from.
    pub actor: Option<Actor>,
    pub issued: Timestamp,
    /// When the first of those that it continues was issued. A revocation counts from there: a node that has not heard of
    /// it yet may have continued a token that holds no more.
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
    pub act: Option<Box<Actor>>,
}

/// What a revocation may name of a token, or of one that it came of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub agent: Uuid,
    pub id: Uuid,
    pub family: Option<Uuid>,
    pub since: Timestamp,
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
        let Self { who, id, family, since, .. } = self;
        let own = Link { agent: who.agent, id: *id, family: *family, since: *since };
        let actors = std::iter::successors(self.actor.as_ref(), |actor| actor.act.as_deref());
        std::iter::once(own).chain(actors.map(|actor| Link {
            agent: actor.sub,
            id: actor.jti,
            family: actor.family,
            since: Timestamp(actor.iat_ms),
        }))
    }

    /// How those that come of this token name it.
    pub fn as_actor(&self) -> Actor {
        Actor {
            sub: self.who.agent,
            jti: self.id,
            iat_ms: self.since.millis(),
            family: self.family,
            act: self.actor.clone().map(Box::new),
        }
    }
}
