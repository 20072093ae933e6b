//! Which agents a runner has.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::code::Refusal;
use crate::id::Name;

/// An agent that a runner has a definition of. Its text form is `swarm/agent`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Offer {
    /// None is any: earlier releases wrote the agent's name alone, and its runner says more when it registers again.
    pub swarm: Option<Name>,
    pub agent: Name,
}

impl Offer {
    pub fn new(swarm: &Name, agent: &Name) -> Self {
        Self { swarm: Some(swarm.clone()), agent: agent.clone() }
    }

    /// Whether it may be an agent of this name in a swarm, or in any.
    pub fn is_of(&self, swarm: Option<&Name>, agent: &Name) -> bool {
        let own = self.swarm.as_ref();
        self.agent == *agent && (own.is_none() || swarm.is_none() || own == swarm)
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.swarm {
            Some(swarm) => write!(f, "{swarm}/{}", self.agent),
            None => write!(f, "{}", self.agent),
        }
    }
}

impl FromStr for Offer {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let (swarm, agent) = text.split_once('/').map_or((None, text), |(swarm, agent)| (Some(swarm), agent));
        Ok(Self { swarm: swarm.map(Name::parse).transpose()?, agent: Name::parse(agent)? })
    }
}

impl TryFrom<String> for Offer {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        text.parse()
    }
}

impl From<Offer> for String {
    fn from(offer: Offer) -> String {
        offer.to_string()
    }
}
