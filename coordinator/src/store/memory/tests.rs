use std::sync::Arc;

use async_trait::async_trait;
use skein_shared::id::{EntityKey, Kind, Name};
use uuid::Uuid;

use super::*;
use crate::store::TimerChange;
use crate::store::conformance::{self, Backend};

#[async_trait]
impl Backend for Contents {
    async fn open(&self, wall: Timestamp) -> Arc<dyn Store> {
        Arc::new(Contents::open(self, wall))
    }
}

#[tokio::test]
async fn memory_conforms() {
    conformance::suite(Contents::default).await;
}

fn batch(expected: u64) -> Batch {
    Batch {
        key: EntityKey::of(Kind::Pool, &Name::parse("default").unwrap()),
        expected: Version(expected),
        after: Uuid::from_u128(expected.into()),
        id: Uuid::from_u128(u128::from(expected) + 1),
        at: Timestamp(expected),
        documents: Vec::new(),
        events: Vec::new(),
        seen: Vec::new(),
        replies: Vec::new(),
        timer: TimerChange::Keep,
        outbox: Vec::new(),
        blobs: Vec::new(),
    }
}

#[tokio::test]
async fn scripted_faults_meet_one_commit_each() {
    let store = Memory::new(Timestamp(1));
    let faults = store.contents().faults();
    for fault in [Fault::Refused, Fault::RequestLost, Fault::AnswerLost] {
        faults.push(fault);
    }
    let fence = store.fence(&batch(0).key);
    assert!(matches!(store.commit(fence, batch(0).into()).await, Err(CommitError::Failed(_))));
    assert!(matches!(store.commit(fence, batch(0).into()).await, Err(CommitError::Unknown(_))));
    assert_eq!(store.versions().await.unwrap(), [], "neither was applied");
    assert!(matches!(store.commit(fence, batch(0).into()).await, Err(CommitError::Unknown(_))));
    assert_eq!(store.versions().await.unwrap().len(), 1, "only the answer was lost");
    assert_eq!(store.commit(fence, batch(0).into()).await, Ok(Version(1)), "the same batch tells");
}

#[tokio::test]
async fn a_slow_commit_waits_for_its_gate() {
    let store = Arc::new(Memory::new(Timestamp(1)));
    let gate = Gate::default();
    store.contents().faults().push(Fault::Slow(gate.clone()));
    let slow = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.commit(store.fence(&batch(0).key), batch(0).into()).await }
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!slow.is_finished());
    gate.open();
    assert_eq!(slow.await.unwrap(), Ok(Version(1)));
}

#[tokio::test]
async fn rolling_back_loses_what_was_acknowledged() {
    let store = Memory::new(Timestamp(1));
    let fence = store.fence(&batch(0).key);
    store.commit(fence, batch(0).into()).await.unwrap();
    let snapshot = store.contents().snapshot();
    store.commit(fence, batch(1).into()).await.unwrap();
    store.contents().roll_back(snapshot);
    let answer = store.commit(fence, batch(2).into()).await;
    assert_eq!(answer, Err(CommitError::Conflict { actual: Version(1) }));
}
