//! One thing that somebody did at a forge.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::bot::Bot;
use super::subject::{Forge, Subject};
use super::{github, gitlab};
use crate::text::excerpt;

/// How much of a title and of a text is shown, characters. The webhook's receipt has all of it.
const TITLE: usize = 500;
const TEXT: usize = 4000;

/// What somebody did, as far as it concerns the swarm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// What it is about; a check can be of several requests.
    pub subjects: Vec<Subject>,
    pub act: Act,
    /// What tells it from all else that happens to the subject, if several events may tell of it: the checks of a commit
    /// fail as runs, as suites and as workflows.
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
        words: String,
        /// The same is asked in several ways, such as by a mention and an assignment.
        #[serde(default)]
        once: bool,
    },
    /// Something became of what the swarm works on.
    News { task_type: String, words: String },
    /// It is the swarm's no longer.
    Withdraw { reason: String },
}

impl Activity {
    /// Reads an event. None for what the bot does itself, and for what nobody asks it for who may.
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

/// What is said of an issue or a request, for whoever is to act on it.
pub(super) struct Words<'a> {
    /// What it is, as in "pull request".
    pub noun: &'a str,
    pub subject: &'a Subject,
    pub title: Option<&'a str>,
    pub url: Option<&'a str>,
    pub by: Option<&'a str>,
}

impl Words<'_> {
    /// `what` happened, and what was written with it.
    pub(super) fn of(&self, what: &str, text: Option<&str>) -> String {
        let Words { noun, subject, title, url, by } = self;
        let title = title.map(|title| format!(": {}", excerpt(title, TITLE))).unwrap_or_default();
        let mut words = format!("{} {noun} {}{title}\n", subject.forge().name(), subject.short());
        let by = by.map(|by| format!(" (by {by})")).unwrap_or_default();
        words.push_str(&format!("What happened: {what}{by}\n"));
        words.extend(url.map(|url| format!("Link: {url}\n")));
        let text = text.map(str::trim).filter(|text| !text.is_empty());
        words.extend(text.map(|text| format!("\n{}\n", excerpt(text, TEXT))));
        words
    }
}
