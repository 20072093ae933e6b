//! Names and identifiers, with their parsing rules.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::{Builder, Uuid, Version};

use crate::code::{Code, Refusal};

/// The kinds of durable entity. The kind is part of an entity's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Pool,
    Lockspace,
    Triggers,
    Agent,
    Fleet,
    Schedules,
    Epics,
    Inboxes,
    Channels,
    Memory,
    Services,
    Profiles,
    Blobs,
    Settings,
    Access,
    Mail,
    Questions,
    Costs,
}

impl Kind {
    pub const ALL: [Kind; 18] = [
        Kind::Pool,
        Kind::Lockspace,
        Kind::Triggers,
        Kind::Agent,
        Kind::Fleet,
        Kind::Schedules,
        Kind::Epics,
        Kind::Inboxes,
        Kind::Channels,
        Kind::Memory,
        Kind::Services,
        Kind::Profiles,
        Kind::Blobs,
        Kind::Settings,
        Kind::Access,
        Kind::Mail,
        Kind::Questions,
        Kind::Costs,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Pool => "pool",
            Kind::Lockspace => "lockspace",
            Kind::Triggers => "triggers",
            Kind::Agent => "agent",
            Kind::Fleet => "fleet",
            Kind::Schedules => "schedules",
            Kind::Epics => "epics",
            Kind::Inboxes => "inboxes",
            Kind::Channels => "channels",
            Kind::Memory => "memory",
            Kind::Services => "services",
            Kind::Profiles => "profiles",
            Kind::Blobs => "blobs",
            Kind::Settings => "settings",
            Kind::Access => "access",
            Kind::Mail => "mail",
            Kind::Questions => "questions",
            Kind::Costs => "costs",
        }
    }

    /// Kinds that a swarm has one of; the others are named inside it.
    pub fn is_singleton(self) -> bool {
        !matches!(self, Kind::Agent | Kind::Fleet)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Kind {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            let known = Kind::ALL.map(Kind::as_str).join(", ");
            let problem = format!("`{text}` is no kind of entity; use one of {known}");
            Refusal::new(Code::InvalidArgument, problem)
        })
    }
}

/// A short name made of lower-case letters, digits and single hyphens, 1 to 64 characters.
///
/// The rule is Action Llama's for agent names; swarms, runner groups and webhook sources share it, so that
/// a name can stand in a URL, a file path and a key without escaping.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    pub const MAX: usize = 64;

    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let charset = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        let shape = !text.is_empty()
            && text.len() <= Self::MAX
            && !text.starts_with('-')
            && !text.ends_with('-')
            && !text.contains("--");
        if charset && shape {
            return Ok(Self(text.to_owned()));
        }
        let shown: String = text.chars().take(80).collect();
        Err(Refusal::new(
            Code::InvalidArgument,
            format!(
                "`{shown}` is not a name: use 1 to 64 lower-case letters, digits and single hyphens, with no hyphen at either end"
            ),
        ))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Name {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        Self::parse(&text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl FromStr for Name {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        Self::parse(text)
    }
}

/// Where an entity lives: `kind/swarm` or `kind/swarm/name`. The text form is the store's key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EntityKey {
    pub kind: Kind,
    pub swarm: Name,
    /// The agent's name or the runner group's; `None` for the kinds that a swarm has one of.
    pub name: Option<Name>,
}

impl EntityKey {
    pub fn of(kind: Kind, swarm: &Name) -> Self {
        debug_assert!(kind.is_singleton());
        Self { kind, swarm: swarm.clone(), name: None }
    }

    pub fn agent(swarm: &Name, agent: &Name) -> Self {
        Self { kind: Kind::Agent, swarm: swarm.clone(), name: Some(agent.clone()) }
    }

    /// Runner groups serve several swarms, so a fleet's swarm part is the fixed name `runners`.
    pub fn fleet(group: &Name) -> Self {
        Self { kind: Kind::Fleet, swarm: Name("runners".to_owned()), name: Some(group.clone()) }
    }

    /// What decides the shard: everything of a swarm but its agents shares one, so that reads between
    /// pool, locks, triggers, epics and channels of a swarm are local.
    pub fn placement(&self) -> Cow<'_, str> {
        match &self.name {
            Some(_) => Cow::Owned(self.text()),
            None => Cow::Borrowed(self.swarm.as_str()),
        }
    }

    /// The text form, made in one piece: each request to another node has it.
    pub fn text(&self) -> String {
        match &self.name {
            Some(name) => [self.kind.as_str(), self.swarm.as_str(), name.as_str()].join("/"),
            None => [self.kind.as_str(), self.swarm.as_str()].join("/"),
        }
    }
}

impl fmt::Display for EntityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{}/{}/{}", self.kind, self.swarm, name),
            None => write!(f, "{}/{}", self.kind, self.swarm),
        }
    }
}

impl FromStr for EntityKey {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let mut parts = text.splitn(3, '/');
        let kind: Kind = parts.next().unwrap_or_default().parse()?;
        let swarm = Name::parse(parts.next().unwrap_or_default())?;
        let name = parts.next().map(Name::parse).transpose()?;
        if kind.is_singleton() != name.is_none() {
            return Err(Refusal::new(Code::InvalidArgument, format!("`{text}` is not an entity key")));
        }
        Ok(Self { kind, swarm, name })
    }
}

impl TryFrom<String> for EntityKey {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        text.parse()
    }
}

impl From<EntityKey> for String {
    fn from(key: EntityKey) -> String {
        key.text()
    }
}

/// One run of an agent: `<agent>-<8 hex digits>` for a run that a runner started, or the token's id for a
/// hand-made token. It is the identity that holds locks, makes calls and waits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceId(pub String);

impl InstanceId {
    pub fn new(agent: &Name, random: u32) -> Self {
        Self(format!("{agent}-{random:08x}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id that an agent has in its swarm's pool when a runner starts it: the same for all its instances and
/// after every restart, since tasks and capacity belong to the agent.
pub fn agent_id(swarm: &Name, agent: &Name) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("skein:agent/{swarm}/{agent}").as_bytes())
}

/// The id that follows from another one and a name. It begins with the other one's time where that has one (a UUID
/// version 7), so that things that are made together lie together in every index, as those of
/// [`Ctx::id`](crate::entity::Ctx::id) do.
pub fn derived(from: Uuid, name: &str) -> Uuid {
    timed(from, Uuid::new_v5(&from, name.as_bytes()))
}

/// An id with the time of one and all else of another; the other one as it is where there is no time.
pub fn timed(from: Uuid, other: Uuid) -> Uuid {
    if from.get_version() != Some(Version::SortRand) {
        return other;
    }
    let mut bytes = other.into_bytes();
    bytes[..6].copy_from_slice(&from.as_bytes()[..6]);
    Builder::from_bytes(bytes).with_version(Version::SortRand).into_uuid()
}

/// Parses a UUID in its 8-4-4-4-12 form, with any version nibble (Agent Swarm accepts only some and fails
/// on the ids of its own examples). `field` names the argument in the refusal.
pub fn parse_uuid(field: &str, text: &str) -> Result<Uuid, Refusal> {
    if text.len() == 36
        && let Ok(id) = Uuid::try_parse(text)
    {
        return Ok(id);
    }
    let shown: String = text.chars().take(80).collect();
    Err(Refusal::new(
        Code::InvalidArgument,
        format!("{field}: `{shown}` is not a UUID; write it as 8-4-4-4-12 hexadecimal digits"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_to_the_rule() {
        for good in ["a", "a-b", "x1", "default"] {
            assert_eq!(Name::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "-a", "a-", "a--b", "A", "a/b", "ä", &"a".repeat(65)] {
            assert!(Name::parse(bad).is_err(), "{bad} was taken");
        }
    }

    #[test]
    fn keys_survive_their_text_form() {
        let swarm = Name::parse("default").unwrap();
        let agent = Name::parse("worker").unwrap();
        for key in
            [EntityKey::of(Kind::Pool, &swarm), EntityKey::agent(&swarm, &agent), EntityKey::fleet(&agent)]
        {
            assert_eq!(key.to_string().parse::<EntityKey>().unwrap(), key);
        }
        assert!("pool/default/x".parse::<EntityKey>().is_err());
        assert!("agent/default".parse::<EntityKey>().is_err());
    }

    #[test]
    fn what_is_derived_keeps_the_time_that_there_is() {
        let from = Uuid::parse_str("019aaf00-1234-7abc-8def-0123456789ab").unwrap();
        let (call, wait) = (derived(from, "call"), derived(from, "wait"));
        assert_ne!(call, wait);
        assert_eq!(call, derived(from, "call"));
        for id in [call, wait] {
            assert_eq!(id.get_version_num(), 7);
            assert_eq!(id.get_timestamp(), from.get_timestamp());
            assert_ne!(id.as_bytes()[8..], from.as_bytes()[8..], "what is by chance is its own");
        }
        let named = Uuid::new_v5(&from, b"a name");
        assert_eq!(derived(named, "call"), Uuid::new_v5(&named, b"call"));
    }
}
