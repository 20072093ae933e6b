//! Hosts for entities: each entity in memory is one actor that decides, commits and answers.
//!
//! `directory` finds or starts the actor of a key; `host` is that actor; `hub` wakes those who wait for a
//! change; `documents` has recent bodies at hand; `clock` is the only source of time; `timers` sends ticks when
//! they are due; `supervision` brings back what died; `passivation` lets go of what is idle.

pub mod admission;
mod asking;
mod batch;
mod blobs;
mod bodies;
pub mod clock;
mod commits;
pub mod desk;
pub mod directory;
mod documents;
pub mod errand;
pub mod host;
pub mod hub;
mod in_order;
mod kinds;
mod lag;
pub mod line;
mod load;
pub mod notice;
pub mod ownership;
pub mod passivation;
mod reads;
mod refusals;
mod remote;
mod replies;
mod request;
mod routing;
mod slot;
mod supervision;
#[cfg(test)]
pub(crate) mod tests;
pub mod timers;
pub mod traces;
mod upkeep;

pub use clock::{Clock, Time};
pub use directory::Entities;
pub use hub::Hub;
pub use request::Request;
