//! A task that is to be made: what it is, whose it shall be, and by which rules.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::state::{ForgeLink, Outcome, Source};
use crate::fence::Epoch;
use crate::time::Timestamp;

/// A new task.
///
/// The pool forgets ended tasks, yet a dependency or a parent may have ended long ago. It therefore keeps no list of
/// all the dead: it answers [`Reply::NeedFacts`](super::Reply::NeedFacts) with the ids that it does not hold, the
/// service reads those from the read side (which shows every acknowledged write) and asks again with `facts`. A task
/// that it held and that ends between the two is asked for in its turn. One that was even made in between is among the
/// newest ends, which the pool does remember; where these do not reach back to its question, it asks once more. So no
/// end can be missed, in constant memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Create {
    pub by: Option<Uuid>,
    pub spec: TaskSpec,
    pub target: Target,
    pub rules: Rules,
    /// What is known of tasks that the pool no longer holds: dependencies and the parent.
    #[serde(default)]
    pub facts: Vec<Fact>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// A chosen id, for scripts that lay a graph in any order; else one derived from the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    pub task: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_type: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// 0 to 100; 50 when nothing is said.
    #[serde(default = "TaskSpec::usual_priority")]
    pub priority: u8,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epic: Option<Uuid>,
    /// The epic's name, for the tag `epic:<name>`; none of an epic that is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epic_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default)]
    pub source: Source,
    /// What it has to do with a forge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forge: Option<ForgeLink>,
    /// Where it came from and where its answer goes: `slackChannelId`, `githubRepo`, … as the task shows
    /// them. Fields that the pool sets itself are not taken from here.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub context: Map<String, Value>,
}

impl TaskSpec {
    pub const PRIORITY: u8 = 50;

    pub fn new(task: impl Into<String>) -> Self {
        Self {
            id: None,
            task: task.into(),
            task_type: None,
            tags: Vec::new(),
            priority: Self::PRIORITY,
            depends_on: Vec::new(),
            parent: None,
            epic: None,
            epic_name: None,
            schedule: None,
            model: None,
            source: Source::Mcp,
            forge: None,
            context: Map::new(),
        }
    }

    fn usual_priority() -> u8 {
        Self::PRIORITY
    }
}

/// Who shall do a task. Without an agent, the agent of the parent task is meant, and the pool if there is none or it is
/// the lead that sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    Pool,
    Backlog,
    Assign { agent: Option<Uuid> },
    Offer { agent: Option<Uuid> },
}

/// Which rules a creation keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rules {
    /// `send-task`: not to oneself, not to the lead, within capacity, and no duplicate.
    Delegation { allow_duplicate: bool },
    /// `inbox-delegate`: the same, save that who is at capacity gets it too, and begins it later.
    Inbox { allow_duplicate: bool },
    /// Schedules, webhooks, mentions, `task-action create`: the target must exist, that is all.
    Plain,
    /// Schedules that skip: the same, and no other task of the schedule may be left that has not ended.
    Alone,
}

/// What the service found about a task that the pool does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    pub task: Uuid,
    /// `None`: nobody knows the id (yet).
    pub outcome: Option<Outcome>,
    /// Who had it at its end.
    #[serde(default)]
    pub agent: Option<Uuid>,
    /// When the pool asked for it. An end before that was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
}

/// When a pool asked: after so many ends since its owner had it in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    pub epoch: Epoch,
    pub since: Timestamp,
    pub ends: u64,
}

impl Fact {
    pub fn unknown(task: Uuid) -> Self {
        Self { task, outcome: None, agent: None, asked: None }
    }
}
