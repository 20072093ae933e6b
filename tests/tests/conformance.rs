//! The official conformance suite, against the whole program with the suite's own catalogue in it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use skein_tests::porter::Porter;
use skein_tests::up::{Folder, Up};
use tokio::process::Command;

/// What may be left out: notifications of tasks, whose check the suite itself has put off, and an extension that is
/// not declared.
fn may_be_skipped(scenario: &str) -> bool {
    scenario.contains("tasks-status-notifications") || scenario.contains("sep-2640-skills")
}

/// One thing that the suite has looked at.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Check {
    id: String,
    status: String,
    #[serde(default)]
    error_message: Option<String>,
}

/// Runs a part of the suite, and gives how many checks went well.
async fn conforms(part: &[&str]) -> Result<usize> {
    let modules = std::env::var("SKEIN_TEST_NODE_MODULES")
        .context("SKEIN_TEST_NODE_MODULES is not set: run the suite by tests/run, which installs it")?;
    let suite = Path::new(&modules).join("@modelcontextprotocol/conformance/dist/index.js");
    let up = Up::start_in(Folder::new()?, &["--no-runner", "--conformance-fixture"]).await?;
    let token = up.token("lead", "conformance").await?;
    let porter = Porter::stand(up.mcp.trim_end_matches("/mcp"), &token).await?;
    let results = up.folder.path().join("results");
    let output = Command::new("node")
        .arg(&suite)
        .args(["server", "--url", &format!("{}/mcp", porter.url)])
        .args(part)
        .arg("--output-dir")
        .arg(&results)
        .current_dir(up.folder.path())
        .output()
        .await
        .context("there is no node")?;
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let mut passed = 0;
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(&results).with_context(|| said.clone())? {
        let entry = entry?;
        let scenario = entry.file_name().to_string_lossy().into_owned();
        let Ok(text) = std::fs::read_to_string(entry.path().join("checks.json")) else { continue };
        for check in serde_json::from_str::<Vec<Check>>(&text)? {
            match check.status.as_str() {
                "SUCCESS" => passed += 1,
                "INFO" => {}
                "SKIPPED" if may_be_skipped(&scenario) => {}
                status => {
                    let why = check.error_message.unwrap_or_default();
                    wrong.push(format!("{scenario}: {} {status} {why}", check.id));
                }
            }
        }
    }
    wrong.sort();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(output.status.success(), "{said}");
    Ok(passed)
}

#[tokio::test]
async fn with_sessions() -> Result<()> {
    let passed = conforms(&["--requirements", "2025-11-25"]).await?;
    ensure!(passed >= 83, "only {passed} checks were made");
    Ok(())
}

#[tokio::test]
async fn stateless() -> Result<()> {
    let passed = conforms(&["--requirements", "2026-07-28"]).await?;
    ensure!(passed >= 196, "only {passed} checks were made");
    Ok(())
}
