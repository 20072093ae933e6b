//! Bounds what one entity takes in. ractor's mailboxes have no bound, so the permit is taken before a message
//! is sent and travels inside it until the answer is given.

use std::sync::Arc;

use skein_shared::{Code, Refusal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Commands that one entity may have waiting or in work. At 32 a batch and 3,000 batches a second this is
/// well under a second of work, so a caller who is turned away may soon come back.
pub const PER_ENTITY: usize = 4096;

#[derive(Clone, Debug)]
pub struct Admission {
    permits: Arc<Semaphore>,
}

pub type Permit = OwnedSemaphorePermit;

impl Default for Admission {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(PER_ENTITY)) }
    }
}

impl Admission {
    /// Takes a permit, or says that the entity is overloaded.
    pub fn enter(&self) -> Result<Permit, Refusal> {
        Arc::clone(&self.permits).try_acquire_owned().map_err(|_| {
            Refusal::new(Code::Overloaded, "too many requests wait for this swarm; try again in a moment")
                .retry_after(250)
        })
    }

    pub fn in_flight(&self) -> usize {
        PER_ENTITY - self.permits.available_permits()
    }
}
