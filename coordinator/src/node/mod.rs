//! A node: the parts of one process, from start to drain.
//!
//! `datadir` keeps other processes out; `start` brings the parts up in order and `shutdown` takes them down;
//! `tasks` ties them together; `truth` opens the store, `alone` that of a node which does not run; `faces` is what a
//! node answers over HTTP; `listening` opens its doors and `serving` takes connections in, `patience` ends those that
//! are quiet for too long, `arrival` bodies that take too long, `leftovers` reads requests to their end, `keepalive`
//! notices clients that are gone; `addresses` tells others where they reach it, `endpoint` the command line where the
//! listeners are.

mod addresses;
mod alone;
mod arrival;
pub mod datadir;
pub mod endpoint;
mod faces;
mod health;
mod holdings;
mod keepalive;
mod keys;
mod leftovers;
mod listening;
mod patience;
mod retention;
mod runner;
mod serving;
mod shutdown;
mod start;
pub mod tasks;
mod truth;

pub use alone::Alone;
pub use endpoint::Endpoint;
pub use shutdown::Signals;
pub use start::{Node, Roles, StartError, operator_token, start};
