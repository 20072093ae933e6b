//! What can be asked of a swarm's room for blobs, and what it answers.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Asks for room before the chunks are written.
    Reserve { blob: Uuid, bytes: u64, bounds: Bounds },
    /// Gives a reservation back. What is kept stays.
    Withdraw { blob: Uuid },
    /// From an agent: it has named the blob, and will say when it lets it go.
    Keep { blob: Uuid, bytes: u64 },
    /// From an agent: the blob is gone.
    Free { blob: Uuid },
    /// Ends reservations that nothing came of.
    Tick,
}

/// What the asking node allows, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// One blob.
    pub each: u64,
    /// All blobs of the swarm.
    pub all: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Done,
}
