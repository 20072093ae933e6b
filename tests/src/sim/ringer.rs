//! Rings: sends events from outside, as an ingress does that got them from a sender which repeats what was not taken.

use std::collections::BTreeMap;

use fastrand::Rng;
use serde_json::json;
use skein_shared::id::{EntityKey, Kind};
use skein_shared::time::Timestamp;
use skein_shared::triggers::{self, Filter, FilterKind, Incoming};
use uuid::Uuid;

use super::clients::{Next, Phase, agent_name, ask, swarm};
use super::history::{Call, Outcome};
use super::world::BEGIN;

/// Events of one ringer.
const EVENTS: u32 = 12;
/// Where they come from.
const SOURCE: &str = "bell";
/// The agent of which an event starts a run if none of its runs waits for it.
pub const SUBSCRIBED: usize = 0;

pub fn bell() -> EntityKey {
    EntityKey::of(Kind::Triggers, &swarm("beta"))
}

/// A filter that takes all of them.
pub fn events() -> Filter {
    Filter {
        kind: FilterKind::Webhook,
        source: Some(SOURCE.to_owned()),
        event: None,
        matches: BTreeMap::new(),
        only: BTreeMap::new(),
        source_agent: None,
    }
}

#[derive(Default)]
pub struct Ringer {
    subscribed: bool,
    rung: u32,
}

impl Ringer {
    pub fn is_done(&self) -> bool {
        self.rung == EVENTS
    }

    /// Now and then while things go wrong: runs have to wait before there is something to wake them.
    pub fn next(&self, phase: Phase, rng: &mut Rng) -> Next {
        if !self.subscribed {
            let agent = agent_name(SUBSCRIBED);
            let subscribe = triggers::Command::Subscribe { agent, filters: vec![events()] };
            return ask(bell(), &subscribe, Call::Subscribe);
        }
        if phase == Phase::Storm && rng.u8(0..8) > 0 {
            return Next::Rest;
        }
        let receipt = Uuid::from_u128(rng.u128(..));
        let incoming = Incoming {
            receipt,
            delivery: receipt.to_string(),
            source: SOURCE.to_owned(),
            provider: "generic".to_owned(),
            event: "ring".to_owned(),
            context: json!({}),
            payload: json!(self.rung),
            received_at: Timestamp(BEGIN),
            unsigned: false,
            said: None,
            letter: None,
            activity: None,
        };
        ask(bell(), &triggers::Command::Deliver { incoming }, Call::Ring { receipt })
    }

    pub fn heard(&mut self, call: &Call, outcome: &Outcome) {
        match (call, outcome) {
            (Call::Subscribe, Outcome::Ok(_)) => self.subscribed = true,
            (Call::Ring { .. }, _) => self.rung += 1,
            _ => {}
        }
    }
}
