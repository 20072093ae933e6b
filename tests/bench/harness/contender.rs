//! Something that is measured: a limit probe, a peer, or Skein itself.

use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// What a contender is in its comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// The least that the machine has to do for this work.
    Limit,
    /// Another product that does it.
    Peer,
    Skein,
}

/// What has survived when an operation is answered. Only contenders of one class are compared by a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Durability {
    /// D2: a power cut.
    PowerCut,
    /// D1: the end of the process; a power cut loses what was written last.
    Lazy,
    /// D0: nothing.
    Memory,
    /// Nothing is written at all.
    NotStored,
}

impl Durability {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Durability::PowerCut => "D2 power cut",
            Durability::Lazy => "D1 lazy",
            Durability::Memory => "D0 memory",
            Durability::NotStored => "-",
        }
    }
}

/// Where the processor time and the writes of a contender are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Metered {
    /// It runs within the bench's own process.
    Myself,
    /// A process with all of its descendants.
    Tree(u32),
    /// Several processes, each with its descendants.
    Trees(Vec<u32>),
    /// The bench's own process with a server that it has started.
    MyselfAnd(u32),
}

/// How operations follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// Each client begins its next operation when the last one is answered: this finds the ceiling.
    Closed,
    /// Operations begin at this rate a second, whether or not earlier ones are answered, and latency counts from
    /// the moment at which one was due: a stall is seen by all who would have come meanwhile.
    Open(f64),
}

/// One slot of a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Clients, or operations in flight.
    pub in_flight: usize,
    pub time: Duration,
    pub pace: Pace,
}

/// What a contender did in its slot.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub operations: u64,
    pub elapsed: Duration,
    /// Nanoseconds, where the contender can tell.
    pub latency: Option<Histogram<u64>>,
}

/// Who a contender is.
#[derive(Clone, Debug)]
pub(crate) struct Card {
    pub label: &'static str,
    pub role: Role,
    pub durability: Durability,
    /// The product and its version.
    pub version: String,
    pub metered: Metered,
}

impl Card {
    pub(crate) fn limit(
        label: &'static str,
        durability: Durability,
        version: String,
        metered: Metered,
    ) -> Self {
        Self { label, role: Role::Limit, durability, version, metered }
    }

    pub(crate) fn peer(
        label: &'static str,
        durability: Durability,
        version: String,
        metered: Metered,
    ) -> Self {
        Self { label, role: Role::Peer, durability, version, metered }
    }

    pub(crate) fn skein(durability: Durability, metered: Metered) -> Self {
        let version = concat!("skein ", env!("CARGO_PKG_VERSION")).to_owned();
        Self { label: "skein", role: Role::Skein, durability, version, metered }
    }
}

/// Something that is measured. It is started once and works in many rounds.
#[async_trait]
pub(crate) trait Contender: Send {
    fn card(&self) -> Card;

    /// Makes ready for rounds with this many operations in flight. Not measured.
    async fn prepare(&mut self, _in_flight: usize) -> Result<()> {
        Ok(())
    }

    /// Works for one slot.
    async fn work(&mut self, plan: &Plan) -> Result<Work>;

    /// Flushes so far, where the contender counts them itself.
    fn flushes(&self) -> Option<u64> {
        None
    }

    /// Calls to Redis so far, where it is used.
    fn redis_calls(&self) -> Option<u64> {
        None
    }

    async fn stop(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
