//! What happens to the room for blobs.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Reserved {
        blob: Uuid,
        bytes: u64,
        until: Timestamp,
    },
    Kept {
        blob: Uuid,
        bytes: u64,
    },
    /// Its agent let it go, or its reservation lapsed.
    Freed {
        blob: Uuid,
    },
}
