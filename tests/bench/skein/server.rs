//! Skein as a process of its own, asked over MCP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use async_trait::async_trait;
use futures::future::BoxFuture;
use serde::Deserialize;
use skein_coordinator::auth::Role as AgentRole;
use skein_coordinator::auth::token::Keys;
use skein_tests::up::{Folder, Up};
use uuid::Uuid;

use super::embedded::counter;
use super::node;
use crate::harness::contender::{Card, Contender, Durability, Metered, Plan, Work};
use crate::harness::mcp::{Client, Clients, Script, Target};

/// A node without a runner, and the keys with which it knows its agents.
pub(crate) struct Node {
    up: Up,
    address: SocketAddr,
    keys: Keys,
}

impl Node {
    /// # Errors
    /// When it does not get ready.
    pub(crate) async fn start(folder: &Path) -> Result<Arc<Self>> {
        let up = Up::start_in(Folder::within(folder)?, &["--no-runner"]).await?;
        let address = up.mcp.trim_start_matches("http://").trim_end_matches("/mcp").parse()?;
        let keys = Keys::load_or_create(&up.data())?;
        Ok(Arc::new(Self { up, address, keys }))
    }

    /// An agent that has joined, on a connection of its own.
    ///
    /// # Errors
    /// When it is not let in.
    pub(crate) async fn agent(&self, name: &str) -> Result<Client> {
        let token = node::token(&self.keys, AgentRole::Worker, Uuid::now_v7(), name)?;
        let target = Target { address: self.address, path: "/mcp" };
        let mut client = Client::connect(&target, Some(&token)).await?;
        client.succeed("join-swarm", &format!(r#"{{"name":"{name}"}}"#)).await?;
        Ok(client)
    }

    /// What its process takes.
    pub(crate) fn metered(&self) -> Metered {
        self.up.id().map_or(Metered::Myself, Metered::Tree)
    }

    /// Flushes of its store so far.
    pub(crate) fn flushes(&self) -> Option<u64> {
        self.counter("skein_store_flushes_total").ok().flatten()
    }

    /// A counter of the node's own.
    fn counter(&self, name: &str) -> Result<Option<u64>> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(counter(&text, name))
    }
}

/// Agents of a node that all do the same.
pub(crate) struct Agents {
    node: Arc<Node>,
    durability: Durability,
    clients: Clients,
    script: Script,
}

impl Agents {
    /// Agents that change things: they find them on the disk when they are answered.
    pub(crate) fn writing(node: &Arc<Node>, script: Script) -> Self {
        Self::new(node, Durability::PowerCut, script)
    }

    /// Agents that look at things.
    pub(crate) fn reading(node: &Arc<Node>, script: Script) -> Self {
        Self::new(node, Durability::NotStored, script)
    }

    fn new(node: &Arc<Node>, durability: Durability, script: Script) -> Self {
        Self { node: Arc::clone(node), durability, clients: Clients::default(), script }
    }
}

#[async_trait]
impl Contender for Agents {
    fn card(&self) -> Card {
        Card::skein(self.durability, self.node.metered())
    }

    async fn prepare(&mut self, in_flight: usize) -> Result<()> {
        while self.clients.len() < in_flight {
            let id = Uuid::now_v7().simple().to_string();
            self.clients.add(self.node.agent(&format!("worker-{}", &id[16..])).await?);
        }
        Ok(())
    }

    /// A slot ends when lists show all that was done in it.
    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        let start = tokio::time::Instant::now();
        let mut work = self.clients.work(plan, self.script).await?;
        if self.durability == Durability::PowerCut {
            self.clients.first()?.lock().await.call("get-tasks", r#"{"limit":1}"#).await?;
            work.elapsed = start.elapsed();
        }
        Ok(work)
    }

    fn flushes(&self) -> Option<u64> {
        match self.durability {
            Durability::PowerCut => self.node.flushes(),
            _ => Some(0),
        }
    }
}

/// Create, claim, complete: three calls.
pub(crate) fn cycle(client: &mut Client) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        let create = r#"{"action":"create","task":"Write the release notes"}"#;
        let task = made(&client.succeed("task-action", create).await?)?;
        let claim = format!(r#"{{"action":"claim","taskId":"{task}"}}"#);
        client.succeed("task-action", &claim).await?;
        let complete = format!(r#"{{"taskId":"{task}","status":"completed","output":"done"}}"#);
        client.succeed("store-progress", &complete).await.map(|_| ())
    })
}

/// An agent asks who it is.
pub(crate) fn who_am_i(client: &mut Client) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move { client.succeed("my-agent-info", "{}").await.map(|_| ()) })
}

/// An agent looks at the ten most urgent tasks.
pub(crate) fn ten_tasks(client: &mut Client) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move { client.call("get-tasks", r#"{"limit":10}"#).await.map(|_| ()) })
}

/// The id of a task in the answer of the tool that made it.
fn made(answer: &[u8]) -> Result<Uuid> {
    #[derive(Deserialize)]
    struct Answer {
        result: Outcome,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Outcome {
        structured_content: Facts,
    }
    #[derive(Deserialize)]
    struct Facts {
        task: Task,
    }
    #[derive(Deserialize)]
    struct Task {
        id: Uuid,
    }
    let answer: Answer = serde_json::from_slice(answer).context("no task was made")?;
    Ok(answer.result.structured_content.task.id)
}
