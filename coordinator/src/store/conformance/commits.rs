//! Commits, and what reading gives back of them.

use serde_json::{Value, json};
use skein_shared::entity::DocumentChange;
use skein_shared::fence::Epoch;
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::trims::nothing;
use super::{Backend, START, agent, batch, commit, effect, event, id, mark, pool, put, reply, swarm};
use crate::store::{
    Batch, CommitError, Fence, LivePage, OutboxEntry, OutboxPlace, Store, TimerChange, Version,
};

pub(super) async fn versions_rise_and_conflicts_change_nothing(backend: &impl Backend) {
    let store = backend.open(START).await;
    assert_eq!(store.load(&pool()).await.unwrap().version, Version(0), "a new entity is empty");
    let first = Batch { documents: vec![put("task/1", true, None)], ..batch(&pool(), 0) };
    assert_eq!(commit(&store, first).await, Version(1));
    for wrong in [0, 2] {
        let late = Batch {
            id: Uuid::from_u128(u128::from(wrong)),
            documents: vec![put("task/2", true, None)],
            events: vec![event(2)],
            outbox: vec![effect(1)],
            timer: TimerChange::Set(START),
            ..batch(&pool(), wrong)
        };
        let answer = store.commit(store.fence(&pool()), late.into()).await;
        assert_eq!(answer, Err(CommitError::Conflict { actual: Version(1) }));
    }
    let loaded = store.load(&pool()).await.unwrap();
    assert_eq!((loaded.version, loaded.live.len(), loaded.timer), (Version(1), 1, None));
    assert_eq!(store.outbox(0, 10).await.unwrap(), []);
    assert_eq!(store.records(0, 10).await.unwrap(), []);
    assert_eq!(store.versions().await.unwrap(), [(pool(), Version(1))]);
}

/// The version that it builds on is there, but by another batch than the one that it was decided behind.
pub(super) async fn a_batch_that_follows_another_one_is_refused(backend: &impl Backend) {
    let store = backend.open(START).await;
    let other = Batch { id: Uuid::from_u128(9), ..batch(&pool(), 0) };
    assert_eq!(commit(&store, other.clone()).await, Version(1));
    let refused = CommitError::Conflict { actual: Version(1) };
    let first = Batch { events: vec![event(1)], ..batch(&pool(), 0) };
    let second = Batch { events: vec![event(2)], ..batch(&pool(), 1) };
    for late in [first, second.clone()] {
        assert_eq!(store.commit(store.fence(&pool()), late.into()).await, Err(refused.clone()));
    }
    let loaded = store.load(&pool()).await.unwrap();
    assert_eq!((loaded.version, loaded.batch), (Version(1), other.id));
    assert_eq!(store.records(0, 10).await.unwrap(), []);
    assert_eq!(commit(&store, Batch { after: loaded.batch, ..second }).await, Version(2));
}

pub(super) async fn the_same_batch_again_commits_once(backend: &impl Backend) {
    let store = backend.open(START).await;
    let once = Batch {
        events: vec![event(1)],
        outbox: vec![effect(1)],
        documents: vec![put("task/1", true, Some(json!({"n": 1})))],
        ..batch(&pool(), 0)
    };
    for _ in 0..3 {
        assert_eq!(commit(&store, once.clone()).await, Version(1));
    }
    assert_eq!(store.records(0, 10).await.unwrap().len(), 1);
    assert_eq!(store.outbox(0, 10).await.unwrap().len(), 1);
    assert_eq!(store.load(&pool()).await.unwrap().version, Version(1));
}

/// The answer was lost, and so was its owner: whoever comes next sends the same batch.
pub(super) async fn the_same_batch_is_known_to_a_later_owner(backend: &impl Backend) {
    let once = Batch { events: vec![event(1)], outbox: vec![effect(1)], ..batch(&pool(), 0) };
    let store = backend.open(START).await;
    commit(&store, once.clone()).await;
    drop(store);
    let store = backend.open(START).await;
    assert_eq!(commit(&store, once.clone()).await, Version(1));
    assert_eq!((store.records(0, 10).await.unwrap().len(), store.outbox(0, 10).await.unwrap().len()), (1, 1));
    commit(&store, batch(&pool(), 1)).await;
    let late = store.commit(store.fence(&pool()), once.into()).await;
    assert_eq!(late, Err(CommitError::Conflict { actual: Version(2) }), "it is not the last one any more");
}

/// The first owner commits as fast as it can while a second one takes over.
pub(super) async fn a_takeover_in_mid_flight_loses_and_doubles_nothing(backend: &impl Backend) {
    const BEFORE: u64 = 20;
    let first = backend.open(START).await;
    let (told, mut progress) = tokio::sync::watch::channel(0);
    let committing = tokio::spawn(async move {
        let fence = first.fence(&pool());
        for expected in 0.. {
            let next = Batch { events: vec![event(expected)], ..batch(&pool(), expected) };
            match first.commit(fence, next.into()).await {
                Ok(version) => told.send_replace(version.0),
                Err(refused) => return (expected, refused),
            };
        }
        unreachable!("the range has no end")
    });
    progress.wait_for(|committed| *committed >= BEFORE).await.unwrap();
    let second = backend.open(START).await;
    let stood = second.load(&pool()).await.unwrap().version;
    assert!(stood >= Version(BEFORE));
    assert_eq!(
        commit(&second, Batch { events: vec![event(0)], ..batch(&pool(), stood.0) }).await.0,
        stood.0 + 1
    );
    let (acknowledged, refused) = committing.await.unwrap();
    assert_eq!(refused, CommitError::Fenced(second.fence(&pool()).epoch));
    assert_eq!(Version(acknowledged), stood, "what was acknowledged is what the later owner found");
    assert_eq!(second.records(0, 100_000).await.unwrap().len() as u64, stood.0 + 1);
}

pub(super) async fn a_second_owner_fences_the_first(backend: &impl Backend) {
    let first = backend.open(START).await;
    commit(&first, Batch { outbox: vec![effect(1)], ..batch(&pool(), 0) }).await;
    let second = backend.open(START).await;
    let (old, new) = (first.fence(&pool()), second.fence(&pool()));
    assert!(new.epoch > old.epoch, "a later owner has a higher epoch");
    let fenced = CommitError::Fenced(new.epoch);
    assert_eq!(first.commit(old, batch(&pool(), 1).into()).await, Err(fenced.clone()));
    let effect = second.outbox(0, 1).await.unwrap()[0].place();
    assert_eq!(first.delivered(vec![effect.clone()]).await, Err(fenced.clone()));
    assert_eq!(first.bury(effect, "gone".to_owned(), START).await, Err(fenced.clone()));
    assert_eq!(first.trim(nothing()).await, Err(fenced));
    assert_eq!(second.outbox(0, 10).await.unwrap().len(), 1, "a fenced owner changes nothing");
    let forged = Fence { nonce: !new.nonce, ..new };
    assert!(matches!(second.commit(forged, batch(&pool(), 1).into()).await, Err(CommitError::Fenced(_))));
    assert_eq!(commit(&second, batch(&pool(), 1)).await, Version(2));
}

pub(super) async fn epochs_rise_even_when_the_wall_clock_goes_back(backend: &impl Backend) {
    let first = backend.open(START).await.fence(&pool());
    let earlier = backend.open(Timestamp(START.0 - 1_000_000)).await.fence(&pool());
    let later = backend.open(Timestamp(START.0 + 1_000_000)).await.fence(&pool());
    assert!(first.epoch < earlier.epoch && earlier.epoch < later.epoch);
    assert_ne!(first.nonce, later.nonce);
    if backend.has_a_clock_of_its_own() {
        return;
    }
    assert_eq!(first.epoch, Epoch(START.0));
    assert_eq!(earlier.epoch, Epoch(START.0 + 1));
    assert_eq!(later.epoch, Epoch(START.0 + 1_000_000));
}

pub(super) async fn bodies_merge_at_the_top_level_alone(backend: &impl Backend) {
    let store = backend.open(START).await;
    let bodies = [
        Some(json!({"task": "ü\u{0}\"", "nested": {"a": 1, "b": 2}, "gone": 1, "never": null})),
        None,
        Some(json!({"nested": {"c": 3}, "gone": null, "output": [1, 2.5, true]})),
        Some(json!("not an object")),
    ];
    for (expected, body) in (0..).zip(bodies) {
        let documents = vec![put("task/1", true, body)];
        commit(&store, Batch { documents, ..batch(&pool(), expected) }).await;
    }
    let merged = store.document(&pool(), "task/1").await.unwrap().unwrap();
    assert_eq!(
        merged.body,
        json!({"task": "ü\u{0}\"", "nested": {"c": 3}, "output": [1, 2.5, true]}),
        "top-level fields are replaced, nulls remove"
    );
    assert_eq!((merged.version, merged.at), (Version(4), Timestamp(START.0 + 3)));
    let documents =
        vec![put("task/2", true, Some(json!({"a": 1, "b": 1}))), put("task/2", false, Some(json!({"b": 2})))];
    commit(&store, Batch { documents, ..batch(&pool(), 4) }).await;
    let twice = store.document(&pool(), "task/2").await.unwrap().unwrap();
    assert_eq!((twice.live, twice.body), (false, json!({"a": 1, "b": 2})), "one batch may write twice");
}

pub(super) async fn archived_documents_are_kept_and_not_restored(backend: &impl Backend) {
    let store = backend.open(START).await;
    let documents = vec![put("task/2", true, None), put("task/1", true, None)];
    commit(&store, Batch { documents, ..batch(&pool(), 0) }).await;
    let live = store.load(&pool()).await.unwrap().live;
    assert_eq!(live.iter().map(|document| &document.key).collect::<Vec<_>>(), ["task/1", "task/2"]);
    assert_eq!(live[0].head, json!({"of": "task/1"}).to_string());
    let page = store.live(&pool(), "task/1", 10).await.unwrap();
    assert_eq!(page.documents, live[1..], "the page after a document");
    assert_eq!((page.version, page.batch), (Version(1), id(&pool(), 1)), "it says what it is a page of");
    assert_eq!(store.live(&pool(), "", 1).await.unwrap().documents, live[..1]);
    assert_eq!(store.live(&agent("nobody"), "", 1).await.unwrap(), LivePage::default());
    let documents = vec![put("task/1", false, Some(json!({"output": "done"})))];
    commit(&store, Batch { documents, ..batch(&pool(), 1) }).await;
    let live = store.load(&pool()).await.unwrap().live;
    assert_eq!(live.iter().map(|document| &document.key).collect::<Vec<_>>(), ["task/2"]);
    let page = store.live(&pool(), "task/1", 10).await.unwrap();
    assert_eq!((page.version, page.batch), (Version(2), id(&pool(), 2)), "and that it was written since");
    let archived = store.document(&pool(), "task/1").await.unwrap().unwrap();
    assert_eq!((archived.live, archived.body), (false, json!({"output": "done"})));
    commit(&store, Batch { documents: vec![put("task/1", true, None)], ..batch(&pool(), 2) }).await;
    assert_eq!(store.load(&pool()).await.unwrap().live.len(), 2, "an archived document can come back");
}

pub(super) async fn deleted_documents_are_gone(backend: &impl Backend) {
    let store = backend.open(START).await;
    let documents = vec![put("task/1", true, Some(json!({"old": 1}))), put("task/2", true, None)];
    commit(&store, Batch { documents, ..batch(&pool(), 0) }).await;
    let delete = |key: &str| DocumentChange::Delete { key: key.to_owned() };
    let documents = vec![delete("task/1"), delete("task/none")];
    commit(&store, Batch { documents, ..batch(&pool(), 1) }).await;
    assert_eq!(store.document(&pool(), "task/1").await.unwrap(), None);
    assert_eq!(store.documents(None, 10).await.unwrap().len(), 1);
    commit(&store, Batch { documents: vec![put("task/1", true, None)], ..batch(&pool(), 2) }).await;
    let again = store.document(&pool(), "task/1").await.unwrap().unwrap();
    assert_eq!(again.body, json!({}), "nothing of a deleted document comes back");
}

/// Whoever says that a document is new has looked: it has no more than its body then, and changes like any other.
pub(super) async fn new_documents_change_like_others(backend: &impl Backend) {
    let store = backend.open(START).await;
    let new = |key: &str, body: Value| DocumentChange::Put {
        key: key.to_owned(),
        live: true,
        head: json!({"of": key}).into(),
        body: Some(body.into()),
        new: true,
    };
    let delete = |key: &str| DocumentChange::Delete { key: key.to_owned() };
    let steps = [
        vec![new("task/1", json!({"text": "ü\u{0}\"", "gone": 1, "never": null})), new("task/2", json!([]))],
        vec![
            put("task/1", true, Some(json!({"gone": null, "text": "b", "output": 1}))),
            put("task/2", true, Some(json!({"text": "a"}))),
        ],
        vec![delete("task/2"), put("task/1", false, Some(json!({"output": null, "gone": 2})))],
        vec![new("task/2", json!({"again": true})), put("task/1", true, Some(json!({"gone": null})))],
        vec![new("task/3", json!({"a": 1})), put("task/3", true, Some(json!({"b": 2}))), delete("task/1")],
        vec![delete("task/3"), new("task/3", json!({"c": 3}))],
    ];
    let body = async |key: &str| store.document(&pool(), key).await.unwrap().map(|found| found.body);
    let expected = [
        [Some(json!({"text": "ü\u{0}\"", "gone": 1})), Some(json!({})), None],
        [Some(json!({"text": "b", "output": 1})), Some(json!({"text": "a"})), None],
        [Some(json!({"text": "b", "gone": 2})), None, None],
        [Some(json!({"text": "b"})), Some(json!({"again": true})), None],
        [None, Some(json!({"again": true})), Some(json!({"a": 1, "b": 2}))],
        [None, Some(json!({"again": true})), Some(json!({"c": 3}))],
    ];
    for (step, (documents, expected)) in (0..).zip(steps.into_iter().zip(expected)) {
        commit(&store, Batch { documents, ..batch(&pool(), step) }).await;
        let found = [body("task/1").await, body("task/2").await, body("task/3").await];
        assert_eq!(found, expected, "after step {step}");
        let live = store.load(&pool()).await.unwrap().live.len();
        let there = store.documents(None, 10).await.unwrap();
        let of_them = there.iter().filter(|document| document.live).count();
        assert_eq!((live, there.len()), (of_them, expected.iter().flatten().count()), "after step {step}");
    }
}

pub(super) async fn documents_come_in_key_order(backend: &impl Backend) {
    let store = backend.open(START).await;
    for key in [swarm("b"), agent("worker"), swarm("a-b"), swarm("a")] {
        let documents = ["task/2", "epic/9", "task/1"].map(|name| put(name, name != "task/2", None));
        commit(&store, Batch { documents: documents.to_vec(), ..batch(&key, 0) }).await;
    }
    let all = store.documents(None, 100).await.unwrap();
    let keys: Vec<(String, &str)> =
        all.iter().map(|found| (found.key.to_string(), found.document.as_str())).collect();
    assert_eq!(keys.len(), 12);
    assert!(keys.is_sorted(), "the order is that of the keys' bytes: {keys:?}");
    let mut paged = Vec::new();
    let mut after = None;
    loop {
        let page = store.documents(after, 5).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some((last.key.clone(), last.document.clone()));
        paged.extend(page);
    }
    assert_eq!(paged, all);
}

pub(super) async fn loading_gives_everything_back(backend: &impl Backend) {
    let store = backend.open(START).await;
    let first = Batch {
        documents: vec![put("task/1", true, None)],
        seen: vec![mark(&agent("b"), 1, 7), mark(&agent("a"), 2, 1)],
        replies: vec![reply(1), reply(2)],
        timer: TimerChange::Set(Timestamp(START.0 + 50)),
        outbox: vec![effect(1), effect(2)],
        ..batch(&pool(), 0)
    };
    commit(&store, first).await;
    let second = Batch { seen: vec![mark(&agent("b"), 1, 8)], replies: vec![reply(3)], ..batch(&pool(), 1) };
    commit(&store, second).await;
    commit(&store, Batch { replies: vec![reply(9)], ..batch(&swarm("other"), 0) }).await;
    let loaded = store.load(&pool()).await.unwrap();
    assert_eq!((loaded.version, loaded.at, loaded.sequence), (Version(2), Timestamp(START.0 + 1), 2));
    assert_eq!(loaded.live.len(), 1);
    assert_eq!(loaded.marks, [mark(&agent("a"), 2, 1), mark(&agent("b"), 1, 8)]);
    assert_eq!(loaded.replies, [reply(1), reply(2), reply(3)], "oldest first");
    assert_eq!(loaded.timer, Some(Timestamp(START.0 + 50)), "a timer stays until it is changed");
    commit(&store, Batch { timer: TimerChange::Set(Timestamp::NEVER), ..batch(&pool(), 2) }).await;
    assert_eq!(store.load(&pool()).await.unwrap().timer, Some(Timestamp::NEVER));
    commit(&store, Batch { timer: TimerChange::Clear, ..batch(&pool(), 3) }).await;
    assert_eq!(store.load(&pool()).await.unwrap().timer, None);
}

pub(super) async fn marks_never_move_back(backend: &impl Backend) {
    let store = backend.open(START).await;
    let steps = [((5, 9), (5, 9)), ((5, 3), (5, 9)), ((6, 1), (6, 1)), ((5, 99), (6, 1))];
    for (expected, (seen, stands)) in (0..).zip(steps) {
        let seen = vec![mark(&agent("a"), seen.0, seen.1)];
        commit(&store, Batch { seen, ..batch(&pool(), expected) }).await;
        let marks = store.load(&pool()).await.unwrap().marks;
        assert_eq!(marks, [mark(&agent("a"), stands.0, stands.1)], "by epoch, then by sequence");
    }
}

pub(super) async fn effects_come_in_order_until_they_are_delivered(backend: &impl Backend) {
    let store = backend.open(START).await;
    commit(&store, Batch { outbox: vec![effect(1), effect(2)], ..batch(&pool(), 0) }).await;
    commit(&store, Batch { outbox: vec![effect(1)], ..batch(&swarm("other"), 0) }).await;
    commit(&store, Batch { outbox: vec![effect(3)], ..batch(&pool(), 1) }).await;
    let entries = store.outbox(0, 10).await.unwrap();
    let order: Vec<_> = entries.iter().map(|entry| (entry.source.clone(), entry.sequence)).collect();
    assert_eq!(order, [(pool(), 1), (pool(), 2), (swarm("other"), 1), (pool(), 3)]);
    assert!(entries.windows(2).all(|pair| pair[0].position < pair[1].position));
    assert_eq!(entries[0].epoch, store.fence(&pool()).epoch);
    assert_eq!((entries[3].at, &entries[3].effect), (Timestamp(START.0 + 1), &effect(3).effect));
    assert_eq!(store.outbox(entries[0].position, 2).await.unwrap(), entries[1..3]);
    let unknown = OutboxPlace { position: u64::MAX >> 1, ..entries[0].place() };
    let delivered = vec![entries[0].place(), entries[2].place(), unknown];
    for _ in 0..2 {
        store.delivered(delivered.clone()).await.unwrap();
    }
    assert_eq!(store.outbox(0, 10).await.unwrap(), [entries[1].clone(), entries[3].clone()]);
    assert_eq!(store.load(&pool()).await.unwrap().sequence, 3, "delivery does not give sequences back");
}

pub(super) async fn buried_effects_become_dead_letters(backend: &impl Backend) {
    let store = backend.open(START).await;
    commit(&store, Batch { outbox: vec![effect(1), effect(2)], ..batch(&pool(), 0) }).await;
    let entries = store.outbox(0, 10).await.unwrap();
    for _ in 0..2 {
        let reason = "no such agent".to_owned();
        store.bury(entries[0].place(), reason, Timestamp(START.0 + 9)).await.unwrap();
    }
    assert_eq!(store.outbox(0, 10).await.unwrap(), entries[1..]);
    let letters = store.dead_letters(0, 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].entry, OutboxEntry { fence: Fence::NONE, ..entries[0].clone() });
    assert_eq!((letters[0].reason.as_str(), letters[0].buried_at), ("no such agent", Timestamp(START.0 + 9)));
    assert_eq!(store.dead_letters(letters[0].entry.position, 10).await.unwrap(), []);
}

pub(super) async fn timers_come_earliest_first(backend: &impl Backend) {
    let store = backend.open(START).await;
    let due = |millis: u64| TimerChange::Set(Timestamp(millis));
    for (key, timer) in [
        (swarm("c"), due(30)),
        (swarm("a"), due(20)),
        (swarm("b"), due(20)),
        (swarm("d"), TimerChange::Set(Timestamp::NEVER)),
    ] {
        commit(&store, Batch { timer, ..batch(&key, 0) }).await;
    }
    let at = |millis: u64| Timestamp(millis);
    let all =
        [(swarm("a"), at(20)), (swarm("b"), at(20)), (swarm("c"), at(30)), (swarm("d"), Timestamp::NEVER)];
    assert_eq!(store.timers(10).await.unwrap(), all);
    assert_eq!(store.timers(2).await.unwrap(), all[..2]);
    commit(&store, Batch { timer: due(10), ..batch(&swarm("c"), 1) }).await;
    commit(&store, Batch { timer: TimerChange::Clear, ..batch(&swarm("a"), 1) }).await;
    assert_eq!(store.timers(2).await.unwrap(), [(swarm("c"), at(10)), (swarm("b"), at(20))]);
}

pub(super) async fn records_are_a_feed_with_a_cursor(backend: &impl Backend) {
    let store = backend.open(START).await;
    let unnamed = crate::store::EventRecord { subject: None, body: Value::Null.into() };
    commit(&store, Batch { events: vec![event(1), unnamed.clone()], ..batch(&pool(), 0) }).await;
    commit(&store, Batch { replies: vec![reply(1)], ..batch(&pool(), 1) }).await;
    commit(&store, Batch { events: vec![event(2)], ..batch(&agent("worker"), 0) }).await;
    commit(&store, Batch { events: vec![event(3)], ..batch(&pool(), 2) }).await;
    let records = store.records(0, 10).await.unwrap();
    assert_eq!(records.len(), 3, "a batch without events is not in the feed");
    assert_eq!(records[0].events, [event(1), unnamed]);
    assert_eq!((&records[1].key, records[1].version), (&agent("worker"), Version(1)));
    assert_eq!((records[2].version, records[2].at), (Version(3), Timestamp(START.0 + 2)));
    assert!(records.windows(2).all(|pair| pair[0].position < pair[1].position));
    assert_eq!(store.records(0, 1).await.unwrap(), records[..1]);
    assert_eq!(store.records(records[0].position, 10).await.unwrap(), records[1..]);
    assert_eq!(store.records(records[2].position, 10).await.unwrap(), []);
    for (count, from) in [(0, 3), (1, 2), (2, 1), (4, 0)] {
        assert_eq!(store.newest_records(count).await.unwrap(), records[from..]);
    }
}

pub(super) async fn records_are_found_by_version(backend: &impl Backend) {
    let store = backend.open(START).await;
    assert_eq!(store.last_position().await.unwrap(), 0);
    commit(&store, Batch { events: vec![event(1)], ..batch(&pool(), 0) }).await;
    commit(&store, Batch { events: vec![event(2)], ..batch(&agent("worker"), 0) }).await;
    commit(&store, Batch { events: vec![event(3)], ..batch(&pool(), 1) }).await;
    let all = store.records(0, 10).await.unwrap();
    assert_eq!(store.last_position().await.unwrap(), all[2].position);
    commit(&store, Batch { replies: vec![reply(1)], ..batch(&pool(), 2) }).await;
    assert!(store.last_position().await.unwrap() > all[2].position, "also one without events");
    let versions = |versions: &[u64]| versions.iter().map(|version| Version(*version)).collect::<Vec<_>>();
    let found = store.records_of(&pool(), versions(&[3, 2, 1, 9])).await.unwrap();
    assert_eq!(found, [all[0].clone(), all[2].clone()]);
    assert_eq!(store.records_of(&agent("worker"), versions(&[1])).await.unwrap(), all[1..2]);
    assert_eq!(store.records_of(&agent("other"), versions(&[1])).await.unwrap(), []);
}

pub(super) async fn many_committers_lose_nothing(backend: &impl Backend) {
    const COMMITTERS: u64 = 64;
    const COMMITS: u64 = 8;
    let store = backend.open(START).await;
    let mut committers = tokio::task::JoinSet::new();
    for committer in 0..COMMITTERS {
        let store = std::sync::Arc::clone(&store);
        committers.spawn(async move {
            let key = agent(&format!("worker-{committer}"));
            for expected in 0..COMMITS {
                let documents = vec![put(&format!("task/{expected}"), true, Some(json!({"n": expected})))];
                let next = Batch { documents, events: vec![event(expected)], ..batch(&key, expected) };
                assert_eq!(commit(&store, next).await, Version(expected + 1));
                // A neighbour in the same group that must fail alone.
                let stale = Batch { id: Uuid::nil(), ..batch(&key, COMMITS * 2) };
                let answer = store.commit(store.fence(&key), stale.into()).await;
                assert_eq!(answer, Err(CommitError::Conflict { actual: Version(expected + 1) }));
            }
        });
    }
    while let Some(finished) = committers.join_next().await {
        finished.unwrap();
    }
    let versions = store.versions().await.unwrap();
    assert_eq!(versions.len() as u64, COMMITTERS);
    assert!(versions.iter().all(|(_, version)| *version == Version(COMMITS)));
    assert_eq!(store.records(0, 10_000).await.unwrap().len() as u64, COMMITTERS * COMMITS);
    assert_eq!(store.documents(None, 10_000).await.unwrap().len() as u64, COMMITTERS * COMMITS);
}

pub(super) async fn reopening_gives_all_that_was_acknowledged(backend: &impl Backend) {
    let store = backend.open(START).await;
    for expected in 0..20 {
        let next = Batch {
            documents: vec![put(
                &format!("task/{expected}"),
                expected % 2 == 0,
                Some(json!({"n": expected})),
            )],
            events: vec![event(expected)],
            seen: vec![mark(&agent("a"), 1, expected + 1)],
            replies: vec![reply(expected)],
            timer: TimerChange::Set(Timestamp(START.0 + expected)),
            outbox: vec![effect(expected + 1)],
            ..batch(&pool(), expected)
        };
        commit(&store, next).await;
    }
    let before = contents(&*store).await;
    drop(store);
    let store = backend.open(START).await;
    assert_eq!(contents(&*store).await, before);
    assert_eq!(commit(&store, batch(&pool(), 20)).await, Version(21));
}

/// Everything that a store holds, to compare with another.
///
/// # Panics
/// When the store cannot be read.
pub async fn contents(store: &dyn Store) -> String {
    let mut loaded = Vec::new();
    for (key, _) in store.versions().await.unwrap() {
        loaded.push(store.load(&key).await.unwrap());
    }
    let mut documents = store.documents(None, 10_000).await.unwrap();
    // The order of a body's fields means nothing.
    documents.iter_mut().for_each(|document| document.body.sort_all_objects());
    let records = store.records(0, 10_000).await.unwrap();
    let mut outbox = store.outbox(0, 10_000).await.unwrap();
    // Another owner has another fence.
    outbox.iter_mut().for_each(|entry| entry.fence = Fence::NONE);
    let dead = store.dead_letters(0, 10_000).await.unwrap();
    let timers = store.timers(10_000).await.unwrap();
    format!("{loaded:#?}{documents:#?}{records:#?}{outbox:#?}{dead:#?}{timers:#?}")
}
