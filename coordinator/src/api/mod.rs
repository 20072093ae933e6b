//! Administration over gRPC, for operators' tokens: what the command line asks.
//!
//! `admin` is the service, with what is about agents in `agents`, about what is remembered in `memory`, about questions
//! in `questions` and about webhooks in `webhooks`; `events` is the feed; `bearer` tells who calls; `line` is what they
//! call by; `client` is the other end.

mod access;
mod admin;
mod agents;
pub mod bearer;
pub mod client;
mod events;
mod line;
mod memory;
mod questions;
mod secrets;
pub mod server;
mod webhooks;

pub use admin::Admin;
