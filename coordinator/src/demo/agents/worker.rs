//! A worker: claims tasks from the pool, locks what it touches, does the work and reports it.

use serde_json::{Value, json};

use super::super::client::{Swarm, ToolError};
use super::super::survey::{self, Survey};
use super::{COMPARE_TAG, PART_TAG, join, repository, text};

/// How long one wait for new work lasts, seconds.
const WAIT_SECONDS: u64 = 20;

pub(super) async fn run() -> Result<(), ToolError> {
    let swarm = Swarm::from_environment().await?;
    join(&swarm, false, "worker").await?;
    // From before the first look: a task that comes between a look and a wait must end the wait.
    let mut cursor = wait(&swarm, json!({"for": ["tasks"], "timeout_s": 0})).await?;
    loop {
        if let Some(task) = claim(&swarm).await? {
            work(&swarm, &task).await?;
            continue;
        }
        let next = json!({"for": ["tasks"], "timeout_s": WAIT_SECONDS, "cursor": cursor});
        cursor = wait(&swarm, next).await?;
    }
}

/// Waits, and gives the cursor from which the next wait goes on.
async fn wait(swarm: &Swarm, wanted: Value) -> Result<Value, ToolError> {
    Ok(swarm.call("wait", wanted).await?["cursor"].clone())
}

/// Takes the most urgent task of the pool that can be started. Another worker may be faster; then the next one.
async fn claim(swarm: &Swarm) -> Result<Option<Value>, ToolError> {
    let listed = swarm.call("get-tasks", json!({"unassigned": true, "readyOnly": true, "limit": 25})).await?;
    let tasks = listed["tasks"].as_array().cloned().unwrap_or_default();
    for task in tasks {
        let claimed = swarm.try_call("task-action", json!({"action": "claim", "taskId": task["id"]})).await?;
        if claimed["success"] == json!(true) {
            return Ok(Some(claimed["task"].clone()));
        }
    }
    Ok(None)
}

async fn work(swarm: &Swarm, task: &Value) -> Result<(), ToolError> {
    let id = text(task, "/id")?;
    let tags: Vec<String> = serde_json::from_value(task["tags"].clone()).unwrap_or_default();
    let done = if tags.iter().any(|tag| tag == COMPARE_TAG) {
        compare(swarm, &id, task).await
    } else {
        let part = tags.iter().find_map(|tag| tag.strip_prefix(PART_TAG));
        match part {
            Some(part) => survey_part(swarm, &id, part).await,
            None => Err(ToolError::Work("the task has no tag that names its part".to_owned())),
        }
    };
    let report = match done {
        Ok(output) => json!({"taskId": id, "status": "completed", "output": output}),
        Err(error) => json!({"taskId": id, "status": "failed", "failureReason": error.to_string()}),
    };
    swarm.call("store-progress", report).await?;
    Ok(())
}

/// Surveys one part under its lock.
async fn survey_part(swarm: &Swarm, task: &str, part: &str) -> Result<String, ToolError> {
    let repository = repository()?;
    let resource = format!("file://{}/{}", repository.display(), part.trim_matches('.'));
    swarm.call("acquire_lock", json!({"resource_key": resource, "ttl_seconds": 300})).await?;
    swarm.call("store-progress", json!({"taskId": task, "progress": format!("measuring {part}")})).await?;
    let (folder, name) = (repository.clone(), part.to_owned());
    let found = tokio::task::spawn_blocking(move || survey::survey(&folder, &name))
        .await
        .map_err(|error| ToolError::Work(error.to_string()))?;
    swarm.call("release_lock", json!({"resource_key": resource})).await?;
    let found = found.map_err(|error| ToolError::Work(error.to_string()))?;
    serde_json::to_string(&found).map_err(|error| ToolError::Work(error.to_string()))
}

/// Reads what the dependencies found and ranks the parts.
async fn compare(swarm: &Swarm, task: &str, details: &Value) -> Result<String, ToolError> {
    swarm.call("store-progress", json!({"taskId": task, "progress": "comparing the parts"})).await?;
    let depends_on: Vec<String> = serde_json::from_value(details["dependsOn"].clone()).unwrap_or_default();
    let mut surveys = Vec::new();
    for dependency in depends_on {
        let found = swarm.call("get-task-details", json!({"taskId": dependency})).await?;
        let output = text(&found, "/task/output")?;
        let survey: Survey =
            serde_json::from_str(&output).map_err(|error| ToolError::Work(error.to_string()))?;
        surveys.push(survey);
    }
    let rank = |measure: fn(&Survey) -> usize| {
        let mut order: Vec<&Survey> = surveys.iter().collect();
        order.sort_by_key(|survey| std::cmp::Reverse(measure(survey)));
        order.iter().map(|survey| survey.part.clone()).collect::<Vec<_>>()
    };
    let ranks = json!({
        "by_lines": rank(|survey| survey.lines),
        "by_markers": rank(|survey| survey.markers.len()),
        "by_churn": rank(|survey| survey.churn.iter().map(|(_, commits)| commits).sum()),
    });
    Ok(ranks.to_string())
}
