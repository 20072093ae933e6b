//! What a coding agent sends to its model before anything has happened: what the swarm's tools cost it from the start.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::coder::{Coder, Guide};
use crate::language_model::{self, Model, Say};

/// What the client is asked to do.
const PROMPT: &str = "Count the geese.";
/// A model that Codex knows, and knows to search tools. Then it does, and cannot be told not to.
const SEARCHING: &str = "gpt-5.5";
/// Longest that a turn may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// How long a client may take to be told of the swarm's tools. By themselves some begin without them after a few
/// seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a client is to come by the swarm's tools.
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    pub coder: Coder,
    /// The address of a view, and a token. Without them it knows nothing of the swarm.
    pub view: Option<(&'a str, &'a str)>,
    /// It looks for tools when it needs them: Claude Code and Codex by their own search, opencode in the code that its
    /// model writes. Gemini CLI cannot.
    pub search: bool,
    /// What it searches for in its first turn, if it searches at all. Not for opencode.
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

    /// The swarm's tools in the first request, spelt as all clients can.
    ///
    /// # Errors
    /// When the client sent none.
    pub fn loaded(&self) -> Result<BTreeSet<String>> {
        Ok(names(self.first()?))
    }

    /// The swarm's tools in the last request: those of the first, and those that were found.
    ///
    /// # Errors
    /// When the client sent none.
    pub fn found(&self) -> Result<BTreeSet<String>> {
        Ok(names(self.requests.last().context("the client asked its model nothing")?))
    }
}

fn names(request: &Value) -> BTreeSet<String> {
    language_model::tools(request).into_iter().map(|(name, _)| name).collect()
}

/// Starts a client in a folder of its own and takes down what it sends in its first turn.
///
/// # Errors
/// When it is not installed or does not end well.
pub async fn turn(folder: &Path, setting: &Setting<'_>) -> Result<Turn> {
    let search = search(setting);
    let model = Model::start(move |talk| {
        Ok(search.clone().filter(|_| talk.results.is_empty()).unwrap_or(Say::Text("Geese.")))
    })
    .await?;
    let program = setting.coder.install(folder)?;
    let guide = setting.coder.guide(model.address());
    let launch = match setting.coder {
        Coder::ClaudeCode => claude_code(setting, guide),
        Coder::Codex => codex(setting, guide),
        Coder::Gemini => gemini(setting, guide, folder)?,
        Coder::Opencode => opencode(setting, guide),
    };
    let mut command = Command::new(program);
    command
        .args(launch.args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", folder)
        .envs(launch.env)
        .current_dir(folder)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(LIMIT, command.output()).await.context("it does not end")??;
    let (printed, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "it ended badly: {printed}{complaint}");
    Ok(Turn { requests: model.requests() })
}

/// How its model asks the client for tools that it has not loaded.
fn search(setting: &Setting<'_>) -> Option<Say> {
    let wanted = &setting.wanted;
    if wanted.is_empty() {
        return None;
    }
    match setting.coder {
        Coder::ClaudeCode => {
            let names: Vec<String> = wanted.iter().map(|name| format!("mcp__skein__{name}")).collect();
            let query = format!("select:{}", names.join(","));
            Some(Say::Call("ToolSearch", json!({"query": query, "max_results": wanted.len()})))
        }
        Coder::Codex => {
            // Tools of its own fit as well.
            let query = json!({"query": wanted.join(" "), "limit": 2 * wanted.len()});
            Some(Say::Call("tool_search", query))
        }
        Coder::Gemini | Coder::Opencode => None,
    }
}

/// What a client is started with.
struct Launch {
    args: Vec<String>,
    env: Vec<(&'static str, String)>,
}

fn claude_code(setting: &Setting<'_>, guide: Guide) -> Launch {
    let servers = setting.view.map(|(url, token)| {
        let headers = json!({"Authorization": format!("Bearer {token}")});
        json!({"skein": {"type": "http", "url": url, "headers": headers}})
    });
    let servers = json!({"mcpServers": servers.unwrap_or(json!({}))}).to_string();
    let mut env = guide.env;
    env.push(("ENABLE_TOOL_SEARCH", setting.search.to_string()));
    env.push(("MCP_TIMEOUT", PATIENCE.as_millis().to_string()));
    env.push(("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()));
    let args = ["-p", PROMPT, "--strict-mcp-config", "--mcp-config", &servers].map(str::to_owned);
    Launch { args: args.to_vec(), env }
}

fn codex(setting: &Setting<'_>, guide: Guide) -> Launch {
    let mut args = vec!["exec".to_owned(), "--skip-git-repo-check".to_owned()];
    let mut env = guide.env;
    args.extend(guide.args);
    if let Some((url, token)) = setting.view {
        for (key, value) in [("url", url), ("bearer_token_env_var", "SKEIN_TOKEN")] {
            args.extend(["-c".to_owned(), format!("mcp_servers.skein.{key}=\"{value}\"")]);
        }
        let patience = format!("mcp_servers.skein.startup_timeout_sec={}", PATIENCE.as_secs());
        args.extend(["-c".to_owned(), patience]);
        env.push(("SKEIN_TOKEN", token.to_owned()));
    }
    let model = if setting.search { Some(SEARCHING) } else { guide.model };
    args.extend(model.map(|model| format!("--model={model}")));
    args.push(PROMPT.to_owned());
    Launch { args, env }
}

/// It takes its settings from a file in its user's home alone.
fn gemini(setting: &Setting<'_>, guide: Guide, home: &Path) -> Result<Launch> {
    let servers = setting.view.map(|(url, token)| {
        let headers = json!({"Authorization": format!("Bearer {token}")});
        json!({"skein": {"httpUrl": url, "headers": headers, "trust": true}})
    });
    let settings = json!({
        "general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false},
        "privacy": {"usageStatisticsEnabled": false},
        "security": {"auth": {"useExternal": true}},
        "mcpServers": servers.unwrap_or(json!({})),
    });
    fs::create_dir(home.join(".gemini"))?;
    fs::write(home.join(".gemini/settings.json"), settings.to_string())?;
    let mut args = vec!["--skip-trust".to_owned(), "-p".to_owned(), PROMPT.to_owned()];
    args.extend(guide.model.map(|model| format!("--model={model}")));
    Ok(Launch { args, env: guide.env })
}

fn opencode(setting: &Setting<'_>, guide: Guide) -> Launch {
    let servers = setting.view.map(|(url, token)| {
        let headers = json!({"Authorization": format!("Bearer {token}")});
        let patience = u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX);
        json!({"skein": {"type": "remote", "url": url, "oauth": false, "headers": headers, "timeout": patience}})
    });
    let config = json!({"autoupdate": false, "share": "disabled", "mcp": servers.unwrap_or(json!({}))});
    let mut env = guide.env;
    env.push(("OPENCODE_CONFIG_CONTENT", config.to_string()));
    if setting.search {
        env.push(("OPENCODE_EXPERIMENTAL_CODE_MODE", "1".to_owned()));
    }
    let mut args = vec!["run".to_owned()];
    args.extend(guide.model.map(|model| format!("--model={model}")));
    args.push(PROMPT.to_owned());
    Launch { args, env }
}
