//! The rules: how large a blob may be, and how much all of a swarm may take.

use super::command::{Bounds, Command, Reply};
use super::event::Event;
use super::state::Blobs;
use crate::code::{Code, Refusal};
use crate::entity::{Ctx, Decision};
use crate::limits;
use uuid::Uuid;

pub(super) fn decide(state: &Blobs, command: &Command, ctx: &Ctx) -> Result<Decision<Blobs>, Refusal> {
    let events = match command {
        Command::Reserve { blob, bytes, bounds } => state.reserve(*blob, *bytes, *bounds, ctx)?,
        Command::Withdraw { blob } => {
            let reserved = state.held.get(blob).is_some_and(|held| held.until.is_some());
            reserved.then_some(Event::Freed { blob: *blob }).into_iter().collect()
        }
        Command::Keep { blob, bytes } => state.keep(*blob, *bytes),
        Command::Free { blob } if state.held.contains_key(blob) => vec![Event::Freed { blob: *blob }],
        Command::Free { .. } => Vec::new(),
        Command::Tick => state.lapsed(ctx.now).map(|blob| Event::Freed { blob }).collect(),
    };
    Ok(Decision::new(Reply::Done, events))
}

impl Blobs {
    fn reserve(&self, blob: Uuid, bytes: u64, bounds: Bounds, ctx: &Ctx) -> Result<Vec<Event>, Refusal> {
        if self.held.contains_key(&blob) {
            return Ok(Vec::new());
        }
        if bytes > bounds.each {
            return Err(Refusal::new(
                Code::TooLarge,
                format!(
                    "the value has {bytes} bytes, at most {} are taken; write it into a file and return where it is, or \
                     return a summary",
                    bounds.each
                ),
            ));
        }
        if self.used.saturating_add(bytes) > bounds.all {
            return Err(Refusal::new(
                Code::NoCapacity,
                format!(
                    "the long values of this swarm's calls take {} of {} bytes, and this one has {bytes}; room is freed \
                     ten minutes after a call has ended: try again then, return at most {} bytes, or write the value into \
                     a file and return where it is",
                    self.used,
                    bounds.all,
                    limits::TEXT
                ),
            ));
        }
        Ok(vec![Event::Reserved { blob, bytes, until: ctx.now + limits::BLOB_LOOSE }])
    }

    /// Never refused: the agent has the blob already, also if its reservation has lapsed meanwhile.
    fn keep(&self, blob: Uuid, bytes: u64) -> Vec<Event> {
        match self.held.get(&blob) {
            Some(held) if held.until.is_none() => Vec::new(),
            _ => vec![Event::Kept { blob, bytes }],
        }
    }
}
