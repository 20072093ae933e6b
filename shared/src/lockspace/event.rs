//! What happened to the locks of a swarm.

use serde::{Deserialize, Serialize};

use super::state::Settings;
use crate::fence::Token;
use crate::id::{InstanceId, Name};
use crate::time::Timestamp;

/// Keys in events are canonical.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Acquired {
        key: String,
        raw: String,
        holder: InstanceId,
        agent: Name,
        token: Token,
        at: Timestamp,
        expires: Timestamp,
        ttl_ms: u64,
    },
    /// The holder took its own lock again; the token stays.
    Refreshed {
        key: String,
        at: Timestamp,
        expires: Timestamp,
        ttl_ms: u64,
    },
    /// The holder gave a sign of life for the lock.
    Kept {
        key: String,
        expires: Timestamp,
        ttl_ms: u64,
    },
    /// The lock lasts longer without its holder's doing: over a wait and once it has ended, or after a
    /// takeover.
    Extended {
        key: String,
        expires: Timestamp,
    },
    /// The wait is over for which the lock was to last longer.
    Shortened {
        key: String,
        expires: Timestamp,
    },
    Released {
        key: String,
        holder: InstanceId,
        reason: String,
    },
    Expired {
        key: String,
        holder: InstanceId,
    },
    /// The holder tried for a lock of somebody else.
    EdgeNoted {
        holder: InstanceId,
        key: String,
        at: Timestamp,
    },
    /// These holders no longer count as waiting.
    EdgesDropped {
        holders: Vec<InstanceId>,
    },
    /// The holder waits and may be frozen: no lock of it ends before `until`, those that it takes or renews from now on
    /// neither.
    WaitNoted {
        holder: InstanceId,
        until: Timestamp,
    },
    /// These holders wait no longer.
    WaitsDropped {
        holders: Vec<InstanceId>,
    },
    Configured {
        settings: Settings,
    },
}
