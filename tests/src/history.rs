//! Records what clients were told, and checks that a store agrees with it.
//!
//! A call that got no answer is *unknown*: it may have happened or not, so it explains much and proves nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// One acknowledged operation on a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acknowledged {
    Created { task: String },
    Claimed { task: String, agent: String },
    Completed { task: String, agent: String, output: String },
}

/// Finds what was acknowledged and is not so, and what was claimed twice.
///
/// `tasks` are the tasks as they were read after the faults, by id.
pub fn check(history: &[Acknowledged], tasks: &BTreeMap<String, Value>) -> Vec<String> {
    let mut broken = Vec::new();
    let mut claimed: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for entry in history {
        let (Acknowledged::Created { task }
        | Acknowledged::Claimed { task, .. }
        | Acknowledged::Completed { task, .. }) = entry;
        let Some(found) = tasks.get(task) else {
            broken.push(format!("C3: {entry:?} was acknowledged, and the task is gone"));
            continue;
        };
        match entry {
            Acknowledged::Created { .. } => {}
            Acknowledged::Claimed { agent, .. } => {
                claimed.entry(task).or_default().insert(agent);
                let status = found["status"].as_str().unwrap_or_default();
                let held = found["agentId"].as_str() == Some(agent);
                if !held || !matches!(status, "in_progress" | "completed") {
                    broken.push(format!("C1: {entry:?} was acknowledged, and the task is {found}"));
                }
            }
            Acknowledged::Completed { output, .. } => {
                if found["status"] != "completed" || found["output"].as_str() != Some(output) {
                    broken.push(format!("C3: {entry:?} was acknowledged, and the task is {found}"));
                }
            }
        }
    }
    for (task, agents) in claimed {
        if agents.len() > 1 {
            broken.push(format!("C1: {task} was claimed by {agents:?}"));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_checker_finds_what_is_wrong() {
        let task = || "t".to_owned();
        let claimed = |agent: &str| Acknowledged::Claimed { task: task(), agent: agent.to_owned() };
        let state = |value| BTreeMap::from([(task(), value)]);
        let running = state(json!({"status": "in_progress", "agentId": "a"}));
        assert!(check(&[Acknowledged::Created { task: task() }, claimed("a")], &running).is_empty());
        assert!(!check(&[claimed("a"), claimed("b")], &running).is_empty());
        assert!(!check(&[claimed("a")], &BTreeMap::new()).is_empty());
        let completed =
            Acknowledged::Completed { task: task(), agent: "a".to_owned(), output: "x".to_owned() };
        assert!(!check(&[completed], &running).is_empty());
    }
}
