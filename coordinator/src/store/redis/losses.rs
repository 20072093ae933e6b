//! What this process acknowledged, and a server that came back does not have any more.

use skein_shared::time::Timestamp;
use tracing::warn;

use super::Redis;
use super::connection::key_of;
use super::incident::{Incident, LostWrites};
use crate::store::StoreError;

impl Redis {
    /// Writes down, for people to read, what this process acknowledged and the server does not have any more.
    pub(super) async fn tell_losses(&self, at: Timestamp) -> Result<(), StoreError> {
        let until = self.recent.end_life();
        let mut standing = self.reader.standing(&self.recent.entities()).await?;
        for (key, versions) in self.recent.doubtful(&standing) {
            let kept = match self.reader.kept(&key, versions).await {
                Ok(kept) => kept,
                // Nobody can say then.
                Err(StoreError(problem)) if key_of(&problem).is_some() => {
                    self.aside.watch.failed(&problem);
                    continue;
                }
                Err(problem) => return Err(problem),
            };
            standing.entry(key).or_default().kept = kept;
        }
        let lost = self.recent.lost(until, &standing);
        if !lost.is_empty() {
            self.tell(at, lost).await?;
        }
        // Not before it is written down: this is tried again until it is.
        self.recent.forget(until);
        Ok(())
    }

    async fn tell(&self, at: Timestamp, lost: Vec<LostWrites>) -> Result<(), StoreError> {
        let commits: usize = lost.iter().map(|writes| writes.commits).sum();
        self.aside.watch.lost("commits", &lost_commits(commits));
        let incident = Incident { at, node: self.owner.clone(), lost };
        self.incidents.tell(&incident).await?;
        let Incident { lost, .. } = incident;
        for writes in &lost {
            warn!(
                entity = %writes.entity, commits = writes.commits, since = %writes.since, documents = ?writes.documents,
                "Redis has lost acknowledged writes"
            );
        }
        metrics::counter!("skein_store_lost_writes_total")
            .increment(lost.iter().map(|writes| writes.commits as u64).sum());
        Ok(())
    }
}

/// What is said of a server that came back with less than it had acknowledged.
fn lost_commits(count: usize) -> String {
    format!(
        "Redis has lost {count} commits that it had acknowledged: what was done in them is undone, and agents may do it \
         again; look at the incidents, at the log of Redis, at `appendfsync`, and at the replica that took over"
    )
}
