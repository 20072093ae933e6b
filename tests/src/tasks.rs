//! An agent and its tasks, for tests that look whether a node does its work.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::mcp::Client;
use crate::up::Up;

/// An agent that has joined, and its token.
///
/// # Errors
/// When it may not join.
pub async fn agent(node: &Up) -> Result<(Client, String)> {
    let token = node.token("worker", "lena").await?;
    let client = Client::new(&node.mcp, &token);
    let joined = client.call("join-swarm", json!({"name": "lena", "maxTasks": 20})).await?;
    ensure!(joined["success"] == json!(true), "{joined}");
    Ok((client, token))
}

/// # Errors
/// When the task is not created.
pub async fn create(client: &Client, text: &str) -> Result<()> {
    let made = client.call("task-action", json!({"action": "create", "task": text})).await?;
    ensure!(made["success"] == json!(true), "{made}");
    Ok(())
}

/// Creates a task as soon as that can be done.
///
/// # Errors
/// When that takes too long.
pub async fn create_again(node: &Up, client: &Client, text: &str) -> Result<()> {
    node.until("a task can be created again", async || Ok(create(client, text).await.ok())).await
}

/// The texts of all tasks.
///
/// # Errors
/// When they cannot be listed.
pub async fn listed(node: &Up) -> Result<Vec<String>> {
    let rows = node.skein(&["tasks", "list", "--json"]).await?;
    let rows = rows.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let mut texts: Vec<String> =
        rows.iter().map(|row| row["task"].as_str().unwrap_or_default().to_owned()).collect();
    texts.sort();
    Ok(texts)
}
