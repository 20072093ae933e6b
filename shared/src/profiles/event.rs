//! What happens to profiles.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::state::{Field, Source};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    VersionKept(Box<Version>),
}

/// A text of a profile as it was from `at` on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Version {
    pub id: Uuid,
    pub agent: Uuid,
    pub field: Field,
    /// From 1.
    pub version: u32,
    pub previous: Option<Uuid>,
    pub source: Source,
    pub by: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub text: String,
    pub at: Timestamp,
}
