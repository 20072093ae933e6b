//! The door for webhooks, on a listener of its own: the one that strangers may reach.
//!
//! An event is verified, written down by the swarm's triggers, and only then answered; what it wakes or starts
//! comes after. A sender that repeats a delivery is told so, and nothing happens twice.
//!
//! `provider/` has a file for each kind of sender, `gate` knows the sources, `receive` takes one request in.

mod context;
mod delivery;
mod gate;
mod intake;
mod provider;
mod receive;
mod signature;
mod simulate;
mod socket;
mod subscribe;
#[cfg(test)]
mod tests;

pub use gate::{Gate, Intake, Taken};
pub use receive::router;
pub use simulate::simulate;
pub use socket::listen;
pub use subscribe::subscribe;
