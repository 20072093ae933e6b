//! Sends an entity's batches to the store, in order, and tells in order what became of them, as [`line`](super::line)
//! decides.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesOrdered;
use tokio::sync::mpsc;

use super::line::{Input, Line, Outcome, Output};
use crate::projection::Projection;
use crate::store::{Batch, Fence, Store};

/// How long a batch waits for a read side that cannot keep up.
const ROOM: Duration = Duration::from_secs(1);

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
    let mut line = Line::default();
    let mut under_way = FuturesOrdered::new();
    let mut pause = None;
    loop {
        let input = tokio::select! {
            biased;
            Some(outcome) = under_way.next(), if !under_way.is_empty() => Input::Answer(outcome),
            () = rest(pause), if pause.is_some() => {
                pause = None;
                Input::Rested
            }
            next = queue.recv(), if line.is_open() => {
                let Some(batch) = next else { return };
                projection.room(ROOM).await;
                Input::Batch(batch)
            }
        };
        for output in line.on(input) {
            match output {
                Output::Commit(batch) => {
                    let store = Arc::clone(&store);
                    under_way.push_back(async move {
                        let begun = tokio::time::Instant::now();
                        let outcome = store.commit(fence, batch).await;
                        metrics::histogram!("skein_entity_commit_seconds").record(begun.elapsed());
                        outcome
                    });
                }
                Output::Tell(outcome) => tell(outcome),
                Output::Rest(time) => pause = Some(tokio::time::Instant::now() + time),
                Output::End => return,
            }
        }
    }
}

async fn rest(until: Option<tokio::time::Instant>) {
    if let Some(until) = until {
        tokio::time::sleep_until(until).await;
    }
}
