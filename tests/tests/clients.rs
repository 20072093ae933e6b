//! The official Python and TypeScript clients drive join, send, poll, progress and complete, over both
//! revisions of the protocol.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use skein_tests::up::Up;
use tokio::process::Command;

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
    let output = Command::new(program).arg(script).args([&up.mcp, &lead, &worker, mode]).output().await?;
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

async fn beyond_tools(mode: &str) -> Result<()> {
    let seen = run(&installed("SKEIN_TEST_PYTHON")?, &script("offers.py"), mode).await?;
    ensure!(seen["prompts"] == serde_json::json!(["lead", "worker"]), "{seen}");
    ensure!(seen["told"] == true, "{seen}");
    Ok(())
}

/// Prompts, resources with pages and changes, completion, questions to people; whoever may not see something is refused.
#[tokio::test]
async fn python_beyond_tools_stateless() -> Result<()> {
    beyond_tools("2026-07-28").await
}

#[tokio::test]
async fn python_beyond_tools_sessions() -> Result<()> {
    beyond_tools("legacy").await
}
