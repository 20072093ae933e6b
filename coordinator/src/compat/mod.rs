//! Agent Swarm's HTTP routes, for its runners, hooks and scripts as they are (spec: Agent Swarm 5.4). They are served only
//! with `--compat agent-swarm`, by the one key that all of its programs share.
//!
//! `door` tells who asks; each other file has the routes about one thing. What a route changes, it changes by the service
//! or the tool of the same meaning, with its rights: the seed checks less. The guide for operators lists what is left out.

mod agents;
mod answer;
mod channels;
mod door;
mod epics;
mod runner;
mod schedules;
mod tasks;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::routing::{delete, get, post, put};
use serde_json::{Map, Value};

use crate::auth::View;
use crate::mcp::client::Client;
use crate::mcp::dispatch::{self, Context, Progress};
use crate::mcp::{Catalogue, Gate, SharedKey};
use crate::service::Service;
use answer::Problem;
use door::Asked;

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
        .route("/me", get(agents::me))
        .route("/ping", post(agents::ping))
        .route("/close", post(agents::close))
        .route("/cancelled-tasks", get(tasks::cancelled))
        .route("/ecosystem", get(agents::ecosystem))
        .route("/api/poll", get(runner::poll))
        .route("/api/active-sessions", get(runner::sessions).post(runner::begin))
        .route("/api/active-sessions/cleanup", post(runner::clean_up))
        .route("/api/active-sessions/heartbeat/{task}", put(runner::beat))
        .route("/api/active-sessions/by-task/{task}", delete(runner::end))
        .route("/api/session-logs", post(runner::log))
        .route("/api/session-costs", post(runner::cost))
        .route("/api/agents", get(agents::list).post(agents::register))
        .route("/api/agents/{agent}", get(agents::one))
        .route("/api/agents/{agent}/name", put(agents::rename))
        .route("/api/agents/{agent}/profile", put(agents::describe))
        .route("/api/agents/{agent}/activity", put(agents::ping))
        .route("/api/agents/{agent}/setup-script", get(agents::setup_script))
        .route("/api/services", get(agents::services))
        .route("/api/tasks", get(tasks::list).post(tasks::create))
        .route("/api/tasks/{task}", get(tasks::one))
        .route("/api/tasks/{task}/claude-session", put(tasks::session))
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
        .route("/api/memory/search", post(channels::remember))
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
            gate: self.gate.clone(),
            client: Client::default(),
        };
        let reply = dispatch::call(context, tool, arguments).await;
        match reply.code {
            Some(code) => {
                let told = reply.json["message"].as_str().unwrap_or(&reply.text);
                Err(Problem::of(code, told))
            }
            None => Ok(reply.json),
        }
    }
}
