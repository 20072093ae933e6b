//! Who holds a token that still holds, and how tokens are had and ended: for every face, before it does anything else.
//!
//! A signature says what a token was; whether it was revoked since stands with the swarm's owner. Each node keeps a
//! copy of what is revoked and asks for news now and then, so a call costs no question of its own.

mod revocations;
mod sessions;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use skein_shared::access::{self, Command, Of, Reply, Wish};
use skein_shared::agent::{self, Agent};
use skein_shared::id::{EntityKey, Kind, Name};
use skein_shared::pool::{self, Pool};
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal};
use subtle::ConstantTimeEq;
use uuid::Uuid;

use revocations::Revocations;

use super::instances::require_live;
use super::lists::whole;
use super::unexpected;
use crate::auth::credential::{Actor, STEPS};
use crate::auth::issuer::Issuers;
use crate::auth::token::{Claims, Issued, Keys, LEEWAY, LONGEST, Origin};
use crate::auth::{Credential, Principal, Right, Rights, Role, View, policy};
use crate::entity::{Entities, Request};
use crate::projection::{Filter, Query, Test};

/// How often a stream looks whether its token still holds.
const LOOK: Duration = Duration::from_secs(5);
/// The life of a token that was exchanged, when nobody says how long.
const USUAL: Duration = Duration::from_secs(900);

/// Knows callers by their tokens. Cheap to clone.
#[derive(Clone)]
pub struct Access {
    keys: Keys,
    issuers: Issuers,
    entities: Entities,
    revocations: Revocations,
}

/// A client that shall fetch tokens.
#[derive(Clone, Debug)]
pub struct NewClient {
    pub name: Name,
    pub agent: Option<Uuid>,
    pub agent_name: Name,
    pub role: Role,
    pub rights: Rights,
    pub view: Option<View>,
    pub lifetime: Duration,
}

/// What a token is exchanged for: the same agent's, or one for a worker of its own.
#[derive(Clone, Debug, Default)]
pub struct Narrower {
    pub rights: Option<Rights>,
    pub lifetime: Option<Duration>,
    /// The agent that gets it. Its name begins with the name of the agent that hands it out.
    pub agent: Option<Name>,
    pub role: Option<Role>,
    pub view: Option<View>,
    /// A session of the console, for the same agent.
    pub for_console: bool,
}

/// A token that was handed out, and what it allows.
#[derive(Clone, Debug)]
pub struct Handed {
    pub issued: Issued,
    pub rights: Rights,
    pub agent: Uuid,
    pub agent_name: Name,
    pub lifetime: Duration,
}

impl Access {
    pub fn new(keys: Keys, entities: Entities) -> Self {
        let revocations = Revocations::new(entities.clone());
        Self { keys, issuers: Issuers::default(), entities, revocations }
    }

    /// Takes the tokens of these issuers too.
    #[must_use]
    pub fn trusting(self, issuers: Issuers) -> Self {
        Self { issuers, ..self }
    }

    pub fn issuers(&self) -> &Issuers {
        &self.issuers
    }

    fn now(&self) -> Timestamp {
        self.entities.clock().wall()
    }

    /// Who holds the token.
    ///
    /// # Errors
    /// As [`Self::credential`].
    pub async fn identify(&self, token: &str) -> Result<Principal, Refusal> {
        self.credential(token).await.map(|credential| credential.who.clone())
    }

    /// All that the token says, if it still holds.
    ///
    /// # Errors
    /// `unauthenticated` for one that is not good, was revoked, or is a session of the console; `unavailable` while
    /// nobody can say which are revoked.
    pub async fn credential(&self, token: &str) -> Result<Arc<Credential>, Refusal> {
        let credential = self.any_credential(token).await?;
        if credential.for_console { Err(sessions::opens_nothing_else()) } else { Ok(credential) }
    }

    /// The same, also of a session of the console.
    async fn any_credential(&self, token: &str) -> Result<Arc<Credential>, Refusal> {
        let now = self.now();
        let credential = match self.issuers.read(token, now).await {
            Some(outcome) => outcome?,
            None => self.keys.read(token, now)?,
        };
        self.holds(&credential).await?;
        Ok(credential)
    }

    /// The same, and nothing for one that does not hold.
    async fn held(&self, token: &str) -> Result<Option<Arc<Credential>>, Refusal> {
        match self.any_credential(token).await {
            Err(refusal) if refusal.code == Code::Unauthenticated => Ok(None),
            found => found.map(Some),
        }
    }

    /// Whether a token that was good a while ago was revoked since.
    ///
    /// # Errors
    /// As [`Self::credential`].
    pub async fn holds(&self, credential: &Credential) -> Result<(), Refusal> {
        self.revocations.admit(credential).await
    }

    /// Whether whoever came with a token may still be told something. While nobody can say they may; the shared key has
    /// none.
    ///
    /// # Errors
    /// `unauthenticated` for a token that was revoked.
    pub async fn still_holds(&self, credential: Option<&Credential>) -> Result<(), Refusal> {
        let Some(credential) = credential else { return Ok(()) };
        match self.holds(credential).await {
            Err(refusal) if refusal.code == Code::Unauthenticated => Err(refusal),
            _ => Ok(()),
        }
    }

    /// Returns when a token holds no more, and with what its holder is refused then: for streams that outlive the look
    /// at their beginning.
    pub async fn end_of(&self, credential: &Credential) -> Refusal {
        loop {
            tokio::time::sleep(LOOK).await;
            let refused = self.holds(credential).await.err();
            let revoked = refused.filter(|refusal| refusal.code == Code::Unauthenticated);
            if let Some(ended) = revoked.or_else(|| credential.in_time(self.now()).err()) {
                return ended;
            }
        }
    }

    async fn ask(&self, swarm: &Name, command: Command) -> Result<Reply, Refusal> {
        let key = EntityKey::of(Kind::Access, swarm);
        self.entities.ask::<access::Access>(&key, Request::read(), command).await
    }

    async fn change(&self, swarm: &Name, command: Command) -> Result<Reply, Refusal> {
        let key = EntityKey::of(Kind::Access, swarm);
        let reply = self.entities.ask::<access::Access>(&key, Request::once(Uuid::now_v7()), command).await;
        // Whoever revoked here finds it revoked here.
        self.revocations.have_changed(swarm);
        reply
    }

    /// Ends tokens before their time.
    ///
    /// # Errors
    /// `forbidden` for who does not administer.
    pub async fn revoke(&self, who: &Principal, of: Of, lasts: Duration) -> Result<Value, Refusal> {
        policy::require(who, Right::Administer)?;
        let (by, until) = (who.agent_name.to_string(), self.now() + lasts);
        self.end(&who.swarm, Command::Revoke { of, by, until, began: Timestamp::ZERO, holder: None }).await
    }

    async fn end(&self, swarm: &Name, command: Command) -> Result<Value, Refusal> {
        match self.change(swarm, command).await? {
            Reply::Revocation(shown) => Ok(shown),
            _ => Err(unexpected("access")),
        }
    }

    /// Ends a token that its holder gives back, with those that it was renewed from and to. One that does not hold
    /// anyway is no fault (RFC 7009), and there is nothing to show of it.
    ///
    /// # Errors
    /// When the revocation cannot be written.
    pub async fn give_back(&self, token: &str) -> Result<Option<Value>, Refusal> {
        let Some(credential) = self.held(token).await? else { return Ok(None) };
        let Credential { who, id, family, client, since, .. } = credential.as_ref();
        // A client's next token is good again, and so is that which somebody logged in with; one that others continue
        // ends with them.
        let family = family.filter(|_| client.is_none() && !credential.for_console);
        // The others may hold longer than this one.
        let last = match family {
            Some(_) => credential.revoked_ends(self.now()),
            None => credential.ends(),
        };
        let (of, by) = (Of::Token(family.unwrap_or(*id)), who.agent_name.to_string());
        let (until, holder) = (last + LEEWAY, Some(who.agent));
        let command = Command::Revoke { of, by, until, began: *since, holder };
        self.end(&who.swarm, command).await.map(Some)
    }

    /// Makes a client. The secret is shown this once.
    ///
    /// # Errors
    /// `forbidden` for who does not administer; `invalid_argument` for what no client can be; `already_exists`.
    pub async fn add_client(&self, who: &Principal, client: NewClient) -> Result<(Value, String), Refusal> {
        policy::require(who, Right::Administer)?;
        if client.lifetime > LONGEST || client.lifetime < Duration::from_secs(1) {
            return Err(Refusal::new(
                Code::InvalidArgument,
                "lifetime: a token holds from a second to a year; 15m, for example",
            ));
        }
        let narrowed = !Rights::of(client.role).are_within(client.rights);
        let secret = secret()?;
        let wish = Wish {
            name: client.name,
            digest: digest(&secret),
            agent: client.agent,
            agent_name: client.agent_name,
            role: client.role.to_string(),
            scope: narrowed.then(|| client.rights.and(Rights::of(client.role)).to_string()),
            view: client.view.map(|view| view.to_string()),
            lifetime_s: client.lifetime.as_secs(),
        };
        match self.change(&who.swarm, Command::AddClient(Box::new(wish))).await? {
            Reply::Added(shown) => Ok((shown, secret)),
            _ => Err(unexpected("access")),
        }
    }

    /// Removes a client; its tokens hold no more.
    ///
    /// # Errors
    /// `forbidden`, `not_found`.
    pub async fn remove_client(&self, who: &Principal, name: Name) -> Result<(), Refusal> {
        policy::require(who, Right::Administer)?;
        let until = self.now() + LONGEST + LEEWAY;
        let command = Command::RemoveClient { name, by: who.agent_name.to_string(), until };
        self.change(&who.swarm, command).await.map(|_| ())
    }

    /// A token for a client that shows its secret.
    ///
    /// # Errors
    /// `unauthenticated`, without saying whether there is such a client; `forbidden` for scopes that it does not have.
    pub async fn fetch(
        &self,
        swarm: &Name,
        client: &Name,
        secret: &str,
        wanted: Option<Rights>,
    ) -> Result<Handed, Refusal> {
        // A swarm that nobody has made has no owner to be bothered.
        let known = if self.entities.has_swarm(swarm).await? {
            match self.ask(swarm, Command::Client { name: client.clone() }).await? {
                Reply::Client(known) => known,
                _ => return Err(unexpected("access")),
            }
        } else {
            None
        };
        let given = digest(secret);
        let known = known
            .filter(|known| known.digest.as_bytes().ct_eq(given.as_bytes()).into())
            .ok_or_else(|| Refusal::new(Code::Unauthenticated, "there is no such client with this secret"))?;
        let role: Role = known.role.parse()?;
        let all = match &known.scope {
            Some(scope) => scope.parse::<Rights>()?.and(Rights::of(role)),
            None => Rights::of(role),
        };
        let rights = within(wanted, all)?;
        let lifetime = Duration::from_secs(known.lifetime_s);
        let claims = Claims {
            swarm: swarm.clone(),
            agent: known.agent,
            agent_name: known.agent_name,
            role,
            view: known.view.as_deref().map(View::parse).transpose()?,
            instance: None,
            lifetime,
        };
        let origin = Origin {
            rights,
            // All tokens of a client are one instance: what it holds outlives each of them.
            family: Some(known.id),
            client: Some(format!("{swarm}/{client}")),
            ..Origin::default()
        };
        self.hand(claims, origin)
    }

    /// A token for a token: of the same agent or of a worker of it, never with more than the first, and never for
    /// longer than that can be renewed, nor for more than a year.
    ///
    /// # Errors
    /// `forbidden` for what would be wider; `invalid_argument` for what cannot be at all.
    pub async fn exchange(&self, token: &str, narrower: Narrower) -> Result<Handed, Refusal> {
        let from = self.credential(token).await?;
        require_live(&self.entities, &from.who).await?;
        let usual = if narrower.agent.is_some() { USUAL } else { from.expires.since(from.issued) };
        let lifetime = narrower.lifetime.unwrap_or(usual).min(from.ends().since(self.now())).min(LONGEST);
        if lifetime < Duration::from_secs(1) {
            return Err(forbidden("the token ends now, and what comes of it with it"));
        }
        let view = narrowed(narrower.view.clone(), from.who.view.as_ref());
        match narrower.agent.clone() {
            Some(worker) => self.hand_on(&from, &worker, narrower, view, lifetime).await,
            None => self.renew(&from, &narrower, view, lifetime),
        }
    }

    /// A later token of the same agent and the same instance, with less if that is asked for.
    fn renew(
        &self,
        from: &Credential,
        narrower: &Narrower,
        view: Option<View>,
        lifetime: Duration,
    ) -> Result<Handed, Refusal> {
        let who = &from.who;
        if who.managed {
            return Err(forbidden("a run's token is its runner's to renew; exchange it for a worker's"));
        }
        if narrower.role.is_some_and(|role| role != who.role) {
            return Err(forbidden("another role is another agent's; name the agent"));
        }
        // All tokens of a client are one family, so it says nothing of which of them this one comes of.
        let actor = match from.client {
            Some(_) => Some(another_step(from)?),
            None => from.actor.clone(),
        };
        let claims = Claims {
            swarm: who.swarm.clone(),
            agent: who.agent,
            agent_name: who.agent_name.clone(),
            role: who.role,
            view,
            instance: None,
            lifetime,
        };
        let family = from.family.unwrap_or(from.id);
        // All tokens of an agent of another issuer are one instance, though each is the first of a family of its own.
        let is_named = who.instance.as_str() == family.to_string();
        let origin = Origin {
            rights: within(narrower.rights, who.rights.and(Rights::of(who.role)))?,
            family: Some(family),
            goes_on_as: (!is_named).then(|| who.instance.clone()),
            first: from.first_handed_on(),
            client: from.client.clone(),
            // What opens the console alone is not renewed either, and ends when it says so.
            renewable: from.renewable.filter(|_| !narrower.for_console),
            for_console: narrower.for_console,
            family_ends: from.last_ends(),
            since: Some(from.since),
            actor,
        };
        self.hand(claims, origin)
    }

    /// A token for a worker of the token's agent.
    async fn hand_on(
        &self,
        from: &Credential,
        worker: &Name,
        narrower: Narrower,
        view: Option<View>,
        lifetime: Duration,
    ) -> Result<Handed, Refusal> {
        let who = &from.who;
        policy::require(who, Right::Lead)?;
        let actor = another_step(from)?;
        let role = narrower.role.unwrap_or(Role::Worker);
        let (most, has) = (Rights::of(role), who.rights.and(Rights::of(who.role)));
        if !most.are_within(has) {
            let problem = format!("a token with {has} cannot become one of a {role}, which has {most}");
            return Err(forbidden(&problem));
        }
        let rights = within(narrower.rights, most)?;
        let agent_name = Name::parse(&format!("{}-{worker}", who.agent_name))?;
        let agent = Uuid::new_v5(&who.agent, worker.as_str().as_bytes());
        self.require_unknown(&who.swarm, &agent_name, agent).await?;
        // The same name is the same agent and the same instance, whenever its token is fetched anew.
        let family = Uuid::new_v5(&from.family.unwrap_or(from.id), agent.as_bytes());
        let swarm = who.swarm.clone();
        let claims = Claims { swarm, agent, agent_name, role, view, instance: None, lifetime };
        let (family, family_ends) = (Some(family), from.handed_on_ends());
        self.hand(claims, Origin { rights, family, family_ends, actor: Some(actor), ..Origin::default() })
    }

    /// A lead makes no token for an agent that somebody else is: it could then speak for it. That is one which runs on
    /// a runner, and one that the swarm or a client knows under another id, for leads' names may have hyphens too.
    async fn require_unknown(&self, swarm: &Name, name: &Name, agent: Uuid) -> Result<(), Refusal> {
        let taken = |by: &str| Err(forbidden(&format!("{by} has an agent `{name}`; choose another name")));
        let key = EntityKey::agent(swarm, name);
        match self.entities.ask::<Agent>(&key, Request::read(), agent::Command::List).await? {
            agent::Reply::Overview(known) if known.definition.is_none() => {}
            agent::Reply::Overview(_) => return taken("a runner"),
            _ => return Err(unexpected("the agent")),
        }
        let (pool, find) = (EntityKey::of(Kind::Pool, swarm), pool::Command::Find { name: name.to_string() });
        match self.entities.ask::<Pool>(&pool, Request::read(), find).await {
            Ok(pool::Reply::Member(member)) if member.id != agent => return taken("the swarm"),
            Err(refusal) if refusal.code != Code::NotFound => return Err(refusal),
            _ => {}
        }
        let mut query = Query::new(swarm, Kind::Access, "client");
        query.live = Some(true);
        query.filters = vec![
            Filter::new("agent", Test::Eq(json!(name)))?,
            Filter::new("agentId", Test::Not(json!(agent)))?,
        ];
        query.limit = 1;
        let (clients, freshness) = self.entities.list(&EntityKey::of(Kind::Access, swarm), query).await?;
        if whole(clients, freshness)?.is_empty() { Ok(()) } else { taken("a client") }
    }

    fn hand(&self, claims: Claims, origin: Origin) -> Result<Handed, Refusal> {
        let (rights, agent, agent_name) = (origin.rights, claims.agent, claims.agent_name.clone());
        let lifetime = claims.lifetime;
        let issued = self.keys.issue_as(claims, origin, self.now())?;
        Ok(Handed { issued, rights, agent, agent_name, lifetime })
    }
}

/// The rights that are asked for, which have to be among those there are; all of them if nobody asks.
fn within(wanted: Option<Rights>, all: Rights) -> Result<Rights, Refusal> {
    let rights = wanted.unwrap_or(all);
    if rights.are_none() || !rights.are_within(all) {
        let problem = format!("the scope `{rights}` is more than there is to give: {all}");
        return Err(Refusal::new(Code::Forbidden, problem).with(json!({ "scope": rights })));
    }
    Ok(rights)
}

/// The view that is asked for; one that may only read stays so.
fn narrowed(wanted: Option<View>, has: Option<&View>) -> Option<View> {
    match wanted {
        Some(view) => Some(view.narrowed_by(has)),
        None => has.cloned(),
    }
}

/// How a token names the one that it comes of.
fn another_step(from: &Credential) -> Result<Actor, Refusal> {
    if from.line().count() > STEPS {
        return Err(forbidden(
            "this token was handed on or renewed too often; ask for one from nearer the first",
        ));
    }
    Ok(from.as_actor())
}

fn forbidden(problem: &str) -> Refusal {
    Refusal::new(Code::Forbidden, problem)
}

/// 256 bits of chance.
fn secret() -> Result<String, Refusal> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|_| Refusal::new(Code::Internal, "the system gave no randomness for a secret"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn digest(secret: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(secret.as_bytes()))
}
