//! Carries out what [`plan`](super::plan) decides: says that this node lives, keeps its leases, takes shards that are
//! free, and hands over those that are to be another's.

use std::sync::Arc;
use std::time::Duration;

use skein_shared::mutation::{self, Mutation};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Cluster;
use super::member::Member;
use super::plan::{self, Situation};
use crate::store::redis::lease::{Acquired, Kept, Lease};
use crate::store::redis::shard::{SHARDS, Shard};
use crate::store::{Fence, StoreError};

/// For how long it holds that a node says that it lives, as a part of a lease. It has to be off everybody's list before
/// its leases have ended: or else those who take its shards would give them back to it.
const LIVES: u32 = 2;
/// How often it says so.
const BEAT: u32 = 6;
/// How often the leases are looked at when nobody says that one is free.
const LOOK: Duration = Duration::from_millis(250);
/// How long entities may take to leave a shard that is handed over. After that their writes are refused.
const LEAVE: Duration = Duration::from_secs(5);

pub(super) struct Keeper {
    cluster: Arc<Cluster>,
    /// When the next sign of life is due, and the next renewal.
    beat: Instant,
    renew: Instant,
    /// Since when the members are the same.
    stable: Instant,
    /// Since when each shard has been seen without an owner.
    free: Vec<Option<Instant>>,
    /// What was last said of itself.
    said: Option<Member>,
}

impl Keeper {
    pub(super) fn new(cluster: Arc<Cluster>) -> Self {
        let now = Instant::now();
        let free = vec![None; usize::from(SHARDS)];
        Self { cluster, beat: now, renew: now, stable: now, free, said: None }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut told = false;
        while !stop.is_cancelled() {
            // Never broken off: a lease that was taken has to be known.
            let stepped = self.step().await;
            self.lapse();
            match stepped {
                Ok(()) => told = false,
                Err(problem) if !told => {
                    warn!(%problem, "the cluster's state cannot be read or written; it is tried again");
                    told = true;
                }
                Err(_) => {}
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.cluster.nudge.notified() => {}
                () = self.cluster.store.doubted() => self.renew = Instant::now(),
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        self.end().await;
    }

    /// One round. The leases come first: what they are worth runs out.
    async fn step(&mut self) -> Result<(), StoreError> {
        self.renew().await?;
        self.beat().await?;
        let leases = self.cluster.store.leases().all().await?;
        let steps = self.decide(&leases);
        self.cluster.table.leases_are(leases);
        self.acquire(&steps.acquire).await?;
        if !steps.hand_over.is_empty() {
            self.give_up(&steps.hand_over).await?;
            // The next ones at once.
            self.cluster.nudge.notify_one();
        }
        Ok(())
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        let asked = Instant::now();
        if asked < self.renew {
            return Ok(());
        }
        if !self.cluster.store.is_the_same().await? {
            warn!("Redis was restarted or replaced by a replica; everything is loaded anew");
            self.cluster.store.begin_anew().await?;
            info!("relies on Redis as it is now");
        }
        let held = self.cluster.store.held().all();
        let kept = self.cluster.store.leases().renew(&held).await?;
        self.renew = asked + self.cluster.settings.lease / 3;
        let mut lost = Vec::new();
        for ((shard, fence), kept) in held.into_iter().zip(kept) {
            match kept {
                // A lease counts from before it was asked for, and ends here before it ends there.
                Ok(Kept::Done) => self.cluster.store.held().extend(shard, fence, self.until(asked)),
                Ok(Kept::Fenced(_)) if mutation::is_on(Mutation::EternalLease) => {}
                Ok(Kept::Fenced(_)) | Err(_) => lost.push(shard),
            }
        }
        if !lost.is_empty() {
            warn!(
                shards = lost.len(),
                "shards of this node were taken by others, or their leases cannot be read"
            );
            self.cluster.store.held().lose(&lost);
        }
        Ok(())
    }

    fn until(&self, asked: Instant) -> Instant {
        if mutation::is_on(Mutation::EternalLease) {
            return asked + self.cluster.settings.lease * 1000;
        }
        asked + self.cluster.settings.lease * 4 / 5
    }

    /// Drops what could not be renewed in time, before another node may take it.
    fn lapse(&self) {
        let lapsed = self.cluster.store.held().lapse();
        if !lapsed.is_empty() {
            warn!(
                shards = lapsed.len(),
                "leases could not be renewed in time; their entities leave this node"
            );
        }
    }

    async fn beat(&mut self) -> Result<(), StoreError> {
        let (now, me) = (Instant::now(), self.cluster.me());
        if now < self.beat && self.said.as_ref() == Some(&me) {
            return Ok(());
        }
        let record = serde_json::to_string(&me).map_err(|error| StoreError(error.to_string()))?;
        let said =
            self.cluster.store.members().beat(&me.id, &record, self.cluster.settings.lease / LIVES).await?;
        self.beat = now + self.cluster.settings.lease / BEAT;
        self.said = Some(me);
        // Whoever writes a record that this program cannot read gets no shards from it, and none are taken from it.
        let members = said.iter().filter_map(|record| serde_json::from_str(record).ok()).collect();
        if self.cluster.table.members_are(members) {
            self.stable = now;
        }
        Ok(())
    }

    fn decide(&mut self, leases: &[Lease]) -> plan::Steps {
        let now = Instant::now();
        let mut held = vec![false; usize::from(SHARDS)];
        for (shard, _) in self.cluster.store.held().all() {
            held[usize::from(shard.number())] = true;
        }
        for (free, lease) in self.free.iter_mut().zip(leases) {
            *free = if lease.held { None } else { free.or(Some(now)) };
        }
        let free_for: Vec<Duration> =
            self.free.iter().map(|since| since.map_or(Duration::ZERO, |since| now - since)).collect();
        let me = self.cluster.me();
        plan::plan(&Situation {
            // Whoever gives everything away does not wait.
            settle: if me.draining { Duration::ZERO } else { self.cluster.settings.settle },
            me: &me,
            members: &self.cluster.table.members(),
            leases,
            held: &held,
            free_for: &free_for,
            stable_for: now - self.stable,
        })
    }

    async fn acquire(&mut self, shards: &[Shard]) -> Result<(), StoreError> {
        if shards.is_empty() {
            return Ok(());
        }
        let asked = Instant::now();
        let mut taken = 0;
        for (shard, answer) in shards.iter().zip(self.cluster.store.leases().acquire(shards).await?) {
            match answer {
                Ok(Acquired::Taken(fence)) => {
                    self.cluster.store.held().take(*shard, fence, Some(self.until(asked)));
                    let Fence { epoch, .. } = fence;
                    self.cluster.table.hint(*shard, &self.cluster.settings.id, epoch.0);
                    taken += 1;
                }
                // Redis was emptied since it was last looked at: that look is due.
                Ok(Acquired::Foreign) => self.renew = Instant::now(),
                // Somebody was quicker, or nobody can have it: the store tells of that.
                Ok(Acquired::Held { .. }) | Err(_) => {}
            }
        }
        if taken > 0 {
            info!(shards = taken, "took shards");
        }
        Ok(())
    }

    /// Lets nothing new begin in shards, waits until what is in flight is done, and gives them up.
    async fn give_up(&self, shards: &[Shard]) -> Result<(), StoreError> {
        let store = &self.cluster.store;
        let held: Vec<(Shard, Fence)> =
            store.held().all().into_iter().filter(|(shard, _)| shards.contains(shard)).collect();
        store.held().close(shards);
        if let Some(tenants) = self.cluster.tenants.get()
            && tokio::time::timeout(LEAVE, tenants.leave(shards)).await.is_err()
        {
            warn!(
                shards = shards.len(),
                "entities did not leave their shards in time; their writes are refused now"
            );
        }
        let released = store.leases().release(&held).await;
        store.held().lose(shards);
        released?;
        self.cluster.released.send_modify(|count| *count += 1);
        info!(shards = shards.len(), "gave up shards");
        Ok(())
    }

    async fn end(&self) {
        let held: Vec<Shard> = self.cluster.store.held().all().into_iter().map(|(shard, _)| shard).collect();
        let given_up = if held.is_empty() { Ok(()) } else { self.give_up(&held).await };
        let left = self.cluster.store.members().leave(&self.cluster.settings.id).await;
        if let Err(problem) = given_up.and(left) {
            warn!(%problem, "the leases could not be given up; they end by themselves");
        }
    }
}
