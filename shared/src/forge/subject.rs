//! What people work on at a forge: issues, and requests to merge.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Longest path of a repository, bytes.
const REPO: usize = 255;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Forge {
    Github,
    Gitlab,
}

impl Forge {
    pub fn as_str(self) -> &'static str {
        match self {
            Forge::Github => "github",
            Forge::Gitlab => "gitlab",
        }
    }

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Forge::Github => "GitHub",
            Forge::Gitlab => "GitLab",
        }
    }
}

/// Which of a repository's numbers are meant. GitHub has one sequence for both; all of its subjects are `Issue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    Issue,
    Request,
}

impl Item {
    fn sign(self) -> char {
        match self {
            Item::Issue => '#',
            Item::Request => '!',
        }
    }
}

/// An issue, or a pull or merge request. It is written `github:acme/api#7`, or `gitlab:acme/api!7` for a merge request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Subject {
    forge: Forge,
    repo: String,
    item: Item,
    number: u64,
}

impl Subject {
    /// None for what is no path of a repository: it becomes a part of commands that agents are told.
    pub fn new(forge: Forge, repo: &str, item: Item, number: u64) -> Option<Self> {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
        let is_path = repo.contains('/') && repo.len() <= REPO && repo.chars().all(plain);
        // A path that begins with a hyphen would be an option of the command.
        (is_path && !repo.starts_with('-')).then(|| Self { forge, repo: repo.to_owned(), item, number })
    }

    pub fn forge(&self) -> Forge {
        self.forge
    }

    pub fn repo(&self) -> &str {
        &self.repo
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// As people write it: `acme/api#7`.
    pub fn short(&self) -> String {
        format!("{}{}{}", self.repo, self.item.sign(), self.number)
    }

    /// As fields of a task. Those of GitHub have had their names before there was another forge.
    pub fn fields(&self) -> Map<String, Value> {
        let fields = match self.forge {
            Forge::Github => json!({ "githubRepo": self.repo, "githubNumber": self.number }),
            Forge::Gitlab => {
                json!({ "vcsProvider": "gitlab", "vcsRepo": self.repo, "vcsNumber": self.number })
            }
        };
        match fields {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.forge.as_str(), self.short())
    }
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (forge, rest) = text.split_once(':')?;
            let forge = [Forge::Github, Forge::Gitlab].into_iter().find(|known| known.as_str() == forge)?;
            let at = rest.rfind(['#', '!'])?;
            let item = if rest[at..].starts_with('#') { Item::Issue } else { Item::Request };
            Self::new(forge, &rest[..at], item, rest[at + 1..].parse().ok()?)
        };
        read().ok_or_else(|| format!("{text} is no issue or request of a forge, such as github:acme/api#7"))
    }
}

impl TryFrom<String> for Subject {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Subject> for String {
    fn from(subject: Subject) -> Self {
        subject.to_string()
    }
}
