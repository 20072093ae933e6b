//! The summariser: is called, sleeps until the repository is pushed, and then writes the report.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::super::client::{Swarm, ToolError};
use super::super::survey::Survey;
use super::{join, text};

/// The report as the summariser leaves it in its working folder.
const REPORT: &str = "report.md";

pub(super) async fn run() -> Result<(), ToolError> {
    let context = context()?;
    let swarm = Swarm::from_environment().await?;
    join(&swarm, false, "summariser").await?;
    let event = sleep_until_push(&swarm).await?;
    let report = write_report(&swarm, &context, &event).await?;
    std::fs::write(REPORT, &report)
        .map_err(|error| ToolError::Work(format!("{REPORT} could not be written: {error}")))?;
    swarm.call("return_value", json!({"value": report})).await?;
    swarm.close().await;
    Ok(())
}

/// What the lead gave along with its call.
fn context() -> Result<Value, ToolError> {
    let input = std::env::var("SKEIN_INPUT").map_err(|_| ToolError::Environment("SKEIN_INPUT"))?;
    let input: Value = serde_json::from_str(&input).map_err(|error| ToolError::Work(error.to_string()))?;
    let context = text(&input, "/call/context")?;
    serde_json::from_str(&context).map_err(|error| ToolError::Work(error.to_string()))
}

/// Sleeps until the push and gives the event. A wait outlives its call: when the answer says that it goes on,
/// the same call again continues it.
async fn sleep_until_push(swarm: &Swarm) -> Result<Value, ToolError> {
    let wait = json!({"type": "webhook", "source": "github", "event": "push", "timeout": "1h"});
    loop {
        let answer = swarm.call("wait_for_trigger", wait.clone()).await?;
        if answer["payload"].is_object() {
            return Ok(answer["payload"].clone());
        }
    }
}

async fn write_report(swarm: &Swarm, context: &Value, event: &Value) -> Result<String, ToolError> {
    let mut report = String::from("# Survey of the repository\n\n");
    let _ = writeln!(
        report,
        "Written after a push to `{}` on `{}` by {}.\n",
        event["repo"].as_str().unwrap_or("the repository"),
        event["branch"].as_str().unwrap_or("its branch"),
        event["sender"].as_str().unwrap_or("somebody"),
    );
    let surveys: Vec<String> = serde_json::from_value(context["surveys"].clone()).unwrap_or_default();
    let mut rows = Vec::new();
    for id in surveys {
        let output = text(&swarm.call("get-task-details", json!({"taskId": id})).await?, "/task/output")?;
        let survey: Survey =
            serde_json::from_str(&output).map_err(|error| ToolError::Work(error.to_string()))?;
        rows.push(survey);
    }
    table(&mut report, &rows);
    details(&mut report, &rows);
    let compare = text(context, "/compare")?;
    let ranks = text(&swarm.call("get-task-details", json!({"taskId": compare})).await?, "/task/output")?;
    ranking(&mut report, &ranks);
    Ok(report)
}

fn table(report: &mut String, rows: &[Survey]) {
    report.push_str("| part | files | lines | bytes | left for later | recent commits |\n");
    report.push_str("| --- | ---: | ---: | ---: | ---: | ---: |\n");
    for row in rows {
        let commits: usize = row.churn.iter().map(|(_, commits)| commits).sum();
        let _ = writeln!(
            report,
            "| {} | {} | {} | {} | {} | {commits} |",
            row.part,
            row.files,
            row.lines,
            row.bytes,
            row.markers.len()
        );
    }
}

fn details(report: &mut String, rows: &[Survey]) {
    for row in rows {
        let _ = writeln!(report, "\n## {}\n", row.part);
        let named = |files: &[(String, usize)]| {
            files.iter().map(|(file, count)| format!("{file} ({count})")).collect::<Vec<_>>().join(", ")
        };
        let _ = writeln!(report, "- biggest files by lines: {}", named(&row.biggest));
        if !row.churn.is_empty() {
            let _ = writeln!(report, "- busiest files by commits in 90 days: {}", named(&row.churn));
        }
        if !row.markers.is_empty() {
            let _ = writeln!(report, "- left for later: {}", row.markers.join(", "));
        }
    }
}

fn ranking(report: &mut String, ranks: &str) {
    let Ok(ranks) = serde_json::from_str::<Value>(ranks) else { return };
    report.push_str("\n## Ranking\n\n");
    for (title, field) in [
        ("by size", "by_lines"),
        ("by what was left for later", "by_markers"),
        ("by recent work", "by_churn"),
    ] {
        let parts: Vec<&str> =
            ranks[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let _ = writeln!(report, "- {title}: {}", parts.join(", "));
    }
}
