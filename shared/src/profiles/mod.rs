//! What the texts of profiles were before (spec: Agent Swarm 2.6).
//!
//! The pool keeps the texts as they are and tells this entity of each change. A swarm has one for all its members; a
//! head knows of each text's latest version alone. What a version says stands in a document of its own, so that a
//! history is read without its texts.

mod apply;
mod command;
mod decide;
mod event;
mod state;
#[cfg(test)]
mod tests;

pub use command::{Change, Command, Edit, Reply};
pub use event::{Event, Version};
pub use state::{Field, Latest, Profiles, Source};
