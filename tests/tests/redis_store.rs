//! The store in Redis under what befalls a real and private `redis-server`, its owners and its replicas.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, cmd};
use skein_coordinator::store::conformance::contents;
use skein_coordinator::store::redis::incident::LostWrites;
use skein_coordinator::store::redis::lease::Acquired;
use skein_coordinator::store::redis::shard::Shard;
use skein_coordinator::store::redis::{Durability, Options, Redis};
use skein_coordinator::store::{Batch, Chunk, CommitError, Fence, OutboxEffect, Store, StoreError, Version};
use skein_shared::time::Timestamp;
use skein_tests::redis::{LASTING, Server};
use skein_tests::stored::{
    batch, commit, key, open, options, pool, refusal, sending, settle, versions, wall,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Whoever needs a connection may be one of many futures, and be left alone while their owner waits for something else.
#[tokio::test]
async fn whoever_waits_for_a_connection_and_is_left_alone_holds_up_nobody() {
    let server = Server::start().await.unwrap();
    let link = server.link().unwrap();
    let store = open(&link.redis()).await;
    link.cut();
    store.versions().await.unwrap_err();
    link.hold_back();
    let mut first = std::pin::pin!(store.last_position());
    assert!(futures::poll!(&mut first).is_pending(), "it makes the next connection");
    link.heal();
    let patience = Duration::from_secs(60);
    tokio::time::timeout(patience, store.versions()).await.expect("nobody makes a connection").unwrap();
    tokio::time::timeout(patience, store.begin_anew(wall())).await.expect("it does not begin anew").unwrap();
    first.await.unwrap();
}

#[tokio::test]
async fn a_lost_answer_is_unknown_and_the_same_batch_tells() {
    let server = Server::start().await.unwrap();
    let link = server.link().unwrap();
    let store = open(&link.redis()).await;
    for expected in 0..6 {
        if expected % 2 == 1 {
            link.lose_answers();
            let answer = commit(&store, expected).await;
            assert!(matches!(answer, Err(CommitError::Unknown(_))), "{answer:?}");
            link.heal();
        }
        assert_eq!(settle(&store, expected).await, Ok(Version(expected + 1)));
    }
    assert_eq!(versions(&store).await, [1, 2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn a_server_that_forgot_its_scripts_is_told_them_again() {
    let server = Server::start().await.unwrap();
    let store = open(&server.url()).await;
    commit(&store, 0).await.unwrap();
    let () = cmd("SCRIPT").arg("FLUSH").query_async(&mut server.connection().await.unwrap()).await.unwrap();
    // Two that are under way at once.
    let both = tokio::join!(commit(&store, 1), commit(&store, 2));
    assert_eq!(both, (Ok(Version(2)), Ok(Version(3))));
    assert_eq!(store.load(&pool()).await.unwrap().live.len(), 3);
}

#[tokio::test]
async fn what_is_under_way_on_a_connection_that_breaks_takes_effect_once() {
    let server = Server::start().await.unwrap();
    let link = server.link().unwrap();
    let store = open(&link.redis()).await;
    commit(&store, 0).await.unwrap();
    for expected in [1, 3, 5] {
        link.lose_answers();
        let both = tokio::join!(commit(&store, expected), commit(&store, expected + 1));
        assert!(matches!(both, (Err(CommitError::Unknown(_)), Err(_))), "{both:?}");
        link.heal();
        // A repeat tells of the last batch alone, and that has taken effect behind the other or not at all.
        if settle(&store, expected + 1).await != Ok(Version(expected + 2)) {
            assert_eq!(settle(&store, expected).await, Ok(Version(expected + 1)));
            assert_eq!(settle(&store, expected + 1).await, Ok(Version(expected + 2)));
        }
    }
    assert_eq!(versions(&store).await, [1, 2, 3, 4, 5, 6, 7]);
}

#[tokio::test]
async fn a_server_that_would_lose_or_forget_is_refused() {
    let server = Server::start().await.unwrap();
    let mut connection = server.connection().await.unwrap();
    let mut set = async |name: &str, value: &str| {
        let () = cmd("CONFIG").arg("SET").arg(name).arg(value).query_async(&mut connection).await.unwrap();
    };
    set("maxmemory-policy", "allkeys-lru").await;
    assert!(refusal(&server.url(), Durability::Always).await.contains("set `maxmemory-policy noeviction`"));
    set("maxmemory-policy", "noeviction").await;
    set("appendfsync", "everysec").await;
    assert!(refusal(&server.url(), Durability::Always).await.contains("set `appendfsync always`"));
    Redis::open(&Options { durability: Durability::Everysec, ..options(&server.url()) }, wall())
        .await
        .unwrap();
    assert!(refusal(&server.url(), Durability::Replicated).await.contains("needs a replica"));
    let late = Redis::open(&options(&server.url()), Timestamp(wall().0 + 3_600_000)).await;
    assert!(late.err().is_some());
    set("appendfsync", "always").await;
    let late = Redis::open(&options(&server.url()), Timestamp(wall().0 + 3_600_000)).await;
    assert!(late.err().unwrap().0.contains("clock"));
    let mut connection = server.connection().await.unwrap();
    let () = connection.hset("{skein}:cluster", "shards", 128).await.unwrap();
    let said = refusal(&server.url(), Durability::Always).await;
    assert!(said.contains("shards 128") && said.contains("another database"), "{said}");
}

#[tokio::test]
async fn a_store_that_an_import_has_not_filled_yet_is_refused() {
    let server = Server::start().await.unwrap();
    let store = open(&server.url()).await;
    store.mark_import(true).await.unwrap();
    let said = refusal(&server.url(), Durability::Always).await;
    assert!(said.contains("FLUSHDB") && said.contains("import again"), "{said}");
    store.mark_import(false).await.unwrap();
    open(&server.url()).await;
}

#[tokio::test]
async fn a_password_is_never_shown() {
    let settings = [LASTING, &["--requirepass", "hush-hush"]].concat();
    let server = Server::start_with(&settings).await.unwrap();
    let url = |password: &str| format!("{}?pass={password}", server.url());
    open(&url("hush-hush")).await;
    for wrong in [
        url("not-this-one"),
        "redis://:not-this-one@127.0.0.1:1/".to_owned(),
        "redis:/not-this-one".to_owned(),
    ] {
        let options = options(&wrong);
        let said = Redis::open(&options, wall()).await.err().unwrap().to_string();
        assert!(!format!("{said} {options:?}").contains("not-this-one"), "{said}");
    }
}

#[tokio::test]
async fn a_restarted_server_has_everything_and_ends_the_old_owner() {
    let mut server = Server::start().await.unwrap();
    // Its server is there again long before its end.
    let options = Options { lease: Duration::from_secs(12), ..options(&server.url()) };
    let store = Arc::new(Redis::open(&options, wall()).await.unwrap());
    let (keeper, kept) = (Arc::clone(&store), CancellationToken::new());
    let keeping = tokio::spawn(async move { keeper.keep(kept).await });
    for expected in 0..10 {
        commit(&store, expected).await.unwrap();
    }
    let before = contents(&*store).await;
    server.crash_and_restart().await.unwrap();
    let ended = keeping.await.unwrap().unwrap_err().to_string();
    assert!(ended.contains("restarted or replaced"), "{ended}");
    let Err(CommitError::Unknown(_) | CommitError::Failed(_)) = commit(&store, 10).await else {
        panic!("an owner that may be ahead of the store goes on")
    };
    let again = Redis::open(&options, wall()).await.unwrap();
    assert_eq!(contents(&again).await, before);
    assert!(again.fence(&pool()).epoch > store.fence(&pool()).epoch);
    assert_eq!(settle(&again, 10).await, Ok(Version(11)));
}

/// All keys with what they hold, for going back to this moment.
async fn remember(connection: &mut MultiplexedConnection) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for key in connection.keys::<_, Vec<String>>("*").await.unwrap() {
        let held: Vec<u8> = cmd("DUMP").arg(&key).query_async(connection).await.unwrap();
        all.push((key, held));
    }
    all
}

/// As a replica is that lagged behind when it became the primary.
async fn throw_back(server: &mut Server, to: &[(String, Vec<u8>)]) {
    server.crash_and_restart().await.unwrap();
    let mut connection = server.connection().await.unwrap();
    let () = cmd("FLUSHALL").query_async(&mut connection).await.unwrap();
    for (key, held) in to {
        let () = cmd("RESTORE").arg(key).arg(0).arg(&held[..]).query_async(&mut connection).await.unwrap();
    }
}

async fn take_all(store: &Redis) {
    let all: Vec<Shard> = Shard::all().collect();
    // One of the same name may have them.
    store.leases().all().await.unwrap();
    for (shard, taken) in all.iter().zip(store.leases().acquire(&all).await.unwrap()) {
        let Ok(Acquired::Taken(fence)) = taken else { panic!("{taken:?}") };
        store.held().take(*shard, fence, None);
    }
}

async fn begin_anew(store: &Redis) {
    // The first asking finds the connection broken.
    while store.is_the_same().await.is_err() {}
    store.begin_anew(wall()).await.unwrap();
}

/// What the only incident has of the only entity.
async fn lost(store: &Redis) -> LostWrites {
    let incidents = store.incidents().await.unwrap();
    let [incident] = &incidents[..] else { panic!("{incidents:?}") };
    let [lost] = &incident.lost[..] else { panic!("{incident:?}") };
    lost.clone()
}

/// One who has the store, and another who has joined and holds nothing of it.
async fn two(server: &Server) -> (Redis, Redis) {
    (open(&server.url()).await, Redis::join(&options(&server.url()), wall()).await.unwrap())
}

#[tokio::test]
async fn what_a_failover_threw_away_is_listed_and_no_reader_misses_what_comes_after() {
    let mut server = Server::start().await.unwrap();
    let store = open(&server.url()).await;
    for expected in 0..3 {
        commit(&store, expected).await.unwrap();
    }
    let behind = remember(&mut server.connection().await.unwrap()).await;
    for expected in 3..6 {
        commit(&store, expected).await.unwrap();
    }
    let read_up_to = store.last_position().await.unwrap();
    throw_back(&mut server, &behind).await;
    let Err(CommitError::Failed(_) | CommitError::Unknown(_)) = commit(&store, 6).await else {
        panic!("it was written on what is gone")
    };
    // The first asking finds the connection broken.
    while store.is_the_same().await.is_err() {}
    assert_eq!(store.is_the_same().await, Ok(false));
    store.begin_anew(wall()).await.unwrap();
    assert_eq!(store.is_the_same().await, Ok(true));
    assert_eq!(store.fence(&pool()), Fence::NONE, "what it held it has to take anew");

    let lost = lost(&store).await;
    assert_eq!((&lost.entity, lost.commits), (&pool(), 3));
    assert_eq!(lost.documents, ["task/3", "task/4", "task/5"]);

    let again = open(&server.url()).await;
    assert_eq!(again.load(&pool()).await.unwrap().version, Version(3));
    commit(&again, 3).await.unwrap();
    let after = again.records(read_up_to, 10).await.unwrap();
    assert_eq!(after.iter().map(|record| record.version).collect::<Vec<_>>(), [Version(4)]);
}

/// What takes the place of the first that is lost has no record of its own.
#[tokio::test]
async fn what_another_goes_on_without_is_listed_though_it_begins_without_events() {
    let mut server = Server::start().await.unwrap();
    let (first, other) = two(&server).await;
    for expected in 0..2 {
        commit(&first, expected).await.unwrap();
    }
    let behind = remember(&mut server.connection().await.unwrap()).await;
    for expected in 2..5 {
        commit(&first, expected).await.unwrap();
    }
    throw_back(&mut server, &behind).await;
    begin_anew(&other).await;
    take_all(&other).await;
    let silent = Batch { id: Uuid::from_u128(77), events: Vec::new(), ..batch(2) };
    other.commit(other.fence(&pool()), silent.into()).await.unwrap();
    let next = Batch { after: Uuid::from_u128(77), id: Uuid::from_u128(78), at: wall(), ..batch(3) };
    other.commit(other.fence(&pool()), next.into()).await.unwrap();
    begin_anew(&first).await;
    assert_eq!(lost(&first).await.documents, ["task/2", "task/3", "task/4"]);
}

/// The first to come has seen less than the replica has, and that has less than another one has let be read.
#[tokio::test]
async fn no_reader_misses_what_comes_after_a_failover_whoever_notices_it_first() {
    let mut server = Server::start().await.unwrap();
    let (first, other) = two(&server).await;
    for expected in 0..2 {
        commit(&first, expected).await.unwrap();
    }
    first.last_position().await.unwrap();
    commit(&first, 2).await.unwrap();
    let behind = remember(&mut server.connection().await.unwrap()).await;
    for expected in 3..6 {
        commit(&first, expected).await.unwrap();
    }
    let read_up_to = other.last_position().await.unwrap();
    throw_back(&mut server, &behind).await;
    let now = loop {
        match other.last_position().await {
            // The connection is found broken first.
            Err(StoreError(told)) if told.contains("does not answer") => {}
            now => break now,
        }
    };
    assert!(now.as_ref().is_err_and(|told| told.to_string().contains("restarted or replaced")), "{now:?}");

    begin_anew(&first).await;
    take_all(&first).await;
    commit(&first, 3).await.unwrap();
    begin_anew(&other).await;
    assert!(other.last_position().await.unwrap() > read_up_to);
    let told = async |after: u64| {
        let records = other.records(after, 10).await.unwrap();
        records.iter().map(|record| record.version.0).collect::<Vec<_>>()
    };
    assert_eq!(told(read_up_to).await, [4]);
    let read_up_to = other.last_position().await.unwrap();
    commit(&first, 4).await.unwrap();
    assert_eq!(told(read_up_to).await, [5], "a life is begun once");
}

/// With `everysec` Redis may come back with less, and nobody is left who has seen more.
#[tokio::test]
async fn no_reader_misses_what_comes_after_a_crash_of_redis_and_of_all_that_knew_it() {
    let mut server = Server::start().await.unwrap();
    let before = open(&server.url()).await;
    commit(&before, 0).await.unwrap();
    let behind = remember(&mut server.connection().await.unwrap()).await;
    commit(&before, 1).await.unwrap();
    let read_up_to = before.last_position().await.unwrap();
    drop(before);
    throw_back(&mut server, &behind).await;
    let after = open(&server.url()).await;
    commit(&after, 1).await.unwrap();
    let told = after.records(read_up_to, 10).await.unwrap();
    assert_eq!(told.iter().map(|record| record.version.0).collect::<Vec<_>>(), [2]);
    let newest = after.newest_records(2).await.unwrap();
    assert_eq!(newest, after.records(0, 10).await.unwrap(), "however far they are from one another");
    let again = open(&server.url()).await;
    assert_eq!(again.last_position().await.unwrap(), newest[1].position, "a life is begun once");
}

/// Another coordinator has taken the shard, and this one has not heard of it yet.
#[tokio::test]
async fn nothing_is_loaded_to_be_decided_under_a_fence_that_is_another_ones() {
    let server = Server::start().await.unwrap();
    let store = open(&server.url()).await;
    commit(&store, 0).await.unwrap();
    let fence = store.fence(&pool());
    let loaded = store.load(&pool()).await.unwrap();
    assert_eq!((loaded.version, loaded.batch), (Version(1), batch(0).id));
    let mut connection = server.connection().await.unwrap();
    let () = connection.hset(key("lease"), "nonce", "another").await.unwrap();
    let StoreError(problem) = store.load(&pool()).await.unwrap_err();
    assert!(problem.contains("pool/default is not this coordinator's any more"), "{problem}");
    let StoreError(again) = store.live(&pool(), "", 10).await.unwrap_err();
    assert_eq!(again, problem, "no page of it either");
    // To look at it needs no fence.
    store.held().lose(&[Shard::of(&pool())]);
    assert_eq!(store.load(&pool()).await.unwrap().version, Version(1));
    assert!(matches!(store.commit(fence, batch(1).into()).await, Err(CommitError::Fenced(_))));
}

/// A replica that takes over has the fences of the primary, so it would take what was decided before under one of them,
/// though what led to the decision is gone.
#[tokio::test]
async fn what_was_decided_in_a_former_life_of_the_server_is_not_written_in_the_next() {
    let mut server = Server::start().await.unwrap();
    let store = open(&server.url()).await;
    let fence = store.fence(&pool());
    commit(&store, 0).await.unwrap();
    let behind = remember(&mut server.connection().await.unwrap()).await;
    commit(&store, 1).await.unwrap();
    throw_back(&mut server, &behind).await;
    // The first asking finds the connection broken.
    while store.is_the_same().await.is_err() {}
    // By the clocks as they are now: that of a machine that stood still meanwhile has moved too.
    let an_hour_ahead = Timestamp(wall().0 + 3_600_000);
    assert!(store.begin_anew(an_hour_ahead).await.unwrap_err().0.contains("the clock of Redis"));
    store.begin_anew(wall()).await.unwrap();
    let late = store.commit(fence, batch(1).into()).await;
    assert_eq!(late, Err(CommitError::Fenced(fence.epoch)));
    assert_eq!(store.load(&pool()).await.unwrap().version, Version(1), "as the replica had it");
}

/// Until its owner notices, a server that took over has the leases of the one before it, but perhaps not what was
/// delivered there.
#[tokio::test]
async fn what_was_delivered_in_a_former_life_of_the_server_goes_again_in_the_next() {
    let mut server = Server::start().await.unwrap();
    let store = open(&server.url()).await;
    store.commit(store.fence(&pool()), sending().into()).await.unwrap();
    // The connection is known to lead to this life from here on.
    let chunk = Chunk { key: pool(), blob: Uuid::now_v7(), place: 0, bytes: b"bytes".to_vec(), at: wall() };
    store.write_chunk(store.fence(&pool()), chunk).await.unwrap();
    let behind = remember(&mut server.connection().await.unwrap()).await;
    let read = store.outbox(0, 10).await.unwrap();
    throw_back(&mut server, &behind).await;
    // The first asking finds the connection broken.
    for _ in 0..3 {
        let refused = store.delivered(vec![read[0].place()]).await.unwrap_err();
        assert!(!matches!(refused, CommitError::Fenced(_)), "{refused:?}");
    }
    let again = open(&server.url()).await;
    let left = again.outbox(0, 10).await.unwrap();
    assert_eq!(left.len(), 1, "it goes again");
    again.delivered(vec![left[0].place()]).await.unwrap();
    assert_eq!(again.outbox(0, 10).await.unwrap(), []);
}

/// Some may wait long for a runner that is away.
#[tokio::test]
async fn effects_of_a_batch_go_out_one_by_one_and_leave_nothing() {
    let server = Server::start().await.unwrap();
    let mut connection = server.connection().await.unwrap();
    let store = open(&server.url()).await;
    // More than one script takes out.
    for (expected, count) in [(0, 4), (1, 700)] {
        let effect = |sequence| OutboxEffect { sequence, ..sending().outbox.remove(0) };
        let batch = Batch { outbox: (1..=count).map(effect).collect(), ..batch(expected) };
        store.commit(store.fence(&pool()), batch.into()).await.unwrap();
        let all = store.outbox(0, 1000).await.unwrap();
        assert_eq!(
            all.iter().map(|entry| entry.sequence).collect::<Vec<_>>(),
            (1..=count).collect::<Vec<_>>()
        );
        for place in 0..all.len() {
            let rest = store.outbox(all[place].position, 2).await.unwrap();
            assert_eq!(rest, all[place + 1..].iter().take(2).cloned().collect::<Vec<_>>());
        }
        for _ in 0..2 {
            store.delivered(vec![all[1].place()]).await.unwrap();
            store.bury(all[3].place(), "nobody takes it".to_owned(), wall()).await.unwrap();
            // It is out already.
            store.bury(all[1].place(), "nobody takes it".to_owned(), wall()).await.unwrap();
            let left: Vec<_> =
                store.outbox(0, 1000).await.unwrap().iter().map(|entry| entry.sequence).collect();
            assert_eq!(left, (1..=count).filter(|sequence| ![2, 4].contains(sequence)).collect::<Vec<_>>());
        }
        for _ in 0..2 {
            store.delivered(all.iter().map(|entry| entry.place()).collect()).await.unwrap();
            assert_eq!(store.outbox(0, 1000).await.unwrap(), []);
            let kept: u64 = cmd("XLEN").arg(key("outbox")).query_async(&mut connection).await.unwrap();
            assert_eq!(kept, 0, "something of the batch is left");
        }
    }
    let letters = store.dead_letters(0, 10).await.unwrap();
    assert_eq!(letters.iter().map(|letter| letter.entry.sequence).collect::<Vec<_>>(), [4, 4]);
}

/// In a failover the delivery itself may be lost, and the position be another effect's.
#[tokio::test]
async fn what_a_former_owner_has_delivered_is_the_next_ones_to_take_out() {
    let server = Server::start().await.unwrap();
    let owner =
        |name: &str| Options { lease: Duration::from_millis(400), ..Options::new(server.url(), name) };
    let first = Redis::open(&owner("first"), wall()).await.unwrap();
    first.commit(first.fence(&pool()), sending().into()).await.unwrap();
    let read = first.outbox(0, 10).await.unwrap();
    let second = Redis::open(&owner("second"), wall()).await.unwrap();
    let fenced = CommitError::Fenced(second.fence(&pool()).epoch);
    assert_eq!(second.delivered(vec![read[0].place()]).await, Err(fenced));
    let again = second.outbox(0, 10).await.unwrap();
    assert_eq!((again.len(), again[0].sequence), (1, 1), "it goes again");
    second.delivered(vec![again[0].place()]).await.unwrap();
    assert_eq!(second.outbox(0, 10).await.unwrap(), []);
}
