//! What happens to epics.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::command::Texts;
use super::state::Epic;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Created {
        epic: Box<Epic>,
        texts: Box<Texts>,
    },
    /// The head as it became, and the texts that changed.
    Updated {
        epic: Box<Epic>,
        texts: Box<Texts>,
    },
    Deleted {
        epic: Uuid,
    },
    /// It has no channel, for this reason.
    ChannelRefused {
        epic: Uuid,
        problem: String,
    },
    TaskChanged {
        epic: Uuid,
        task: Uuid,
        from: Option<String>,
        to: Option<String>,
    },
    /// The lead was told that these tasks of these epics have ended, and of so many more that are not named.
    NewsTaken {
        epics: Vec<Uuid>,
        #[serde(default)]
        tasks: Vec<Uuid>,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        unnamed: BTreeMap<Uuid, u32>,
    },
}
