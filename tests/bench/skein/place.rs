//! A data directory whose swarm has been at work, before a node is started over it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use skein_coordinator::auth::Role;
use skein_coordinator::auth::token::Keys;
use skein_coordinator::entity::Clock;
use skein_tests::mcp::Client;
use uuid::Uuid;

use super::fill::{Contents, fill};
use super::node::{Memory, Node, token};
use crate::options::Options;

/// How long the lists of a node may take to be whole.
const REBUILD: Duration = Duration::from_secs(1800);

/// A data directory and the token of the one who works there.
pub(crate) struct Place {
    data: PathBuf,
    token: String,
}

impl Place {
    /// # Errors
    /// When the disk refuses.
    pub(crate) async fn new(options: &Options, name: &str, contents: Contents) -> Result<Self> {
        let data = options.folder_for(name)?.join("data");
        std::fs::create_dir_all(&data)?;
        let agent = Uuid::now_v7();
        let token = token(&Keys::load_or_create(&data)?, Role::Worker, agent, "bench")?;
        fill(&data.join("store.db"), Clock::start().wall(), agent, &contents).await?;
        Ok(Self { data, token })
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    pub(crate) fn client(&self, node: &Node) -> Client {
        node.client(&self.token)
    }

    /// Starts a node and claims; gives the milliseconds until that was answered. An empty pool has nothing to give
    /// and says so.
    ///
    /// # Errors
    /// When the node does not answer.
    pub(crate) async fn first_claim(&self) -> Result<(Node, f64)> {
        let node = Node::start(&self.data)?;
        let (answer, milliseconds) = node.first(&self.token, "task_claim_next", json!({})).await?;
        if let Some(task) = answer["task"]["id"].as_str() {
            let report = json!({ "taskId": task, "status": "completed", "output": "done" });
            self.client(&node).call("store-progress", report).await?;
        }
        Ok((node, milliseconds))
    }

    /// Waits until the node's lists are whole.
    ///
    /// # Errors
    /// When they do not become so.
    pub(crate) async fn caught_up(&self, node: &Node) -> Result<()> {
        let client = self.client(node);
        let whole = |list: &Value| {
            let text = list.to_string();
            !["rebuilding: ", "stale: "].iter().any(|warning| text.contains(warning))
        };
        let caught_up = async {
            while !client.call("get-tasks", json!({ "limit": 1 })).await.is_ok_and(|list| whole(&list)) {
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
        };
        tokio::time::timeout(REBUILD, caught_up).await?;
        Ok(())
    }

    /// What a node takes that has answered a claim, whose lists are whole and that has rested since.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) async fn rested(&self, node: &Node, rest: Duration) -> Result<Memory> {
        self.caught_up(node).await?;
        tokio::time::sleep(rest).await;
        node.memory()
    }
}
