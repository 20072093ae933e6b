//! Blobs: chunks first, then the commit that keeps them, and nothing in between that anybody sees.

use std::sync::Arc;

use skein_shared::entity::BlobChange;
use skein_shared::limits::CHUNK;
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::trims::nothing;
use super::{Backend, START, agent, batch, commit, pool, put};
use crate::store::{Batch, Chunk, CommitError, Fence, Store, StoredBlob, TrimPlan, Trimmed, Version};

const BLOB: Uuid = Uuid::from_u128(7);

fn full(filler: u8) -> Vec<u8> {
    vec![filler; CHUNK]
}

/// One and a bit: not valid as text, so that stores which would change it are found out.
fn pieces() -> [Vec<u8>; 2] {
    [full(0xff), vec![0, 0x80, b'\n']]
}

const BYTES: u64 = CHUNK as u64 + 3;

async fn write(store: &Arc<dyn Store>, blob: Uuid, place: u32, bytes: Vec<u8>, at: Timestamp) {
    let chunk = Chunk { key: agent("a"), blob, place, bytes, at };
    store.write_chunk(store.fence(&agent("a")), chunk).await.unwrap();
}

async fn write_all(store: &Arc<dyn Store>, blob: Uuid, at: Timestamp) {
    for (place, bytes) in (0..).zip(pieces()) {
        write(store, blob, place, bytes, at).await;
    }
}

fn with(expected: u64, blobs: Vec<BlobChange>) -> Batch {
    Batch { blobs, ..batch(&agent("a"), expected) }
}

fn keep(blob: Uuid) -> BlobChange {
    BlobChange::Keep { blob, bytes: BYTES }
}

async fn read(store: &Arc<dyn Store>, blob: Uuid) -> Vec<Option<Vec<u8>>> {
    let mut found = Vec::new();
    for place in 0..3 {
        found.push(store.chunk(&agent("a"), blob, place).await.unwrap());
    }
    found
}

pub(super) async fn a_blob_is_there_once_a_commit_keeps_it(backend: &impl Backend) {
    let store = backend.open(START).await;
    let [first, second] = pieces();
    // In any order, and again, as after a lost answer.
    write(&store, BLOB, 1, second.clone(), START).await;
    for _ in 0..2 {
        write(&store, BLOB, 0, first.clone(), START).await;
    }
    assert_eq!(read(&store, BLOB).await, [None, None, None]);
    assert_eq!(store.blobs(None, 10).await.unwrap(), []);
    // What lies behind its end, from a longer one that nobody kept, does no harm.
    write(&store, BLOB, 7, second.clone(), START).await;
    let naming = with(0, vec![keep(BLOB)]);
    for _ in 0..2 {
        assert_eq!(commit(&store, naming.clone()).await, Version(1));
    }
    let whole = [Some(first), Some(second), None];
    assert_eq!(read(&store, BLOB).await, whole);
    write(&store, BLOB, 0, b"late".to_vec(), START).await;
    assert_eq!(read(&store, BLOB).await, whole, "what is kept does not change any more");
    assert_eq!(store.chunk(&agent("b"), BLOB, 0).await.unwrap(), None, "it is one entity's alone");
    drop(store);
    let store = backend.open(START).await;
    assert_eq!(read(&store, BLOB).await, whole);
    commit(&store, with(1, vec![BlobChange::Free { blob: BLOB }])).await;
    assert_eq!(read(&store, BLOB).await, [None, None, None]);
    assert_eq!(store.blobs(None, 10).await.unwrap(), []);
}

/// What the crash of its writer leaves, at whichever point.
pub(super) async fn a_commit_that_keeps_what_is_not_whole_changes_nothing(backend: &impl Backend) {
    let store = backend.open(START).await;
    let attempt = || Batch { documents: vec![put("call/1", true, None)], ..with(0, vec![keep(BLOB)]) };
    for written in 0..2 {
        let refused = store.commit(store.fence(&agent("a")), attempt().into()).await;
        assert!(matches!(refused, Err(CommitError::Failed(_))), "{written}: {refused:?}");
        assert_eq!(store.document(&agent("a"), "call/1").await.unwrap(), None);
        assert_eq!(read(&store, BLOB).await, [None, None, None]);
        write(&store, BLOB, written, pieces()[written as usize].clone(), START).await;
    }
    let shorter = BlobChange::Keep { blob: BLOB, bytes: BYTES - 1 };
    let refused = store.commit(store.fence(&agent("a")), with(0, vec![shorter]).into()).await;
    assert!(matches!(refused, Err(CommitError::Failed(_))), "{refused:?}");
    assert_eq!(commit(&store, attempt()).await, Version(1), "the entity goes on");
}

pub(super) async fn chunks_that_nobody_keeps_are_swept(backend: &impl Backend) {
    let store = backend.open(START).await;
    let [old, young, kept] = [1, 2, 3].map(Uuid::from_u128);
    for (blob, at) in [(old, 10), (young, 20), (kept, 10)] {
        write_all(&store, blob, Timestamp(START.0 + at)).await;
    }
    commit(&store, with(0, vec![keep(kept)])).await;
    let plan = TrimPlan { loose_before: Timestamp(START.0 + 15), ..nothing() };
    assert_eq!(store.trim(plan.clone()).await.unwrap(), Trimmed { loose: 1, ..Trimmed::default() });
    assert!(store.trim(plan).await.unwrap().is_nothing());
    let late = store.commit(store.fence(&agent("a")), with(1, vec![keep(old)]).into()).await;
    assert!(matches!(late, Err(CommitError::Failed(_))), "{late:?}");
    commit(&store, with(1, vec![keep(young)])).await;
    let all = TrimPlan { loose_before: Timestamp(START.0 + 1000), limit: 100, ..nothing() };
    assert!(store.trim(all).await.unwrap().is_nothing(), "what is kept stays");
    assert!(read(&store, kept).await[0].is_some() && read(&store, young).await[1].is_some());
}

pub(super) async fn a_chunk_of_a_former_owner_is_refused(backend: &impl Backend) {
    let first = backend.open(START).await;
    let stale = first.fence(&agent("a"));
    drop(first);
    let store = backend.open(START).await;
    for fence in [stale, Fence::NONE] {
        let chunk = Chunk { key: agent("a"), blob: BLOB, place: 0, bytes: full(1), at: START };
        let refused = store.write_chunk(fence, chunk).await;
        assert!(matches!(refused, Err(CommitError::Fenced(_))), "{refused:?}");
    }
    let all = TrimPlan { loose_before: Timestamp(u64::MAX >> 12), ..nothing() };
    assert!(store.trim(all).await.unwrap().is_nothing(), "nothing was written");
}

pub(super) async fn blobs_come_in_order(backend: &impl Backend) {
    let store = backend.open(START).await;
    let mut all = Vec::new();
    for name in ["b", "a"] {
        let key = agent(name);
        for number in [2, 1] {
            let blob = Uuid::from_u128(number);
            let chunk = Chunk { key: key.clone(), blob, place: 0, bytes: vec![1], at: START };
            store.write_chunk(store.fence(&key), chunk).await.unwrap();
            let expected = 2 - u64::try_from(number).unwrap();
            let blobs = vec![BlobChange::Keep { blob, bytes: 1 }];
            commit(&store, Batch { blobs, ..batch(&key, expected) }).await;
            all.push(StoredBlob { key: key.clone(), blob, bytes: 1, at: Timestamp(START.0 + expected) });
        }
    }
    commit(&store, batch(&pool(), 0)).await;
    all.sort_by_key(|blob| (blob.key.to_string(), blob.blob));
    assert_eq!(store.blobs(None, 10).await.unwrap(), all);
    let (mut walked, mut after) = (Vec::new(), None);
    while let Some(next) = store.blobs(after.take(), 1).await.unwrap().pop() {
        after = Some((next.key.clone(), next.blob));
        walked.push(next);
    }
    assert_eq!(walked, all);
}
