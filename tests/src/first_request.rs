//! What a coding agent sends to its model before anything has happened: what the swarm's tools cost it from the start.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::coder::Coder;
use crate::model::{Model, Say};

/// Names of tools as Claude Code writes them.
const PREFIX: &str = "mcp__skein__";
/// Longest that a turn may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// How Claude Code is to come by the swarm's tools.
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    /// The address of a view.
    pub url: &'a str,
    pub token: &'a str,
    /// Its own search of tools is on.
    pub search: bool,
    /// What it searches for in its first turn, if it searches at all.
    pub wanted: Vec<String>,
}

/// The requests of one turn.
#[derive(Clone, Debug)]
pub struct Turn {
    requests: Vec<Value>,
}

impl Turn {
    /// # Errors
    /// When the client sent none.
    pub fn first(&self) -> Result<&Value> {
        self.requests.first().context("the client asked its model nothing")
    }

    /// The swarm's tools in the first request, in the catalogue's spelling.
    ///
    /// # Errors
    /// When the client sent none.
    pub fn loaded(&self) -> Result<Vec<String>> {
        Ok(names(self.first()?))
    }

    /// The swarm's tools in the last request: those of the first, and those that were found.
    ///
    /// # Errors
    /// When the client sent none.
    pub fn found(&self) -> Result<Vec<String>> {
        Ok(names(self.requests.last().context("the client asked its model nothing")?))
    }
}

fn names(request: &Value) -> Vec<String> {
    let tools = request["tools"].as_array().into_iter().flatten();
    let names = tools.filter_map(|tool| tool["name"].as_str()?.strip_prefix(PREFIX));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort_unstable();
    names
}

/// Starts Claude Code in a folder of its own and takes down what it sends in its first turn.
///
/// # Errors
/// When it is not installed or does not end well.
pub async fn turn(folder: &Path, setting: &Setting<'_>) -> Result<Turn> {
    let wanted: Vec<String> = setting.wanted.iter().map(|name| format!("{PREFIX}{name}")).collect();
    let query = json!({ "query": format!("select:{}", wanted.join(",")), "max_results": wanted.len() });
    let model = Model::start(move |talk| {
        let search = !wanted.is_empty() && talk.results.is_empty();
        Ok(if search { Say::Call("ToolSearch", query.clone()) } else { Say::Text("Geese.") })
    })
    .await?;
    let program = Coder::ClaudeCode.install(folder)?;
    let servers = json!({"mcpServers": {"skein": {
        "type": "http", "url": setting.url, "headers": {"Authorization": format!("Bearer {}", setting.token)},
    }}});
    let mut command = Command::new(program);
    command
        .args(["-p", "Count the geese.", "--strict-mcp-config", "--mcp-config", &servers.to_string()])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", folder)
        .env("ENABLE_TOOL_SEARCH", setting.search.to_string())
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .envs(Coder::ClaudeCode.settings(model.address()).1)
        .current_dir(folder)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(LIMIT, command.output()).await.context("it does not end")??;
    ensure!(output.status.success(), "it ended badly: {}", String::from_utf8_lossy(&output.stdout));
    Ok(Turn { requests: model.requests() })
}
