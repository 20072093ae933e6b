//! What an agent is by the word of its runner, and what its operators have said of it since.
//!
//! These are two things: a runner that registers again says the first anew and leaves the second alone.

use std::collections::BTreeSet;
use std::num::{NonZeroU32, NonZeroU64};

use serde::{Deserialize, Serialize};

use crate::id::Name;
use crate::limits;

/// The definition with the runner group whose fleet gives the slots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Defined {
    pub definition: Definition,
    pub group: Name,
}

/// What an agent may do. Fields left out have the product's defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Definition {
    pub enabled: bool,
    /// Most slots at a time; 0 takes no work, as if it were disabled.
    pub scale: u32,
    /// Longest run, without the time spent waiting.
    pub timeout_ms: u64,
    /// Most items that wait behind the ones that bid for a slot.
    pub work_queue: usize,
    pub max_waiting: usize,
    pub max_call_depth: u32,
    /// Of `wait_for_trigger` without a time-out of its own.
    pub wait_timeout_ms: u64,
    /// The longest that `wait_for_trigger` may ask for; the product's limit if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wait_timeout_ms: Option<NonZeroU64>,
    /// Between asking a process to end and killing it.
    pub grace_ms: u64,
    /// What a runner must offer: its labels or engines.
    pub needs: BTreeSet<String>,
    /// Ends the runs that an instance has called for, also those that wait, when the instance ends.
    pub cancel_children: bool,
    /// How often a run by schedule or by hand may be run again because it asked for it.
    pub max_reruns: u32,
    /// After so long in a wait a frozen run gives its memory back; 0 for never.
    pub spill_after_ms: u64,
}

impl Default for Definition {
    fn default() -> Self {
        Self {
            enabled: true,
            scale: 1,
            timeout_ms: 3_600_000,
            work_queue: limits::WORK_QUEUE,
            max_waiting: limits::MAX_WAITING,
            max_call_depth: limits::CALL_DEPTH,
            wait_timeout_ms: 1_800_000,
            max_wait_timeout_ms: None,
            grace_ms: 10_000,
            needs: BTreeSet::new(),
            cancel_children: false,
            max_reruns: limits::RERUNS,
            spill_after_ms: 0,
        }
    }
}

/// What of a definition holds for a run to its end, as it was at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    pub grace_ms: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancel_children: bool,
}

impl From<&Definition> for Terms {
    fn from(definition: &Definition) -> Self {
        Self { grace_ms: definition.grace_ms, cancel_children: definition.cancel_children }
    }
}

/// What operators have said of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Standing {
    /// It takes no work.
    pub disabled: bool,
    /// It takes work and starts none.
    pub paused: bool,
    /// All agents of the swarm are paused.
    pub swarm_paused: bool,
    /// Which word on the swarm that was: a lower one comes too late.
    pub swarm_word: u64,
    /// Most slots at a time, in place of what the definition says. Gone when that says another number than before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<NonZeroU32>,
}

impl Standing {
    pub fn is_paused(&self) -> bool {
        self.paused || self.swarm_paused
    }
}
