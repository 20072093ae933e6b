//! What a task waits for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::state::Outcome;

/// A task that must be completed first. The dependant remembers its end, because the task itself leaves memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependency {
    pub task: Uuid,
    pub outcome: Option<Outcome>,
}

impl Dependency {
    pub fn is_done(&self) -> bool {
        self.outcome == Some(Outcome::Completed)
    }

    /// It ended, and not by completing: the dependant can never start.
    pub fn is_broken(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Failed | Outcome::Cancelled))
    }
}

/// The id, and `+`, `-` or `x` behind it for completed, failed and cancelled: heads are kept small.
impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.outcome {
            None => "",
            Some(Outcome::Completed) => "+",
            Some(Outcome::Failed) => "-",
            Some(Outcome::Cancelled) => "x",
        };
        write!(f, "{}{mark}", self.task.as_simple())
    }
}

impl FromStr for Dependency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (id, mark) = text.split_at_checked(32).ok_or_else(|| format!("`{text}` is no dependency"))?;
        let task = Uuid::try_parse(id).map_err(|error| error.to_string())?;
        let outcome = match mark {
            "" => None,
            "+" => Some(Outcome::Completed),
            "-" => Some(Outcome::Failed),
            "x" => Some(Outcome::Cancelled),
            _ => return Err(format!("`{mark}` is no outcome of a dependency")),
        };
        Ok(Self { task, outcome })
    }
}

impl Serialize for Dependency {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Dependency {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
