//! Settings: values that a swarm keeps for all of it, for an agent or for a repository (spec: Agent Swarm 2.3).
//!
//! A swarm has one entity for all of them, and for the list of its repositories. What is secret comes here sealed and
//! leaves it sealed: neither the entity nor what is written of it ever has the plain text, which only the coordinators'
//! keys bring back.

mod apply;
mod command;
mod decide;
mod event;
mod repos;
mod state;
#[cfg(test)]
mod tests;

pub use command::{Command, Exchange, Reply, Set, Wanted};
pub use decide::{VALUE, fits};
pub use event::Event;
pub use repos::{Repo, RepoSpec};
pub use state::{Held, MASK, Place, Scope, Sealed, Setting, Settings};
