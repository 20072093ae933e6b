//! The store in Redis with a replica that has to have what is acknowledged.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, cmd};
use skein_coordinator::alarms::{Alarms, Kind};
use skein_coordinator::store::redis::{Durability, Options, Redis};
use skein_coordinator::store::{CommitError, Version};
use skein_tests::ports;
use skein_tests::process;
use skein_tests::redis::{LASTING, Make, Server};
use skein_tests::stored::{commit, key, options, refusal, settle, wall};

async fn replication(connection: &mut MultiplexedConnection) -> String {
    cmd("INFO").arg("replication").query_async(connection).await.unwrap()
}

/// A primary, and a replica that follows it, both of one make.
async fn pair(make: Make, of_the_replica: &[&str]) -> (Server, Server) {
    let port = ports::free().unwrap().to_string();
    let settings = ["--port", &port, "--repl-diskless-sync-delay", "0", "--appendonly", "yes"];
    let primary = Server::start_as(make, &settings).await.unwrap();
    let place = format!("127.0.0.1 {port}");
    let replica = Server::start_as(make, &[&["--replicaof", &place], of_the_replica].concat()).await.unwrap();
    let mut connection = primary.connection().await.unwrap();
    while !replication(&mut connection).await.contains("state=online") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (primary, replica)
}

async fn wants_a_replica(primary: &Server) {
    let set = cmd("CONFIG").arg("SET").arg("min-replicas-to-write").arg(1).to_owned();
    let () = set.query_async(&mut primary.connection().await.unwrap()).await.unwrap();
}

fn replicated(primary: &Server, alarms: &Alarms) -> Options {
    Options {
        durability: Durability::Replicated,
        // Half of it is the replica's: longer than one takes that waits for a processor.
        answer: Duration::from_secs(10),
        alarms: alarms.clone(),
        ..options(&primary.url())
    }
}

fn shown(alarms: &Alarms) -> Vec<(Kind, String)> {
    alarms.all().into_iter().map(|alarm| (alarm.kind, alarm.problem)).collect()
}

async fn version_at(server: &Server) -> Option<String> {
    server.connection().await.unwrap().hget(key("entity:pool/default"), "version").await.unwrap()
}

#[tokio::test]
async fn what_is_replicated_waits_for_the_replica() {
    let (primary, replica) = pair(Make::Redis, &[]).await;
    assert!(refusal(&primary.url(), Durability::Replicated).await.contains("min-replicas-to-write 1"));
    wants_a_replica(&primary).await;
    assert!(refusal(&replica.url(), Durability::Everysec).await.contains("name the primary"));

    let alarms = Alarms::default();
    let store = Redis::open(&replicated(&primary, &alarms), wall()).await.unwrap();
    assert_eq!(commit(&store, 0).await, Ok(Version(1)));
    assert_eq!(shown(&alarms), []);
    assert_eq!(version_at(&replica).await.as_deref(), Some("1"), "the replica has it before the answer");
    process::freeze(replica.id().unwrap()).await.unwrap();
    let answer = commit(&store, 1).await;
    process::thaw(replica.id().unwrap()).unwrap();
    assert!(matches!(&answer, Err(CommitError::Unknown(said)) if said.contains("no replica")), "{answer:?}");
    let [(Kind::StoreUnconfirmed, said)] = &shown(&alarms)[..] else { panic!("{:?}", shown(&alarms)) };
    assert!(said.contains("see that the replicas run"), "{said}");
    assert_eq!(settle(&store, 1).await, Ok(Version(2)));
    assert_eq!(shown(&alarms), []);
    drop(replica);
    // The server counts its replicas once a second.
    let mut connection = primary.connection().await.unwrap();
    while !replication(&mut connection).await.contains("min_slaves_good_slaves:0") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let answer = commit(&store, 2).await;
    assert!(
        matches!(&answer, Err(CommitError::Failed(said)) if said.contains("too few replicas")),
        "{answer:?}"
    );
}

/// A server that can be asked for it is (`WAITAOF`, from version 7.2 on): a replica that has a write in memory alone
/// would lose it with its power.
#[tokio::test]
async fn what_is_replicated_waits_for_the_log_of_the_replica_where_the_server_can_say() {
    let (primary, replica) = pair(Make::Valkey, LASTING).await;
    wants_a_replica(&primary).await;
    let alarms = Alarms::default();
    let store = Redis::open(&replicated(&primary, &alarms), wall()).await.unwrap();
    // A replica that has just begun to follow writes its log anew first.
    assert_eq!(settle(&store, 0).await, Ok(Version(1)));
    assert_eq!((shown(&alarms), version_at(&replica).await.as_deref()), (Vec::new(), Some("1")));

    let mut connection = replica.connection().await.unwrap();
    let log = |on: &str| cmd("CONFIG").arg("SET").arg("appendonly").arg(on).to_owned();
    let () = log("no").query_async(&mut connection).await.unwrap();
    let answer = commit(&store, 1).await;
    assert!(matches!(&answer, Err(CommitError::Unknown(said)) if said.contains("in its log")), "{answer:?}");
    assert_eq!(version_at(&replica).await.as_deref(), Some("2"), "it has it in memory");
    let [(Kind::StoreUnconfirmed, said)] = &shown(&alarms)[..] else { panic!("{:?}", shown(&alarms)) };
    assert!(said.contains("appendonly yes"), "{said}");
    let () = log("yes").query_async(&mut connection).await.unwrap();
    assert_eq!(settle(&store, 1).await, Ok(Version(2)));
    assert_eq!(shown(&alarms), []);
}
