//! A process that has the store for itself alone, and ends when it has it no more.

use skein_shared::time::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::generation::REPLACED;
use super::lease::Kept;
use super::shard::{SHARDS, Shard};
use super::{Options, Redis};
use crate::store::{Fence, StoreError};

/// The shards are no longer this process' own, or may be no longer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Lost(String);

/// Why leases were not renewed.
enum Unkept {
    Lost(Lost),
    /// It may be better at the next try.
    NotNow(StoreError),
}

impl From<StoreError> for Unkept {
    fn from(problem: StoreError) -> Self {
        Unkept::NotNow(problem)
    }
}

impl Redis {
    /// Like [`Redis::join`], and takes all shards, for a process that needs the store for itself alone. A shard that
    /// another owner has is waited for, as long as its lease may last.
    ///
    /// # Errors
    /// Also when another owner keeps its shards.
    pub async fn open(options: &Options, wall: Timestamp) -> Result<Self, StoreError> {
        let mut store = Self::join(options, wall).await?;
        store.spoilt.needs_all = true;
        for (shard, fence) in Shard::all().zip(store.leases.take_all(options.lease).await?) {
            store.held.take(shard, fence, None);
        }
        Ok(store)
    }

    /// Keeps the shards until `stop`, and then gives them up.
    ///
    /// # Errors
    /// When another owner has taken one, the leases could not be renewed in time, or the server is not the one on which
    /// they were taken: what this process has in memory may be out of date, so it must not go on.
    pub async fn keep(&self, stop: CancellationToken) -> Result<(), Lost> {
        let held = self.held.all();
        // A lease counts from before it was asked for, and ends here before it ends there.
        let good_for = self.lease * 4 / 5;
        let mut ends = Instant::now() + good_for;
        let mut pause = self.lease / 3;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
            let asked = Instant::now();
            let renewed = tokio::time::timeout_at(ends, self.renew(&held)).await;
            let problem = match renewed {
                Ok(Ok(())) => {
                    (ends, pause) = (asked + good_for, self.lease / 3);
                    continue;
                }
                Ok(Err(Unkept::Lost(lost))) => return Err(lost),
                Ok(Err(Unkept::NotNow(StoreError(problem)))) => problem,
                Err(_) => "Redis does not answer".to_owned(),
            };
            if Instant::now() >= ends {
                return Err(Lost(format!(
                    "the leases of this process could not be renewed for {good_for:?}, and another one may take them: \
                     {problem}"
                )));
            }
            warn!(problem, "the leases of this process could not be renewed; it tries again");
            pause = (self.lease / 20).min(ends - Instant::now());
        }
        if let Err(problem) = self.leases.release(&held).await {
            warn!(%problem, "the leases could not be given up; they end by themselves");
        }
        Ok(())
    }

    /// Whether every shard is this process' own, for a whole lease from now on: one that stood still may have lost them
    /// before it knows.
    ///
    /// # Errors
    /// When one is not, or Redis cannot be asked.
    pub(super) async fn has_all(&self) -> Result<(), StoreError> {
        let held = self.held.all();
        if held.len() < usize::from(SHARDS) {
            return Err(StoreError("this process has not taken all shards of the store".to_owned()));
        }
        self.renew(&held).await.map_err(|unkept| match unkept {
            Unkept::Lost(Lost(problem)) | Unkept::NotNow(StoreError(problem)) => StoreError(problem),
        })
    }

    async fn renew(&self, held: &[(Shard, Fence)]) -> Result<(), Unkept> {
        if !self.is_the_same().await? {
            let problem = format!("{REPLACED}; this process must load everything anew");
            return Err(Unkept::Lost(Lost(problem)));
        }
        let kept: Vec<Kept> = self.leases.renew(held).await?.into_iter().collect::<Result<_, _>>()?;
        let lost = kept.iter().zip(held).find_map(|(kept, (shard, _))| match kept {
            Kept::Done => None,
            Kept::Fenced(epoch) => Some((shard, epoch)),
        });
        let Some((shard, epoch)) = lost else { return Ok(()) };
        Err(Unkept::Lost(Lost(format!(
            "another coordinator has taken shard {} with epoch {epoch}; two of them share this store: give each its own \
             database of Redis, or run one",
            shard.number()
        ))))
    }
}
