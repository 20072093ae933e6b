//! What this node knows of what was revoked: a copy for each swarm, which asks the swarm's owner for news.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use skein_shared::access::{self, Command, Of, Reply, Revocation};
use skein_shared::id::{EntityKey, Kind, Name};
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal};
use tokio::time::Instant;

use crate::auth::{Credential, Role};
use crate::entity::{Entities, Request};

/// How old a copy of the revocations may be.
const FRESH: Duration = Duration::from_secs(2);
/// How long the owner may take to say what is new; after that the copy holds until the next try. A node that has no
/// copy yet waits as long as a call would: the owner may have died, and its shards be on their way to another node.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two questions as long as there was no answer at all.
const AGAIN: Duration = Duration::from_millis(200);
/// Swarms whose revocations are kept; a full table is emptied.
const SWARMS: usize = 10_000;

/// The copies of a node. Cheap to clone.
#[derive(Clone)]
pub(super) struct Revocations {
    entities: Entities,
    copies: Arc<Mutex<HashMap<Name, Arc<Copy>>>>,
}

/// What this node knows of a swarm's revocations.
#[derive(Default)]
struct Copy {
    known: RwLock<Known>,
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    revoked: HashMap<Of, Revocation>,
    newest: Timestamp,
    /// When the owner was asked last, and whether it has ever answered.
    asked: Option<Instant>,
    answered: bool,
    /// How often something was revoked through this node.
    changes: u64,
}

impl Revocations {
    pub(super) fn new(entities: Entities) -> Self {
        Self { entities, copies: Arc::default() }
    }

    /// Lets a credential pass that was not revoked.
    ///
    /// # Errors
    /// `unauthenticated` for one that was; `unavailable` while nobody can say.
    pub(super) async fn admit(&self, credential: &Credential) -> Result<(), Refusal> {
        let swarm = &credential.who.swarm;
        let copy = self.copy(swarm);
        // Whoever looks after a node that has just started, or stands still, must get in.
        let tends = matches!(credential.who.role, Role::Operator | Role::Runner);
        let patience = if tends || copy.was_answered() { PATIENCE } else { Request::TIMEOUT };
        self.freshen(swarm, &copy, patience).await;
        let known = copy.known.read().unwrap_or_else(PoisonError::into_inner);
        if known.revokes(credential) {
            let problem = "the token was revoked; ask the operator for a new one (`skein token issue`)";
            return Err(Refusal::new(Code::Unauthenticated, problem));
        }
        if known.answered || tends {
            return Ok(());
        }
        let problem = format!("nobody can say yet which tokens of the swarm `{swarm}` hold; try again");
        Err(Refusal::new(Code::Unavailable, problem).retry_after(1000))
    }

    fn copy(&self, swarm: &Name) -> Arc<Copy> {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(copy) = copies.get(swarm) {
            return Arc::clone(copy);
        }
        if copies.len() >= SWARMS {
            copies.clear();
        }
        Arc::clone(copies.entry(swarm.clone()).or_default())
    }

    async fn freshen(&self, swarm: &Name, copy: &Copy, patience: Duration) {
        if copy.is_fresh() {
            return;
        }
        let Ok(_one_asks) = tokio::time::timeout(patience, copy.asking.lock()).await else { return };
        if copy.is_fresh() {
            return;
        }
        let (after, changes) = {
            let known = copy.known.read().unwrap_or_else(PoisonError::into_inner);
            (known.newest, known.changes)
        };
        let key = EntityKey::of(Kind::Access, swarm);
        let command = Command::Revoked { after };
        let question = self.entities.ask::<access::Access>(&key, Request::read(), command);
        let answer = tokio::time::timeout(patience, question).await;
        let mut known = copy.known.write().unwrap_or_else(PoisonError::into_inner);
        // An answer to a question from before may not know it.
        known.asked = (known.changes == changes).then(Instant::now);
        if let Ok(Ok(Reply::Revoked(news))) = answer {
            known.learn(news, self.entities.clock().wall());
        } else {
            tracing::warn!(%swarm, "the owner of the swarm does not say which tokens were revoked; what is known holds");
        }
    }

    /// The next credential is held against what the owner says then.
    pub(super) fn have_changed(&self, swarm: &Name) {
        let copy = self.copy(swarm);
        let mut known = copy.known.write().unwrap_or_else(PoisonError::into_inner);
        known.changes += 1;
        known.asked = None;
    }
}

impl Copy {
    fn was_answered(&self) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).answered
    }

    fn is_fresh(&self) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let good = if known.answered { FRESH } else { AGAIN };
        known.asked.is_some_and(|asked| asked.elapsed() < good)
    }
}

impl Known {
    fn learn(&mut self, news: Vec<Revocation>, now: Timestamp) {
        self.answered = true;
        for revocation in news {
            self.newest = self.newest.max(revocation.at);
            self.revoked.insert(revocation.of, revocation);
        }
        self.revoked.retain(|_, revocation| revocation.until > now);
    }

    fn revokes(&self, credential: &Credential) -> bool {
        if self.revoked.is_empty() {
            return false;
        }
        let named = |of: Of| self.revoked.get(&of);
        let before = |of: Of, since| named(of).is_some_and(|revocation| since <= revocation.at);
        let agents = !matches!(credential.who.role, Role::Operator | Role::Runner);
        credential.line().any(|link| {
            // What is handed on anew has the same family, and is good again.
            let of_family = |family| {
                if link.is_handed_on {
                    before(Of::Token(family), link.since)
                } else {
                    named(Of::Token(family)).is_some()
                }
            };
            named(Of::Token(link.id)).is_some()
                || link.first.is_some_and(|first| named(Of::Token(first)).is_some())
                || link.family.is_some_and(of_family)
                || before(Of::Agent(link.agent), link.since)
                || (agents && before(Of::Everyone, link.since))
        })
    }
}
