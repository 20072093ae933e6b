//! What a run returns to its callers: a text, or a blob that the texts of this agent's documents only name.
//!
//! Several calls may get the value of one run, so a blob is counted: it is kept with the first that names it, and freed
//! with the last.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::state::Agent;
use crate::entity::{BlobChange, Changes, Effect};
use crate::id::{EntityKey, Kind};
use crate::limits;

/// A value, or the name of one that is too long for a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Returned {
    Text(String),
    Long {
        blob: Blob,
        /// How it begins.
        preview: String,
    },
}

/// A value whose chunks lie in the store, with the agent that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blob {
    pub id: Uuid,
    pub bytes: u64,
}

impl Returned {
    /// A long value, once its chunks are written as those of the blob `id`.
    pub fn long(id: Uuid, value: &str) -> Self {
        let whole = |end: &usize| value.is_char_boundary(*end);
        let end = (0..=limits::PREVIEW.min(value.len())).rev().find(whole).unwrap_or_default();
        Self::Long { blob: Blob { id, bytes: value.len() as u64 }, preview: value[..end].to_owned() }
    }

    pub fn blob(&self) -> Option<Blob> {
        match self {
            Self::Text(_) => None,
            Self::Long { blob, .. } => Some(*blob),
        }
    }

    /// The value, or how it begins.
    pub fn shown(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Long { preview, .. } => preview,
        }
    }
}

impl From<&str> for Returned {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl Agent {
    /// Counts one more who names the blob of a value. Gives the blob to the first.
    pub(super) fn count_blob(&mut self, value: Option<&Returned>) -> Option<Blob> {
        let blob = value.and_then(Returned::blob)?;
        let holders = self.blobs.get(&blob.id).copied().unwrap_or(0);
        self.blobs.insert(blob.id, holders + 1);
        (holders == 0).then_some(blob)
    }

    pub(super) fn hold(&mut self, value: Option<&Returned>, changes: &mut Changes) {
        if let Some(Blob { id, bytes }) = self.count_blob(value) {
            changes.keep_blob(id, bytes);
        }
    }

    /// One who named the blob of a value is gone.
    pub(super) fn let_go(&mut self, value: Option<&Returned>, changes: &mut Changes) {
        let Some(Blob { id, .. }) = value.and_then(Returned::blob) else { return };
        match self.blobs.get(&id).copied() {
            Some(holders) if holders > 1 => self.blobs.insert(id, holders - 1),
            Some(_) => {
                self.blobs.remove(&id);
                changes.free_blob(id);
            }
            None => {}
        }
    }

    /// Tells the count of the swarm's blobs.
    pub(super) fn account_for(&self, change: BlobChange) -> Effect {
        use crate::blobs::{Blobs, Command};
        let command = match change {
            BlobChange::Keep { blob, bytes } => Command::Keep { blob, bytes },
            BlobChange::Free { blob } => Command::Free { blob },
        };
        Effect::entity::<Blobs>(EntityKey::of(Kind::Blobs, &self.swarm), &command)
    }
}
