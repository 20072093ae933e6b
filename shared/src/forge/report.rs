//! What is said of something that happened at a forge, for whoever is to act on it.

use serde::{Deserialize, Serialize};

use super::subject::{Forge, Subject};
use crate::text::excerpt;

/// How much of a title and of a text is shown, characters. The webhook's receipt has all of it.
const TITLE: usize = 500;
const TEXT: usize = 4000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Noun {
    Issue,
    PullRequest,
    MergeRequest,
}

impl Noun {
    fn words(self) -> &'static str {
        match self {
            Noun::Issue => "issue",
            Noun::PullRequest => "pull request",
            Noun::MergeRequest => "merge request",
        }
    }
}

/// What happened. Of people who may not ask the swarm for anything it has no words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// What it happened to.
    pub noun: Noun,
    pub what: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Whose account did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What was written with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A title as it is shown.
pub(super) fn title(title: &str) -> String {
    excerpt(title, TITLE)
}

/// What somebody wrote as it is shown.
pub(super) fn text(text: &str) -> String {
    excerpt(text.trim(), TEXT)
}

impl Report {
    /// Where it happened, what, and how to look at it.
    pub fn words(&self, subject: &Subject) -> String {
        let Report { noun, what, title, url, by, text } = self;
        let title = title.as_ref().map(|title| format!(": {title}")).unwrap_or_default();
        let mut words = format!("{} {} {}{title}\n", subject.forge().name(), noun.words(), subject.short());
        let by = by.as_ref().map(|by| format!(" (by {by})")).unwrap_or_default();
        words.push_str(&format!("What happened: {what}{by}\n"));
        words.extend(url.as_ref().map(|url| format!("Link: {url}\n")));
        words.extend(text.as_ref().filter(|text| !text.is_empty()).map(|text| format!("\n{text}\n")));
        words.push_str(&format!("\nTo look at it: {}", self.commands(subject)));
        words
    }

    /// Why the tasks about it end.
    pub fn reason(&self, subject: &Subject) -> String {
        format!("{} {}: {}", subject.forge().name(), subject.short(), self.what)
    }

    fn commands(&self, subject: &Subject) -> String {
        let (number, repo) = (subject.number(), subject.repo());
        let of = |program: &str, noun: &str| format!("{program} {noun} view {number} -R {repo} --comments");
        match (subject.forge(), self.noun) {
            (Forge::Github, Noun::Issue) => of("gh", "issue"),
            (Forge::Github, _) => {
                let view = of("gh", "pr");
                format!("{view}, gh pr diff {number} -R {repo}, gh pr checks {number} -R {repo}")
            }
            (Forge::Gitlab, Noun::Issue) => of("glab", "issue"),
            (Forge::Gitlab, _) => of("glab", "mr"),
        }
    }
}
