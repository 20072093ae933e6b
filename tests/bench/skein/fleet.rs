//! A node as a process of its own, with as many agents as asked for that speak to it over MCP.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use skein_coordinator::auth::Role;
use skein_coordinator::auth::token::Keys;
use skein_coordinator::node::Endpoint;
use skein_coordinator::node::datadir::Layout;
use tokio::time::Instant;
use uuid::Uuid;

use super::embedded::counter;
use super::node;
use crate::harness::contender::Metered;
use crate::harness::process::Server;
use crate::harness::wire::Connection;

const VERSION: &str = "2026-07-28";
/// How long a node may take to start; it ends as soon as it is ready.
const START: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// Agents that join at a time.
const JOINING: usize = 64;

/// `skein up` without a runner.
pub(crate) struct Node {
    server: Server,
    data: PathBuf,
    pub endpoint: Endpoint,
    keys: Keys,
}

impl Node {
    /// Starts a node with its data in a folder. It takes in as many waits as a bench may open.
    ///
    /// # Errors
    /// When the program is missing or does not get ready.
    pub(crate) async fn start(folder: &Path) -> Result<Self> {
        let data = folder.join("data");
        let layout = Layout::new(&data);
        std::fs::create_dir_all(&data)?;
        std::fs::write(layout.config(), "[limits]\nwaits = 20000\n")?;
        let mut command = node::up(&data, "127.0.0.1:0")?;
        command.current_dir(folder);
        let server = Server::start("skein", command, &folder.join("log"))?;
        let endpoint = tokio::time::timeout(START, async {
            loop {
                match Endpoint::read(&layout) {
                    Ok(endpoint) => return endpoint,
                    Err(_) => tokio::time::sleep(LOOK).await,
                }
            }
        });
        let endpoint = endpoint.await.with_context(|| {
            let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
            format!("the node did not get ready: {log}")
        })?;
        let keys = Keys::load_or_create(&data)?;
        Ok(Self { server, data, endpoint, keys })
    }

    pub(crate) fn id(&self) -> Result<u32> {
        self.server.id()
    }

    pub(crate) fn metered(&self) -> Metered {
        self.server.metered()
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// A token for somebody new.
    ///
    /// # Errors
    /// When signing fails.
    pub(crate) fn token(&self, role: Role, name: &str) -> Result<(Uuid, String)> {
        let agent = Uuid::now_v7();
        Ok((agent, node::token(&self.keys, role, agent, name)?))
    }

    /// An agent that has joined the swarm, on a connection of its own.
    ///
    /// # Errors
    /// When the node refuses.
    pub(crate) async fn agent(&self, role: Role, name: &str) -> Result<Agent> {
        self.agent_in("default", role, name).await
    }

    /// An agent that has joined a swarm, on a connection of its own.
    ///
    /// # Errors
    /// When the node refuses.
    pub(crate) async fn agent_in(&self, swarm: &str, role: Role, name: &str) -> Result<Agent> {
        let id = Uuid::now_v7();
        let token = node::token_in(&self.keys, swarm, role, id, name)?;
        let mut agent = Agent { id, caller: Caller { address: self.endpoint.http, token }, connection: None };
        agent.call("join-swarm", &json!({ "name": name, "lead": role == Role::Lead })).await?;
        Ok(agent)
    }

    /// Many workers, named by their number.
    ///
    /// # Errors
    /// When the node refuses one.
    pub(crate) async fn workers(&self, count: usize) -> Result<Vec<Agent>> {
        let joining = (0..count)
            .map(|number| async move { self.agent(Role::Worker, &format!("worker-{number}")).await });
        stream::iter(joining).buffered(JOINING).try_collect().await
    }

    /// A counter of the node's metrics.
    ///
    /// # Errors
    /// When the node does not answer.
    pub(crate) async fn counter(&self, name: &str) -> Result<u64> {
        let request = format!("GET /metrics HTTP/1.1\r\nhost: {}\r\n\r\n", self.endpoint.http);
        let body = Connection::open(self.endpoint.http).await?.ask(request.as_bytes()).await?;
        Ok(counter(std::str::from_utf8(&body)?, name).unwrap_or_default())
    }

    /// # Errors
    /// When it cannot be asked to end.
    pub(crate) async fn stop(self) -> Result<()> {
        self.server.stop().await
    }
}

/// Who calls, and where.
#[derive(Clone)]
pub(crate) struct Caller {
    pub address: SocketAddr,
    pub token: String,
}

impl Caller {
    /// The bytes of a call of a tool; with `heard` the client listens to progress, and so gets a stream.
    pub(crate) fn request(&self, tool: &str, arguments: &Value, heard: bool) -> Vec<u8> {
        let mut meta = json!({
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        if heard {
            meta["progressToken"] = json!(1);
        }
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
        format!(
            "POST /mcp HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
             accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n\
             mcp-protocol-version: {VERSION}\r\nmcp-method: tools/call\r\nmcp-name: {tool}\r\n\
             content-length: {}\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        )
        .into_bytes()
    }
}

/// An agent with at most one connection.
pub(crate) struct Agent {
    pub id: Uuid,
    pub caller: Caller,
    pub connection: Option<Connection>,
}

impl Agent {
    /// Calls a tool and gives its facts.
    ///
    /// # Errors
    /// When the call is refused or the connection breaks.
    pub(crate) async fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value> {
        let request = self.caller.request(tool, arguments, false);
        facts(tool, &self.connected().await?.ask(&request).await?)
    }

    /// Calls a tool as a client that listens to progress, and tells when the answer was here.
    ///
    /// # Errors
    /// As [`Agent::call`].
    pub(crate) async fn call_heard(&mut self, tool: &str, arguments: &Value) -> Result<(Value, Instant)> {
        let request = self.caller.request(tool, arguments, true);
        let (body, at) = self.connected().await?.ask_timed(&request).await?;
        Ok((facts(tool, &body)?, at))
    }

    async fn connected(&mut self) -> Result<&mut Connection> {
        if self.connection.is_none() {
            self.connection = Some(Connection::open(self.caller.address).await?);
        }
        self.connection.as_mut().context("just opened")
    }
}

/// The facts of an answer, which comes as JSON or as the last event of a stream.
fn facts(tool: &str, body: &[u8]) -> Result<Value> {
    let text = std::str::from_utf8(body)?;
    let last = text.lines().rev().find_map(|line| line.strip_prefix("data:")).unwrap_or(text);
    let mut answer: Value = serde_json::from_str(last)?;
    let result = &mut answer["result"];
    anyhow::ensure!(result.is_object() && result["isError"] != json!(true), "{tool}: {text}");
    Ok(result["structuredContent"].take())
}
