//! Every tool of the `swarm` toolset, through each kind of client, in each view, as a lead and as a worker, with good
//! and with bad arguments. Of the Inspector each call is a command line of its own, with a connection of its own. In
//! each view and revision they run in one process, but for two calls of each tool, a good and a bad one: these are the
//! program as people start it, in one of the views and revisions. `just ci-long` starts the program for each call.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use skein_tests::mcp::Client;
use skein_tests::slack::{Slack, event, next_letter};
use skein_tests::up::{Folder, Up};
use tokio::process::Command;

/// Where each view is, behind the address of the facade.
const VIEWS: [&str; 3] = ["", "/full", "/x/swarm"];
/// Tools of Agent Swarm.
const SWARM: usize = 50;

fn installed(variable: &str) -> Result<String> {
    std::env::var(variable).with_context(|| {
        format!("{variable} is not set: run the suite by tests/run, which installs the clients")
    })
}

/// Goes through the plan once for each view, in a swarm of its own. `spoken` is the revision that the client has to end
/// up with, if it tells.
async fn drive(program: &str, script: &str, client: &str, mode: &str, spoken: Option<&str>) -> Result<()> {
    let mut workspaces = Vec::new();
    for number in 0..VIEWS.len() {
        let slack = Slack::start().await?;
        slack.has_file("F9", "data.txt", b"words");
        workspaces.push((slack.configuration_for(&swarm(number)), slack));
    }
    let settings: String = workspaces.iter().map(|(settings, _)| settings.as_str()).collect();
    let up = Up::start_in(Folder::new()?.configured(&settings)?, &["--no-runner"]).await?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(script);
    for ((number, view), (_, slack)) in VIEWS.into_iter().enumerate().zip(&workspaces) {
        let swarm = swarm(number);
        up.skein(&["swarm", "create", &swarm]).await?;
        let url = format!("{}{view}", up.mcp);
        let (lead, worker) = (token(&up, &swarm, "lead").await?, token(&up, &swarm, "worker").await?);
        let letter = letter(slack, &Client::new(&up.mcp, &lead)).await?;
        let arguments = [&url, &lead, &worker, &letter, client, mode, &number.to_string()];
        let mut command = Command::new(program);
        // The Inspector keeps what it is told in its home.
        command.arg(&script).args(arguments).env("HOME", up.folder.path());
        let output = command.output().await?;
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "{client} {mode} at {view:?}: {stdout}{stderr}");
        let seen: Value = serde_json::from_str(stdout.lines().last().context("the client printed nothing")?)?;
        let problems = seen["problems"].as_array().context("a list of problems")?;
        ensure!(problems.is_empty(), "{client} {mode} at {view:?}: {problems:#?}");
        ensure!(spoken.is_none_or(|revision| seen["protocol"] == revision), "it spoke {}", seen["protocol"]);
        let listed = seen["tools"].as_array().map_or(0, Vec::len);
        ensure!(view.is_empty() || listed >= SWARM, "{listed} tools at {view:?}");
    }
    Ok(())
}

fn swarm(number: usize) -> String {
    format!("swarm-{number}")
}

/// Somebody writes to the swarm by Slack: the id of the message in its lead's inbox.
async fn letter(slack: &Slack, lead: &Client) -> Result<String> {
    lead.call("join-swarm", json!({"name": "lead", "lead": true})).await?;
    let cursor = lead.call("wait", json!({"timeout_s": 0})).await?["cursor"].clone();
    let ts = slack.says("C1", "U1", "<@UBOT> fix the door", None);
    slack.sends("events_api", &event(&format!("Ev{ts}"), "C1", &ts, None, "<@UBOT> fix the door"));
    let (message, _) = next_letter(lead, &cursor).await?;
    Ok(message["id"].as_str().context("a message without an id")?.to_owned())
}

async fn token(up: &Up, swarm: &str, role: &str) -> Result<String> {
    let printed = up.skein(&["token", "issue", "--role", role, "--name", role, "--swarm", swarm]).await?;
    Ok(printed.lines().last().context("no token")?.to_owned())
}

async fn python(client: &str, mode: &str, spoken: Option<&str>) -> Result<()> {
    drive(&installed("SKEIN_TEST_PYTHON")?, "matrix.py", client, mode, spoken).await
}

async fn typescript(client: &str, mode: &str, spoken: Option<&str>) -> Result<()> {
    installed("SKEIN_TEST_NODE_MODULES")?;
    drive("node", "matrix.mjs", client, mode, spoken).await
}

#[tokio::test]
async fn python_that_finds_out() -> Result<()> {
    python("mcp", "auto", Some("2026-07-28")).await
}

#[tokio::test]
async fn python_of_the_older_revision() -> Result<()> {
    python("mcp", "legacy", Some("2025-11-25")).await
}

#[tokio::test]
async fn python_that_insists() -> Result<()> {
    python("mcp", "2026-07-28", Some("2026-07-28")).await
}

#[tokio::test]
async fn fastmcp() -> Result<()> {
    drive(&installed("SKEIN_TEST_FASTMCP")?, "matrix.py", "fastmcp", "auto", None).await
}

#[tokio::test]
async fn typescript_that_finds_out() -> Result<()> {
    typescript("v2", "auto", Some("2026-07-28")).await
}

#[tokio::test]
async fn typescript_of_the_older_revision() -> Result<()> {
    typescript("v2", "legacy", Some("2025-11-25")).await
}

#[tokio::test]
async fn typescript_that_insists() -> Result<()> {
    typescript("v2", "2026-07-28", Some("2026-07-28")).await
}

#[tokio::test]
async fn typescript_of_the_first_line() -> Result<()> {
    typescript("v1", "legacy", None).await
}

/// The Inspector has its own word for the revision that it is to insist on.
#[tokio::test]
async fn inspector_that_insists() -> Result<()> {
    typescript("inspector", "modern", Some("2026-07-28")).await
}

#[tokio::test]
async fn inspector_of_the_older_revision() -> Result<()> {
    typescript("inspector", "legacy", Some("2025-11-25")).await
}
