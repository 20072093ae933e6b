//! What can be told and asked of costs.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::cost::Cost;
use super::state::Sum;
use crate::day::Day;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    Report(Box<Report>),
    Sum(Wanted),
    Tick,
}

/// What one piece of work cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub source: Source,
    /// What the source calls it. A session may be reported on more than once, each time with what is new.
    pub session: String,
    pub agent: Uuid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Uuid>,
    /// The work came to nothing.
    #[serde(default)]
    pub failed: bool,
    pub cost: Cost,
}

/// Who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The agent, with the result of a task.
    Task,
    /// The harness of an agent that a runner started.
    Run,
    /// A program that runs sessions by itself.
    Session,
}

/// What sums are of: all days and agents, if nothing is said. Days are UTC's, and both ends count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    #[serde(default)]
    pub agent: Option<Uuid>,
    #[serde(default)]
    pub from: Option<Day>,
    #[serde(default)]
    pub to: Option<Day>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The report as clients see it.
    Reported(Value),
    Sums(Sums),
    Done,
}

/// What work came to, in all, by day and by agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    pub all: Sum,
    /// The first day first.
    pub days: Vec<(Day, Sum)>,
    /// Who cost most first.
    pub agents: Vec<(Uuid, Sum)>,
}
