//! Administration over gRPC, for operators' tokens: what the command line asks.
//!
//! `admin` is the service; `views` says which documents each list shows; `events` is the feed; `bearer` tells
//! who calls.

mod admin;
pub mod bearer;
mod events;
mod views;

pub use admin::Admin;
