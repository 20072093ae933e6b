//! Sees every commit and every answer, and knows what must hold after each.
//!
//! What a failover to a lagging replica drops is no longer part of what was committed: nothing may be lost or done
//! twice but by that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use skein_coordinator::store::redis::shard::Shard;
use skein_coordinator::store::{Batch, Fence, Mark, Version};
use skein_shared::id::EntityKey;
use uuid::Uuid;

/// A commit.
#[derive(Clone)]
pub struct Entry {
    pub batch: Arc<Batch>,
    pub fence: Fence,
}

/// What was told of what was decided.
#[derive(Clone, Copy, Debug)]
pub struct Floor {
    pub run: u64,
    pub version: u64,
}

#[derive(Clone, Default)]
struct Committed {
    granted: BTreeMap<Shard, Fence>,
    log: BTreeMap<EntityKey, Vec<Entry>>,
}

/// What is known from outside.
#[derive(Default)]
pub struct Witness {
    now: Committed,
    replica: Committed,
    /// Highest epoch of each shard, over failovers too.
    epochs: BTreeMap<Shard, u64>,
    /// On which batch each was decided.
    decided: BTreeMap<Uuid, Uuid>,
    /// The highest version that anybody was told of.
    told: BTreeMap<EntityKey, u64>,
    /// By which batch each delivery took effect.
    applied: BTreeMap<(EntityKey, EntityKey, u64, u64), Uuid>,
    answered: BTreeMap<(EntityKey, Uuid), Uuid>,
    /// Batches that a failover has dropped.
    pub dropped: BTreeSet<Uuid>,
    pub run: u64,
    pub broken: Vec<String>,
}

impl Witness {
    /// A lease was taken by a node that had seen epochs up to one. Those that it has not seen are passed too, unless
    /// the clocks of the store's servers are too far apart for that.
    pub fn granted(&mut self, shard: Shard, fence: Fence, seen: u64, clocks_apart: bool) {
        let highest = self.epochs.entry(shard).or_default();
        if fence.epoch.0 <= *highest && (seen >= *highest || !clocks_apart) {
            let problem = format!("epochs: shard {} got {} after {highest}", shard.number(), fence.epoch);
            self.broken.push(problem);
        }
        *highest = fence.epoch.0.max(*highest);
        self.now.granted.insert(shard, fence);
    }

    pub fn released(&mut self, shard: Shard) {
        self.now.granted.remove(&shard);
    }

    /// The batch that an entity stands at.
    pub fn base(&self, key: &EntityKey) -> Uuid {
        self.now.log.get(key).and_then(|log| log.last()).map_or(Uuid::nil(), |entry| entry.batch.id)
    }

    pub fn decided(&mut self, batch: Uuid, on: Uuid) {
        self.decided.insert(batch, on);
    }

    /// The store has taken a batch. The same one again is nothing new.
    pub fn committed(&mut self, fence: Fence, batch: &Arc<Batch>) {
        let key = &batch.key;
        let last = self.base(key);
        if last == batch.id {
            return;
        }
        if self.now.granted.get(&Shard::of(key)) != Some(&fence) {
            self.broken
                .push(format!("fences: {key} was written by an owner that had lost it ({})", fence.epoch));
        }
        if self.decided.get(&batch.id) != Some(&last) {
            self.broken.push(format!("versions: {key} was written by a decision on another state"));
        }
        for reply in &batch.replies {
            if self.answered.insert((key.clone(), reply.request), batch.id).is_some() {
                self.broken.push(format!("requests: {} was carried out twice by {key}", reply.request));
            }
        }
        let entry = Entry { batch: Arc::clone(batch), fence };
        self.now.log.entry(key.clone()).or_default().push(entry);
    }

    /// A delivery took effect by a commit, unless a failover has dropped it since.
    pub fn applied(&mut self, target: &EntityKey, mark: &Mark, batch: Uuid) {
        if !self.log(target).iter().rev().any(|entry| entry.batch.id == batch) {
            return;
        }
        let id = (target.clone(), mark.source.clone(), mark.epoch.0, mark.sequence);
        if self.applied.insert(id, batch).is_some() {
            self.broken.push(format!("effects: {target} took in {mark:?} twice"));
        }
    }

    /// What a question that is asked now must at least see.
    pub fn floor(&self, key: &EntityKey) -> Floor {
        Floor { run: self.run, version: self.told.get(key).copied().unwrap_or(0) }
    }

    /// An entity answered a question that was asked then.
    pub fn told(&mut self, key: &EntityKey, version: Version, asked: Floor) {
        if asked.run != self.run {
            return;
        }
        if version.0 < asked.version {
            self.broken.push(format!(
                "reads: {key} answered as of version {} what was asked after {} was told",
                version.0, asked.version
            ));
        }
        let stands = self.now.log.get(key).map_or(0, |log| log.len() as u64);
        if version.0 > stands {
            let problem = format!("durability: {key} told of version {} and stands at {stands}", version.0);
            self.broken.push(problem);
        }
        let told = self.told.entry(key.clone()).or_default();
        *told = version.0.max(*told);
    }

    pub fn replicate(&mut self) {
        self.replica = self.now.clone();
    }

    /// What the replica lacks has not happened.
    pub fn fail_over(&mut self) {
        self.run += 1;
        self.now = self.replica.clone();
        let kept: BTreeSet<Uuid> = self.now.log.values().flatten().map(|entry| entry.batch.id).collect();
        self.dropped.extend(self.decided.keys().filter(|id| !kept.contains(*id)));
        self.answered.retain(|_, batch| kept.contains(batch));
        self.told.clear();
        self.applied.retain(|_, batch| kept.contains(batch));
    }

    /// Every commit of an entity, oldest first.
    pub fn log(&self, key: &EntityKey) -> &[Entry] {
        self.now.log.get(key).map_or(&[], Vec::as_slice)
    }

    /// The events of all entities of a kind, in the order of each.
    pub fn events(&self, key: &EntityKey) -> impl Iterator<Item = Value> {
        self.log(key).iter().flat_map(|entry| entry.batch.events.iter().map(|event| event.body.value()))
    }

    /// In which version of an entity a request took effect, if it did.
    pub fn version_of(&self, key: &EntityKey, request: Uuid) -> Option<u64> {
        let batch = self.answered.get(&(key.clone(), request))?;
        let place = self.log(key).iter().position(|entry| entry.batch.id == *batch)?;
        Some(place as u64 + 1)
    }
}
