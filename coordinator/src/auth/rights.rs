//! The rights that a token was left with: scopes, as OAuth calls them.
//!
//! A role gives rights ([`super::policy`]); scopes can only take some of them away.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use skein_shared::{Code, Refusal};

use super::policy::{self, Right};
use super::principal::Role;

/// A set of rights. Its text form is that of `scope` in OAuth: `swarm:read swarm:work`.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rights(u8);

impl Rights {
    pub const ALL: Rights = Rights((1 << Right::ALL.len()) - 1);

    /// What a role may ever do.
    pub fn of(role: Role) -> Self {
        Self::from_iter(Right::ALL.into_iter().filter(|right| policy::allows(role, *right)))
    }

    pub fn has(self, right: Right) -> bool {
        self.0 & bit(right) != 0
    }

    #[must_use]
    pub fn and(self, other: Rights) -> Self {
        Self(self.0 & other.0)
    }

    pub fn are_within(self, other: Rights) -> bool {
        self.0 & !other.0 == 0
    }

    pub fn are_none(self) -> bool {
        self.0 == 0
    }

    /// Of a list of scopes those that are Skein's; a token of another issuer may have many more.
    pub fn named_in(scopes: &str) -> Self {
        let known = |scope| Right::ALL.into_iter().find(|right| right.scope() == scope);
        Self::from_iter(scopes.split_ascii_whitespace().filter_map(known))
    }
}

impl Default for Rights {
    fn default() -> Self {
        Self::ALL
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        Self(rights.into_iter().fold(0, |set, right| set | bit(right)))
    }
}

fn bit(right: Right) -> u8 {
    1 << right as u8
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rights = Right::ALL.into_iter().filter(|right| self.has(*right));
        if let Some(first) = rights.next() {
            f.write_str(first.scope())?;
        }
        rights.try_for_each(|right| write!(f, " {}", right.scope()))
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rights({self})")
    }
}

impl FromStr for Rights {
    type Err = Refusal;

    /// Reads scopes of which each has to be known.
    fn from_str(text: &str) -> Result<Self, Refusal> {
        let unknown = |scope: &&str| Right::ALL.into_iter().all(|right| right.scope() != *scope);
        let wrong = text.split_ascii_whitespace().find(unknown);
        if text.trim().is_empty() || wrong.is_some() {
            let known = Right::ALL.map(Right::scope).join(", ");
            return Err(Refusal::new(
                Code::InvalidArgument,
                format!("scopes are some of {known}, with spaces between them"),
            ));
        }
        Ok(Self::named_in(text))
    }
}

impl TryFrom<String> for Rights {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        text.parse()
    }
}

impl From<Rights> for String {
    fn from(rights: Rights) -> String {
        rights.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_survive_their_text_form() {
        let rights: Rights = "swarm:work  swarm:read".parse().unwrap();
        assert_eq!(rights.to_string(), "swarm:read swarm:work");
        assert_eq!(rights, Rights::of(Role::Worker));
        assert!(rights.are_within(Rights::of(Role::Lead)) && !Rights::of(Role::Lead).are_within(rights));
        assert_eq!(Rights::ALL.and(rights), rights);
        for wrong in ["", " ", "swarm:all", "swarm:read,swarm:work", "swarm:read openid"] {
            assert_eq!(wrong.parse::<Rights>().unwrap_err().code, Code::InvalidArgument, "{wrong}");
        }
        assert_eq!(Rights::named_in("openid swarm:read").to_string(), "swarm:read");
        assert!(Rights::named_in("openid").are_none());
    }
}
