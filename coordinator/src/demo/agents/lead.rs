//! The lead: plans the survey, calls the summariser and waits for its report.

use serde_json::{Value, json};

use super::super::client::{Swarm, ToolError};
use super::super::survey;
use super::{COMPARE_TAG, PART_TAG, SUMMARISER, join, repository, text};

/// Parts that get a task of their own; what is left is little.
const PARTS: usize = 12;
/// How long one wait lasts before the lead looks again, seconds.
const WAIT_SECONDS: u64 = 30;

pub(super) async fn run() -> Result<(), ToolError> {
    let repository = repository()?;
    let parts = survey::parts(&repository).map_err(|error| ToolError::Work(error.to_string()))?;
    let swarm = Swarm::from_environment().await?;
    join(&swarm, true, "lead").await?;

    let epic = create_epic(&swarm, parts.len().min(PARTS)).await?;
    let mut surveys = Vec::new();
    for (rank, (part, files)) in parts.iter().take(PARTS).enumerate() {
        surveys.push(create_survey(&swarm, &epic, rank, part, *files).await?);
    }
    let compare = create_comparison(&swarm, &epic, &surveys).await?;
    let report = call_summariser(&swarm, &epic, &surveys, &compare).await?;
    acknowledge_results(&swarm).await?;
    swarm.call("return_value", json!({"value": report})).await?;
    swarm.close().await;
    Ok(())
}

/// Each finished task left a follow-up for the lead. The report covers them all.
async fn acknowledge_results(swarm: &Swarm) -> Result<(), ToolError> {
    let mine = swarm.call("get-tasks", json!({"mineOnly": true, "status": "pending", "limit": 100})).await?;
    for task in mine["tasks"].as_array().into_iter().flatten() {
        let noted = json!({"taskId": task["id"], "status": "completed", "output": "covered by the report"});
        swarm.call("store-progress", noted).await?;
    }
    Ok(())
}

async fn create_epic(swarm: &Swarm, parts: usize) -> Result<String, ToolError> {
    let epic = json!({
        "name": "Survey of the repository",
        "goal": "Know how big each part of the tree is, what was left for later, and where the work happens",
        "plan": format!("Survey {parts} parts in parallel, compare them, and write one report"),
        "priority": 80,
    });
    let created = swarm.call_deferred("create-epic", epic).await?;
    text(&created, "/epic/id")
}

/// The biggest part goes first: it takes the longest.
async fn create_survey(
    swarm: &Swarm,
    epic: &str,
    rank: usize,
    part: &str,
    files: usize,
) -> Result<String, ToolError> {
    let task = json!({
        "task": format!("Survey `{part}` ({files} files): measure the code, find what was left for later, name the biggest and the busiest files"),
        "priority": 90 - rank.min(40),
        "tags": [format!("{PART_TAG}{part}")],
        "taskType": "survey",
        "epicId": epic,
        // The sentences differ in one word only, which the guard against duplicates would refuse.
        "allowDuplicate": true,
    });
    let sent = swarm.call("send-task", task).await?;
    text(&sent, "/task/id")
}

async fn create_comparison(swarm: &Swarm, epic: &str, surveys: &[String]) -> Result<String, ToolError> {
    let task = json!({
        "task": "Compare the surveyed parts and rank them by size, by what was left for later and by recent work",
        "priority": 95,
        "tags": [COMPARE_TAG],
        "taskType": "survey",
        "epicId": epic,
        "dependsOn": surveys,
        "allowDuplicate": true,
    });
    let sent = swarm.call("send-task", task).await?;
    text(&sent, "/task/id")
}

async fn call_summariser(
    swarm: &Swarm,
    epic: &str,
    surveys: &[String],
    compare: &str,
) -> Result<String, ToolError> {
    let context = json!({"epic": epic, "surveys": surveys, "compare": compare});
    let call =
        swarm.call("call_agent", json!({"target_agent": SUMMARISER, "context": context.to_string()})).await?;
    let call_id = text(&call, "/call_id")?;
    let mut cursor = Value::Null;
    loop {
        let checked = swarm.call("check_call", json!({"call_id": call_id})).await?;
        match checked["status"].as_str() {
            Some("completed") => return text(&checked, "/return_value"),
            Some("error") => {
                return Err(ToolError::Work(format!("the summariser failed: {}", checked["error_message"])));
            }
            _ => {}
        }
        let mut wait = json!({"for": ["calls"], "timeout_s": WAIT_SECONDS});
        if !cursor.is_null() {
            wait["cursor"] = cursor;
        }
        cursor = swarm.call("wait", wait).await?["cursor"].clone();
    }
}
