//! The official Python and TypeScript clients drive join, send, poll, progress and complete, over both
//! revisions of the protocol.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use skein_tests::up::{Folder, Up, skein_elsewhere};
use tokio::process::Command;
use uuid::Uuid;

const CORE: [&str; 4] = ["join-swarm", "poll-task", "acquire_lock", "tools_find"];

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(name)
}

fn installed(variable: &str) -> Result<String> {
    std::env::var(variable).with_context(|| {
        format!("{variable} is not set: run the suite by tests/run, which installs the clients")
    })
}

/// Runs a script and gives what it says at its end.
async fn run(program: &str, script: &Path, mode: &str) -> Result<Value> {
    let up = Up::start().await?;
    let lead = up.token("lead", "lead").await?;
    let worker = up.token("worker", "worker").await?;
    run_at(&up, program, script, [&lead, &worker], mode).await
}

/// The same at a node that is there, for agents that say who they are with this.
async fn run_at(up: &Up, program: &str, script: &Path, agents: [&str; 2], mode: &str) -> Result<Value> {
    let output = Command::new(program).arg(script).arg(&up.mcp).args(agents).arg(mode).output().await?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{stdout}{stderr}");
    let last = stdout.lines().last().context("the client printed nothing")?;
    Ok(serde_json::from_str(last)?)
}

async fn drive(program: &str, script: &Path, mode: &str) -> Result<()> {
    let seen = run(program, script, mode).await?;
    let protocol = if mode == "legacy" { "2025-11-25" } else { mode };
    ensure!(seen["protocol"] == protocol, "the client spoke {}", seen["protocol"]);
    let tools: Vec<&str> = seen["tools"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for tool in CORE {
        ensure!(tools.contains(&tool), "{tool} is missing in {tools:?}");
    }
    Ok(())
}

#[tokio::test]
async fn python_stateless() -> Result<()> {
    drive(&installed("SKEIN_TEST_PYTHON")?, &script("loop.py"), "2026-07-28").await
}

#[tokio::test]
async fn python_sessions() -> Result<()> {
    drive(&installed("SKEIN_TEST_PYTHON")?, &script("loop.py"), "legacy").await
}

#[tokio::test]
async fn typescript_stateless() -> Result<()> {
    installed("SKEIN_TEST_NODE_MODULES")?;
    drive("node", &script("loop.mjs"), "2026-07-28").await
}

#[tokio::test]
async fn typescript_sessions() -> Result<()> {
    installed("SKEIN_TEST_NODE_MODULES")?;
    drive("node", &script("loop.mjs"), "legacy").await
}

/// Agents of Agent Swarm come with its one key and their ids, over MCP and over its routes.
#[tokio::test]
async fn python_with_the_key_of_agent_swarm() -> Result<()> {
    const KEY: &str = "hush-hush";
    let folder = Folder::new()?.with_variable("SKEIN_COMPAT__KEY", KEY);
    let up = Up::start_in(folder, &["--no-runner", "--compat", "agent-swarm"]).await?;
    let agents = [1, 2].map(|number| Uuid::new_v5(&Uuid::NAMESPACE_OID, &[number]));
    let [lead, worker] = agents.map(|agent| format!("{KEY}@{agent}"));
    let python = installed("SKEIN_TEST_PYTHON")?;
    let seen = run_at(&up, &python, &script("loop.py"), [&lead, &worker], "legacy").await?;
    let http = reqwest::Client::new();
    let ask = async |key: &str, path: &str| {
        let url = format!("{}{path}", up.mcp.trim_end_matches("/mcp"));
        http.get(url).bearer_auth(key).header("x-agent-id", agents[1].to_string()).send().await
    };
    let members: Value = ask(KEY, "/api/agents").await?.json().await?;
    let mut known: Vec<_> = members["agents"].as_array().context("no agents")?.iter().collect();
    known.sort_by_key(|agent| agent["isLead"] == true);
    let ids: Vec<_> = known.iter().rev().map(|agent| agent["id"].clone()).collect();
    ensure!(ids == agents.map(|agent| Value::from(agent.to_string())), "{members}");
    let task: Value =
        ask(KEY, &format!("/api/tasks/{}", seen["task"].as_str().unwrap_or_default())).await?.json().await?;
    ensure!(task["status"] == "completed" && task["output"] == "hello", "{task}");
    let health: Value = ask("another", "/health").await?.json().await?;
    ensure!(health["status"] == "ok" && health["version"].is_string(), "{health}");
    for path in ["/api/agents", "/mcp"] {
        let status = ask("another", path).await?.status();
        ensure!(status == reqwest::StatusCode::UNAUTHORIZED, "{path}: {status}");
    }
    let folder = up.terminate().await?;
    ensure!(!std::fs::read_to_string(folder.path().join("log"))?.contains(KEY), "the key stands in the log");
    Ok(())
}

async fn beyond_tools(mode: &str) -> Result<()> {
    let seen = run(&installed("SKEIN_TEST_PYTHON")?, &script("offers.py"), mode).await?;
    ensure!(seen["prompts"] == serde_json::json!(["lead", "worker"]), "{seen}");
    ensure!(seen["told"] == true, "{seen}");
    Ok(())
}

/// Prompts, resources with pages and changes, completion, questions to people; whoever may not see something is
/// refused.
#[tokio::test]
async fn python_beyond_tools_stateless() -> Result<()> {
    beyond_tools("2026-07-28").await
}

#[tokio::test]
async fn python_beyond_tools_sessions() -> Result<()> {
    beyond_tools("legacy").await
}

#[tokio::test]
async fn python_fetches_its_token_by_itself() -> Result<()> {
    let up = Up::start().await?;
    let made = up.skein(&["client", "add", "ci", "--role", "worker", "--json"]).await?;
    let made: Value = serde_json::from_str(&made)?;
    let field = |name: &str| made[name].as_str().with_context(|| format!("{name} is missing in {made}"));
    let issuer = up.mcp.trim_end_matches("/mcp");
    let output = Command::new(installed("SKEIN_TEST_PYTHON")?)
        .arg(script("fetch.py"))
        .args([&up.mcp, issuer, field("clientId")?, field("secret")?])
        .output()
        .await?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{stdout}{stderr}");
    let seen: Value = serde_json::from_str(stdout.lines().last().context("the client printed nothing")?)?;
    ensure!(seen["agent"] == made["agentId"], "{seen} {made}");
    ensure!(seen["scope"] == "swarm:read swarm:work", "{seen}");
    let log = up.log()?;
    ensure!(!log.contains(field("secret")?), "the client's secret stands in the log");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_who_may_only_read_changes_nothing_by_the_command_line() -> Result<()> {
    let up = Up::start().await?;
    let issue = ["token", "issue", "--role", "operator", "--name", "eye", "--view", "full/readonly"];
    let readonly = up.skein(&issue).await?;
    std::fs::write(up.data().join("operator.token"), readonly.trim())?;
    up.skein(&["tasks", "list"]).await?;
    for changes in [
        &["task", "create", "x"][..],
        &["swarm", "create", "other"],
        &["token", "revoke", "--everyone"],
        &["agent", "kill", "worker-00000001"],
        &["secrets", "add"],
    ] {
        let refused = up.skein(changes).await.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(refused.contains("may only read"), "{changes:?}: {refused}");
    }
    Ok(())
}

#[tokio::test]
async fn tokens_are_fetched_handed_on_and_revoked_by_the_command_line() -> Result<()> {
    let up = Up::start().await?;
    let url = up.mcp.trim_end_matches("/mcp");
    let tokens = tempfile::tempdir()?;
    let file = |name: &str| tokens.path().join(name).to_string_lossy().into_owned();
    let made: Value =
        serde_json::from_str(&up.skein(&["client", "add", "boss", "--role", "lead", "--json"]).await?)?;
    std::fs::write(file("secret"), made["secret"].as_str().context("no secret")?)?;
    let fetch =
        ["token", "fetch", "--url", url, "--client", "default/boss", "--secret-file", &file("secret")];
    std::fs::write(file("lead"), skein_elsewhere(&fetch).await?)?;
    let hand = ["token", "refresh", "--url", url, "--token-file", &file("lead"), "--to", "w1"];
    std::fs::write(file("worker"), skein_elsewhere(&hand).await?)?;
    let again = ["token", "refresh", "--url", url, "--token-file", &file("worker")];
    skein_elsewhere(&again).await?;
    up.skein(&["token", "revoke", "--token-file", &file("lead")]).await?;
    // What came of the lead's token ends with it; a new one of the client is good.
    up.until("the worker's token to end", async || Ok(skein_elsewhere(&again).await.is_err().then_some(())))
        .await?;
    skein_elsewhere(&fetch).await?;
    ensure!(up.skein(&["token", "revoked"]).await?.contains("token-"));
    up.skein(&["client", "remove", "boss"]).await?;
    ensure!(skein_elsewhere(&fetch).await.is_err(), "a client that is gone fetches no token");
    ensure!(!up.skein(&["client", "list"]).await?.contains("boss"));

    // Another key signs; what the old one signed holds, also the command line's own token.
    let old = up.token("worker", "worker").await?;
    std::fs::write(file("old"), &old)?;
    let before = up.skein(&["token", "rotate-keys", "--json"]).await?;
    let before: Value = serde_json::from_str(&before)?;
    ensure!(before["keys"].as_array().is_some_and(|keys| keys.len() == 2), "{before}");
    std::fs::write(file("new"), up.token("worker", "worker").await?)?;
    let renew = |name: &str| {
        vec![
            "token".into(),
            "refresh".into(),
            "--url".into(),
            url.to_owned(),
            "--token-file".into(),
            file(name),
        ]
    };
    let held = async |name: &str| {
        let arguments: Vec<String> = renew(name);
        skein_elsewhere(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).await.is_ok()
    };
    up.until("the node to know the new key", async || Ok(held("new").await.then_some(()))).await?;
    ensure!(held("old").await, "a token of the old key has ended");
    up.skein(&["status"]).await?;
    up.skein(&["token", "rotate-keys", "--retire"]).await?;
    up.until("the old key to be gone", async || Ok((!held("old").await).then_some(()))).await?;
    ensure!(held("new").await, "a token of the new key has ended");
    up.until("a new operator's token", async || Ok(up.skein(&["status"]).await.ok())).await?;
    Ok(())
}
