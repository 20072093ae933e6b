//! The HTTP face for programs that speak no MCP: agents that are shell scripts, and operators' own tools. Its routes
//! are those of Action Llama's gateway.
//!
//! `door` tells who asks, and `strangers` reads the bodies that say it; `locks`, `calls` and `signals` are an agent's
//! routes, each the tool of the same meaning, called as every tool is; `hook` has what coding agents ask between their
//! steps; `control`, `past` and `activity` have those of operators; `answer` says how a refusal looks.

mod activity;
mod answer;
mod calls;
mod control;
mod door;
mod hook;
mod locks;
mod past;
mod signals;
mod strangers;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::auth::View;
use crate::mcp::client::Client;
use crate::mcp::dispatch::{self, Context, Progress};
use crate::mcp::{Catalogue, Gate};
use crate::service::Service;
use crate::service::access::Access;
use crate::service::unread::Delivery;
use answer::{Answer, No};
use door::Asked;
use strangers::Strangers;

/// What the routes have in common. Cheap to clone.
#[derive(Clone)]
struct Gateway {
    service: Service,
    access: Access,
    catalogue: Arc<Catalogue>,
    gate: Gate,
    strangers: Strangers,
}

/// The routes. `gate` is that of the MCP face: who asks both gets no more than who asks one.
pub fn router(service: Service, access: Access, catalogue: Arc<Catalogue>, gate: Gate) -> Router {
    Router::new()
        .route("/locks/acquire", post(locks::acquire))
        .route("/locks/release", post(locks::release))
        .route("/locks/heartbeat", post(locks::heartbeat))
        .route("/locks/list", get(locks::list))
        .route("/calls", post(calls::call))
        .route("/calls/{id}", get(calls::check))
        .route("/signals/rerun", post(signals::rerun))
        .route("/signals/status", post(signals::status))
        .route("/signals/trigger", post(signals::trigger))
        .route("/signals/return", post(signals::return_value))
        .route("/signals/exit", post(signals::exit))
        .route("/shutdown", post(signals::shutdown))
        .route("/hook", post(hook::hook))
        .merge(operators())
        .with_state(Gateway { service, access, catalogue, gate, strangers: Strangers::default() })
}

/// The routes of operators.
fn operators() -> Router<Gateway> {
    Router::new()
        .route("/locks/status", get(control::locks))
        .route("/control/status", get(control::status))
        .route("/control/instances", get(control::instances))
        .route("/control/pause", post(control::pause))
        .route("/control/resume", post(control::resume))
        .route("/control/project/scale", post(control::scale))
        .route("/control/trigger/{agent}", post(control::trigger))
        .route("/control/kill/{instance}", post(control::kill))
        .route("/control/agents/{agent}/scale", post(control::scale_agent))
        .route("/control/agents/{agent}/{order}", post(control::steer))
        .route("/control/tasks/{task}/message", post(control::tell))
        .route("/api/stats/agents/{agent}/runs", get(control::runs))
        .route("/api/stats/agents/{agent}/runs/{instance}", get(past::run))
        .route("/api/logs/agents/{agent}", get(past::latest_log))
        .route("/api/logs/agents/{agent}/{instance}", get(past::run_log))
        .route("/api/stats/activity", get(activity::activity))
        .route("/api/stats/jobs", get(activity::jobs))
        .route("/api/stats/triggers", get(activity::triggers))
        .route("/api/stats/webhooks/{receipt}", get(control::webhook))
        .route("/api/webhooks/{receipt}/replay", post(control::replay))
}

/// That the node is there, which nobody needs a token to ask. Agent Swarm's routes have one of the same path, so this
/// one is by itself: two of one path cannot be served.
pub fn health() -> Router {
    Router::new().route("/health", get(|| async { Json(json!({ "status": "ok" })) }))
}

impl Gateway {
    /// Calls a tool as any other caller of it does, with the same rights, limits and idempotency key.
    async fn call(&self, asked: &Asked, tool: &str, arguments: Value) -> Result<Value, No> {
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let context = Context {
            service: self.service.clone(),
            catalogue: Arc::clone(&self.catalogue),
            view: View::default().narrowed_by(asked.who.view.as_ref()),
            who: asked.who.clone(),
            key: asked.key.clone(),
            progress: Progress::silent(),
            delivery: Delivery::default(),
            client: Client::default(),
            gate: self.gate.clone(),
        };
        No::or_facts(dispatch::call(context, tool, arguments).await)
    }
}

/// A success with these facts.
fn granted(facts: Value) -> Answer {
    Ok(Json(facts))
}
