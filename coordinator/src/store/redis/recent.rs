//! What this process acknowledged lately, so that it can be told what a failover threw away.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
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

/// Acknowledged batches of the last half minute.
#[derive(Default)]
pub(super) struct Recent(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// Oldest first.
    all: VecDeque<Acknowledged>,
    /// Those that nobody could say anything of. What follows one of them in the store says that it is there, and its
    /// caller is told so by that alone.
    unsure: Vec<Acknowledged>,
    /// Rises when it is looked for what is lost: whatever the server answers to what was sent before would be missed.
    life: u64,
}

struct Acknowledged {
    /// When it was, or might have been.
    when: Instant,
    key: EntityKey,
    version: Version,
    batch: Uuid,
    at: Timestamp,
    /// Whether it has events, so that the store keeps a record of it for a while.
    recorded: bool,
    documents: Vec<String>,
}

/// How an entity stands in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) version: Version,
    /// The last batch.
    pub(super) batch: Option<Uuid>,
    pub(super) kept: Kept,
}

/// The records that the store keeps of an entity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    /// When those of the doubtful versions that have one were made.
    pub(super) made: BTreeMap<Version, Timestamp>,
    /// The first version of all that has one: the oldest are forgotten first.
    pub(super) first: Option<Version>,
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

impl Acknowledged {
    fn now(batch: &Batch) -> Self {
        Self {
            when: Instant::now(),
            key: batch.key.clone(),
            version: Version(batch.expected.0 + 1),
            batch: batch.id,
            at: batch.at,
            recorded: !batch.events.is_empty(),
            documents: batch.documents.iter().map(|change| change.key().to_owned()).collect(),
        }
    }
}

impl Recent {
    /// For what is sent now.
    pub(super) fn life(&self) -> u64 {
        self.lock().life
    }

    /// Takes note of a batch that was acknowledged and sent in this life. False if that is over: then nobody may take
    /// it for acknowledged.
    pub(super) fn note(&self, batch: &Batch, life: u64) -> bool {
        let mut inner = self.lock();
        if inner.life != life {
            return false;
        }
        let Inner { all, unsure, .. } = &mut *inner;
        let now = Instant::now();
        unsure.retain(|one| one.batch != batch.id && now - one.when <= KEEP);
        let before = unsure.iter().position(|one| one.key == batch.key && one.batch == batch.after);
        let before = before.map(|place| Acknowledged { when: now, ..unsure.swap_remove(place) });
        while all.front().is_some_and(|oldest| now - oldest.when > KEEP || all.len() >= MOST) {
            all.pop_front();
        }
        all.extend(before);
        all.push_back(Acknowledged::now(batch));
        true
    }

    /// Takes note of a batch that was sent in this life, and of which nobody knows what became.
    pub(super) fn doubt(&self, batch: &Batch, life: u64) {
        let mut inner = self.lock();
        if inner.life == life && inner.unsure.len() < MOST {
            inner.unsure.push(Acknowledged::now(batch));
        }
    }

    /// Takes nothing more that was sent before. Gives the moment up to which all is known.
    pub(super) fn end_life(&self) -> Instant {
        let mut inner = self.lock();
        inner.life += 1;
        inner.unsure.clear();
        Instant::now()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entities of which something was acknowledged.
    pub(super) fn entities(&self) -> Vec<EntityKey> {
        let inner = self.lock();
        let all = &inner.all;
        let mut keys: Vec<EntityKey> = all.iter().map(|one| one.key.clone()).collect();
        keys.sort();
        keys.dedup();
        keys
    }

    /// The versions of which the standing of their entities does not say whether they are there: another owner may have
    /// gone on from an earlier one.
    pub(super) fn doubtful(
        &self,
        standing: &BTreeMap<EntityKey, Standing>,
    ) -> BTreeMap<EntityKey, Vec<Version>> {
        let inner = self.lock();
        let all = &inner.all;
        let mut doubtful: BTreeMap<EntityKey, Vec<Version>> = BTreeMap::new();
        for one in all.iter() {
            if standing.get(&one.key).is_some_and(|stands| stands.version > one.version) {
                doubtful.entry(one.key.clone()).or_default().push(one.version);
            }
        }
        doubtful
    }

    /// What the store does not have any more of what was acknowledged up to a moment, given how the entities stand
    /// there. Each version builds on the one before it, so what comes behind one that is gone is gone too.
    pub(super) fn lost(&self, until: Instant, standing: &BTreeMap<EntityKey, Standing>) -> Vec<LostWrites> {
        let inner = self.lock();
        let all = &inner.all;
        let acknowledged = || all.iter().take_while(|one| one.when <= until);
        let mut gone: BTreeMap<&EntityKey, Version> = BTreeMap::new();
        for one in acknowledged().filter(|one| standing.get(&one.key).is_none_or(|stands| stands.lacks(one)))
        {
            let first = gone.entry(&one.key).or_insert(one.version);
            *first = one.version.min(*first);
        }
        let mut lost: BTreeMap<EntityKey, LostWrites> = BTreeMap::new();
        let is_gone = |one: &&Acknowledged| gone.get(&one.key).is_some_and(|first| *first <= one.version);
        for one in acknowledged().filter(is_gone) {
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
        self.lock().all.retain(|one| one.when > until);
    }
}

impl Standing {
    /// Of an entity that cannot be read: nobody can say that something of it is lost.
    pub(super) const UNKNOWN: Self =
        Self { version: Version(u64::MAX), batch: None, kept: Kept { made: BTreeMap::new(), first: None } };

    /// Whether a batch is known not to be in the store. Of one that others followed its record tells, or that there is
    /// none though none of its age was forgotten: what took its place had no events.
    fn lacks(&self, one: &Acknowledged) -> bool {
        if self.version <= one.version {
            return self.version < one.version || self.batch != Some(one.batch);
        }
        match self.kept.made.get(&one.version) {
            Some(at) => !one.recorded || *at != one.at,
            None => one.recorded && self.kept.first.is_some_and(|first| first < one.version),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skein_shared::entity::DocumentChange;
    use skein_shared::id::{Kind, Name};

    use super::*;
    use crate::store::{EventRecord, TimerChange};

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
            events: vec![EventRecord { subject: None, body: json!("made").into() }],
            seen: Vec::new(),
            replies: Vec::new(),
            timer: TimerChange::Keep,
            outbox: Vec::new(),
            blobs: Vec::new(),
        }
    }

    fn standing(kind: Kind, version: u64, batch: u128) -> (EntityKey, Standing) {
        let batch = Some(Uuid::from_u128(batch));
        (key(kind), Standing { version: Version(version), batch, ..Standing::default() })
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
            assert!(recent.note(&batch(kind, expected, documents), 0));
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

    /// Its own answer did not come, and the answer to what follows it did.
    #[tokio::test]
    async fn what_is_told_by_what_followed_it_is_acknowledged_too() {
        let recent = Recent::default();
        let following = |expected: u64| Batch {
            after: Uuid::from_u128(u128::from(expected) - 1),
            ..batch(Kind::Pool, expected, &[&format!("task/{expected}")])
        };
        let [first, second, third, fourth] = [4, 5, 6, 7].map(following);
        recent.doubt(&first, 0);
        assert!(recent.note(&second, 0));
        // This one never came, and was sent again.
        recent.doubt(&third, 0);
        recent.doubt(&third, 0);
        assert!(recent.note(&third, 0));
        recent.doubt(&fourth, 0);
        let until = Instant::now();
        let [lost] = recent.lost(until, &BTreeMap::new()).try_into().unwrap();
        assert_eq!((lost.commits, lost.since), (3, Timestamp(40)));
        assert_eq!(lost.documents, ["task/4", "task/5", "task/6"]);
        recent.end_life();
        recent.doubt(&first, 0);
        assert!(recent.lock().unsure.is_empty(), "what is said of a former life is worth nothing");
    }

    #[tokio::test]
    async fn what_another_owner_has_written_over_is_lost_though_its_version_was_passed() {
        let recent = Recent::default();
        for expected in 4..8 {
            recent.note(&batch(Kind::Pool, expected, &[&format!("task/{expected}")]), 0);
        }
        let (pool, mut stands) = standing(Kind::Pool, 20, 77);
        let lost = |stands: &Standing| {
            let now = BTreeMap::from([(pool.clone(), stands.clone())]);
            recent.lost(Instant::now(), &now).pop().map(|writes| writes.documents)
        };
        let now = BTreeMap::from([(pool.clone(), stands.clone())]);
        assert_eq!(recent.doubtful(&now)[&pool], [5, 6, 7, 8].map(Version));
        assert_eq!(lost(&stands), None, "without records nobody can say");
        // The fifth is ours, the sixth has no record, the seventh is another's.
        stands.kept.made = BTreeMap::from([(Version(5), Timestamp(40)), (Version(7), Timestamp(61))]);
        assert_eq!(lost(&stands).unwrap(), ["task/6", "task/7"]);
        stands.kept.made.insert(Version(7), Timestamp(60));
        assert_eq!(lost(&stands), None);
    }

    #[tokio::test]
    async fn what_one_without_events_took_the_place_of_is_lost_unless_its_record_was_forgotten() {
        let recent = Recent::default();
        for expected in 4..8 {
            recent.note(&batch(Kind::Pool, expected, &[&format!("task/{expected}")]), 0);
        }
        recent.note(&Batch { events: Vec::new(), ..batch(Kind::Inboxes, 4, &["message/4"]) }, 0);
        let (pool, mut stands) = standing(Kind::Pool, 20, 77);
        let (inboxes, mut without) = standing(Kind::Inboxes, 20, 78);
        let lost = |stands: &Standing, without: &Standing| {
            let now = BTreeMap::from([(pool.clone(), stands.clone()), (inboxes.clone(), without.clone())]);
            let lost = recent.lost(Instant::now(), &now);
            lost.into_iter().map(|writes| writes.documents).collect::<Vec<_>>().concat()
        };
        stands.kept.made = BTreeMap::from([(Version(5), Timestamp(40)), (Version(8), Timestamp(99))]);
        without.kept.first = Some(Version(1));
        assert_eq!(lost(&stands, &without), ["task/7"], "of the sixth and seventh nobody can say");
        stands.kept.first = Some(Version(5));
        assert_eq!(lost(&stands, &without), ["task/5", "task/6", "task/7"], "they would have records");
        // One that has events took the place of one without, at the very same time.
        without.kept.made = BTreeMap::from([(Version(5), Timestamp(40))]);
        assert_eq!(lost(&stands, &without), ["task/5", "task/6", "task/7", "message/4"]);
    }

    #[tokio::test]
    async fn what_is_answered_while_the_lost_is_looked_for_is_not_acknowledged() {
        let recent = Recent::default();
        let (sent, late) = (recent.life(), batch(Kind::Pool, 5, &["task/b"]));
        assert!(recent.note(&batch(Kind::Pool, 4, &["task/a"]), sent));
        let until = recent.end_life();
        assert!(!recent.note(&late, sent), "it would be told to nobody");
        assert_eq!(recent.lost(until, &BTreeMap::new())[0].documents, ["task/a"]);
        assert!(recent.note(&late, recent.life()));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_for_long() {
        let recent = Recent::default();
        recent.note(&batch(Kind::Pool, 0, &[]), 0);
        tokio::time::advance(KEEP + Duration::from_secs(1)).await;
        recent.note(&batch(Kind::Lockspace, 0, &[]), 0);
        assert_eq!(recent.entities(), [key(Kind::Lockspace)]);
    }
}
