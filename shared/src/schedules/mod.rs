//! Schedules: tasks that are made at certain times (spec: Agent Swarm 2.8 and 4.1).
//!
//! A swarm has one entity for all of them, because names are unique in the swarm. The template of the task
//! stands in the head: the decision to fire makes the task's text, and cannot read bodies. Schedules alone
//! go by the wall clock. A firing is the pair (schedule, nominal time); a schedule knows for which of its times it has
//! fired, so no pair fires twice, and the task's id derives from the pair.

mod agents;
mod apply;
mod check;
mod command;
mod decide;
mod effects;
mod event;
mod fired;
mod state;
#[cfg(test)]
mod tests;

pub use command::{Command, Create, Reply, Update};
pub use effects::TaskTemplate;
pub use event::Event;
pub use state::{Schedule, Schedules};
