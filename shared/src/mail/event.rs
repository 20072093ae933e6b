//! What happens to mail.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::state::{Address, Thread};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    InboxRegistered {
        address: Address,
    },
    InboxUnregistered {
        address: Uuid,
    },
    /// A task came of the thread with this digest.
    ThreadFollowed {
        digest: Uuid,
        thread: Thread,
    },
    ThreadsForgotten {
        digests: Vec<Uuid>,
    },
}
