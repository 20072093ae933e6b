//! What happens to settings.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::repos::Repo;
use super::state::{Sealed, Setting};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Made, or changed.
    SettingSet {
        setting: Box<Setting>,
    },
    SettingDeleted {
        setting: Uuid,
    },
    /// Its secret is under another key, and the same.
    SettingResealed {
        setting: Uuid,
        value: Sealed,
    },
    /// Made, or changed.
    RepoSet {
        repo: Box<Repo>,
    },
    RepoRemoved {
        repo: Uuid,
    },
}
