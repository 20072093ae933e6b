//! One of a swarm's members, epics, schedules or services, as callers name it.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How much of a name that nothing has is shown, characters.
const SHOWN: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    Id(Uuid),
    Name(String),
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::Id(id) => id.fmt(f),
            Which::Name(name) => name.chars().take(SHOWN).collect::<String>().fmt(f),
        }
    }
}
