//! Channels: what agents and people tell each other (spec: Agent Swarm 2.5).
//!
//! A swarm has one entity for all of them, because names are unique in the swarm. Messages are numbered from
//! 1 in each channel and archived at once as `message/<channel>-<number>`; the entity keeps the last number,
//! and per agent the latest mentions and what is read: a mark, up to which everything is, and runs of numbers
//! above it. A read answers with the numbers to fetch, and marks those and no others: what was left out, by the
//! limit or by a filter, stays unread, as does a message that comes between a read and its mark. Archived messages
//! go with time; the node that removes them tells so, and below the number up to which they are gone nothing counts.

mod apply;
mod command;
mod decide;
mod effects;
mod event;
mod spans;
mod state;
#[cfg(test)]
mod tests;

use uuid::Uuid;

pub use command::{Author, Batch, Command, Create, Post, Read, Reply};
pub use effects::MentionTask;
pub use event::Event;
pub use spans::Spans;
pub use state::{Channel, Channels, Mark, Type};

/// The channel that every swarm has from its start.
pub const GENERAL: Uuid = Uuid::from_u128(0x0000_0000_0000_4000_8000_0000_0000_0001);

/// What a message orders that begins with `/task`.
pub fn order(content: &str) -> Option<&str> {
    content.trim_start().strip_prefix("/task ").map(str::trim)
}

/// The key of a message's document.
pub fn message_key(channel: Uuid, number: u64) -> String {
    format!("message/{channel}-{number}")
}
