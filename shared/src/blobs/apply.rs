//! How events change the room for blobs and its documents.

use uuid::Uuid;

use super::command::{Bounds, Command, Reply};
use super::decide;
use super::event::Event;
use super::state::{Blobs, Held};
use crate::code::Refusal;
use crate::entity::{Changes, Corrupt, Ctx, Decision, Entity, LiveDocument};
use crate::id::{EntityKey, Kind};
use crate::time::Timestamp;

impl Entity for Blobs {
    const KIND: Kind = Kind::Blobs;
    type Command = Command;
    type Event = Event;
    type Reply = Reply;

    fn empty(_: &EntityKey) -> Self {
        Self::default()
    }

    fn restore(&mut self, document: LiveDocument) -> Result<(), Corrupt> {
        let ("blob", id) = document.split() else {
            return Err(document.corrupt("the room for blobs has no such document"));
        };
        let blob = Uuid::try_parse(id).map_err(|error| document.corrupt(error.to_string()))?;
        self.hold(blob, document.read()?);
        Ok(())
    }

    fn decide(&self, command: &Command, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        decide::decide(self, command, ctx)
    }

    /// A repeat may come by a node of other settings.
    fn asked(command: &Command) -> Option<Command> {
        match command {
            Command::Reserve { blob, bytes, .. } => {
                Some(Command::Reserve { blob: *blob, bytes: *bytes, bounds: Bounds::default() })
            }
            _ => None,
        }
    }

    fn apply(&mut self, event: &Event, changes: &mut Changes) {
        let (blob, held) = match *event {
            Event::Reserved { blob, bytes, until } => (blob, Held { bytes, until: Some(until) }),
            Event::Kept { blob, bytes } => (blob, Held { bytes, until: None }),
            Event::Freed { blob } => {
                self.let_go(blob);
                return changes.delete(Self::key(blob));
            }
        };
        self.let_go(blob);
        changes.put(Self::key(blob), &held, None);
        self.hold(blob, held);
    }

    fn next_wake(&self) -> Option<Timestamp> {
        self.held.values().filter_map(|held| held.until).min()
    }

    fn tick() -> Command {
        Command::Tick
    }

    fn subject(event: &Event) -> Option<String> {
        let (Event::Reserved { blob, .. } | Event::Kept { blob, .. } | Event::Freed { blob }) = event;
        Some(blob.to_string())
    }

    fn check(&self) -> Result<(), String> {
        let sum: u64 = self.held.values().map(|held| held.bytes).sum();
        if sum == self.used {
            Ok(())
        } else {
            Err(format!("blobs: {sum} bytes are counted as {}", self.used))
        }
    }
}

impl Blobs {
    fn hold(&mut self, blob: Uuid, held: Held) {
        self.used += held.bytes;
        self.held.insert(blob, held);
    }

    fn let_go(&mut self, blob: Uuid) {
        if let Some(held) = self.held.remove(&blob) {
            self.used -= held.bytes;
        }
    }
}
