//! One thing that somebody did at a forge.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::bot::Bot;
use super::report::Report;
use super::subject::{Forge, Subject};
use super::{github, gitlab};

/// What somebody did, as far as it concerns the swarm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// What it is about; a check can be of several requests.
    pub subjects: Vec<Subject>,
    pub act: Act,
    pub report: Report,
    /// What tells it from all else that happens to the subject, if several events may tell of it: the checks of a
    /// commit fail as runs, as suites and as workflows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What a task shows of it beside its subject: `githubEventType`, `githubUrl`, ….
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub fields: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// The swarm is asked for something.
    Ask {
        task_type: String,
        /// The same is asked in several ways, such as by a mention and an assignment.
        #[serde(default)]
        once: bool,
    },
    /// Something became of what the swarm works on.
    News { task_type: String },
    /// It is the swarm's no longer.
    Withdraw,
}

impl Activity {
    /// Reads an event. None for what does not concern the swarm: what its bot does itself, but for checks of that, and
    /// questions of those who may not ask.
    pub fn of(forge: Forge, event: &str, body: &Value, bot: &Bot) -> Option<Self> {
        match forge {
            Forge::Github => github::read(event, body, bot),
            Forge::Gitlab => gitlab::read(event, body, bot),
        }
    }

    /// What tells it from everything else, if several events may tell of it.
    pub fn dedupe_key(&self) -> Option<String> {
        let key = self.key.as_ref()?;
        self.subjects.first().map(|subject| format!("{subject}:{key}"))
    }
}
