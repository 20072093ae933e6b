//! Services: programs that agents keep running for others, and how they fare (spec: Agent Swarm 2.7).
//!
//! A swarm has one entity for all of them. An agent has one service; its name is the agent's id, and the agent may give
//! it a label to be found by. What a service needs to be started again stands in its head, because its agent may ask
//! for it when its container is new.

mod apply;
mod command;
mod decide;
mod event;
mod state;
#[cfg(test)]
mod tests;

pub use command::{Command, Register, Reply, Wanted};
pub use event::Event;
pub use state::{Health, Service, Services};
