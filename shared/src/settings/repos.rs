//! The repositories that a swarm's agents work in: where they come from, and where each agent keeps its copy (spec:
//! Agent Swarm 5.4). Agents clone them; coordinators only know of them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::command::Reply;
use super::event::Event;
use super::state::Settings;
use crate::caller::Caller;
use crate::code::{Code, Refusal};
use crate::entity::{Ctx, Decision};
use crate::time::Timestamp;
use crate::wire;

/// Most repositories of a swarm: an answer shows all of them.
const REPOS: usize = 1000;
/// Longest address, path, and name or branch, characters.
const URL: usize = 2000;
const PATH: usize = 1000;
const NAME: usize = 255;
/// Below this folder agents keep what says no other place.
const FOLDER: &str = "/workspace/repos";

/// One repository. It is its document's head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repo {
    pub id: Uuid,
    pub url: String,
    pub name: String,
    pub clone_path: String,
    pub branch: String,
    /// Agents clone it when they start.
    pub auto_clone: bool,
    pub created: Timestamp,
    pub updated: Timestamp,
}

/// What is said of a repository, by the names that clients know. What is left out stays, or is as usual.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RepoSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Below the agents' folder for repositories, by its name, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clone_path: Option<String>,
    /// `main` if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_branch: Option<String>,
    /// True if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_clone: Option<bool>,
}

impl Repo {
    pub(super) fn key(id: Uuid) -> String {
        format!("repo/{id}")
    }

    /// The repository as clients see it.
    pub fn view(&self) -> Value {
        json!({
            "id": self.id,
            "url": self.url,
            "name": self.name,
            "clonePath": self.clone_path,
            "defaultBranch": self.branch,
            "autoClone": self.auto_clone,
            "createdAt": self.created.iso(),
            "lastUpdatedAt": self.updated.iso(),
        })
    }
}

impl Settings {
    pub(super) fn repos(&self) -> Decision<Self> {
        let mut repos: Vec<&Repo> = self.repos.values().collect();
        repos.sort_by(|one, other| one.name.cmp(&other.name));
        Decision::reply(Reply::Repos(repos.into_iter().map(Repo::view).collect()))
    }

    pub(super) fn add_repo(
        &self,
        by: &Caller,
        spec: &RepoSpec,
        ctx: &mut Ctx,
    ) -> Result<Decision<Self>, Refusal> {
        may_change(by)?;
        if self.repos.len() >= REPOS {
            return Err(Refusal::new(
                Code::QueueFull,
                format!("the swarm has {REPOS} repositories, the most there may be; delete one first"),
            ));
        }
        let RepoSpec { url, name, clone_path, default_branch, auto_clone } = spec.clone();
        let (Some(url), Some(name)) = (url, name) else {
            return Err(Refusal::new(
                Code::InvalidArgument,
                "a repository needs a url and a name; give both",
            ));
        };
        let repo = Repo {
            id: ctx.id(),
            clone_path: clone_path.unwrap_or_else(|| format!("{FOLDER}/{name}")),
            url,
            name,
            branch: default_branch.unwrap_or_else(|| "main".to_owned()),
            auto_clone: auto_clone.unwrap_or(true),
            created: ctx.now,
            updated: ctx.now,
        };
        self.keep(repo)
    }

    pub(super) fn change_repo(
        &self,
        by: &Caller,
        id: Uuid,
        spec: &RepoSpec,
        ctx: &Ctx,
    ) -> Result<Decision<Self>, Refusal> {
        let known = self.known_repo(id)?.clone();
        may_change(by)?;
        let spec = spec.clone();
        self.keep(Repo {
            url: spec.url.unwrap_or(known.url),
            name: spec.name.unwrap_or(known.name),
            clone_path: spec.clone_path.unwrap_or(known.clone_path),
            branch: spec.default_branch.unwrap_or(known.branch),
            auto_clone: spec.auto_clone.unwrap_or(known.auto_clone),
            updated: ctx.now,
            ..known
        })
    }

    pub(super) fn remove_repo(&self, by: &Caller, id: Uuid) -> Result<Decision<Self>, Refusal> {
        let reply = Reply::Repo(self.known_repo(id)?.view());
        may_change(by)?;
        Ok(Decision::new(reply, vec![Event::RepoRemoved { repo: id }]))
    }

    fn known_repo(&self, id: Uuid) -> Result<&Repo, Refusal> {
        self.repos.get(&id).ok_or_else(|| {
            let problem = format!("there is no repository {id}; GET /api/repos lists those there are");
            Refusal::new(Code::NotFound, problem)
        })
    }

    fn keep(&self, repo: Repo) -> Result<Decision<Self>, Refusal> {
        check(&repo)?;
        let others: Vec<&Repo> = self.repos.values().filter(|other| other.id != repo.id).collect();
        for (field, same) in [
            ("name", others.iter().any(|other| other.name == repo.name)),
            ("url", others.iter().any(|other| other.url == repo.url)),
            ("clonePath", others.iter().any(|other| other.clone_path == repo.clone_path)),
        ] {
            if same {
                let problem =
                    format!("{field}: another repository of the swarm has the same; give another one");
                return Err(Refusal::new(Code::AlreadyExists, problem));
            }
        }
        Ok(Decision::new(Reply::Repo(repo.view()), vec![Event::RepoSet { repo: Box::new(repo) }]))
    }

    /// No two have the same name, address or place.
    pub(super) fn repos_are_told_apart(&self) -> bool {
        let mut seen = BTreeSet::new();
        self.repos.values().all(|repo| {
            seen.insert(("name", &repo.name))
                && seen.insert(("url", &repo.url))
                && seen.insert(("path", &repo.clone_path))
        })
    }
}

/// What all agents clone the lead decides on.
fn may_change(by: &Caller) -> Result<(), Refusal> {
    if by.lead || by.agent.is_none() {
        return Ok(());
    }
    Err(Refusal::new(Code::Forbidden, "only the lead may change the swarm's repositories; ask it to"))
}

fn check(repo: &Repo) -> Result<(), Refusal> {
    for (field, text, most) in [
        ("url", &repo.url, URL),
        ("name", &repo.name, NAME),
        ("clonePath", &repo.clone_path, PATH),
        ("defaultBranch", &repo.branch, NAME),
    ] {
        wire::length(field, text, 1, most)?;
        if text.trim().is_empty() || text.chars().any(char::is_control) {
            let problem =
                format!("{field}: it is blank or has characters that cannot be seen; leave those out");
            return Err(Refusal::new(Code::InvalidArgument, problem));
        }
    }
    if has_credentials(&repo.url) {
        return Err(Refusal::new(
            Code::InvalidArgument,
            "url: it has a user or a password in it, which everybody would be shown; leave them out, and give agents a \
             token by a setting that is a secret, such as GITHUB_TOKEN",
        ));
    }
    Ok(())
}

/// Whether an address says who comes, as a token would. The user of SSH, which is the same for everybody, says nothing.
fn has_credentials(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let Some((user, _)) = authority.rsplit_once('@') else { return false };
    !scheme.eq_ignore_ascii_case("ssh") || user.contains(':')
}
