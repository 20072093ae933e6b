//! Memory: what the swarm has learnt (spec: Agent Swarm 2.9).
//!
//! Learnings are archived as soon as they are written and are searched on the read side. The entity itself
//! keeps one thing: which learnings came from an indexed file, so that indexing the file again replaces them.

mod apply;
mod command;
mod decide;
mod event;
mod state;
#[cfg(test)]
mod tests;

pub use command::{Command, Remember, Reply, Scope, Source};
pub use event::Event;
pub use state::Memory;

/// Fields that a learning's shape has as null where they have no value. Stored bodies leave them out; readers
/// pass bodies through [`crate::wire::shown`] with these.
pub const NULLABLE: [&str; 4] = ["agentId", "summary", "sourceTaskId", "sourcePath"];

/// The key of a learning's document.
pub fn key(memory: uuid::Uuid) -> String {
    format!("memory/{memory}")
}
