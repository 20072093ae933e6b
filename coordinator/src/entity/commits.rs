//! Sends an entity's batches to the store, in order, and tells in order what became of them.
//!
//! Two batches may be under way, so that the next one is decided and written out while the disk flushes the last.
//! Each batch names the version that it builds on, so a batch never takes effect without the one before it.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesOrdered;
use skein_shared::id::EntityKey;
use tokio::sync::mpsc;
use tracing::warn;

use crate::projection::Projection;
use crate::store::{Batch, CommitError, Fence, Store, Version};

/// Batches of one entity that may be under way at once.
pub(super) const UNDER_WAY: usize = 2;

/// How often a batch is sent again whose outcome is unknown: for about twelve seconds.
const AGAIN: u32 = 11;

/// How long a batch waits for a read side that cannot keep up.
const ROOM: Duration = Duration::from_secs(1);

/// What became of a batch; told once for each, until the first that failed.
pub(super) type Outcome = Result<Version, CommitError>;

/// The way of one entity's batches to the store. Dropping it lets those under way finish, untold.
pub(super) struct Commits {
    batches: mpsc::UnboundedSender<Arc<Batch>>,
}

impl Commits {
    pub(super) fn start(
        store: Arc<dyn Store>,
        projection: Projection,
        fence: Fence,
        tell: impl Fn(Outcome) + Send + Sync + 'static,
    ) -> Self {
        let (batches, queue) = mpsc::unbounded_channel();
        tokio::spawn(run(store, projection, fence, queue, tell));
        Self { batches }
    }

    /// Sends a batch on its way. After a failure was told nothing is sent any more.
    pub(super) fn send(&self, batch: Arc<Batch>) {
        let _ = self.batches.send(batch);
    }
}

async fn run(
    store: Arc<dyn Store>,
    projection: Projection,
    fence: Fence,
    mut queue: mpsc::UnboundedReceiver<Arc<Batch>>,
    tell: impl Fn(Outcome) + Send + Sync,
) {
    let mut under_way = FuturesOrdered::new();
    loop {
        let (batch, outcome) = tokio::select! {
            biased;
            Some(answered) = under_way.next(), if !under_way.is_empty() => answered,
            next = queue.recv() => {
                let Some(batch) = next else { return };
                projection.room(ROOM).await;
                let store = Arc::clone(&store);
                under_way.push_back(async move {
                    let outcome = store.commit(fence, Arc::clone(&batch)).await;
                    (batch, outcome)
                });
                continue;
            }
        };
        if outcome.is_ok() {
            tell(outcome);
            continue;
        }
        // Nothing may be left on its way when the failure is told: whoever loads the entity then must not be
        // overtaken by a batch that was decided before.
        let mut answered = vec![(batch, outcome)];
        answered.extend(under_way.by_ref().collect::<Vec<_>>().await);
        if !settle(store.as_ref(), fence, answered, &tell).await {
            return;
        }
    }
}

/// Finds out what became of batches of which the first has no good answer. Says whether all are committed; else
/// the first failure was told, and nothing after it has taken effect.
async fn settle(
    store: &dyn Store,
    fence: Fence,
    answered: Vec<(Arc<Batch>, Outcome)>,
    tell: &(impl Fn(Outcome) + Sync),
) -> bool {
    // A later batch builds on the earlier ones: if it is there, so are they.
    let known = answered.iter().rposition(|(_, outcome)| outcome.is_ok()).map_or(0, |last| last + 1);
    for (batch, _) in &answered[..known] {
        tell(Ok(Version(batch.expected.0 + 1)));
    }
    for (place, (batch, outcome)) in answered[known..].iter().enumerate() {
        let outcome = match outcome {
            Err(CommitError::Unknown(problem)) => find_out(store, fence, batch, problem).await,
            // It failed because the one before it was not there yet, or might have.
            _ if place > 0 => retry(store, fence, batch).await,
            definite => definite.clone(),
        };
        let failed = outcome.is_err();
        tell(outcome);
        if failed {
            return false;
        }
    }
    true
}

/// Sends a batch again after one try of which nobody knows what became.
async fn retry(store: &dyn Store, fence: Fence, batch: &Arc<Batch>) -> Outcome {
    match store.commit(fence, Arc::clone(batch)).await {
        Err(CommitError::Unknown(problem)) => find_out(store, fence, batch, &problem).await,
        definite => definite,
    }
}

/// Sends a batch of unknown outcome until the store has it. A refusal of the repeat says nothing about the first
/// try, so the outcome stays unknown with it.
async fn find_out(store: &dyn Store, fence: Fence, batch: &Arc<Batch>, problem: &str) -> Outcome {
    lost(&batch.key, problem);
    let mut pause = Duration::from_millis(10);
    for _ in 0..AGAIN {
        match store.commit(fence, Arc::clone(batch)).await {
            Ok(version) => return Ok(version),
            Err(CommitError::Unknown(problem) | CommitError::Failed(problem)) => lost(&batch.key, &problem),
            Err(moved_on) => return Err(CommitError::Unknown(moved_on.to_string())),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
    Err(CommitError::Unknown("no definite answer from the store".to_owned()))
}

fn lost(entity: &EntityKey, problem: &str) {
    warn!(%entity, problem, "a commit's answer was lost");
}
