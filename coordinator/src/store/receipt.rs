//! How whoever hands something to a store learns what became of it, without a task that waits for the answer.

use tokio::sync::oneshot;

use super::{CommitError, Version};

const STOPPED: &str = "the store's writer has stopped; restart the process";

/// Told once what became of what a store was given. A store that drops it has told that nobody knows.
#[must_use]
pub struct Receipt<T = Version>(Option<Told<T>>);

type Told<T> = Box<dyn FnOnce(Result<T, CommitError>) + Send>;

impl<T> Receipt<T> {
    /// Calls this with the outcome, wherever the store has found it; so it must neither wait nor do much.
    pub fn new(told: impl FnOnce(Result<T, CommitError>) + Send + 'static) -> Self {
        Self(Some(Box::new(told)))
    }

    /// What became of it.
    pub fn give(mut self, outcome: Result<T, CommitError>) {
        if let Some(told) = self.0.take() {
            told(outcome);
        }
    }

    /// The writer had stopped before it took it, so nothing was written.
    pub(super) fn not_taken(self) {
        self.give(Err(CommitError::Failed(STOPPED.to_owned())));
    }
}

impl<T: Send + 'static> Receipt<T> {
    /// A receipt, and what is on it.
    pub fn awaited() -> (Self, impl Future<Output = Result<T, CommitError>> + Send) {
        let (tell, told) = oneshot::channel();
        let receipt = Self::new(move |outcome| {
            // Whoever waited may have gone.
            let _ = tell.send(outcome);
        });
        (receipt, async move { told.await.unwrap_or_else(|_| Err(stopped())) })
    }
}

impl<T> Drop for Receipt<T> {
    fn drop(&mut self) {
        if let Some(told) = self.0.take() {
            told(Err(stopped()));
        }
    }
}

/// The store's writer ended before it could say what became of something.
fn stopped() -> CommitError {
    CommitError::Unknown(STOPPED.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_waits_is_told_once_even_by_a_store_that_is_gone() {
        let (receipt, outcome) = Receipt::awaited();
        receipt.give(Ok(Version(7)));
        assert_eq!(outcome.await, Ok(Version(7)));
        let (receipt, outcome) = Receipt::<Version>::awaited();
        drop(receipt);
        assert!(matches!(outcome.await, Err(CommitError::Unknown(_))));
        let (receipt, outcome) = Receipt::<Version>::awaited();
        receipt.not_taken();
        assert!(matches!(outcome.await, Err(CommitError::Failed(_))));
    }
}
