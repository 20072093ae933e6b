//! What can be asked of the locks of a swarm, and what they answer.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::state::Settings;
use crate::code::Refusal;
use crate::fence::Token;
use crate::id::{EntityKey, InstanceId, Name};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Takes a lock, or refreshes the holder's own. Never waits: a lock of somebody else is a refusal.
    Acquire {
        holder: InstanceId,
        agent: Name,
        key: String,
        ttl_ms: Option<u64>,
    },
    Release {
        holder: InstanceId,
        key: String,
    },
    /// Starts the time to live anew; without `ttl_ms` with the lock's own.
    Heartbeat {
        holder: InstanceId,
        key: String,
        ttl_ms: Option<u64>,
    },
    /// The instance has ended: its locks and its waiting go with it.
    ReleaseAll {
        holder: InstanceId,
        reason: String,
    },
    /// The instance is about to be frozen: none of its locks ends before `until`. Answered by an effect to
    /// `reply_to`, for the freeze waits for it.
    Extend {
        holder: InstanceId,
        until: Timestamp,
        wait: Uuid,
        reply_to: EntityKey,
        /// The other way round: the wait is over, and each of its locks has its own time to live again, from now.
        /// Nobody waits for an answer. (`until` is then; who does not know of this extends nothing to it.)
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        over: bool,
    },
    /// An operator takes a lock away from whoever holds it.
    ForceRelease {
        key: String,
        by: String,
    },
    /// Replaces the settings of the swarm's locks.
    Configure {
        settings: Settings,
    },
    /// The settings as they are.
    Settings,
    List,
    Tick,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Acquired {
        /// The canonical key: the one that lists and refusals name.
        key: String,
        /// The key as it was asked for.
        raw: String,
        token: Token,
        expires_at: Timestamp,
        /// The holder had the lock already; its token is the old one.
        refreshed: bool,
    },
    /// The canonical keys that were set free.
    Released {
        keys: Vec<String>,
    },
    /// The canonical keys that now last longer.
    Extended {
        keys: Vec<String>,
    },
    Locks(Vec<LockView>),
    Settings(Settings),
    /// A refusal that had to be remembered: the try counts as waiting, for deadlock detection.
    Refused(Refusal),
    Done,
}

impl Reply {
    /// Makes the remembered refusal the same thing as any other.
    ///
    /// # Errors
    /// The refusal of [`Reply::Refused`].
    pub fn granted(self) -> Result<Reply, Refusal> {
        match self {
            Reply::Refused(refusal) => Err(refusal),
            reply => Ok(reply),
        }
    }
}

/// A held lock, as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockView {
    pub key: String,
    pub holder: InstanceId,
    pub agent: Name,
    pub token: Token,
    pub held_since: Timestamp,
    pub expires_at: Timestamp,
    pub ttl_ms: u64,
}
