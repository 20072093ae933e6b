//! The caller, as a verified token describes it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use skein_shared::id::{EntityKey, InstanceId, Kind, Name};
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::rights::Rights;

/// Tasks and capacity belong to the agent; locks, calls, waits and leases to the instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub swarm: Name,
    pub agent: Uuid,
    pub agent_name: Name,
    pub instance: InstanceId,
    /// A runner started the instance and watches over it.
    pub managed: bool,
    pub role: Role,
    /// What the token was left with of its role's rights.
    pub rights: Rights,
    /// The catalogue's view that the token asks for, if any.
    pub view: Option<View>,
}

impl Principal {
    /// An agent of the swarm `default` with all rights of its role, by a token that was made by hand. Of one name there
    /// is one agent, with one instance.
    #[cfg(test)]
    pub(crate) fn named(name: &str, role: Role) -> Self {
        let named = |name| Name::parse(name).expect("a name");
        Self {
            swarm: named("default"),
            agent: Uuid::new_v5(&Uuid::nil(), name.as_bytes()),
            agent_name: named(name),
            instance: InstanceId(format!("{name}-00000001")),
            managed: false,
            role,
            rights: Rights::ALL,
            view: None,
        }
    }

    /// The same caller at an address with this view: where that only reads, the caller does no more.
    #[must_use]
    pub fn at(self, view: &View) -> Self {
        if view.readonly { Self { view: Some(view.clone()), ..self } } else { self }
    }

    /// The key of one of the swarm's singletons.
    pub fn entity(&self, kind: Kind) -> EntityKey {
        EntityKey::of(kind, &self.swarm)
    }

    /// The agent that acts. An operator is none: it stands for a person.
    pub fn as_agent(&self) -> Option<Uuid> {
        (self.role != Role::Operator).then_some(self.agent)
    }

    /// The key of the caller's own agent.
    pub fn own_agent(&self) -> EntityKey {
        EntityKey::agent(&self.swarm, &self.agent_name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Lead,
    Worker,
    /// Reads everything of its swarm and changes nothing.
    Observer,
    /// Administers; belongs to a person or their automation.
    Operator,
    /// A runner's control session. It calls no tools.
    Runner,
}

impl Role {
    pub const ALL: [Role; 5] = [Role::Lead, Role::Worker, Role::Observer, Role::Operator, Role::Runner];

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Lead => "lead",
            Role::Worker => "worker",
            Role::Observer => "observer",
            Role::Operator => "operator",
            Role::Runner => "runner",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        Role::ALL.into_iter().find(|role| role.as_str() == text).ok_or_else(|| {
            Refusal::new(
                Code::InvalidArgument,
                "a role is one of lead, worker, observer, operator and runner",
            )
        })
    }
}

/// Which part of the catalogue a client is shown. It is chosen by the URL or the token, never by what the
/// client calls itself and never by an earlier call (MCP 2026-07-28 forbids both).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct View {
    pub scope: Scope,
    /// Tools that change something are neither listed nor run.
    pub readonly: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// The core tools and the finders.
    #[default]
    Core,
    /// Every tool, with the hints that clients with their own tool search read.
    Full,
    /// Every tool of one toolset, and the finders.
    Toolset(String),
}

impl View {
    /// Reads the part of a URL behind `/mcp`: nothing, `full` or `x/<toolset>`, each with an optional
    /// `/readonly` at its end.
    ///
    /// # Errors
    /// `not_found`, naming the views that exist.
    pub fn parse(path: &str) -> Result<Self, Refusal> {
        let trimmed = path.trim_matches('/');
        let (scope, readonly) = match trimmed.strip_suffix("readonly") {
            Some("") => ("", true),
            Some(rest) if rest.ends_with('/') => (rest.trim_end_matches('/'), true),
            _ => (trimmed, false),
        };
        let scope = match scope.split_once('/') {
            None if scope.is_empty() || scope == "core" => Scope::Core,
            None if scope == "full" => Scope::Full,
            Some(("x", toolset)) if Name::parse(toolset).is_ok() => Scope::Toolset(toolset.to_owned()),
            _ => {
                return Err(Refusal::new(
                    Code::NotFound,
                    "there is no such view; use /mcp, /mcp/full or /mcp/x/<toolset>, each also with /readonly",
                ));
            }
        };
        Ok(Self { scope, readonly })
    }

    /// What a client sees that asks for `self` by its URL and holds a token with the view `claim`: a plain
    /// URL leaves the choice to the token, and a token's `readonly` cannot be left by another URL.
    #[must_use]
    pub fn narrowed_by(self, claim: Option<&View>) -> View {
        let Some(claim) = claim else { return self };
        let scope = if self.scope == Scope::Core { claim.scope.clone() } else { self.scope };
        View { scope, readonly: self.readonly || claim.readonly }
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scope {
            Scope::Core => f.write_str("core")?,
            Scope::Full => f.write_str("full")?,
            Scope::Toolset(name) => write!(f, "x/{name}")?,
        }
        if self.readonly { f.write_str("/readonly") } else { Ok(()) }
    }
}

impl TryFrom<String> for View {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        Self::parse(&text)
    }
}

impl From<View> for String {
    fn from(view: View) -> String {
        view.to_string()
    }
}

impl FromStr for View {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_survive_their_text_form() {
        for text in ["core", "full", "x/swarm", "core/readonly", "full/readonly", "x/scheduler/readonly"] {
            assert_eq!(View::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(View::parse("/").unwrap(), View::default());
        assert!(View::parse("readonly").unwrap().readonly);
        for bad in ["fullreadonly", "x", "x/", "x/a/b", "../full", "FULL"] {
            assert_eq!(View::parse(bad).unwrap_err().code, Code::NotFound, "{bad}");
        }
    }

    #[test]
    fn a_readonly_token_cannot_be_widened() {
        let claim = View::parse("core/readonly").unwrap();
        assert!(View::parse("full").unwrap().narrowed_by(Some(&claim)).readonly);
        let full = View::parse("full").unwrap();
        assert_eq!(View::default().narrowed_by(Some(&full)), full);
    }
}
