//! Who has a shard of the store in Redis, and under which epoch: leases, their owners, and what passes them by.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::slice;
use std::time::Duration;

use redis::{AsyncCommands, cmd};
use skein_coordinator::alarms::{Alarms, Kind};
use skein_coordinator::store::redis::lease::{Acquired, Kept};
use skein_coordinator::store::redis::members::Members;
use skein_coordinator::store::redis::shard::Shard;
use skein_coordinator::store::redis::{Options, Redis};
use skein_coordinator::store::{CommitError, Store, StoreError, Version};
use skein_shared::fence::Epoch;
use skein_tests::redis::Server;
use skein_tests::sentinel::Watched;
use skein_tests::stored::{commit, open, options, pool, wall};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// A failover may lead to a replica that lacks the last leases, on a machine whose clock is behind.
#[tokio::test]
async fn a_shard_is_taken_above_every_epoch_that_was_seen() {
    let server = Server::start().await.unwrap();
    let mut connection = server.connection().await.unwrap();
    let survivor = Redis::join(&options(&server.url()), wall()).await.unwrap();
    let shards: Vec<Shard> = Shard::all().take(2).collect();
    let (ahead, absurd) = (wall().0 + 30_000, wall().0 + 3_600_000);
    let () = connection.hset(shards[0].key("lease"), "epoch", ahead).await.unwrap();
    survivor.leases().all().await.unwrap();
    let _: i64 = connection.del(shards[0].key("lease")).await.unwrap();
    for taken in survivor.leases().acquire(&shards).await.unwrap() {
        let Ok(Acquired::Taken(fence)) = taken else { panic!("{taken:?}") };
        assert!(fence.epoch.0 > ahead, "{} after {ahead}", fence.epoch);
    }
    // What no clock says is garbage, and stays with its lease: what was seen of the others counts as before.
    let () = connection.hset(shards[1].key("lease"), "epoch", absurd).await.unwrap();
    survivor.leases().all().await.unwrap();
    for _ in 0..2 {
        let _: i64 = connection.del(shards[0].key("lease")).await.unwrap();
        let taken = survivor.leases().acquire(&shards).await.unwrap();
        let [Ok(Acquired::Taken(fence)), Ok(Acquired::Taken(garbage))] = &taken[..] else {
            panic!("{taken:?}")
        };
        assert!(fence.epoch.0 > ahead && fence.epoch.0 < absurd, "{} after {ahead}", fence.epoch);
        assert!(garbage.epoch.0 > absurd, "{} after {absurd}", garbage.epoch);
    }
}

/// A Redis that was replaced and went on has given the shard away meanwhile: runners and guarded resources that heard
/// of that epoch would refuse its owner here for ever.
#[tokio::test]
async fn a_lease_that_another_redis_has_passed_is_taken_anew_above_it() {
    let server = Server::start().await.unwrap();
    let mut connection = server.connection().await.unwrap();
    let join = async |owner: &str| Redis::join(&Options::new(server.url(), owner), wall()).await.unwrap();
    let (owner, other) = (join("owner").await, join("other").await);
    let shard = Shard::all().next().unwrap();
    let taken = owner.leases().acquire(&[shard]).await.unwrap().remove(0);
    let Ok(Acquired::Taken(fence)) = taken else { panic!("{taken:?}") };
    // What no clock says counts for nothing once it is mended.
    let () = connection.hset(shard.key("lease"), "epoch", wall().0 + 3_600_000).await.unwrap();
    other.leases().all().await.unwrap();
    let passed = fence.epoch.0 + 5_000;
    for epoch in [passed, fence.epoch.0] {
        let () = connection.hset(shard.key("lease"), "epoch", epoch).await.unwrap();
        owner.leases().renew(&[(shard, fence)]).await.unwrap();
        other.leases().all().await.unwrap();
    }
    let renewed = owner.leases().renew(&[(shard, fence)]).await.unwrap().remove(0);
    assert_eq!(renewed.unwrap(), Kept::Fenced(Epoch(passed)));
    let again = owner.leases().acquire(&[shard]).await.unwrap().remove(0);
    let Ok(Acquired::Taken(anew)) = again else { panic!("{again:?}") };
    assert!(anew.epoch.0 > passed, "{} after {passed}", anew.epoch);
    let stands = other.leases().all().await.unwrap();
    assert_eq!((stands[0].epoch, stands[0].held), (anew.epoch, true), "and it is left alone");
    // One that was emptied has no leases below that, but no leases.
    let () = cmd("FLUSHDB").query_async(&mut connection).await.unwrap();
    other.leases().all().await.unwrap();
    assert_eq!(connection.keys::<_, Vec<String>>("*").await.unwrap(), [""; 0]);
}

/// Everybody wants the store at one moment; one gets it, and the others are told who has it.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_owners_one_gets_the_store() {
    let server = Server::in_memory().await.unwrap();
    let mut racing = tokio::task::JoinSet::new();
    for number in 0..4 {
        let mut options = Options::new(server.url(), format!("owner-{number}"));
        // Its renewals come late on a busy machine, and the others wait for its end twice.
        options.lease = Duration::from_secs(5);
        racing.spawn(async move {
            let store = Redis::open(&options, wall()).await?;
            let stop = CancellationToken::new();
            tokio::spawn({
                let stop = stop.clone();
                async move { store.keep(stop).await }
            });
            Ok::<_, StoreError>(stop)
        });
    }
    let outcomes = racing.join_all().await;
    let (taken, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!(taken.len(), 1);
    for refusal in refused {
        let said = refusal.err().unwrap().to_string();
        assert!(said.contains("another coordinator (owner-"), "{said}");
    }
    // Who gives the store up leaves it to the next one at once.
    taken.into_iter().next().unwrap().unwrap().cancel();
    Redis::open(&Options::new(server.url(), "next"), wall()).await.unwrap();
}

/// With a lease of its own length, in milliseconds.
fn lasting(server: &Server, owner: &str, lease: u64) -> Options {
    Options { lease: Duration::from_millis(lease), ..Options::new(server.url(), owner) }
}

/// A command of a coordinator that was killed goes by its name, and gets the shards that this had.
#[tokio::test]
async fn who_waits_for_the_whole_store_in_vain_leaves_to_others_what_it_could_have() {
    let server = Server::start().await.unwrap();
    let killed = Redis::join(&lasting(&server, "killed", 2000), wall()).await.unwrap();
    let serving = Redis::join(&lasting(&server, "serving", 2000), wall()).await.unwrap();
    let all: Vec<Shard> = Shard::all().collect();
    let (before, others) = all.split_at(123);
    let mut held = Vec::new();
    for (store, shards) in [(&killed, before), (&serving, others)] {
        held.clear();
        for (shard, taken) in shards.iter().zip(store.leases().acquire(shards).await.unwrap()) {
            let Ok(Acquired::Taken(fence)) = taken else { panic!("{taken:?}") };
            held.push((*shard, fence));
        }
    }
    let leases = serving.leases().clone();
    let renewing = tokio::spawn(async move {
        let mut due = tokio::time::interval(Duration::from_millis(200));
        loop {
            due.tick().await;
            leases.renew(&held).await.unwrap();
        }
    });
    let brief = lasting(&server, "killed", 1000);
    let refused = Redis::open(&brief, wall()).await.err().unwrap().to_string();
    assert!(refused.contains("another coordinator (serving"), "{refused}");
    renewing.abort();
    let taken = serving.leases().acquire(before).await.unwrap();
    assert!(taken.iter().all(|taken| matches!(taken, Ok(Acquired::Taken(_)))), "{taken:?}");
}

/// It waits for the end of the leases of whoever imports, who may be killed.
#[tokio::test]
async fn who_has_joined_before_an_import_takes_nothing_of_what_it_has_not_filled_yet() {
    let server = Server::start().await.unwrap();
    let alarms = Alarms::default();
    let waiting = Options { alarms: alarms.clone(), ..Options::new(server.url(), "waiting") };
    let (store, other) = (open(&server.url()).await, Redis::join(&waiting, wall()).await.unwrap());
    store.mark_import(true).await.unwrap();
    assert_eq!(store.is_the_same().await, Ok(true), "it is the one that fills it");
    store.leases().release(&store.held().all()).await.unwrap();
    let all: Vec<Shard> = Shard::all().collect();
    let answers = other.leases().acquire(&all).await.unwrap();
    assert!(answers.iter().all(|answer| *answer == Ok(Acquired::Importing)), "{answers:?}");
    let StoreError(said) = other.is_the_same().await.unwrap_err();
    let unfit = || {
        let raised = alarms.all().into_iter().filter(|alarm| alarm.kind == Kind::StoreUnfit);
        raised.map(|alarm| alarm.problem).collect::<Vec<_>>()
    };
    assert_eq!(unfit(), slice::from_ref(&said));
    assert!(said.contains("FLUSHDB") && said.contains("import again"), "{said}");

    store.mark_import(false).await.unwrap();
    assert_eq!(other.is_the_same().await, Ok(true));
    assert_eq!(unfit(), [""; 0]);
    let answers = other.leases().acquire(&all).await.unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Acquired::Taken(_)))), "{answers:?}");
}

/// It stood still for longer than its leases, and the store is another one's that serves it.
#[tokio::test]
async fn an_import_that_has_lost_the_store_makes_no_part_of_one_of_it() {
    let server = Server::start().await.unwrap();
    let store = open(&server.url()).await;
    store.leases().release(&store.held().all()).await.unwrap();
    let other = Redis::open(&Options::new(server.url(), "other"), wall()).await.unwrap();
    let refused = store.mark_import(true).await;
    let is_told = |said: &str| said.contains("another coordinator has taken shard 0");
    assert!(matches!(&refused, Err(CommitError::Failed(said)) if is_told(said)), "{refused:?}");
    assert_eq!(other.is_the_same().await, Ok(true));
}

#[tokio::test]
async fn an_owner_that_died_is_succeeded_when_its_lease_ends() {
    let server = Server::start().await.unwrap();
    let owner =
        |name: &str| Options { lease: Duration::from_millis(400), ..Options::new(server.url(), name) };
    let first = Redis::open(&owner("first"), wall()).await.unwrap();
    commit(&first, 0).await.unwrap();
    let second = Redis::open(&owner("second"), wall()).await.unwrap();
    let epoch = second.fence(&pool()).epoch;
    assert_eq!(commit(&first, 1).await, Err(CommitError::Fenced(epoch)), "it comes back too late");
    let lost = first.keep(CancellationToken::new()).await.unwrap_err().to_string();
    assert!(lost.contains("another coordinator has taken"), "{lost}");
    assert_eq!(commit(&second, 1).await, Ok(Version(2)));
}

/// What it waits for is said by the leases of the dead, not by its own.
#[tokio::test]
async fn who_wants_the_whole_store_waits_for_one_that_died_though_its_lease_was_longer() {
    let server = Server::start().await.unwrap();
    let dead = Redis::open(&lasting(&server, "dead", 2000), wall()).await.unwrap();
    commit(&dead, 0).await.unwrap();
    let next = Redis::open(&lasting(&server, "next", 400), wall()).await.unwrap();
    assert_eq!(commit(&next, 1).await, Ok(Version(2)));
}

/// It was given up, and asked again over another connection.
#[tokio::test]
async fn what_comes_late_takes_no_shard_from_its_own_owner() {
    let server = Server::start().await.unwrap();
    let (first, late) = (joined(&server).await, joined(&server).await);
    let shard = Shard::all().next().unwrap();
    let Acquired::Taken(fence) = wants(&first, shard).await else { panic!("it is nobody's") };
    let answer = late.leases().acquire(&[shard]).await.unwrap().remove(0).unwrap();
    assert!(matches!(&answer, Acquired::Held { owner, .. } if owner == "owner"), "{answer:?}");
    assert_eq!(first.leases().renew(&[(shard, fence)]).await.unwrap(), [Ok(Kept::Done)]);
    // Who begins under the name has seen what there is.
    let Acquired::Taken(anew) = wants(&late, shard).await else { panic!("it is its own") };
    assert!(anew.epoch > fence.epoch);
}

/// An owner that holds nothing yet.
async fn joined(server: &Server) -> Redis {
    Redis::join(&options(&server.url()), wall()).await.unwrap()
}

/// What one who looks is told who wants a shard.
async fn wants(store: &Redis, shard: Shard) -> Acquired {
    store.leases().all().await.unwrap();
    store.leases().acquire(&[shard]).await.unwrap().remove(0).unwrap()
}

/// Or is that of a replica that is ahead: what was written before seems to have ended.
#[tokio::test]
async fn a_clock_of_redis_that_is_set_forward_gives_no_shard_away() {
    let server = Server::start().await.unwrap();
    let mut connection = server.connection().await.unwrap();
    let owner = |name: &str| Options { lease: Duration::from_secs(60), ..Options::new(server.url(), name) };
    let join = async |name: &str| Redis::join(&owner(name), wall()).await.unwrap();
    let (first, second) = (join("first").await, join("second").await);
    let shard = Shard::all().next().unwrap();
    let Acquired::Taken(fence) = wants(&first, shard).await else { panic!("it is nobody's") };
    assert!(matches!(wants(&second, shard).await, Acquired::Held { .. }));
    let () = connection.hset(shard.key("lease"), "until", wall().0 - 30_000).await.unwrap();
    // One that has not watched it knows of nothing else.
    for store in [&second, &join("third").await] {
        let Acquired::Held { owner, ends_in, .. } = wants(store, shard).await else { panic!("it is taken") };
        assert!(owner == "first" && ends_in > Duration::from_secs(30), "{owner}'s ends in {ends_in:?}");
        assert!(store.leases().all().await.unwrap()[0].held);
    }
    assert_eq!(first.leases().renew(&[(shard, fence)]).await.unwrap(), [Ok(Kept::Done)]);
    // It need not watch one that ended long ago, as no clock is set by so much.
    let () = connection.hset(shard.key("lease"), "until", wall().0 - 3_600_000).await.unwrap();
    assert!(matches!(wants(&second, shard).await, Acquired::Held { .. }));
    assert!(matches!(wants(&join("fourth").await, shard).await, Acquired::Taken(_)));
    let renewed = first.leases().renew(&[(shard, fence)]).await.unwrap().remove(0);
    assert!(matches!(renewed, Ok(Kept::Fenced(_))), "{renewed:?}");
}

/// What was written before seems to last for an hour.
#[tokio::test]
async fn a_clock_of_redis_that_is_set_back_keeps_no_shard_of_one_that_died() {
    let server = Server::start().await.unwrap();
    let mut connection = server.connection().await.unwrap();
    let owner =
        |name: &str| Options { lease: Duration::from_millis(400), ..Options::new(server.url(), name) };
    let first = Redis::open(&owner("first"), wall()).await.unwrap();
    for shard in Shard::all() {
        let () = connection.hset(shard.key("lease"), "until", wall().0 + 3_600_000).await.unwrap();
    }
    let second = Redis::open(&owner("second"), wall()).await.unwrap();
    let epoch = second.fence(&pool()).epoch;
    assert_eq!(commit(&first, 0).await, Err(CommitError::Fenced(epoch)));
}

/// What is heard by one who says that it lives, and names those who are silent.
async fn heard(members: &Members, silent: &[(String, u64)]) -> Vec<String> {
    let heard = members.beat("a", "a lives", Duration::from_secs(5), silent).await.unwrap().unwrap();
    let mut records: Vec<String> = heard.said.into_iter().map(|said| said.record).collect();
    records.sort();
    records
}

#[tokio::test]
async fn no_clock_of_redis_takes_a_node_off_the_list_of_those_who_live() {
    let server = Server::start().await.unwrap();
    let mut connection = server.connection().await.unwrap();
    let members = Redis::join(&options(&server.url()), wall()).await.unwrap().members();
    let () = connection.hset("{skein}:members", "b", "1 b lives").await.unwrap();
    let () = connection.hset("{skein}:members", "garbage", "b lives").await.unwrap();
    assert_eq!(heard(&members, &[]).await, ["a lives", "b lives"]);
    let silent = |until| [("b".to_owned(), until)];
    assert_eq!(heard(&members, &silent(2)).await, ["a lives", "b lives"], "it has said something since");
    assert_eq!(heard(&members, &silent(1)).await, ["a lives"]);
}

/// Cut off from Redis an owner ends before another one may have the store.
#[tokio::test]
async fn an_owner_without_redis_ends_before_its_lease() {
    let mut server = Server::start().await.unwrap();
    let options = Options { lease: Duration::from_secs(2), ..options(&server.url()) };
    let store = Redis::open(&options, wall()).await.unwrap();
    server.kill().await.unwrap();
    let kept = tokio::time::timeout(options.lease, store.keep(CancellationToken::new())).await;
    let lost = kept.expect("it ends within the lease").unwrap_err().to_string();
    assert!(lost.contains("could not be renewed for 1.6s"), "{lost}");
}

/// A way to a server, and later to another one. Connections stay with the server to which they lead.
struct Way(TempDir);

impl Way {
    fn to(server: &Server) -> Self {
        let way = Self(TempDir::with_prefix("skein-way-").unwrap());
        way.leads_to(server);
        way
    }

    fn leads_to(&self, server: &Server) {
        let _ = std::fs::remove_file(self.path());
        symlink(server.socket(), self.path()).unwrap();
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("redis.sock")
    }

    fn url(&self) -> String {
        format!("unix://{}", self.path().display())
    }
}

/// It ends no connection when it becomes a replica.
#[tokio::test]
async fn a_server_that_became_a_replica_is_left_for_the_one_to_which_the_way_leads() {
    let (former, next) = (Server::start().await.unwrap(), Server::start().await.unwrap());
    let way = Way::to(&former);
    let store = Redis::join(&options(&way.url()), wall()).await.unwrap();
    let shard = Shard::all().next().unwrap();
    let taken = store.leases().acquire(&[shard]).await.unwrap().remove(0);
    let Ok(Acquired::Taken(fence)) = taken else { panic!("{taken:?}") };
    way.leads_to(&next);
    let mut connection = former.connection().await.unwrap();
    let () = cmd("REPLICAOF").arg("127.0.0.1").arg(1).query_async(&mut connection).await.unwrap();
    let StoreError(refused) = store.leases().renew(&[(shard, fence)]).await.unwrap_err();
    assert!(refused.contains("name the primary"), "{refused}");
    let renewed = store.leases().renew(&[(shard, fence)]).await.unwrap().remove(0);
    assert_eq!(renewed.unwrap(), Kept::Fenced(Epoch(0)), "the next one has no such lease");

    // The same for a single question.
    way.leads_to(&former);
    let mut connection = next.connection().await.unwrap();
    let () = cmd("REPLICAOF").arg("127.0.0.1").arg(1).query_async(&mut connection).await.unwrap();
    let mut connection = former.connection().await.unwrap();
    let () = cmd("REPLICAOF").arg("NO").arg("ONE").query_async(&mut connection).await.unwrap();
    let StoreError(refused) = store.members().leave("a").await.unwrap_err();
    assert!(refused.contains("name the primary"), "{refused}");
    store.members().leave("a").await.unwrap();
}

#[tokio::test]
async fn who_doubts_looks_at_the_server_to_which_the_way_leads_now() {
    let (former, next) = (Server::start().await.unwrap(), Server::start().await.unwrap());
    let way = Way::to(&former);
    let store = Redis::join(&options(&way.url()), wall()).await.unwrap();
    way.leads_to(&next);
    assert_eq!(store.is_the_same().await, Ok(true), "its connection stays with that");
    store.doubt();
    assert_eq!(store.is_the_same().await, Ok(false));
}

/// It takes no writes for want of replicas, and answers everything else. The sentinel that is cut off with it goes on
/// naming it, comes first in the URL, and is reached as well as the other one.
#[tokio::test]
async fn a_primary_that_is_cut_off_with_its_owner_is_left_for_the_one_that_the_sentinels_name() {
    let mut watched = Watched::start().await.unwrap();
    let store = Redis::join(&options(&watched.url_of_both()), wall()).await.unwrap();
    let shard = Shard::all().next().unwrap();
    let taken = store.leases().acquire(&[shard]).await.unwrap().remove(0);
    let Ok(Acquired::Taken(fence)) = taken else { panic!("{taken:?}") };
    watched.cut_off_the_primary().await.unwrap();
    let StoreError(refused) = store.leases().renew(&[(shard, fence)]).await.unwrap_err();
    assert!(refused.contains("min-replicas-to-write"), "{refused}");
    assert_eq!(store.is_the_same().await, Ok(false));
}
