//! Inboxes: messages from the outside to agents (spec: Agent Swarm 4.3).
//!
//! A swarm has one entity for all of them; messages are data. A message is handed to its agent, and is then
//! answered or delegated. What was handed out and forgotten becomes unread again, and so does what was delegated when
//! the pool makes no task of it. A notice of the swarm's own wants no answer: it is read once it was handed out. Leads
//! alone read inboxes, so what one leaves open goes to the next. Ended messages leave memory.

mod apply;
mod command;
mod decide;
mod effects;
mod event;
mod state;
#[cfg(test)]
mod tests;

pub use command::{Command, Deliver, Reply, Slack};
pub use event::Event;
pub use state::{Inboxes, Message, Source, Status};
