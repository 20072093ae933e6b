//! Locks: exclusive, never waited for, each with a time to live and a fencing token that only rises.
//!
//! A lock ends at its time, or sooner with its instance. Whoever guards the resource compares tokens: a
//! holder that slept past its time shows a lower one than its successor.

mod apply;
mod command;
mod deadlock;
mod decide;
mod event;
mod naming;
mod state;
#[cfg(test)]
mod tests;

pub use command::{Command, LockView, Reply};
pub use event::Event;
pub use state::{Lockspace, Settings};

use crate::code::Refusal;
use crate::entity::{Changes, Corrupt, Ctx, Decision, Entity, LiveDocument};
use crate::id::{EntityKey, Kind};
use crate::time::Timestamp;

impl Entity for Lockspace {
    const KIND: Kind = Kind::Lockspace;
    type Command = Command;
    type Event = Event;
    type Reply = Reply;

    fn empty(_key: &EntityKey) -> Self {
        Self::default()
    }

    fn restore(&mut self, document: LiveDocument) -> Result<(), Corrupt> {
        self.restore_document(&document)
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
            Event::Acquired { key, .. }
            | Event::Refreshed { key, .. }
            | Event::Kept { key, .. }
            | Event::Extended { key, .. }
            | Event::Shortened { key, .. }
            | Event::Released { key, .. }
            | Event::Expired { key, .. }
            | Event::EdgeNoted { key, .. } => Some(key.clone()),
            Event::EdgesDropped { .. }
            | Event::WaitNoted { .. }
            | Event::WaitsDropped { .. }
            | Event::Configured { .. } => None,
        }
    }

    fn check(&self) -> Result<(), String> {
        self.broken().map_or(Ok(()), Err)
    }
}
