//! What every face of Skein calls: one file for each use case. A function here checks the right, asks the
//! entity that owns the answer, waits where waiting is asked for, and gives back what clients see.
//!
//! It knows nothing of MCP, HTTP or the command line, and reaches the store through entities and the
//! projection alone.

pub mod access;
pub mod agents;
pub mod calls;
pub mod changes;
pub mod cluster;
pub mod costs;
mod cursor;
pub mod embedding;
pub mod epics;
pub mod excerpts;
pub mod follow;
pub mod forgotten;
pub mod inbox;
pub mod instances;
pub mod lists;
pub mod locks;
pub mod logs;
pub mod mail;
pub mod memory;
pub mod messages;
pub mod presence;
pub mod profiles;
pub mod programs;
pub mod questions;
pub mod read;
pub mod removal;
pub mod repos;
pub mod resources;
pub mod scale;
pub mod schedules;
mod seen;
pub mod services;
pub mod settings;
pub mod slack;
pub mod slack_files;
mod standing;
pub mod steering;
pub mod summons;
pub mod swarm;
pub mod tallies;
pub mod tasks;
pub mod transport;
pub mod unread;
pub mod values;
pub mod views;
pub mod waits;
pub mod watch;
pub mod webhooks;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use skein_shared::blobs::Bounds;
use skein_shared::caller::Caller;
use skein_shared::entity::Entity;
use skein_shared::id::EntityKey;
use skein_shared::{Refusal, limits};
use tokio::time::Instant;
use uuid::Uuid;

use crate::auth::{Principal, Right, Role};
use crate::config::Listen;
use crate::embeddings::Endpoint;
pub use crate::entity::Clock;
use crate::entity::{Entities, Request};
pub use crate::projection::{Event, Freshness};
use crate::slack::Workspaces;
use crate::vault::Vault;
use presence::Presence;
use seen::Seen;
use steering::Steered;

/// How often a waiter looks by itself. Whatever changes wakes it, so this only bounds what a fault in that costs;
/// ten thousand waiters that looked often would keep the node busy while nothing happens.
const ASK_AGAIN: Duration = Duration::from_secs(600);

/// How long an answer waits for what an effect brings, so that whoever reads the answer finds it. What comes later
/// comes all the same.
const ARRIVAL: Duration = Duration::from_secs(2);

/// The use cases. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    entities: Entities,
    ask_again: Duration,
    presence: Presence,
    seen: Seen,
    steered: Steered,
    slack: Workspaces,
    vault: Vault,
    /// Who says what texts mean.
    embeddings: Option<Arc<Endpoint>>,
    /// Whether the answers to changes are kept for their repeats.
    keeps: bool,
    /// How long the values of calls may be.
    bounds: Bounds,
    /// The name below which the services of agents are reached.
    services_domain: Arc<str>,
}

impl Service {
    pub fn new(entities: Entities) -> Self {
        Self {
            entities,
            ask_again: ASK_AGAIN,
            presence: Presence::default(),
            seen: Seen::default(),
            steered: Steered::default(),
            slack: Workspaces::default(),
            vault: Vault::without_keys(),
            embeddings: None,
            keeps: true,
            bounds: Bounds { each: limits::RESULT as u64, all: limits::SWARM_BLOBS },
            services_domain: Listen::default().services_domain.into(),
        }
    }

    /// Lets the agents of these swarms talk to people in Slack.
    #[must_use]
    pub fn speaking_in(self, slack: Workspaces) -> Self {
        Self { slack, ..self }
    }

    /// Lets swarms keep secrets, sealed with these keys.
    #[must_use]
    pub fn keeping_secrets(self, vault: Vault) -> Self {
        Self { vault, ..self }
    }

    /// Lets searches of the memory go by meaning too.
    #[must_use]
    pub fn understanding(self, embeddings: Option<Arc<Endpoint>>) -> Self {
        Self { embeddings, ..self }
    }

    /// Has the services of agents reached below this name.
    #[must_use]
    pub fn serving_below(self, domain: &str) -> Self {
        Self { services_domain: domain.into(), ..self }
    }

    /// Looks by itself only this often while it waits: with a long pause, a test knows what woke it.
    #[cfg(test)]
    #[must_use]
    pub fn asking_again_every(self, pause: Duration) -> Self {
        Self { ask_again: pause, ..self }
    }

    /// Whether to keep the answers to changes. Without a key of the caller nobody could ask for them again,
    /// and they are half of what a small change writes.
    #[must_use]
    pub fn keeping_answers(self, keeps: bool) -> Self {
        Self { keeps, ..self }
    }

    pub fn clock(&self) -> &Clock {
        self.entities.clock()
    }

    pub fn entities(&self) -> &Entities {
        &self.entities
    }

    /// Asks for a change that must happen once.
    async fn change<E: Entity>(
        &self,
        key: &EntityKey,
        request: Uuid,
        command: E::Command,
    ) -> Result<E::Reply, Refusal> {
        let request = Request { keep_reply: self.keeps, ..Request::once(request) };
        self.entities.ask::<E>(key, request, command).await
    }

    /// Asks for a change that must happen once, and for the document that its answer shows.
    async fn change_shown<E: Entity>(
        &self,
        key: &EntityKey,
        request: Uuid,
        command: E::Command,
    ) -> Result<(E::Reply, Option<Value>), Refusal> {
        let request = Request { keep_reply: self.keeps, ..Request::once(request) };
        self.entities.ask_shown::<E>(key, request, command).await
    }

    /// Asks for something that changes nothing.
    async fn ask<E: Entity>(&self, key: &EntityKey, command: E::Command) -> Result<E::Reply, Refusal> {
        self.entities.ask::<E>(key, Request::read(), command).await
    }

    /// Who asks, for entities that decide by ownership. A lead is whoever the pool says leads, whatever the
    /// token would allow.
    async fn caller(&self, who: &Principal) -> Result<Caller, Refusal> {
        match who.role {
            Role::Operator => Ok(Caller { agent: None, lead: who.rights.has(Right::Lead) }),
            Role::Lead => {
                let member = self.member(who, who.agent).await?;
                let leads = member.is_some_and(|member| member["isLead"] == Value::Bool(true));
                let lead = leads && who.rights.has(Right::Lead);
                Ok(Caller { agent: Some(who.agent), lead })
            }
            _ => Ok(Caller::agent(who.agent)),
        }
    }

    /// Looks for what an effect of an acknowledged change brings, whenever one of the topics changes, and no longer
    /// than until `end`.
    async fn arrival<T, F, R>(&self, topics: &[Uuid], end: Instant, mut look: F) -> Result<Option<T>, Refusal>
    where
        F: FnMut() -> R,
        R: Future<Output = Result<Option<T>, Refusal>>,
    {
        let hub = self.entities.hub();
        let mut topics: Vec<_> = topics.iter().map(|topic| hub.subscribe(topic.to_string())).collect();
        loop {
            if let Some(found) = look().await? {
                return Ok(Some(found));
            }
            let changes: Vec<_> = topics.iter_mut().map(|topic| Box::pin(topic.changed())).collect();
            if tokio::time::timeout_at(end, futures::future::select_all(changes)).await.is_err() {
                return Ok(None);
            }
        }
    }

    /// Waits until the pool has these tasks, which an effect makes. That they could not be looked at undoes nothing.
    async fn arrived(&self, who: &Principal, tasks: &[Uuid]) {
        let end = Instant::now() + ARRIVAL;
        for task in tasks {
            if self.arrival(&[*task], end, || self.task(who, *task)).await.is_err() {
                return;
            }
        }
    }

    /// Asks again whenever one of the topics changes, until `ask` has something or the patience ends. The
    /// caller counts as alive all the while; a caller that goes away drops this future, and with it the wait.
    async fn until<T, F, R>(
        &self,
        who: &Principal,
        topics: BTreeSet<String>,
        patience: Duration,
        ask: F,
    ) -> Result<Option<T>, Refusal>
    where
        F: FnMut() -> R,
        R: Future<Output = Result<Option<T>, Refusal>>,
    {
        let _present = self.present(who);
        self.until_shown(who, topics, patience, ask).await
    }

    /// The same for what is watched in somebody's name, who may have gone: it says nothing of whether they live.
    async fn until_shown<T, F, R>(
        &self,
        who: &Principal,
        mut topics: BTreeSet<String>,
        patience: Duration,
        mut ask: F,
    ) -> Result<Option<T>, Refusal>
    where
        F: FnMut() -> R,
        R: Future<Output = Result<Option<T>, Refusal>>,
    {
        let end = Instant::now() + patience;
        if who.managed {
            // The end of the run ends its waits.
            topics.insert(who.instance.to_string());
        }
        let mut topics: Vec<_> =
            topics.into_iter().map(|topic| self.entities.hub().subscribe(topic)).collect();
        loop {
            self.require_live(who).await?;
            if let Some(found) = ask().await? {
                return Ok(Some(found));
            }
            let now = Instant::now();
            if now >= end {
                return Ok(None);
            }
            let pause = self.ask_again.min(end - now);
            let changes: Vec<_> = topics.iter_mut().map(|topic| Box::pin(topic.changed())).collect();
            if changes.is_empty() {
                tokio::time::sleep(pause).await;
            } else {
                let _ = tokio::time::timeout(pause, futures::future::select_all(changes)).await;
            }
        }
    }
}

/// An entity gave an answer that does not belong to the question: a fault of this program.
fn unexpected(what: &str) -> Refusal {
    Refusal::new(skein_shared::Code::Internal, format!("{what} gave an answer of another kind; report this"))
}

#[cfg(test)]
mod tests;
