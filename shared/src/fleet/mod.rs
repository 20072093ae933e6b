//! The runners of one group: their slots, and the agents' bids for them.
//!
//! Heartbeats are memory ([`crate::entity::Signal::RunnerAlive`]); only changes commit. The fleet alone
//! declares a runner lost, and gives an instance's place away no sooner than that.

mod command;
mod event;
mod state;

pub use command::{BidView, Command, HeldInstance, Overview, Registration, Reply, RunnerView};
pub use event::Event;
pub use state::{Bid, Fleet, Place, Runner};
