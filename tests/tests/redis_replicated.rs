//! The store in Redis with a replica: one that has to have what is acknowledged, and one that takes over.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
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
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{UnixListener, UnixStream};

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

/// An address behind which each new connection leads to the next of some servers, and all further ones to the last.
struct Address {
    servers: Arc<Mutex<VecDeque<PathBuf>>>,
    folder: TempDir,
}

impl Address {
    fn of(server: &Server) -> Self {
        let servers = Arc::new(Mutex::new(VecDeque::from([server.socket()])));
        let address =
            Self { servers: Arc::clone(&servers), folder: TempDir::with_prefix("skein-way-").unwrap() };
        let listener = UnixListener::bind(address.path()).unwrap();
        let next = move || {
            let mut servers = servers.lock().unwrap();
            if servers.len() > 1 { servers.pop_front() } else { servers.front().cloned() }
        };
        tokio::spawn(async move {
            while let (Ok((mut near, _)), Some(server)) = (listener.accept().await, next()) {
                tokio::spawn(async move {
                    let mut far = UnixStream::connect(server).await.unwrap();
                    let _ = copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        address
    }

    fn leads_to(&self, servers: &[&Server]) {
        *self.servers.lock().unwrap() = servers.iter().map(|server| server.socket()).collect();
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }
}

/// The one that was replaced still has what is lost.
#[tokio::test]
async fn what_is_lost_is_told_by_the_server_that_took_over_alone() {
    let former = Server::in_memory().await.unwrap();
    let address = Address::of(&former);
    let store = Redis::open(&options(&format!("unix://{}", address.path().display())), wall()).await.unwrap();
    assert_eq!(commit(&store, 0).await, Ok(Version(1)));
    let (next, replication) = former.replica().await.unwrap();
    replication.cut();
    assert_eq!(commit(&store, 1).await, Ok(Version(2)));
    next.promote().await.unwrap();

    address.leads_to(&[&next, &former, &next]);
    let begun = store.begin_anew(wall()).await;
    assert!(begun.is_err(), "it took the word of the former one");
    store.begin_anew(wall()).await.unwrap();
    let incidents = store.incidents().await.unwrap();
    let [incident] = &incidents[..] else { panic!("{incidents:?}") };
    assert_eq!(incident.lost.iter().map(|lost| lost.commits).sum::<usize>(), 1);
}
