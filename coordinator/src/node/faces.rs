//! What a node answers over HTTP: to agents, to people at the console, and to whoever asks how it is.

use std::sync::Arc;

use axum::Router;
use tokio_util::sync::CancellationToken;

use super::datadir::Layout;
use super::endpoint::Endpoint;
use super::start::quiet;
use super::tasks::Tasks;
use super::{addresses, health};
use crate::compat;
use crate::config::{Config, Dialect};
use crate::console::{self, Trends};
use crate::gateway;
use crate::mcp;
use crate::oauth;
use crate::service::Service;
use crate::service::access::Access;

/// What the faces are made of.
pub(super) struct Parts<'a> {
    pub(super) service: Service,
    pub(super) access: &'a Access,
    pub(super) config: &'a Config,
    pub(super) layout: &'a Layout,
    pub(super) endpoint: &'a Endpoint,
}

/// Everything that is asked over HTTP. A node without tools says how it is, and nothing else.
pub(super) fn http_face(
    parts: Parts<'_>,
    catalogue: Option<mcp::Catalogue>,
    health: Router,
    stop: &CancellationToken,
    pumps: &Tasks,
) -> Router {
    let Some(catalogue) = catalogue else { return health };
    let trends = Trends::default();
    let sampling = health::sample(parts.service.entities().clone(), trends.clone(), pumps.stop().clone());
    pumps.spawn("trends", quiet(sampling));
    let (service, access) = (parts.service.clone(), parts.access.clone());
    let console = console::router(service, access, trends, &parts.endpoint.console(), stop.clone());
    agents_faces(parts, catalogue, stop).merge(console).merge(health)
}

/// The faces for agents: the protocol's, and that for programs that do not speak it.
fn agents_faces(parts: Parts<'_>, catalogue: mcp::Catalogue, stop: &CancellationToken) -> Router {
    let Parts { service, access, config, layout, endpoint } = parts;
    let gate = mcp::Gate::new(mcp::quota::Limits::from(&config.limits));
    let catalogue = Arc::new(catalogue);
    let gateway = gateway::router(service.clone(), access.clone(), Arc::clone(&catalogue), gate.clone());
    let mut face = mcp::Config {
        gate,
        sessions: Some(layout.sessions()),
        adopts_sessions: service.entities().cluster().is_some(),
        fixture: config.conformance_fixture,
        shutdown: stop.clone(),
        ..mcp::Config::default()
    };
    let shared = config
        .compat
        .mode
        .zip(config.compat.key.clone())
        .map(|(Dialect::AgentSwarm, key)| mcp::SharedKey { key, swarm: config.compat.swarm.clone() });
    let compat = shared
        .clone()
        .map(|shared| compat::router(service.clone(), shared, Arc::clone(&catalogue), face.gate.clone()));
    face.shared_key = shared.clone();
    face.allowed_hosts.extend([endpoint.http.ip().to_string(), addresses::plain_host(config, endpoint)]);
    if let Some(url) = &config.listen.public_url {
        face.allowed_hosts.extend(addresses::authority(url));
        face.public_url = Some(endpoint.url.clone());
    }
    let oauth = oauth::router(access.clone(), face.public_url.clone());
    let mcp = mcp::router(service, access.clone(), catalogue, face);
    let mcp = match shared {
        Some(shared) => compat::let_in(mcp, shared),
        None => mcp,
    };
    mcp.merge(gateway).merge(oauth).merge(compat.unwrap_or_else(gateway::health))
}
