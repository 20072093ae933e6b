//! The runners of one group: their slots, and the agents' bids for them.
//!
//! Heartbeats are memory ([`Signal::RunnerAlive`]); only changes commit. The fleet alone declares a runner
//! lost, and gives an instance's place away no sooner than that.

mod apply;
mod command;
mod decide;
mod event;
mod invariants;
mod offer;
mod slots;
mod state;
#[cfg(test)]
mod tests;

use crate::code::Refusal;
use crate::entity::{Changes, Corrupt, Ctx, Decision, Entity, LiveDocument, Signal};
use crate::id::{EntityKey, Kind, Name};
use crate::limits;
use crate::time::Timestamp;

pub use command::{BidView, Command, HeldInstance, Overview, Registration, Reply, RunnerView};
pub use event::Event;
pub use offer::Offer;
use state::Limit;
pub use state::{AGEING, Bid, Fleet, Place, Runner};

impl Entity for Fleet {
    const KIND: Kind = Kind::Fleet;
    type Command = Command;
    type Event = Event;
    type Reply = Reply;

    fn empty(_key: &EntityKey) -> Self {
        Fleet::default()
    }

    fn restore(&mut self, document: LiveDocument) -> Result<(), Corrupt> {
        let (kind, id) = document.split();
        match kind {
            "runner" => {
                let runner: Runner = document.read()?;
                self.alive_until.insert(runner.name.clone(), runner.registered + limits::RUNNER_LEASE);
                self.runners.insert(runner.name.clone(), runner);
            }
            "place" => {
                self.set_place(document.read()?);
            }
            "bid" => {
                let bid: Bid = document.read()?;
                self.bids.insert(bid.id, bid);
            }
            "scale" => {
                let swarm = Name::parse(id).map_err(|error| document.corrupt(error.message))?;
                self.scales.insert(swarm, document.read::<Limit>()?.scale);
            }
            other => return Err(document.corrupt(format!("a fleet has no documents of type `{other}`"))),
        }
        Ok(())
    }

    fn decide(&self, command: &Command, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        decide::decide(self, command, ctx)
    }

    fn apply(&mut self, event: &Event, changes: &mut Changes) {
        self.follow(event, changes);
    }

    fn next_wake(&self) -> Option<Timestamp> {
        self.alive_until.values().min().copied()
    }

    fn watches(&self) -> bool {
        !self.alive_until.is_empty()
    }

    fn tick() -> Command {
        Command::Tick
    }

    fn subject(event: &Event) -> Option<String> {
        Some(event.subject())
    }

    fn check(&self) -> Result<(), String> {
        invariants::check(self)
    }

    fn observe(&mut self, signal: &Signal, now: Timestamp) {
        let Signal::RunnerAlive { runner, .. } = signal else { return };
        if let Some(until) = self.alive_until.get_mut(runner) {
            *until = (*until).max(now + limits::RUNNER_LEASE);
        }
    }
}
