//! Triggers: events from outside, the waits that they end and the subscriptions that they start runs for.

mod command;
mod event;
mod filter;
mod state;

pub use command::{Command, Incoming, Reply, WaitView};
pub use event::{Event, Outcome, Resumption, WaitEnd};
pub use filter::{Envelope, Filter, FilterKind};
pub use state::Triggers;
