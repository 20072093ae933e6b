//! Room for blobs: how much the long values of a swarm's calls take together, and how much they may.
//!
//! A blob belongs to the agent that names it: its chunks lie with that agent, who keeps it and lets it go. Here it is
//! only counted, for a quota that many agents share has to be a single decision. Room is reserved before the first
//! chunk is written; a reservation that nothing came of lapses.

mod apply;
mod command;
mod decide;
mod event;
mod state;
#[cfg(test)]
mod tests;

pub use command::{Bounds, Command, Reply};
pub use event::Event;
pub use state::Blobs;

use crate::limits::CHUNK;

/// How many chunks a blob of so many bytes has. Each is full but the last.
pub fn chunks(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(CHUNK as u64)).unwrap_or(u32::MAX)
}
