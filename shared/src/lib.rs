//! The rules of the swarm: pure state machines without I/O, clocks or chance.
//!
//! A new rule about tasks goes into `pool/decide/`, one about locks into `lockspace/decide.rs`, and so on:
//! each entity has a folder with `state`, `command`, `event`, `decide`, `apply` and `tests`.

pub mod access;
pub mod agent;
pub mod ask;
pub mod blobs;
pub mod caller;
pub mod channels;
pub mod code;
pub mod costs;
mod cow_map;
pub mod cron;
pub mod day;
pub mod denied;
pub mod entity;
pub mod epics;
pub mod fence;
pub mod fleet;
pub mod forge;
pub mod id;
pub mod inboxes;
pub mod json;
pub mod limits;
pub mod lockspace;
pub mod mail;
pub mod memory;
pub mod mutation;
pub mod pool;
pub mod profiles;
pub mod questions;
pub mod schedules;
pub mod services;
pub mod settings;
pub mod slack;
mod slice;
pub mod span;
pub mod spelling;
#[cfg(test)]
mod testbed;
pub mod text;
pub mod time;
pub mod transport;
pub mod triggers;
pub mod uri;
pub mod which;
pub mod wire;

pub use code::{Code, Refusal};
