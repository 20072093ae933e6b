//! What tests of the store in Redis commit to it.

use std::time::Duration;

use serde_json::json;
use skein_coordinator::entity::Clock;
use skein_coordinator::store::redis::shard::Shard;
use skein_coordinator::store::redis::{Durability, Options, Redis};
use skein_coordinator::store::{Batch, CommitError, EventRecord, OutboxEffect, Store, TimerChange, Version};
use skein_shared::entity::{DocumentChange, Effect, RunnerCommand};
use skein_shared::fence::{Epoch, Token};
use skein_shared::id::{EntityKey, Kind, Name};
use skein_shared::time::Timestamp;
use uuid::Uuid;

/// As the only owner.
pub fn options(url: &str) -> Options {
    Options::new(url.to_owned(), "owner")
}

/// What time it is.
pub fn wall() -> Timestamp {
    Clock::start().wall()
}

/// A store that has all shards.
///
/// # Panics
/// When it is refused.
pub async fn open(url: &str) -> Redis {
    Redis::open(&options(url), wall()).await.expect("the store is taken")
}

/// The pool of the default swarm.
///
/// # Panics
/// Never: its name is one.
pub fn pool() -> EntityKey {
    EntityKey::of(Kind::Pool, &Name::parse("default").expect("a name"))
}

/// What the pool commits at a version.
pub fn batch(expected: u64) -> Batch {
    let document = DocumentChange::Put {
        key: format!("task/{expected}"),
        live: true,
        head: json!({"n": expected}).into(),
        body: Some(json!({"text": "do it"}).into()),
        new: true,
    };
    Batch {
        key: pool(),
        expected: Version(expected),
        after: Uuid::from_u128(expected.into()),
        id: Uuid::from_u128(u128::from(expected) + 1),
        at: Timestamp(1_790_000_000_000 + expected),
        documents: vec![document],
        events: vec![EventRecord { subject: None, body: json!("made").into() }],
        seen: Vec::new(),
        replies: Vec::new(),
        timer: TimerChange::Set(Timestamp(5)),
        outbox: Vec::new(),
        blobs: Vec::new(),
    }
}

/// Commits it.
///
/// # Errors
/// As the store says.
pub async fn commit(store: &Redis, expected: u64) -> Result<Version, CommitError> {
    store.commit(store.fence(&pool()), batch(expected).into()).await
}

/// The name of something of the pool's shard.
pub fn key(name: &str) -> String {
    Shard::of(&pool()).key(name)
}

/// The versions of the records, in the order of their positions.
///
/// # Panics
/// When they cannot be read, or come in another order.
pub async fn versions(store: &Redis) -> Vec<u64> {
    let records = store.records(0, 100).await.expect("records");
    assert!(records.windows(2).all(|pair| pair[0].position < pair[1].position), "positions do not rise");
    records.iter().map(|record| record.version.0).collect()
}

/// A batch with an effect.
pub fn sending() -> Batch {
    let token = Token { epoch: Epoch(1), number: 1 };
    let command = RunnerCommand::Forget { instance: "i".to_owned(), token };
    let effect = OutboxEffect { sequence: 1, effect: Effect::Runner { runner: "r".to_owned(), command } };
    Batch { outbox: vec![effect], ..batch(0) }
}

/// Why a server is refused.
///
/// # Panics
/// When it is taken.
pub async fn refusal(url: &str, durability: Durability) -> String {
    let options = Options { durability, ..options(url) };
    Redis::open(&options, wall()).await.err().expect("it is refused").to_string()
}

/// Sends until there is a definite answer, as the host of an entity does.
///
/// # Errors
/// As [`commit`], when nothing was written for good.
pub async fn settle(store: &Redis, expected: u64) -> Result<Version, CommitError> {
    loop {
        match commit(store, expected).await {
            Err(CommitError::Unknown(_) | CommitError::Failed(_)) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            definite => return definite,
        }
    }
}
