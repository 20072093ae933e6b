//! Epics: goals that many tasks serve (spec: Agent Swarm 2.8 and 4.2).
//!
//! A swarm has one entity for all of them, because names are unique in the swarm. The pool owns the tasks and
//! says how their statuses change; the epics only count. Texts are in the bodies alone.

mod apply;
mod command;
mod decide;
mod event;
mod state;
#[cfg(test)]
mod tests;

pub use command::{Command, Create, Notice, Reply, Texts, Update};
pub use event::Event;
pub use state::{Counts, Epic, Epics, Status};
