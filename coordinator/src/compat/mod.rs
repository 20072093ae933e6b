//! Agent Swarm's HTTP routes, for its runners, hooks and scripts as they are (spec: Agent Swarm 5.4). They are served
//! only with `--compat agent-swarm`, by the one key that all of its programs share.
//!
//! `door` tells who asks; `nameless` lets those in at MCP who do not say so; each other file has the routes about one
//! thing. What a route does it does by the tool of the same meaning, or by the service as that tool: with its rights,
//! where Agent Swarm checks less, its limits and its line in the log. Signs of life are no tool's, and only counted.
//! The guide for operators lists what is left out.

mod agents;
mod answer;
mod channels;
mod costs;
mod door;
mod elsewhere;
mod epics;
mod memory;
mod nameless;
mod overview;
mod pages;
mod profiles;
mod repos;
mod runner;
mod schedules;
mod settings;
mod tasks;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;

use axum::routing::{delete, get, post, put};
use axum::{Router, middleware};
use serde_json::{Map, Value};
use skein_shared::Refusal;
use tokio::time::Instant;
use uuid::Uuid;

use crate::auth::{Role, View};
use crate::mcp::client::Client;
use crate::mcp::dispatch::{self, Context, Progress};
use crate::mcp::{Catalogue, Gate, SharedKey, served};
use crate::service::unread::Delivery;
use crate::service::{Service, lists};
use answer::Problem;
use door::Asked;
pub use nameless::let_in;

/// What the routes have in common. Cheap to clone.
#[derive(Clone)]
struct Compat {
    service: Service,
    shared: Arc<SharedKey>,
    catalogue: Arc<Catalogue>,
    gate: Gate,
}

/// The routes. `gate` is that of the MCP face: who asks both gets no more than who asks one.
pub fn router(service: Service, shared: SharedKey, catalogue: Arc<Catalogue>, gate: Gate) -> Router {
    Router::new()
        .route("/health", get(overview::health))
        .route("/me", get(agents::me))
        .route("/ping", post(agents::ping))
        .route("/close", post(agents::close))
        .route("/cancelled-tasks", get(tasks::cancelled))
        .route("/ecosystem", get(agents::ecosystem))
        .route("/internal/reload-config", post(settings::reload))
        .route("/api/poll", get(runner::poll))
        .route("/api/active-sessions", get(runner::sessions).post(runner::begin))
        .route("/api/active-sessions/cleanup", post(runner::clean_up))
        .route("/api/active-sessions/{session}", delete(runner::end))
        .route("/api/active-sessions/heartbeat/{task}", put(runner::beat))
        .route("/api/active-sessions/by-task/{task}", delete(runner::end))
        .route("/api/session-logs", post(runner::log))
        .route("/api/session-costs", get(costs::list).post(costs::report))
        .route("/api/session-costs/summary", get(costs::sums))
        .route("/api/session-costs/dashboard", get(costs::dashboard))
        .route("/api/logs", get(overview::log))
        .route("/api/stats", get(overview::stats))
        .route("/api/concurrent-context", get(overview::context))
        .route("/api/config", get(settings::list).put(settings::set))
        .route("/api/config/resolved", get(settings::resolved))
        .route("/api/config/{id}", get(settings::one).delete(settings::delete))
        .route("/api/repos", get(repos::list).post(repos::create))
        .route("/api/repos/{id}", get(repos::one).put(repos::update).delete(repos::delete))
        .route("/api/github/webhook", post(elsewhere::webhook))
        .route("/api/gitlab/webhook", post(elsewhere::webhook))
        .route("/api/agentmail/webhook", post(elsewhere::webhook))
        .route("/api/agents", get(agents::list).post(agents::register))
        .route("/api/agents/{agent}", get(agents::one))
        .route("/api/agents/{agent}/name", put(profiles::rename))
        .route("/api/agents/{agent}/profile", put(profiles::describe))
        .route("/api/agents/{agent}/activity", put(agents::active))
        .route("/api/agents/{agent}/setup-script", get(agents::setup_script))
        .route("/api/services", get(agents::services))
        .route("/api/tasks", get(tasks::list).post(tasks::create))
        .route("/api/tasks/{task}", get(tasks::one))
        .route("/api/tasks/{task}/claude-session", put(tasks::session))
        .route("/api/tasks/{task}/session-logs", get(runner::logs))
        .route("/api/tasks/{task}/{action}", post(tasks::act))
        .route("/api/paused-tasks", get(tasks::paused))
        .route("/api/scheduled-tasks", get(schedules::list))
        .route("/api/schedules", post(schedules::create))
        .route("/api/schedules/{id}", get(schedules::one).put(schedules::update).delete(schedules::delete))
        .route("/api/schedules/{id}/run", post(schedules::run))
        .route("/api/epics", get(epics::list).post(epics::create))
        .route("/api/epics/{id}", get(epics::one).put(epics::update).delete(epics::delete))
        .route("/api/epics/{id}/tasks", post(epics::add_task))
        .route("/api/channels", get(channels::list).post(channels::create))
        .route("/api/channels/{id}", delete(channels::delete))
        .route("/api/channels/{id}/messages", get(channels::read).post(channels::post))
        .route("/api/channels/{id}/messages/{message}/thread", get(channels::thread))
        .route("/api/memory/index", post(memory::index))
        .route("/api/memory/search", post(memory::search))
        .layer(middleware::from_fn(pages::open))
        .with_state(Compat { service, shared: Arc::new(shared), catalogue, gate })
}

impl Compat {
    /// Calls a tool as any other caller of it does, with the same rights, limits and idempotency key.
    async fn tool(&self, asked: &Asked, tool: &str, arguments: Map<String, Value>) -> Result<Value, Problem> {
        let context = Context {
            service: self.service.clone(),
            catalogue: Arc::clone(&self.catalogue),
            view: View::default(),
            who: asked.who.clone(),
            key: asked.key.clone(),
            progress: Progress::silent(),
            delivery: Delivery::default(),
            gate: self.gate.clone(),
            client: Client::default(),
        };
        let reply = dispatch::call(context, tool, arguments).await;
        match reply.code {
            Some(code) => {
                let told = reply.json["message"].as_str().unwrap_or(&reply.text);
                Err(Problem::of(code, told))
            }
            // No route has a place for the word of a tool that its list may be old.
            None if !reply.json["warning"].is_null() => Err(lists::incomplete().into()),
            None => Ok(reply.json),
        }
    }

    /// Does by the service what a tool does, within the tool's limits and with its line in the log.
    async fn like<T>(
        &self,
        asked: &Asked,
        tool: &str,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Problem> {
        Ok(served::as_tool(&self.gate, &self.catalogue, &asked.who, tool, work).await?)
    }

    /// Takes the word of a request for whose it is, if its caller names no agent as itself.
    fn believe(&self, asked: &mut Asked, agent: Option<Uuid>) -> Result<(), Problem> {
        if let Some(agent) = agent.filter(|_| asked.who.role == Role::Operator) {
            asked.who = self.shared.agent(agent)?;
            asked.service.seen(&asked.who);
        }
        Ok(())
    }

    /// Counts what changes nothing and what no tool does.
    fn look(&self, asked: &Asked) -> Result<(), Problem> {
        Ok(self.gate.quota.look(&asked.who, Instant::now())?)
    }
}
