//! What this process acknowledged lately, so that it can be told what a failover threw away.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;
use tokio::time::Instant;
use uuid::Uuid;

use crate::store::{Batch, Version};

/// Replicas that lag further behind than this are no longer counted by a primary with `min-replicas-max-lag 10`.
pub(super) const KEEP: Duration = Duration::from_secs(30);
/// Under a load that makes more of them in that time, only the last ones are kept.
const MOST: usize = 50_000;

/// Acknowledged batches of the last half minute, oldest first.
#[derive(Default)]
pub(super) struct Recent(Mutex<VecDeque<Acknowledged>>);

struct Acknowledged {
    when: Instant,
    key: EntityKey,
    version: Version,
    batch: Uuid,
    at: Timestamp,
    documents: Vec<String>,
}

/// How an entity stands in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) version: Version,
    /// The last batch.
    pub(super) batch: Option<Uuid>,
}

/// Acknowledged writes of one entity that are gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostWrites {
    pub entity: EntityKey,
    pub commits: usize,
    /// When the first of them was made.
    pub since: Timestamp,
    /// What they had written: the keys of tasks, locks and the like.
    pub documents: Vec<String>,
}

impl Recent {
    /// Takes note of a batch that was acknowledged.
    pub(super) fn note(&self, batch: &Batch) {
        let now = Instant::now();
        let documents = batch.documents.iter().map(|change| change.key().to_owned()).collect();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while all.front().is_some_and(|oldest| now - oldest.when > KEEP || all.len() >= MOST) {
            all.pop_front();
        }
        all.push_back(Acknowledged {
            when: now,
            key: batch.key.clone(),
            version: Version(batch.expected.0 + 1),
            batch: batch.id,
            at: batch.at,
            documents,
        });
    }

    /// The entities of which something was acknowledged.
    pub(super) fn entities(&self) -> Vec<EntityKey> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut keys: Vec<EntityKey> = all.iter().map(|one| one.key.clone()).collect();
        keys.sort();
        keys.dedup();
        keys
    }

    /// What the store does not have any more of what was acknowledged up to a moment, given how the entities stand there.
    pub(super) fn lost(&self, until: Instant, standing: &BTreeMap<EntityKey, Standing>) -> Vec<LostWrites> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lost: BTreeMap<EntityKey, LostWrites> = BTreeMap::new();
        for one in all.iter().take_while(|one| one.when <= until) {
            let is_there = standing.get(&one.key).is_some_and(|stands| stands.has(one));
            if is_there {
                continue;
            }
            let writes = lost.entry(one.key.clone()).or_insert_with(|| LostWrites {
                entity: one.key.clone(),
                commits: 0,
                since: one.at,
                documents: Vec::new(),
            });
            writes.commits += 1;
            writes.documents.extend(one.documents.iter().cloned());
        }
        let mut lost: Vec<LostWrites> = lost.into_values().collect();
        for writes in &mut lost {
            writes.documents.sort_unstable();
            writes.documents.dedup();
        }
        lost
    }

    /// Forgets what was acknowledged up to a moment, once what is lost of it was told.
    pub(super) fn forget(&self, until: Instant) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| one.when > until);
    }
}

impl Standing {
    /// Of an entity that cannot be read: nobody can say that something of it is lost.
    pub(super) const UNKNOWN: Self = Self { version: Version(u64::MAX), batch: None };

    /// Whether a batch is in the store. Of one that others followed the version alone is known.
    fn has(&self, one: &Acknowledged) -> bool {
        self.version > one.version || (self.version == one.version && self.batch == Some(one.batch))
    }
}

#[cfg(test)]
mod tests {
    use skein_shared::entity::DocumentChange;
    use skein_shared::id::{Kind, Name};

    use super::*;
    use crate::store::TimerChange;

    fn key(kind: Kind) -> EntityKey {
        EntityKey::of(kind, &Name::parse("default").unwrap())
    }

    fn batch(kind: Kind, expected: u64, documents: &[&str]) -> Batch {
        let change = |key: &&str| DocumentChange::Delete { key: (*key).to_owned() };
        Batch {
            key: key(kind),
            expected: Version(expected),
            after: Uuid::nil(),
            id: Uuid::from_u128(expected.into()),
            at: Timestamp(expected * 10),
            documents: documents.iter().map(change).collect(),
            events: Vec::new(),
            seen: Vec::new(),
            replies: Vec::new(),
            timer: TimerChange::Keep,
            outbox: Vec::new(),
            blobs: Vec::new(),
        }
    }

    fn standing(kind: Kind, version: u64, batch: u128) -> (EntityKey, Standing) {
        (key(kind), Standing { version: Version(version), batch: Some(Uuid::from_u128(batch)) })
    }

    #[tokio::test]
    async fn what_a_failover_threw_away_is_listed_once_by_entity() {
        let recent = Recent::default();
        for (kind, expected, documents) in [
            (Kind::Pool, 4, &["task/a"][..]),
            (Kind::Pool, 5, &["task/b", "task/a"]),
            (Kind::Pool, 6, &["task/c"]),
            (Kind::Lockspace, 1, &["lock/x"]),
            (Kind::Inboxes, 0, &["message/1"]),
        ] {
            recent.note(&batch(kind, expected, documents));
        }
        assert_eq!(recent.entities().len(), 3);
        // The pool was thrown back to its fifth version; another one has written a second of the lockspace since; of
        // the inboxes there is nothing.
        let now = BTreeMap::from([standing(Kind::Pool, 5, 4), standing(Kind::Lockspace, 2, 77)]);
        let until = Instant::now();
        let lost = recent.lost(until, &now);
        let of = |kind| lost.iter().find(|writes| writes.entity == key(kind)).unwrap();
        assert_eq!((of(Kind::Pool).commits, of(Kind::Pool).since), (2, Timestamp(50)));
        assert_eq!(of(Kind::Pool).documents, ["task/a", "task/b", "task/c"]);
        assert_eq!(of(Kind::Lockspace).documents, ["lock/x"]);
        assert_eq!(of(Kind::Inboxes).documents, ["message/1"]);
        assert_eq!(recent.lost(until, &now), lost, "whoever could not write it down tells it again");
        recent.forget(until);
        assert!(recent.lost(until, &now).is_empty(), "it is told once");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_for_long() {
        let recent = Recent::default();
        recent.note(&batch(Kind::Pool, 0, &[]));
        tokio::time::advance(KEEP + Duration::from_secs(1)).await;
        recent.note(&batch(Kind::Lockspace, 0, &[]));
        assert_eq!(recent.entities(), [key(Kind::Lockspace)]);
    }
}
