//! Mail: whose an inbox at AgentMail is, and who has a thread (spec: Agent Swarm 4.5).
//!
//! A swarm has one entity for all of it. It knows where a letter belongs and keeps none: the pool, which knows who
//! leads and who is there, makes a task of it or leaves it to the lead's inbox.

mod apply;
mod command;
mod decide;
mod event;
mod letter;
mod state;
#[cfg(test)]
mod tests;

pub use command::{Command, Reply};
pub use event::Event;
pub use letter::{Ids, Letter, THREAD};
pub use state::{Address, Mail, Thread};
