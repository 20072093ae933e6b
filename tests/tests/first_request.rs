//! What the split into core and deferred tools is worth to real clients, seen in their first requests to their models.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use skein_tests::coder::Coder;
use skein_tests::first_request::{Setting, Turn, turn};
use skein_tests::language_model::plain;
use skein_tests::mcp::Client;
use skein_tests::up::{Folder, Up};

/// A node, and what it lists to a lead.
struct Stage {
    up: Up,
    token: String,
    /// Everything.
    all: BTreeSet<String>,
    /// What a client is to load always.
    core: BTreeSet<String>,
}

impl Stage {
    async fn new() -> Result<Self> {
        let up = Up::start().await?;
        let token = up.token("lead", "lead").await?;
        let (all, core) = listed(&format!("{}/full", up.mcp), &token).await?;
        ensure!(core.len() > 20 && all.len() > 2 * core.len(), "{} of {}", core.len(), all.len());
        Ok(Self { up, token, all, core })
    }

    /// A client's first turn at a view, in which it searches for some tools.
    async fn turn(&self, coder: Coder, view: &str, search: bool, wanted: &BTreeSet<String>) -> Result<Turn> {
        let url = format!("{}{view}", self.up.mcp);
        let wanted = wanted.iter().cloned().collect();
        let setting = Setting { coder, view: Some((&url, &self.token)), search, wanted };
        turn(Folder::new()?.path(), &setting).await
    }

    /// What a client loads that does not search.
    async fn loaded(&self, coder: Coder, view: &str) -> Result<BTreeSet<String>> {
        self.turn(coder, view, false, &BTreeSet::new()).await?.loaded()
    }
}

/// The names of a view's tools, and of those among them that a client is to load always.
async fn listed(url: &str, token: &str) -> Result<(BTreeSet<String>, BTreeSet<String>)> {
    let answer = Client::new(url, token).request("tools/list", json!({})).await?;
    let tools = answer["result"]["tools"].as_array().cloned().unwrap_or_default();
    let named = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
    let core = tools.iter().filter(|tool| tool["_meta"]["anthropic/alwaysLoad"] == json!(true));
    Ok((tools.iter().map(named).collect(), core.map(named).collect()))
}

fn spelt(names: &BTreeSet<String>) -> BTreeSet<String> {
    names.iter().map(|name| plain(name)).collect()
}

/// At the short list a client that does not search loads the core, at the long one everything.
async fn loads_what_is_listed(coder: Coder) -> Result<()> {
    let stage = Stage::new().await?;
    let short = stage.loaded(coder, "").await?;
    ensure!(short == spelt(&stage.core), "{short:?}");
    let long = stage.loaded(coder, "/full").await?;
    ensure!(long == spelt(&stage.all), "{long:?}");
    Ok(())
}

#[tokio::test]
async fn claude_code_that_does_not_search_loads_what_is_listed() -> Result<()> {
    loads_what_is_listed(Coder::ClaudeCode).await
}

#[tokio::test]
async fn codex_whose_model_does_not_search_loads_what_is_listed() -> Result<()> {
    loads_what_is_listed(Coder::Codex).await
}

#[tokio::test]
async fn gemini_loads_what_is_listed() -> Result<()> {
    loads_what_is_listed(Coder::Gemini).await
}

#[tokio::test]
async fn opencode_loads_what_is_listed() -> Result<()> {
    loads_what_is_listed(Coder::Opencode).await
}

#[tokio::test]
async fn claude_code_that_searches_loads_the_core_and_finds_the_rest() -> Result<()> {
    let stage = Stage::new().await?;
    let rest = stage.all.difference(&stage.core).cloned().collect();
    let turn = stage.turn(Coder::ClaudeCode, "/full", true, &rest).await?;
    ensure!(turn.loaded()? == spelt(&stage.core), "{:?}", turn.loaded()?);
    ensure!(turn.found()? == spelt(&stage.all), "{:?}", turn.found()?);
    Ok(())
}

/// It puts off every tool of a server, whatever the server says of them.
#[tokio::test]
async fn codex_whose_model_searches_loads_nothing_and_finds_all() -> Result<()> {
    let stage = Stage::new().await?;
    let turn = stage.turn(Coder::Codex, "/full", true, &stage.all).await?;
    ensure!(turn.loaded()?.is_empty(), "{:?}", turn.loaded()?);
    ensure!(turn.found()? == spelt(&stage.all), "{:?}", turn.found()?);
    Ok(())
}

/// Its model is shown how to search in code, with some of the tools as examples.
#[tokio::test]
async fn opencode_whose_model_writes_code_loads_no_tool_as_such() -> Result<()> {
    let stage = Stage::new().await?;
    let turn = stage.turn(Coder::Opencode, "/full", true, &BTreeSet::new()).await?;
    ensure!(turn.loaded()?.is_empty(), "{:?}", turn.loaded()?);
    ensure!(turn.first()?.to_string().contains("tools.skein"), "it knows nothing of the swarm");
    Ok(())
}
