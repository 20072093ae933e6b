//! Access: which programs may fetch tokens for a swarm, and which tokens hold no more.
//!
//! A swarm has one entity for it. Tokens themselves are signed and not stored, so what is here is short: clients, each
//! with the digest of its secret, and revocations until the last token that they could concern has ended. Every node
//! reads the revocations once in a while and looks at its own copy at each call.

mod apply;
mod command;
mod decide;
mod event;
mod state;
#[cfg(test)]
mod tests;

pub use command::{Command, Reply, Wish};
pub use event::Event;
pub use state::{Access, Client, Of, Revocation};
