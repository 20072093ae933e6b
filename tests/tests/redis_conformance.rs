//! The store in Redis does what every store does: on one server, also one of Valkey, and on a Redis Cluster.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use async_trait::async_trait;
use skein_coordinator::entity::Clock;
use skein_coordinator::store::conformance::{self, Backend};
use skein_coordinator::store::redis::{Options, Redis};
use skein_coordinator::store::{Store, StoreError};
use skein_shared::time::Timestamp;
use skein_tests::redis::{LASTING, Make, Server};
use skein_tests::redis_cluster::RedisCluster;

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
