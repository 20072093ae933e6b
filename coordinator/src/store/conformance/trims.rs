//! What trimming forgets, and what it must not.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use skein_shared::id::{EntityKey, Kind};
use skein_shared::limits::REPLY_KEEP;
use skein_shared::time::Timestamp;

use super::{Backend, START, agent, batch, commit, effect, event, mark, pool, put, reply, swarm};
use crate::store::{Batch, OutboxEntry, Store, StoredReply, TrimPlan, Trimmed, Version};

/// A plan that forgets nothing.
pub fn nothing() -> TrimPlan {
    TrimPlan {
        now: at(1000),
        events_before: Timestamp::ZERO,
        events_per_entity: u64::MAX >> 1,
        replies_before: Timestamp::ZERO,
        marks_before: Timestamp::ZERO,
        archived_before: Timestamp::ZERO,
        dead_letters_before: Timestamp::ZERO,
        loose_before: Timestamp::ZERO,
        limit: 100,
    }
}

fn at(expected: u64) -> Timestamp {
    Timestamp(START.0 + expected)
}

/// Ten batches, the n-th at [`at`] n, with something of each sort.
async fn filled(backend: &impl Backend) -> Arc<dyn Store> {
    let store = backend.open(START).await;
    for expected in 0..10 {
        let next = Batch {
            documents: vec![put(&format!("task/{expected}"), expected >= 5, None)],
            events: vec![event(expected)],
            seen: vec![mark(&agent(&format!("a{expected}")), 1, 1)],
            replies: vec![reply(expected)],
            outbox: vec![effect(expected + 1)],
            ..batch(&pool(), expected)
        };
        commit(&store, next).await;
    }
    store
}

async fn step(store: &Arc<dyn Store>, plan: &TrimPlan) -> Trimmed {
    store.trim(plan.clone()).await.unwrap()
}

pub(super) async fn what_loading_needs_outlives_events(backend: &impl Backend) {
    let store = filled(backend).await;
    assert!(step(&store, &nothing()).await.is_nothing());
    let before = store.load(&pool()).await.unwrap();
    let all = TrimPlan { events_before: at(100), ..nothing() };
    assert_eq!(step(&store, &all).await, Trimmed { records: 10, ..Trimmed::default() });
    assert!(step(&store, &all).await.is_nothing());
    assert_eq!(store.records(0, 100).await.unwrap(), []);
    let after = store.load(&pool()).await.unwrap();
    assert_eq!((after.marks, after.replies), (before.marks, before.replies));
    assert_eq!((after.version, after.sequence, after.live), (before.version, before.sequence, before.live));
    let replies = TrimPlan { replies_before: at(4), ..all };
    assert_eq!(step(&store, &replies).await, Trimmed { replies: 4, ..Trimmed::default() });
    assert!(step(&store, &replies).await.is_nothing());
    let kept: Vec<_> = (4..10).map(reply).collect();
    assert_eq!(store.load(&pool()).await.unwrap().replies, kept);
    assert_eq!(commit(&store, batch(&pool(), 10)).await, Version(11));
}

pub(super) async fn each_entity_keeps_its_newest_events(backend: &impl Backend) {
    let store = filled(backend).await;
    for expected in 0..2 {
        let next = Batch { events: vec![event(expected)], ..batch(&swarm("quiet"), expected) };
        commit(&store, next).await;
    }
    let newest = TrimPlan { events_per_entity: 3, ..nothing() };
    assert_eq!(step(&store, &newest).await, Trimmed { records: 7, ..Trimmed::default() });
    let left = store.records(0, 100).await.unwrap();
    let versions: Vec<u64> = left.iter().filter(|r| r.key == pool()).map(|r| r.version.0).collect();
    assert_eq!(versions, [8, 9, 10]);
    assert_eq!(left.len(), 5, "an entity with few records keeps them");
}

pub(super) async fn a_step_keeps_to_its_limit(backend: &impl Backend) {
    let store = filled(backend).await;
    let small = TrimPlan { events_before: at(6), replies_before: at(6), limit: 4, ..nothing() };
    assert_eq!(step(&store, &small).await, Trimmed { records: 4, replies: 4, ..Trimmed::default() });
    assert_eq!(step(&store, &small).await, Trimmed { records: 2, replies: 2, ..Trimmed::default() });
    assert!(step(&store, &small).await.is_nothing());
    assert_eq!(store.records(0, 100).await.unwrap().len(), 4);
    assert_eq!(store.load(&pool()).await.unwrap().replies.len(), 4);
}

/// What is dated later than now waits for its time, and nothing waits for it.
pub(super) async fn what_a_clock_that_was_ahead_has_written_holds_up_no_trim(backend: &impl Backend) {
    const HOUR: Duration = Duration::from_secs(3600);
    const DAY: Duration = Duration::from_secs(86_400);
    let store = backend.open(START).await;
    // Of one swarm, as neighbours in every store. Those that are ahead are more than a small step may look at.
    let (ahead, sound) = (pool(), EntityKey::of(Kind::Channels, &pool().swarm));
    for (key, at, batches) in [(ahead, START + DAY, 12), (sound, START, 3)] {
        for expected in 0..batches {
            let replies = vec![StoredReply { at, ..reply(expected) }];
            let next = Batch { at, replies, events: vec![event(expected)], ..batch(&key, expected) };
            commit(&store, next).await;
        }
    }
    let forgotten = async |now: Timestamp| {
        let old =
            TrimPlan { now, events_before: now - HOUR, replies_before: now - HOUR, limit: 1, ..nothing() };
        let (mut records, mut replies) = (0, 0);
        for _ in 0..20 {
            let trimmed = step(&store, &old).await;
            records += trimmed.records;
            replies += trimmed.replies;
        }
        (records, replies)
    };
    assert_eq!(forgotten(START + HOUR * 2).await, (3, 3));
    assert_eq!(forgotten(START + HOUR * 3).await, (0, 0));
    assert_eq!(forgotten(START + DAY + HOUR).await, (0, 0), "it is no older than that");
    assert_eq!(forgotten(START + DAY + HOUR * 2).await, (12, 12));
}

/// More batches than are read at once, of which the oldest are over.
pub(super) async fn loading_gives_the_replies_that_may_be_asked_for(backend: &impl Backend) {
    let store = backend.open(START).await;
    let when = |expected| if expected < 40 { at(expected) } else { at(expected) + REPLY_KEEP };
    for part in (0..600).collect::<Vec<u64>>().chunks(100) {
        let answered = part.iter().map(|&expected| {
            let replies = vec![reply(expected)];
            commit(&store, Batch { at: when(expected), replies, ..batch(&pool(), expected) })
        });
        join_all(answered).await;
    }
    let kept: Vec<_> = (40..600).map(reply).collect();
    assert_eq!(store.load(&pool()).await.unwrap().replies, kept);
}

pub(super) async fn archives_marks_and_dead_letters_go_by_age(backend: &impl Backend) {
    let store = filled(backend).await;
    for entry in store.outbox(0, 2).await.unwrap() {
        let buried_at = at(entry.sequence);
        store.bury(entry.place(), "late".to_owned(), buried_at).await.unwrap();
    }
    let old =
        TrimPlan { marks_before: at(3), archived_before: at(4), dead_letters_before: at(2), ..nothing() };
    let want = Trimmed { marks: 3, documents: 4, dead_letters: 1, ..Trimmed::default() };
    assert_eq!(step(&store, &old).await, want);
    assert!(step(&store, &old).await.is_nothing());
    assert_eq!(store.load(&pool()).await.unwrap().marks.len(), 7);
    assert_eq!(store.documents(None, 100).await.unwrap().len(), 6);
    assert_eq!(store.dead_letters(0, 10).await.unwrap().len(), 1);
    let everything = TrimPlan { archived_before: at(100), ..nothing() };
    assert_eq!(step(&store, &everything).await.documents, 1, "live documents stay");
    assert_eq!(store.load(&pool()).await.unwrap().live.len(), 5);
}

pub(super) async fn positions_are_not_given_out_twice(backend: &impl Backend) {
    let store = filled(backend).await;
    let record = store.records(0, 100).await.unwrap().last().unwrap().position;
    let entries = store.outbox(0, 100).await.unwrap();
    let last = entries.last().unwrap().position;
    store.delivered(entries.iter().map(OutboxEntry::place).collect()).await.unwrap();
    let all = TrimPlan { events_before: at(100), replies_before: at(100), ..nothing() };
    while !step(&store, &all).await.is_nothing() {}
    drop(store);
    let store = backend.open(START).await;
    let next = Batch { events: vec![event(10)], outbox: vec![effect(11)], ..batch(&pool(), 10) };
    commit(&store, next).await;
    assert!(store.records(0, 1).await.unwrap()[0].position > record);
    assert!(store.outbox(0, 1).await.unwrap()[0].position > last);
}
