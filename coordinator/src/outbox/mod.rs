//! Carries effects out of the store: to other entities exactly once, to runners and to people at
//! least once.
//!
//! An effect stays in the outbox until it is known to be delivered. The pump delivers in order for each pair
//! of source and target, so that the receiver can tell repeats by one high-water mark for each source: such a
//! pair is a lane ([`lanes`]).

mod lane;
pub mod lanes;
mod not_offered;
pub mod pump;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use skein_shared::entity::{Reign, RunnerCommand};

pub use crate::entity::ownership::Delivery;

/// Reaches runners by name. The runners' sessions implement it.
#[async_trait]
pub trait Runners: Send + Sync + 'static {
    async fn deliver(&self, runner: &str, command: &RunnerCommand, reign: &Reign) -> Delivery;

    /// Resolves after a runner has connected, which is when held commands are worth another try.
    async fn connected(&self);
}
