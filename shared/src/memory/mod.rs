//! Memory: what the swarm has learnt (spec: Agent Swarm 2.9).
//!
//! Learnings are searched on the read side. The entity itself knows of each what it says, as a hash, so that it is
//! kept once; whether its meaning is known, as a vector; and which came from an indexed file, so that indexing the file
//! again replaces them. It holds [`LEARNINGS`](crate::limits::LEARNINGS) at most: what tasks and sessions left behind
//! makes room for what comes, the oldest first.

mod apply;
mod command;
mod decide;
mod event;
mod pieces;
mod state;
#[cfg(test)]
mod tests;
mod vector;

pub use command::{Command, Embedding, Meaning, Remember, Reply, Scope, Source};
pub use event::Event;
pub use state::Memory;
pub use vector::{DIMENSIONS, Model, Vector};

/// Changes whenever something is learnt, in whichever swarm.
pub const LEARNT: &str = "learnt";

/// Fields that a learning's shape has as null where they have no value. Stored bodies leave them out; readers
/// pass bodies through [`crate::wire::shown`] with these.
pub const NULLABLE: [&str; 4] = ["agentId", "summary", "sourceTaskId", "sourcePath"];

/// The key of a learning's document.
pub fn key(memory: impl std::fmt::Display) -> String {
    format!("memory/{memory}")
}
