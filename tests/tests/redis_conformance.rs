//! The store in Redis does what every store does: on one server, also one of Valkey, and on a Redis Cluster.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use async_trait::async_trait;
use serde_json::{Value, json};
use skein_coordinator::entity::Clock;
use skein_coordinator::store::conformance::{self, Backend};
use skein_coordinator::store::redis::{Options, Redis};
use skein_coordinator::store::{Batch, Chunk, Store, StoreError, TimerChange, Version};
use skein_shared::entity::{BlobChange, DocumentChange};
use skein_shared::id::{EntityKey, Kind, Name};
use skein_shared::time::Timestamp;
use skein_tests::redis::{LASTING, Make, Server};
use skein_tests::redis_cluster::RedisCluster;
use uuid::Uuid;

async fn open(url: &str) -> Result<Redis, StoreError> {
    Redis::open(&Options::new(url.to_owned(), "owner"), Clock::start().wall()).await
}

/// A database of one server for each case: they are numbered from zero.
struct Database<'a> {
    server: &'a Server,
    number: u32,
}

#[async_trait]
impl Backend for Database<'_> {
    async fn open(&self, _wall: Timestamp) -> Arc<dyn Store> {
        Arc::new(open(&format!("{}?db={}", self.server.url(), self.number)).await.unwrap())
    }

    fn has_a_clock_of_its_own(&self) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_conforms() {
    one_server_conforms(Make::Redis).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn valkey_conforms() {
    one_server_conforms(Make::Valkey).await;
}

async fn one_server_conforms(make: Make) {
    let settings = [LASTING, &["--databases", "100"]].concat();
    let server = Server::start_as(make, &settings).await.unwrap();
    let next = AtomicU32::new(0);
    let fresh = || {
        let number = next.fetch_add(1, Ordering::Relaxed);
        Database { server: &server, number }
    };
    conformance::suite(fresh).await;
}

/// The one database of a cluster, which each case begins with nothing.
struct Slot<'a> {
    cluster: &'a RedisCluster,
    is_new: AtomicBool,
}

#[async_trait]
impl Backend for Slot<'_> {
    async fn open(&self, _wall: Timestamp) -> Arc<dyn Store> {
        if self.is_new.swap(false, Ordering::Relaxed) {
            self.cluster.empty().await.unwrap();
        }
        Arc::new(open(&self.cluster.url()).await.unwrap())
    }

    fn has_a_clock_of_its_own(&self) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_cluster_conforms() {
    let cluster = RedisCluster::start().await.unwrap();
    conformance::suite(|| Slot { cluster: &cluster, is_new: true.into() }).await;

    let refused = open(&cluster.node()).await.err().expect("it is refused");
    assert!(refused.to_string().contains("redis-cluster://"), "{refused}");
}

fn pool() -> EntityKey {
    EntityKey::of(Kind::Pool, &Name::parse("default").unwrap())
}

fn put(key: &str, live: bool, body: Value, new: bool) -> DocumentChange {
    DocumentChange::Put { key: key.to_owned(), live, head: json!({}).into(), body: Some(body.into()), new }
}

/// Commits to the pool, behind so many others.
async fn commit(store: &Redis, behind: u64, documents: Vec<DocumentChange>, blobs: Vec<BlobChange>) {
    let id = |version: u64| if version == 0 { Uuid::nil() } else { Uuid::from_u128(version.into()) };
    let batch = Batch {
        key: pool(),
        expected: Version(behind),
        after: id(behind),
        id: id(behind + 1),
        at: Timestamp(1_790_000_000_000),
        documents,
        events: Vec::new(),
        seen: Vec::new(),
        replies: Vec::new(),
        timer: TimerChange::Keep,
        outbox: Vec::new(),
        blobs,
    };
    let committed = store.commit(store.fence(&pool()), Arc::new(batch)).await;
    assert_eq!(committed, Ok(Version(behind + 1)));
}

async fn write(store: &Redis, blob: Uuid) -> BlobChange {
    let bytes = b"honk".to_vec();
    let chunk = Chunk { key: pool(), blob, place: 0, bytes, at: Timestamp(1_790_000_000_000) };
    store.write_chunk(store.fence(&pool()), chunk).await.unwrap();
    BlobChange::Keep { blob, bytes: 4 }
}

/// All keys that it needs are there still. One that has lost its last part counts as moved, and a script that touches
/// it again ends there, with what it has written.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_begins_while_its_slot_is_moved_is_written_whole() {
    let cluster = RedisCluster::start().await.unwrap();
    let store = open(&cluster.url()).await.unwrap();
    let [old, new] = [8, 9].map(Uuid::from_u128);
    let kept = write(&store, old).await;
    let documents = vec![
        put("task/1", true, json!({"a": 1}), true),
        put("task/2", true, json!({"a": 1}), true),
        put("task/3", false, json!({"a": 1}), true),
    ];
    commit(&store, 0, documents, vec![kept]).await;
    commit(&store, 1, vec![put("task/1", true, json!({"b": 2}), false)], Vec::new()).await;
    let kept = write(&store, new).await;
    cluster.begin_to_move().await.unwrap();
    // The last change of any body goes, and a document; the last blob that nobody had kept is, and another one goes.
    let delete = DocumentChange::Delete { key: "task/2".to_owned() };
    let documents = vec![put("task/1", true, json!({"c": 3}), true), delete];
    commit(&store, 2, documents, vec![kept, BlobChange::Free { blob: old }]).await;
}
