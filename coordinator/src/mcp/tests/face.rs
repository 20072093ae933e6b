//! A node with nothing but the MCP face, and its agents.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use skein_shared::agent;
use skein_shared::blobs::Bounds;
use skein_shared::entity::{Reign, RunnerCommand};
use skein_shared::id::{EntityKey, InstanceId, Name};
use skein_shared::limits;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt;
use uuid::Uuid;

use crate::auth::token::{Claims, Keys, Origin};
use crate::auth::{Role, View};
use crate::entity::{self, Clock, Entities, Hub};
use crate::mcp::door::Config;
use crate::mcp::server::router;
use crate::mcp::tools::catalogue;
use crate::outbox::{self, Delivery, Runners};
use crate::projection::Projection;
use crate::service::Service;
use crate::service::access::Access;
use crate::store::memory::{Faults, Memory};
use crate::vault::Vault;

pub(super) struct Face {
    pub(super) router: Router,
    pub(super) service: Service,
    pub(super) keys: Keys,
    pub(super) access: Access,
    pub(super) clock: Clock,
    pub(super) stop: CancellationToken,
    /// What goes wrong with commits.
    pub(super) faults: Faults,
    _stops: DropGuard,
    _files: tempfile::TempDir,
}

/// A node that no runner is connected to.
pub(crate) struct NoRunners;

#[async_trait::async_trait]
impl Runners for NoRunners {
    async fn deliver(&self, _: &str, _: &RunnerCommand, _: &Reign) -> Delivery {
        Delivery::NotConnected
    }

    async fn connected(&self) {
        std::future::pending().await
    }
}

/// One agent with its token.
#[derive(Clone)]
pub(super) struct Agent {
    pub(super) id: Uuid,
    pub(super) token: String,
}

fn claims(name: &str, role: Role) -> Claims {
    Claims {
        swarm: Name::parse("default").unwrap(),
        agent: Uuid::new_v5(&Uuid::nil(), name.as_bytes()),
        agent_name: Name::parse(name).unwrap(),
        role,
        view: None,
        instance: None,
        lifetime: Duration::from_secs(900),
    }
}

impl Face {
    pub(super) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(super) fn with(config: Config) -> Self {
        Self::bounded(config, Bounds { each: limits::RESULT as u64, all: limits::SWARM_BLOBS })
    }

    pub(super) fn bounded(config: Config, bounds: Bounds) -> Self {
        let files = tempfile::tempdir().unwrap();
        let clock = Clock::start();
        let store = Arc::new(Memory::new(clock.wall()));
        let faults = store.contents().faults().clone();
        let projection = Projection::open(&files.path().join("read.db"), store.clone()).unwrap();
        let entities = Entities::new(store, projection, clock.clone(), Hub::default());
        let stop = CancellationToken::new();
        tokio::spawn(entity::timers::pump(entities.clone(), stop.clone()));
        tokio::spawn(outbox::pump::run(
            entities.clone(),
            Arc::new(NoRunners),
            crate::slack::Workspaces::default(),
            stop.clone(),
        ));
        let keys = Keys::ephemeral().unwrap();
        // So long that whoever is woken was woken by what happened.
        let service = Service::new(entities).asking_again_every(Duration::from_secs(3600)).bounded(bounds);
        let service = service.keeping_secrets(Vault::ephemeral().unwrap());
        let catalogue = Arc::new(catalogue().unwrap());
        let config = Config { shutdown: stop.clone(), ..config };
        let access = Access::new(keys.clone(), service.entities().clone());
        let router = router(service.clone(), access.clone(), catalogue, config);
        Self {
            router,
            service,
            keys,
            access,
            clock,
            stop: stop.clone(),
            faults,
            _stops: stop.drop_guard(),
            _files: files,
        }
    }

    /// Another door to the same swarm.
    pub(super) fn beside(self, service: Service) -> Self {
        let catalogue = Arc::new(catalogue().unwrap());
        let router = router(service.clone(), self.access.clone(), catalogue, Config::default());
        Self { router, service, ..self }
    }

    pub(super) fn agent(&self, name: &str, role: Role) -> Agent {
        self.agent_with(name, role, None)
    }

    pub(super) fn agent_with(&self, name: &str, role: Role, view: Option<&str>) -> Agent {
        let view = view.map(|view| View::parse(view).unwrap());
        self.issued(Claims { view, ..claims(name, role) })
    }

    /// One whose token was left with fewer scopes than its role has.
    pub(super) fn narrowed(&self, name: &str, role: Role, scopes: &str) -> Agent {
        let (claims, origin) =
            (claims(name, role), Origin { rights: scopes.parse().unwrap(), ..Origin::default() });
        let id = claims.agent;
        let token = self.keys.issue_as(claims, origin, self.clock.wall()).unwrap();
        Agent { id, token: token.text().to_owned() }
    }

    /// One whose token goes on as another of the same family, with the token's id.
    pub(super) fn of_family(&self, name: &str, role: Role, family: Uuid) -> (Agent, Uuid) {
        let (claims, origin) = (claims(name, role), Origin { family: Some(family), ..Origin::default() });
        let id = claims.agent;
        let token = self.keys.issue_as(claims, origin, self.clock.wall()).unwrap();
        (Agent { id, token: token.text().to_owned() }, token.id)
    }

    pub(super) fn issued(&self, claims: Claims) -> Agent {
        let token = self.keys.issue(claims.clone(), self.clock.wall()).unwrap().text().to_owned();
        Agent { id: claims.agent, token }
    }

    /// Has an agent that a runner would run.
    pub(super) async fn define(&self, name: &str, definition: agent::Definition) {
        let group = Name::parse("default").unwrap();
        self.tell(name, agent::Command::Define { definition, group }).await;
    }

    /// A run of the agent, as a runner would have it, and the token that goes with it.
    pub(super) async fn run(&self, name: &str) -> (InstanceId, Agent) {
        self.define(name, agent::Definition::default()).await;
        let wish = agent::Command::Enqueue {
            class: agent::Class::Manual,
            source: "test".to_owned(),
            receipt: None,
            input: json!({}),
        };
        let agent::Reply::Queued { instance } = self.tell(name, wish).await else { panic!("no run") };
        (instance.clone(), self.running(name, instance))
    }

    /// The agent as that run of it, with the token that a runner would start it with.
    pub(super) fn running(&self, name: &str, instance: InstanceId) -> Agent {
        self.issued(Claims { instance: Some(instance), ..claims(name, Role::Worker) })
    }

    pub(super) async fn tell(&self, name: &str, command: agent::Command) -> agent::Reply {
        let key = EntityKey::agent(&Name::parse("default").unwrap(), &Name::parse(name).unwrap());
        let request = entity::Request::once(Uuid::now_v7());
        self.service.entities().ask::<agent::Agent>(&key, request, command).await.unwrap()
    }

    /// Topics that somebody waits for.
    pub(super) fn awaited(&self) -> usize {
        self.service.entities().hub().len()
    }

    /// Looks until so many topics are waited for.
    pub(super) async fn until_awaited(&self, wanted: impl Fn(usize) -> bool) {
        for _ in 0..1000 {
            if wanted(self.awaited()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{} topics are waited for", self.awaited());
    }

    /// A request of the revision 2026-07-28.
    pub(super) async fn send(
        &self,
        path: &str,
        token: &str,
        method: &str,
        params: Value,
    ) -> (StatusCode, Value) {
        self.send_able(&json!({}), path, token, method, params).await
    }

    /// The same of a client that says what it can do.
    pub(super) async fn send_able(
        &self,
        abilities: &Value,
        path: &str,
        token: &str,
        method: &str,
        mut params: Value,
    ) -> (StatusCode, Value) {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": abilities,
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "0" },
        });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut request = Request::post(path)
            .header("host", "127.0.0.1")
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method);
        let named = ["name", "uri", "taskId"].into_iter().find_map(|field| params[field].as_str());
        if let Some(name) = named {
            request = request.header("mcp-name", name);
        }
        self.raw(request.body(Body::from(body.to_string())).unwrap()).await
    }

    pub(super) async fn raw(&self, request: Request<Body>) -> (StatusCode, Value) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, message(&body))
    }

    /// Calls a tool and gives its result.
    pub(super) async fn call(&self, agent: &Agent, tool: &str, arguments: Value) -> Value {
        self.call_at("/mcp", agent, tool, arguments).await
    }

    pub(super) async fn call_at(&self, path: &str, agent: &Agent, tool: &str, arguments: Value) -> Value {
        // A finder hands on what another tool has said.
        let speaks = match tool {
            "tools_read" | "tools_call" => arguments["name"].as_str().unwrap_or(tool).to_owned(),
            _ => tool.to_owned(),
        };
        let params = json!({ "name": tool, "arguments": arguments });
        let (status, answer) = self.send(path, &agent.token, "tools/call", params).await;
        assert_eq!(status, StatusCode::OK, "{tool}: {answer}");
        let result = answer["result"].clone();
        if result["isError"] == false {
            let declared = catalogue().unwrap();
            let schema = &declared.get(&speaks).unwrap().output;
            if !schema.is_null() {
                jsonschema::validate(schema, &result["structuredContent"])
                    .unwrap_or_else(|error| panic!("{speaks} breaks its own output schema: {error}"));
            }
        }
        result
    }

    /// Calls a tool that must succeed, and gives its facts.
    pub(super) async fn facts(&self, agent: &Agent, tool: &str, arguments: Value) -> Value {
        let result = self.call(agent, tool, arguments).await;
        assert_eq!(result["isError"], false, "{tool}: {result}");
        assert_ne!(result["structuredContent"]["success"], false, "{tool}: {result}");
        result["structuredContent"].clone()
    }
}

/// The answer in a body: all of it, or the last event of a stream.
pub(crate) fn message(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_else(|_| {
        let lines = body.split(|&byte| byte == b'\n').filter_map(|line| line.strip_prefix(b"data:"));
        lines.rev().find_map(|data| serde_json::from_slice(data).ok()).unwrap_or_default()
    })
}

/// A swarm of a lead and a worker that have joined.
pub(super) async fn swarm() -> (Face, Agent, Agent) {
    let face = Face::new();
    let (lead, worker) = (face.agent("lead", Role::Lead), face.agent("worker", Role::Worker));
    face.facts(&lead, "join-swarm", json!({ "name": "Lead", "lead": true })).await;
    face.facts(&worker, "join-swarm", json!({ "name": "Worker" })).await;
    (face, lead, worker)
}
