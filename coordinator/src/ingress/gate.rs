//! What the door knows: its sources and its limits.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use skein_shared::forge::{Activity, Bot, Forge};
use skein_shared::id::Name;
use skein_shared::pool::Survey;
use skein_shared::time::Timestamp;
use skein_shared::triggers::{Incoming, Rejected};
use skein_shared::{Code, Refusal};
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};
use tokio::time::Instant;
use uuid::Uuid;

use super::delivery::Delivery;
use super::provider::sender;
use super::receive::expect;
use crate::config::{self, Provider};
use crate::slack::Workspaces;

/// How long a webhook waits for room and its turn while others are written down. Not every sender comes back, so a
/// store that stands still for a moment must turn nobody away.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most that the bodies of all may take, bytes: strangers fill it too, and a small machine has to hold it.
const ROOM: usize = 128 * 1024 * 1024;

/// Where verified events go.
#[async_trait]
pub trait Intake: Send + Sync + 'static {
    fn now(&self) -> Timestamp;

    /// What the wall clock shows: senders sign the time on theirs.
    fn wall(&self) -> Timestamp;

    /// Writes the event down, and returns once it cannot be lost.
    async fn deliver(&self, swarm: &Name, incoming: Incoming) -> Result<Taken, Refusal>;

    /// How the swarm stands, for a person who asks.
    async fn survey(&self, swarm: &Name) -> Result<Survey, Refusal>;

    /// Writes down what was signed and cannot be read.
    async fn reject(&self, swarm: &Name, rejected: Rejected) -> Result<(), Refusal>;
}

/// How an event was taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// For a duplicate, that of the first delivery.
    pub receipt: Uuid,
    pub duplicate: bool,
    /// Waiting instances that it resumes, agents that it starts, and the swarm if it hears it.
    pub matched: usize,
}

pub struct Gate {
    sources: Vec<Source>,
    pub(super) intake: Arc<dyn Intake>,
    /// Largest body, bytes.
    pub(super) largest: usize,
    /// For what of their bodies has come, by bytes. Not for what they say will come: strangers would keep all of it.
    room: Semaphore,
    turns: Semaphore,
    /// Swarms that talk to people in Slack.
    pub(super) slack: Workspaces,
}

#[derive(Clone)]
pub(super) struct Source {
    pub name: Name,
    pub provider: Provider,
    pub swarm: Name,
    /// The domains that inboxes and senders of mail may be of; empty for all.
    pub inbox_domains: Vec<String>,
    pub sender_domains: Vec<String>,
    /// Whom people at a forge ask for something.
    pub bot: Option<Bot>,
    /// None for a source that takes what is not signed.
    secret: Option<SecretString>,
    /// It sends over a connection that the node has opened.
    is_connected: bool,
}

fn forge_of(provider: Provider) -> Option<Forge> {
    match provider {
        Provider::Github => Some(Forge::Github),
        Provider::Gitlab => Some(Forge::Gitlab),
        _ => None,
    }
}

impl Source {
    /// Slack, over a connection. It is named as its kind is, so that subscriptions mean both.
    pub(super) fn connected(swarm: Name) -> Self {
        let name = Name::parse(Provider::Slack.as_str()).expect("the kinds of senders are names");
        Self {
            name,
            provider: Provider::Slack,
            swarm,
            inbox_domains: Vec::new(),
            sender_domains: Vec::new(),
            bot: None,
            secret: None,
            is_connected: true,
        }
    }

    /// Whether its events are known to come from whoever has the secret.
    pub(super) fn is_signed(&self) -> bool {
        self.secret.is_some() || self.is_connected
    }

    /// What an event says to the swarm.
    pub(super) fn activity(&self, event: &str, body: &Value) -> Option<Activity> {
        Activity::of(forge_of(self.provider)?, event, body, self.bot.as_ref()?)
    }

    pub(super) fn secret(&self) -> Option<&[u8]> {
        self.secret.as_ref().map(|secret| secret.expose_secret().as_bytes())
    }

    /// # Errors
    /// `unauthenticated` for what is not signed with the secret; without one, `forbidden` for what a page sends.
    fn verify(&self, delivery: &Delivery<'_>) -> Result<(), Refusal> {
        let Some(secret) = self.secret() else { return not_of_a_page(delivery) };
        let verified = sender(self.provider).verify(delivery, secret);
        verified.map_err(|sentence| Refusal::new(Code::Unauthenticated, sentence))
    }
}

impl Gate {
    pub fn new(sources: &[config::Source], limits: &config::Limits, intake: Arc<dyn Intake>) -> Self {
        sources.iter().for_each(|source| expect(source.name.as_str()));
        let sources = sources.iter().map(|source| Source {
            name: source.name.clone(),
            provider: source.provider,
            swarm: source.swarm.clone(),
            inbox_domains: source.inbox_domains.clone(),
            sender_domains: source.sender_domains.clone(),
            bot: source.bot.clone().map(|name| Bot { name, allowed_users: source.allowed_users.clone() }),
            secret: source.secret.clone(),
            is_connected: false,
        });
        let all = limits.webhook_bytes.saturating_mul(limits.webhooks_in_flight);
        Self {
            sources: sources.collect(),
            intake,
            largest: limits.webhook_bytes,
            room: Semaphore::new(all.min(ROOM.max(limits.webhook_bytes))),
            turns: Semaphore::new(limits.webhooks_in_flight.min(Semaphore::MAX_PERMITS)),
            slack: Workspaces::default(),
        }
    }

    /// Lets these swarms hear what people say in Slack, beyond what their agents wait for.
    #[must_use]
    pub fn hearing(self, slack: Workspaces) -> Self {
        Self { slack, ..self }
    }

    /// Until when what comes now may wait.
    pub(super) fn patience() -> Instant {
        Instant::now() + PATIENCE
    }

    /// Lets some bytes of a body in.
    ///
    /// # Errors
    /// `overloaded` when there are too many for too long.
    pub(super) async fn room(&self, bytes: usize, until: Instant) -> Result<SemaphorePermit<'_>, Refusal> {
        in_time(self.room.acquire_many(u32::try_from(bytes).unwrap_or(u32::MAX)), until).await
    }

    /// # Errors
    /// As of [`Gate::room`].
    pub(super) async fn turn(&self, until: Instant) -> Result<SemaphorePermit<'_>, Refusal> {
        in_time(self.turns.acquire(), until).await
    }

    /// The sources behind `/webhooks/<name>`: the one of that name, or all of that kind. Where a source has the
    /// name of its kind, both are meant and it comes first. Whoever has a secret is asked before those who take
    /// anything.
    pub(super) fn behind(&self, name: &str) -> Vec<&Source> {
        let named = self.sources.iter().find(|source| source.name.as_str() == name);
        let kind = match named {
            Some(source) => (source.provider.as_str() == name).then_some(source.provider),
            None => Provider::named(name),
        };
        let is_named = |source: &Source| source.name.as_str() == name;
        let others = self.sources.iter().filter(|source| Some(source.provider) == kind && !is_named(source));
        let mut found: Vec<&Source> = named.into_iter().chain(others).collect();
        found.sort_by_key(|source| !source.is_signed());
        found
    }

    /// The source whose secret the request was signed with.
    ///
    /// # Errors
    /// `not_found` without any source, `unauthenticated` when none has signed it; `forbidden` as of a source that takes
    /// what is not signed.
    pub(super) fn source_of(&self, name: &str, delivery: &Delivery<'_>) -> Result<&Source, Refusal> {
        let mut problem = None;
        for source in self.behind(name) {
            match source.verify(delivery) {
                Ok(()) => return Ok(source),
                Err(refusal) => problem = problem.or(Some(refusal)),
            }
        }
        Err(problem.unwrap_or_else(unknown))
    }
}

/// Whoever opens a page must not have it send in their name what nobody signs: to a door on loopback too, which nobody
/// else reaches.
fn not_of_a_page(delivery: &Delivery<'_>) -> Result<(), Refusal> {
    if !delivery.is_of_a_page() {
        return Ok(());
    }
    Err(Refusal::new(
        Code::Forbidden,
        "this was sent by a web page in a browser, from which a source without a secret takes nothing; send it by a \
         program, without the headers Origin and Sec-Fetch-Site, or set a secret at the [[ingress.source]]",
    ))
}

async fn in_time<'a>(
    permit: impl Future<Output = Result<SemaphorePermit<'a>, AcquireError>>,
    until: Instant,
) -> Result<SemaphorePermit<'a>, Refusal> {
    tokio::time::timeout_at(until, permit).await.ok().and_then(Result::ok).ok_or_else(|| {
        Refusal::new(Code::Overloaded, "too many webhooks at a time; send it again").retry_after(1000)
    })
}

pub(super) fn unknown() -> Refusal {
    Refusal::new(
        Code::NotFound,
        "there is no webhook source of this name, nor one of this kind; see [[ingress.source]]",
    )
}
