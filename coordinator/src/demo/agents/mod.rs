//! The demo's agents. Each is a program that a runner starts; what it knows stands in its environment.

mod lead;
mod summariser;
mod worker;

use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::Value;

use super::client::{Swarm, ToolError};

/// Where the repository stands that the agents look at.
pub(super) const REPOSITORY: &str = "DEMO_REPOSITORY";
/// The agent that plans the work and calls for the report.
pub(super) const LEAD: &str = "lead";
/// The agent that is called to write the report.
pub(super) const SUMMARISER: &str = "summariser";
/// The tag that names a task's part of the tree.
const PART_TAG: &str = "part:";
/// The tag of the task that compares all parts.
const COMPARE_TAG: &str = "compare";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AgentRole {
    Lead,
    Worker,
    Summariser,
}

/// Runs one of the agents to its end.
///
/// # Errors
/// A sentence that says what went wrong.
pub async fn run_agent(role: AgentRole) -> Result<(), String> {
    let outcome = match role {
        AgentRole::Lead => lead::run().await,
        AgentRole::Worker => worker::run().await,
        AgentRole::Summariser => summariser::run().await,
    };
    outcome.map_err(|error| error.to_string())
}

/// Joins under the agent's own name and gives its id.
async fn join(swarm: &Swarm, lead: bool, role: &str) -> Result<String, ToolError> {
    let name = std::env::var("SKEIN_INSTANCE").map_err(|_| ToolError::Environment("SKEIN_INSTANCE"))?;
    let joined =
        swarm.call("join-swarm", serde_json::json!({"name": name, "lead": lead, "role": role})).await?;
    text(&joined, "/yourAgentId")
}

fn repository() -> Result<PathBuf, ToolError> {
    std::env::var_os(REPOSITORY).map(PathBuf::from).ok_or(ToolError::Environment(REPOSITORY))
}

/// A string of a result, by JSON pointer.
fn text(value: &Value, pointer: &str) -> Result<String, ToolError> {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .map(str::to_owned)
        .ok_or_else(|| ToolError::Work(format!("the answer has no {pointer}: {value}")))
}
