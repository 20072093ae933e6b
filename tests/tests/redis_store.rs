//! The store in Redis, on a real and private `redis-server`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, cmd};
use serde_json::json;
use skein_coordinator::store::conformance::{self, Backend, contents};
use skein_coordinator::store::redis::shard::Shard;
use skein_coordinator::store::redis::{Durability, Options, Redis};
use skein_coordinator::store::{Batch, CommitError, EventRecord, Store, StoreError, TimerChange, Version};
use skein_shared::entity::DocumentChange;
use skein_shared::id::{EntityKey, Kind, Name};
use skein_shared::time::Timestamp;
use skein_tests::redis::{Link, Server};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

fn options(url: &str) -> Options {
    Options::new(url.to_owned(), "owner")
}

#[allow(clippy::disallowed_methods)] // a test stands in for the node's clock
fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp(since.as_millis().try_into().unwrap())
}

async fn open(url: &str) -> Redis {
    Redis::open(&options(url), wall()).await.unwrap()
}

async fn refusal(server: &Server, durability: Durability) -> String {
    let options = Options { durability, ..options(&server.url()) };
    Redis::open(&options, wall()).await.err().expect("it is refused").to_string()
}

fn pool() -> EntityKey {
    EntityKey::of(Kind::Pool, &Name::parse("default").unwrap())
}

fn batch(expected: u64) -> Batch {
    let document = DocumentChange::Put {
        key: format!("task/{expected}"),
        live: true,
        head: json!({"n": expected}).into(),
        body: Some(json!({"text": "do it"})),
    };
    Batch {
        key: pool(),
        expected: Version(expected),
        id: Uuid::from_u128(u128::from(expected) + 1),
        at: Timestamp(1_790_000_000_000 + expected),
        documents: vec![document],
        events: vec![EventRecord { subject: None, body: json!("made").into() }],
        seen: Vec::new(),
        replies: Vec::new(),
        timer: TimerChange::Set(Timestamp(5)),
        outbox: Vec::new(),
    }
}

async fn commit(store: &Redis, expected: u64) -> Result<Version, CommitError> {
    store.commit(store.fence(&pool()), batch(expected).into()).await
}

fn key(name: &str) -> String {
    format!("skein:{{s{}}}:{name}", Shard::of(&pool()).number())
}

/// A database of one server for each case: they are numbered from zero.
struct Database<'a> {
    server: &'a Server,
    number: u32,
}

#[async_trait]
impl Backend for Database<'_> {
    async fn open(&self, _wall: Timestamp) -> Arc<dyn Store> {
        Arc::new(open(&format!("{}?db={}", self.server.url(), self.number)).await)
    }

    fn has_a_clock_of_its_own(&self) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_conforms() {
    let settings = ["--databases", "100", "--appendonly", "yes", "--appendfsync", "always"];
    let server = Server::start_with(&settings).await.unwrap();
    let next = std::sync::atomic::AtomicU32::new(0);
    let fresh = || {
        let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Database { server: &server, number }
    };
    conformance::suite(fresh).await;
}
