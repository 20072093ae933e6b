//! What the services can be asked, and what they answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::state::Health;
use crate::which::Which;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    Register(Box<Register>),
    /// The service's agent may, and the lead: an agent that left takes nothing out any more.
    Unregister {
        by: Uuid,
        which: Which,
        /// Whether `by` leads, or administers; the service has looked.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lead: bool,
    },
    /// Only the service's agent may: a service says itself how it fares.
    SetHealth {
        by: Uuid,
        which: Which,
        health: Health,
    },
    List(Wanted),
    Tick,
}

/// A new service of an agent, or what its known one has become.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Register {
    pub agent: Uuid,
    pub script: String,
    /// Where others reach it.
    pub url: String,
    /// The agent says so itself. Else it is the usual place, and one that the agent has said before stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub says_url: bool,
    #[serde(default)]
    pub description: Option<String>,
    /// A path below the URL that answers while the service is healthy.
    #[serde(default)]
    pub health_path: Option<String>,
    #[serde(default)]
    pub cwd: Option<String>,
    #[serde(default)]
    pub interpreter: Option<String>,
    #[serde(default)]
    pub args: Option<Vec<String>>,
    #[serde(default)]
    pub env: Option<BTreeMap<String, String>>,
    /// Anything else; `label` is a name that the service can be found by.
    #[serde(default)]
    pub metadata: Option<Map<String, Value>>,
}

impl Register {
    /// A service of which nothing more is said, at its usual place.
    pub fn new(agent: Uuid, script: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            agent,
            script: script.into(),
            url: url.into(),
            says_url: false,
            description: None,
            health_path: None,
            cwd: None,
            interpreter: None,
            args: None,
            env: None,
            metadata: None,
        }
    }
}

/// Which services a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    #[serde(default)]
    pub agent: Option<Uuid>,
    /// Part of the name or the label.
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub health: Option<Health>,
    /// Leaves this agent's out.
    #[serde(default)]
    pub except: Option<Uuid>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The service as clients see it, and whether it is new.
    Registered {
        service: Value,
        new: bool,
    },
    Service(Value),
    /// The healthiest first, then by name; `left_out` are more than a list shows.
    List {
        services: Vec<Value>,
        left_out: usize,
    },
    Done,
}
