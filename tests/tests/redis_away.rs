//! What was to be committed to the store in Redis while a private `redis-server` cannot be reached.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::time::Duration;

use skein_coordinator::store::redis::shard::Shard;
use skein_coordinator::store::redis::{Options, Redis};
use skein_coordinator::store::{Batch, CommitError, Store, Version};
use skein_shared::id::{EntityKey, Kind, Name};
use skein_tests::link::Link;
use skein_tests::redis::Server;
use skein_tests::stored::{batch, commit, options, pool, wall};

/// A store whose connection for commits is found broken, behind a link that is cut.
async fn cut_off(link: &Link, answer: Duration) -> Redis {
    let store = Redis::open(&Options { answer, ..options(&link.redis()) }, wall()).await.unwrap();
    commit(&store, 0).await.unwrap();
    link.cut();
    let lost = commit(&store, 1).await;
    assert!(matches!(lost, Err(CommitError::Unknown(_))), "{lost:?}");
    store
}

#[tokio::test]
async fn what_could_not_be_sent_waits_in_its_order_for_a_server_that_is_away_for_a_moment() {
    let server = Server::start().await.unwrap();
    let link = server.link().unwrap();
    let store = cut_off(&link, Duration::from_secs(60)).await;
    let locks = EntityKey::of(Kind::Lockspace, &Name::parse("default").unwrap());
    let other = store.commit(store.fence(&locks), Batch { key: locks.clone(), ..batch(0) }.into());
    let heals = async {
        link.refuses_a_connection().await;
        link.heal();
    };
    let (first, second, other, ()) = tokio::join!(commit(&store, 1), commit(&store, 2), other, heals);
    assert_eq!((first, second, other), (Ok(Version(2)), Ok(Version(3)), Ok(Version(1))));
}

#[tokio::test]
async fn what_waits_for_a_server_that_is_away_is_refused_if_its_lease_ends_meanwhile() {
    let server = Server::start().await.unwrap();
    let link = server.link().unwrap();
    let store = cut_off(&link, Duration::from_secs(60)).await;
    let fence = store.fence(&pool());
    let ends = async {
        link.refuses_a_connection().await;
        store.held().lose(&[Shard::of(&pool())]);
        link.heal();
    };
    let (late, ()) = tokio::join!(commit(&store, 1), ends);
    assert_eq!(late, Err(CommitError::Fenced(fence.epoch)));
}

#[tokio::test]
async fn what_cannot_be_sent_for_as_long_as_an_answer_may_take_is_refused() {
    let server = Server::in_memory().await.unwrap();
    let link = server.link().unwrap();
    let store = cut_off(&link, Duration::from_secs(2)).await;
    for _ in 0..2 {
        let refused = commit(&store, 1).await;
        assert!(matches!(refused, Err(CommitError::Failed(_))), "{refused:?}");
    }
    link.heal();
    assert_eq!(commit(&store, 1).await, Ok(Version(2)));
}
