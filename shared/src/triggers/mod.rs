//! Triggers: events from outside, the waits that they end and the subscriptions that they start runs for.
//!
//! The agent alone ends a wait; what stands here is a copy, made before the instance is frozen. An event
//! that comes for a wait which the agent has ended in the meantime is given back and goes on to the next.

mod apply;
mod command;
mod decide;
mod effect;
mod event;
mod filter;
mod index;
mod state;
mod subscription;
#[cfg(test)]
mod tests;

pub use command::{Command, Incoming, Kept, Rejected, Reply};
pub use event::{Event, Outcome, Resumption, WaitEnd};
pub use filter::{Envelope, Filter, FilterKind, Miss};
pub use state::Triggers;
pub use subscription::{Key, subscription};

use crate::code::Refusal;
use crate::entity::{Changes, Corrupt, Ctx, Decision, Entity, LiveDocument};
use crate::id::{EntityKey, Kind};
use crate::json::Json;
use crate::time::Timestamp;

impl Entity for Triggers {
    const KIND: Kind = Kind::Triggers;
    type Command = Command;
    type Event = Event;
    type Reply = Reply;

    fn empty(key: &EntityKey) -> Self {
        Self::new(key.swarm.clone())
    }

    fn restore(&mut self, document: LiveDocument) -> Result<(), Corrupt> {
        self.restore_document(&document)
    }

    fn consults(command: &Command) -> Option<String> {
        let Command::Unclaimed { receipt, kept: None, .. } = command else { return None };
        Some(apply::document(*receipt))
    }

    fn consulted(command: &mut Command, body: &Json) {
        if let Command::Unclaimed { kept, .. } = command {
            *kept = body.read().ok();
        }
    }

    fn decide(&self, command: &Command, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        self.decide_command(command, ctx)
    }

    fn apply(&mut self, event: &Event, changes: &mut Changes) {
        self.apply_event(event, changes);
    }

    fn next_wake(&self) -> Option<Timestamp> {
        self.earliest()
    }

    fn tick() -> Command {
        Command::Tick
    }

    fn subject(event: &Event) -> Option<String> {
        match event {
            Event::Received { incoming, .. } => Some(incoming.receipt.to_string()),
            Event::Rejected { rejected, .. } => Some(rejected.receipt.to_string()),
            Event::HandedOn { receipt, .. }
            | Event::Refused { receipt, .. }
            | Event::TakenUp { receipt, .. } => Some(receipt.to_string()),
            Event::WaitRegistered { wait, .. } | Event::WaitEnded { wait, .. } => Some(wait.to_string()),
            Event::Subscribed { agent, .. } => Some(agent.to_string()),
            Event::Paused { .. } | Event::Trimmed { .. } => None,
        }
    }

    fn check(&self) -> Result<(), String> {
        self.broken().map_or(Ok(()), Err)
    }
}
