//! What the swarm's work cost: each report of it, and the sums by day and agent.
//!
//! Who knows what a piece of work cost reports it: a task by what its agent says at its end, a run by what its harness
//! counted, a session by the program that ran it. Reports are kept in number, sums in days, so that a swarm that works
//! for years takes no more room than one that works for one.

mod apply;
mod command;
mod cost;
mod decide;
mod event;
mod state;
#[cfg(test)]
mod tests;

pub use command::{Command, Reply, Report, Source, Sums, Wanted};
pub use cost::Cost;
pub(crate) use cost::MOST;
pub use event::Event;
pub use state::{Costs, Sum};
