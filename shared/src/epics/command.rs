//! What the epics can be asked, and what they answer.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::state::{Status, is_zero};
use crate::caller::Caller;
use crate::denied::Denied;
use crate::which::Which;
use crate::wire;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// The lead's; the service checks it.
    Create(Box<Create>),
    Update(Box<Update>),
    Delete {
        which: Which,
        by: Caller,
    },
    /// The epic of this name or id, so that tasks can be put into it.
    Get {
        which: Which,
    },
    /// From the pool: a task of the epic went from one status to another. `from` is absent when it came into
    /// the epic, `to` when it left.
    TaskChanged {
        epic: Uuid,
        task: Uuid,
        #[serde(default)]
        from: Option<String>,
        #[serde(default)]
        to: Option<String>,
    },
    /// The channels did not take the one of an epic.
    ChannelRefused {
        channel: Uuid,
        problem: String,
    },
    /// The tasks of active epics that ended since the lead was last told.
    News,
    /// The lead is told these. A repeat of the request is told what its first try was.
    TellNews {
        news: Vec<Notice>,
    },
    /// The service has found that an agent that is named is no member.
    Denied(Denied<Command>),
    /// Nothing is ever due.
    Tick,
}

impl Command {
    /// Who asks for it, where the service says whether that is the lead.
    pub(super) fn by(&mut self) -> Option<&mut Caller> {
        match self {
            Self::Update(update) => Some(&mut update.by),
            Self::Delete { by, .. } => Some(by),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Create {
    pub name: String,
    #[serde(default)]
    pub creator: Option<Uuid>,
    #[serde(default)]
    pub lead: Option<Uuid>,
    #[serde(default = "Create::usual_priority")]
    pub priority: u8,
    /// The goal must be given.
    pub texts: Texts,
}

impl Create {
    fn usual_priority() -> u8 {
        50
    }
}

/// Changes what is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Update {
    pub which: Which,
    pub by: Caller,
    #[serde(default)]
    pub new_name: Option<String>,
    #[serde(default)]
    pub status: Option<Status>,
    #[serde(default)]
    pub priority: Option<u8>,
    /// Null clears it.
    #[serde(default, deserialize_with = "wire::cleared", skip_serializing_if = "Option::is_none")]
    pub lead: Option<Option<Uuid>>,
    #[serde(default)]
    pub texts: Texts,
}

impl Update {
    pub fn new(which: Which, by: Caller) -> Self {
        Self { which, by, new_name: None, status: None, priority: None, lead: None, texts: Texts::default() }
    }
}

/// The texts of an epic, under the names that they have in its body.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Texts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub research_doc_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_doc_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slack_channel_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slack_thread_ts: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub github_repo: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub github_milestone: Option<String>,
}

impl Texts {
    /// The given ones as fields of the body.
    pub(super) fn body(&self) -> Value {
        serde_json::to_value(self).unwrap_or_else(|_| Value::Object(Map::new()))
    }

    /// The long ones with their names.
    pub(super) fn long(&self) -> [(&'static str, Option<&String>); 4] {
        [
            ("description", self.description.as_ref()),
            ("goal", self.goal.as_ref()),
            ("prd", self.prd.as_ref()),
            ("plan", self.plan.as_ref()),
        ]
    }

    /// Paths and ids with their names.
    pub(super) fn short(&self) -> [(&'static str, Option<&String>); 6] {
        [
            ("researchDocPath", self.research_doc_path.as_ref()),
            ("planDocPath", self.plan_doc_path.as_ref()),
            ("slackChannelId", self.slack_channel_id.as_ref()),
            ("slackThreadTs", self.slack_thread_ts.as_ref()),
            ("githubRepo", self.github_repo.as_ref()),
            ("githubMilestone", self.github_milestone.as_ref()),
        ]
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The new epic as clients see it. Its channel carries the id that the epic names, if the channels take it.
    Created(Value),
    /// Which epic it was; its texts are in its body.
    Epic {
        id: Uuid,
        name: String,
        status: Status,
    },
    Deleted {
        id: Uuid,
        name: String,
        /// The channel that it leaves behind.
        #[serde(default)]
        channel: Option<Uuid>,
    },
    /// What there is, or what the lead is told of it.
    News(Vec<Notice>),
    Done,
}

/// An epic that moved on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    pub epic: Uuid,
    pub name: String,
    pub progress: u32,
    /// The tasks that ended, oldest first.
    pub tasks: Vec<Uuid>,
    /// How many more ended before them: so many that the epic does not know which.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unnamed: u32,
}
