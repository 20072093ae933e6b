//! What the split into core and deferred tools is worth to a real client, seen in its first request to its model.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use skein_tests::first_request::{Setting, turn};
use skein_tests::mcp::Client;
use skein_tests::up::{Folder, Up};

/// The names of a view's tools, and of those among them that a client is to load always.
async fn listed(url: &str, token: &str) -> Result<(BTreeSet<String>, BTreeSet<String>)> {
    let answer = Client::new(url, token).request("tools/list", json!({})).await?;
    let tools = answer["result"]["tools"].as_array().cloned().unwrap_or_default();
    let named = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
    let core = tools.iter().filter(|tool| tool["_meta"]["anthropic/alwaysLoad"] == json!(true));
    Ok((tools.iter().map(named).collect(), core.map(named).collect()))
}

#[tokio::test]
async fn claude_code_that_searches_loads_the_core_and_finds_the_rest() -> Result<()> {
    let (up, folder) = (Up::start().await?, Folder::new()?);
    let token = up.token("lead", "lead").await?;
    let url = format!("{}/full", up.mcp);
    let (all, core) = listed(&url, &token).await?;
    ensure!(core.len() > 20 && all.len() > 2 * core.len(), "{} of {}", core.len(), all.len());
    let wanted = all.difference(&core).cloned().collect();
    let setting = Setting { url: &url, token: &token, search: true, wanted };
    let turn = turn(folder.path(), &setting).await?;
    ensure!(turn.loaded()?.into_iter().collect::<BTreeSet<_>>() == core, "{:?}", turn.loaded()?);
    ensure!(turn.found()?.into_iter().collect::<BTreeSet<_>>() == all, "{:?}", turn.found()?);
    Ok(())
}

#[tokio::test]
async fn claude_code_that_does_not_search_loads_the_short_list() -> Result<()> {
    let (up, folder) = (Up::start().await?, Folder::new()?);
    let token = up.token("lead", "lead").await?;
    let (short, _) = listed(&up.mcp, &token).await?;
    let (_, core) = listed(&format!("{}/full", up.mcp), &token).await?;
    let setting = Setting { url: &up.mcp, token: &token, search: false, wanted: Vec::new() };
    let turn = turn(folder.path(), &setting).await?;
    let loaded: BTreeSet<_> = turn.loaded()?.into_iter().collect();
    ensure!(loaded == short && loaded == core, "{loaded:?}");
    Ok(())
}
