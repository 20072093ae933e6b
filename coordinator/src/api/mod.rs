//! Administration over gRPC, for operators' tokens: what the command line asks.
//!
//! `admin` is the service, with what is about agents in `agents` and about webhooks in `webhooks`; `views` says which
//! documents each list shows; `events` is the feed, `logs` what runs have written; `bearer` tells who calls; `client` is
//! the other end.

mod admin;
mod agents;
pub mod bearer;
pub mod client;
mod events;
mod logs;
mod secrets;
pub mod server;
mod views;
mod webhooks;

pub use admin::Admin;
