//! Locks: exclusive, never waited for, each with a time to live and a fencing token that only rises.

mod command;
mod event;
mod state;

pub use command::{Command, LockView, Reply};
pub use event::Event;
pub use state::{Lockspace, Settings};
