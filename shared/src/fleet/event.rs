//! What happened to a fleet.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::state::{Bid, Runner};
use crate::id::{InstanceId, Name};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Registered(Runner),
    Draining {
        runner: String,
    },
    /// After a takeover: the runner gets its lease time to reconnect. Memory only.
    Awaited {
        runner: String,
        until: Timestamp,
    },
    /// The runner's lease ended, or it left. Its places are gone.
    Lost {
        runner: String,
        at: Timestamp,
        #[serde(default)]
        left: bool,
    },
    /// The bid waits, or waits on under other terms.
    BidPlaced(Bid),
    BidWithdrawn {
        bid: Uuid,
    },
    /// The bid got a slot.
    Granted {
        bid: Uuid,
        runner: String,
    },
    /// The bid was refused.
    Refused {
        bid: Uuid,
    },
    /// The instance is frozen: its slot is free, its place is not.
    Held {
        instance: InstanceId,
    },
    /// How many slots a swarm may have at a time; `None` is as many as there are.
    Scaled {
        swarm: Name,
        scale: Option<NonZeroU32>,
    },
    /// The instance is no longer on the runner.
    Left {
        instance: InstanceId,
    },
}

impl Event {
    /// The runner, instance, bid or swarm that it is about.
    pub(super) fn subject(&self) -> String {
        match self {
            Event::Registered(runner) => runner.name.clone(),
            Event::Draining { runner } | Event::Awaited { runner, .. } | Event::Lost { runner, .. } => {
                runner.clone()
            }
            Event::BidPlaced(bid) => bid.instance.to_string(),
            Event::BidWithdrawn { bid } | Event::Granted { bid, .. } | Event::Refused { bid } => {
                bid.to_string()
            }
            Event::Scaled { swarm, .. } => swarm.to_string(),
            Event::Held { instance } | Event::Left { instance } => instance.to_string(),
        }
    }
}
