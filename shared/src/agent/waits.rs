//! Waits of an agent's instances, and what they come to.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::id::InstanceId;
use crate::time::Timestamp;
use crate::triggers::{Envelope, Filter, FilterKind};

/// A wait for a trigger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitRecord {
    pub id: Uuid,
    pub instance: InstanceId,
    pub filter: Filter,
    pub registered: Timestamp,
    pub deadline: Timestamp,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub broadcast: bool,
    /// Whose acknowledgement is still out.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unacknowledged: BTreeSet<Party>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub delivered: bool,
    /// The question that was answered last with its outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Uuid>,
    /// The same of the wait before this one, whose answer may not have reached the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Uuid>,
}

/// Who must be ready before an instance may be frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Party {
    Locks,
    Leases,
    Triggers,
    /// Somebody looks for the event among those that came since the run began.
    LookBack,
}

/// What a wait came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Triggered {
        payload: Envelope,
        /// What triggers know the event by, if they gave it to this wait: unheard, it goes back to them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receipt: Option<Uuid>,
    },
    WaitTimeout,
}

impl WaitRecord {
    pub fn is_open(&self) -> bool {
        self.outcome.is_none()
    }

    pub fn is_webhook(&self) -> bool {
        self.filter.kind == FilterKind::Webhook
    }

    /// Whether `event` is what it waits for.
    pub fn takes(&self, event: &Envelope) -> bool {
        self.is_open() && self.filter.matches(event)
    }
}
