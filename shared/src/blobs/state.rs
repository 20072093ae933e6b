//! What is known of a swarm's blobs: their sizes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::time::Timestamp;

/// The room that a swarm's blobs take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blobs {
    pub(crate) held: BTreeMap<Uuid, Held>,
    /// Bytes of all of them.
    pub(super) used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    pub bytes: u64,
    /// When the reservation lapses; none for a blob that its agent keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl Blobs {
    pub(super) fn key(blob: Uuid) -> String {
        format!("blob/{blob}")
    }

    /// Reservations that have lapsed.
    pub(super) fn lapsed(&self, now: Timestamp) -> impl Iterator<Item = Uuid> {
        self.held
            .iter()
            .filter(move |(_, held)| held.until.is_some_and(|until| until <= now))
            .map(|(blob, _)| *blob)
    }
}
