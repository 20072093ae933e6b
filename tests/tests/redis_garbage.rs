//! Keys of Redis that another program has written into: what they belong to stands still, is named, and nothing else.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

#[path = "redis_garbage/streams.rs"]
mod streams;

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, cmd};
use skein_coordinator::alarms::{Alarms, Kind};
use skein_coordinator::store::conformance::nothing;
use skein_coordinator::store::redis::lease::Acquired;
use skein_coordinator::store::redis::shard::Shard;
use skein_coordinator::store::redis::{Options, Redis};
use skein_coordinator::store::{
    Batch, Chunk, CommitError, Fence, OutboxEntry, OutboxPlace, Store, StoreError, TimerChange, TrimPlan,
    Version,
};
use skein_shared::entity::DocumentChange;
use skein_shared::id::{EntityKey, Name};
use skein_shared::time::Timestamp;
use skein_tests::redis::{LASTING, Make, Server};
use skein_tests::stored::{batch, commit, key, open, options, pool, sending, wall};
use uuid::Uuid;

/// The position of the last batch of all shards.
const POSITION: &str = "{skein}:position";

/// A server, and a connection by which another program writes into it.
async fn started() -> (Server, MultiplexedConnection) {
    let server = Server::start().await.unwrap();
    let connection = server.connection().await.unwrap();
    (server, connection)
}

async fn empty(server: &Server) {
    let () = cmd("FLUSHDB").query_async(&mut server.connection().await.unwrap()).await.unwrap();
}

/// The only coordinator, on an emptied server, with the first batch of the pool.
async fn alone(server: &Server) -> Redis {
    empty(server).await;
    let store = open(&server.url()).await;
    commit(&store, 0).await.unwrap();
    store
}

/// The words with which a batch of the pool is refused, which name the key in its way.
async fn refusal(store: &Redis, batch: Batch, spoilt: &str) -> String {
    match store.commit(store.fence(&pool()), batch.into()).await {
        Err(CommitError::Failed(said)) => {
            assert!(said.contains(spoilt), "{said}");
            said
        }
        outcome => panic!("{spoilt} is in the way, and yet: {outcome:?}"),
    }
}

/// Puts something else in the place of a key.
async fn spoil(connection: &mut MultiplexedConnection, key: &str) {
    let _: i64 = connection.del(key).await.unwrap();
    let () = connection.set(key, "scribble").await.unwrap();
}

/// As long a change as is put behind the body at once.
const MANY: usize = 8192;

/// A batch that changes what the first one made, by some bytes.
fn changing(bytes: usize) -> Batch {
    let body = Some(serde_json::json!({"text": "x".repeat(bytes)}).into());
    let head = serde_json::json!({"n": 0}).into();
    let change = DocumentChange::Put { key: "task/0".to_owned(), live: true, head, body, new: false };
    Batch { documents: vec![change], ..batch(1) }
}

#[tokio::test]
async fn garbage_in_a_key_is_named_and_nothing_is_written_beside_it() {
    let (server, mut connection) = started().await;
    let ours = [
        "entity:pool/default",
        "documents:pool/default",
        "live:pool/default",
        "heads:pool/default",
        "bodies:pool/default",
        "changes:pool/default",
        "events",
        "timers",
    ];
    for spoilt in ours.map(key).into_iter().chain([POSITION.to_owned()]) {
        let store = alone(&server).await;
        spoil(&mut connection, &spoilt).await;
        let before: Vec<String> = connection.keys("*").await.unwrap();
        refusal(&store, batch(1), &spoilt).await;
        assert_eq!(connection.keys::<_, Vec<String>>("*").await.unwrap().len(), before.len(), "{spoilt}");
    }

    let store = alone(&server).await;
    let names = |problem: StoreError, name: &str| assert!(problem.0.contains(&key(name)), "{problem}");
    let (bodies, changes, heads) = ("bodies:pool/default", "changes:pool/default", "heads:pool/default");
    for hash in [bodies, changes] {
        let () = connection.hset(key(hash), "task/0", "{no json").await.unwrap();
        names(store.document(&pool(), "task/0").await.unwrap_err(), hash);
        names(store.documents(None, 10).await.unwrap_err(), hash);
        names(store.documents_of(&pool(), "", 10).await.unwrap_err(), hash);
        let _: i64 = connection.hdel(key(hash), "task/0").await.unwrap();
    }
    for hash in [bodies, changes] {
        spoil(&mut connection, &key(hash)).await;
        names(store.document(&pool(), "task/0").await.unwrap_err(), hash);
        let change = changing(if hash == bodies { MANY } else { 1 });
        refusal(&store, change, &key(hash)).await;
        let _: i64 = connection.del(key(hash)).await.unwrap();
    }
    let () = connection.hset(key(heads), "task/0", "1 many 5 {}").await.unwrap();
    names(store.document(&pool(), "task/0").await.unwrap_err(), heads);
    names(store.load(&pool()).await.unwrap_err(), heads);
    let () = connection.hset(key("entity:pool/default"), "version", "many").await.unwrap();
    names(store.load(&pool()).await.unwrap_err(), "entity:pool/default");
    names(store.versions().await.unwrap_err(), "entity:pool/default");
    spoil(&mut connection, &key("events")).await;
    names(store.records(0, 10).await.unwrap_err(), "events");
    names(store.history(&pool(), Version(0), 10).await.unwrap_err(), "events");
    spoil(&mut connection, &key("lease")).await;
    names(Redis::open(&options(&server.url()), wall()).await.err().unwrap(), "lease");
}

/// A shard before that of the pool, with an entity of its own.
fn agent() -> EntityKey {
    let swarm = Name::parse("default").unwrap();
    let mut agents = (0..).map(|n| EntityKey::agent(&swarm, &Name::parse(&format!("a{n}")).unwrap()));
    agents.find(|key| Shard::of(key) < Shard::of(&pool())).unwrap()
}

/// A coordinator among others, on an emptied server, which has the shards of the pool and of [`agent`], each
/// with a batch and an effect.
async fn member(server: &Server) -> (Redis, Alarms) {
    empty(server).await;
    let alarms = Alarms::default();
    let options = Options { alarms: alarms.clone(), ..options(&server.url()) };
    let store = Redis::join(&options, wall()).await.unwrap();
    take(&store, &[Shard::of(&pool()), Shard::of(&agent())]).await;
    for key in [pool(), agent()] {
        let timer = TimerChange::Set(Timestamp(5));
        let batch = Batch { key: key.clone(), timer, ..sending() };
        store.commit(store.fence(&key), batch.into()).await.unwrap();
    }
    (store, alarms)
}

async fn take(store: &Redis, shards: &[Shard]) {
    // One of the same name may have them.
    store.leases().all().await.unwrap();
    for (shard, taken) in shards.iter().zip(store.leases().acquire(shards).await.unwrap()) {
        let Ok(Acquired::Taken(fence)) = taken else { panic!("{taken:?}") };
        store.held().take(*shard, fence, None);
    }
}

fn all_that_is_old() -> TrimPlan {
    TrimPlan { now: wall(), events_before: Timestamp::NEVER, events_per_entity: u64::MAX, ..nothing() }
}

#[tokio::test]
async fn what_is_spoilt_is_left_out_and_what_was_left_out_comes_once_it_is_mended() {
    let (server, mut connection) = started().await;
    let (store, alarms) = member(&server).await;
    let spoilt = Shard::of(&agent());
    let lists = ["timers", "outbox", "entities", "events", "mark-ages"].map(|list| spoilt.key(list));
    for list in &lists {
        let _ = connection.rename::<_, _, String>(list, format!("{list}-aside")).await;
        spoil(&mut connection, list).await;
    }
    let sources = |page: Vec<OutboxEntry>| page.into_iter().map(|entry| entry.source).collect::<Vec<_>>();
    assert_eq!(sources(store.outbox(0, 10).await.unwrap()), [pool()]);
    assert_eq!(store.timers(10).await.unwrap(), [(pool(), Timestamp(5))]);
    assert_eq!(store.versions().await.unwrap(), [(pool(), Version(1))]);
    assert_eq!(store.documents(None, 10).await.unwrap().len(), 1);
    assert_eq!(store.records(0, 10).await.unwrap().len(), 1);
    // The spoilt shard comes first.
    assert_eq!(store.trim(all_that_is_old()).await.unwrap().records, 1);
    let shown: Vec<String> = alarms.all().into_iter().map(|alarm| alarm.subject).collect();
    for list in &lists[..4] {
        assert!(shown.contains(list), "{list} is not among {shown:?}");
    }

    for list in &lists[..4] {
        let () = connection.rename(format!("{list}-aside"), list).await.unwrap();
    }
    // Who has read on meanwhile begins anew, as with a shard that comes.
    assert_eq!(store.outbox(0, 10).await.unwrap().len(), 2);
    assert_eq!(store.fence(&agent()), Fence::NONE);
    let _ = store.records(0, 10).await.unwrap();
    take(&store, &[spoilt]).await;
    assert_eq!(store.versions().await.unwrap().len(), 2);
    take(&store, &[spoilt]).await;
    assert_eq!(store.timers(10).await.unwrap().len(), 2);
    take(&store, &[spoilt]).await;
    assert_eq!(store.outbox(0, 10).await.unwrap().len(), 2);
    assert_ne!(store.fence(&agent()), Fence::NONE);
}

/// What touches a key.
#[derive(Clone, Copy)]
enum Touch {
    Position,
    Timers,
    Beat,
    Members,
    Outbox,
    DeadLetters,
    Bury,
    Chunk,
    Trim,
}

async fn touch(store: &Redis, touch: Touch) {
    let (key, number) = (pool(), Timestamp(1));
    let fence = store.fence(&key);
    // Whether it is refused or goes on without the key is another matter.
    match touch {
        Touch::Position => drop(store.last_position().await),
        Touch::Timers => drop(store.timers(10).await),
        Touch::Beat => {
            assert_eq!(store.members().beat("a", "{}", Duration::from_secs(9), &[]).await, Ok(None))
        }
        Touch::Members => assert_eq!(store.members().all().await, Ok(Vec::new())),
        Touch::Outbox => drop(store.outbox(0, 10).await),
        Touch::DeadLetters => drop(store.dead_letters(0, 10).await),
        Touch::Bury => {
            let effect = store.outbox(0, 10).await.unwrap().into_iter().find(|effect| effect.source == key);
            drop(store.bury(effect.unwrap().place(), "nobody takes it".to_owned(), number).await);
        }
        Touch::Chunk => {
            let chunk = Chunk { key, blob: Uuid::nil(), place: 0, bytes: vec![1], at: number };
            drop(store.write_chunk(fence, chunk).await);
        }
        Touch::Trim => drop(store.trim(all_that_is_old()).await),
    }
}

#[tokio::test]
async fn garbage_of_each_kind_is_an_alarm_that_names_its_key() {
    let (server, mut connection) = started().await;
    let chunks = format!("chunks:pool/default:{}", Uuid::nil());
    let of_all = |name: &str| format!("{{skein}}:{name}");
    for (spoilt, by) in [
        (of_all("position"), Touch::Position),
        (of_all("inhabited"), Touch::Timers),
        (of_all("members"), Touch::Beat),
        (of_all("members"), Touch::Members),
        (key("dead-ages"), Touch::Bury),
        (key("timers"), Touch::Timers),
        (key("outbox"), Touch::Outbox),
        (key("dead-order"), Touch::DeadLetters),
        (key(&chunks), Touch::Chunk),
        (key("loose"), Touch::Chunk),
        (key("archived"), Touch::Trim),
    ] {
        let (store, alarms) = member(&server).await;
        let _: i64 = connection.del(&spoilt).await.unwrap();
        let _: i64 = connection.lpush(&spoilt, "scribble").await.unwrap();
        touch(&store, by).await;
        let shown: Vec<_> = alarms.all().into_iter().map(|alarm| (alarm.kind, alarm.subject)).collect();
        assert_eq!(shown, [(Kind::StoreGarbage, spoilt)]);
    }

    // One entry alone.
    let (store, alarms) = member(&server).await;
    let _: i64 = connection.zadd(key("entities"), "nobody", 0).await.unwrap();
    let mut there = store.entities().await.unwrap();
    there.sort_by_key(Shard::of);
    assert_eq!(there, [agent(), pool()]);
    assert_eq!(alarms.all()[0].subject, key("entities"));
}

/// Where nobody knows which shards have entities, all are asked.
#[tokio::test]
async fn timers_come_though_nobody_knows_which_shards_have_any() {
    let (server, mut connection) = started().await;
    let (store, _) = member(&server).await;
    let _: i64 = connection.del("{skein}:inhabited").await.unwrap();
    let _: i64 = connection.lpush("{skein}:inhabited", "scribble").await.unwrap();
    assert_eq!(store.timers(10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn of_an_entity_what_is_spoilt_is_left_out_and_hides_nothing_behind_it() {
    let (server, mut connection) = started().await;
    let (store, alarms) = member(&server).await;
    commit(&store, 1).await.unwrap();
    commit(&store, 2).await.unwrap();
    let spoilt = key("bodies:pool/default");
    let () = connection.hset(&spoilt, "task/1", "scribble").await.unwrap();
    let page = store.documents_of(&pool(), "", 2).await.unwrap();
    let names: Vec<String> = page.into_iter().map(|document| document.document).collect();
    assert_eq!(names, ["task/0", "task/2"]);
    assert_eq!(alarms.all()[0].subject, spoilt);
    let list = key("documents:pool/default");
    spoil(&mut connection, &list).await;
    assert_eq!(store.documents_of(&pool(), "", 2).await.unwrap(), []);
    assert!(alarms.all().iter().any(|alarm| alarm.subject == list));
}

/// A key that was deleted, or put back from an older copy.
#[tokio::test]
async fn timers_come_though_the_marks_of_their_shards_are_gone_or_older_than_their_entities() {
    const INHABITED: &str = "{skein}:inhabited";
    let (server, mut connection) = started().await;
    let (store, _) = member(&server).await;
    let _: i64 = connection.del(INHABITED).await.unwrap();
    assert_eq!(store.timers(10).await.unwrap().len(), 2, "all are asked");
    let () = connection.set(INHABITED, vec![0_u8]).await.unwrap();
    assert_eq!(store.timers(10).await.unwrap(), [], "the older copy has no marks");
    take(&store, &[Shard::of(&pool()), Shard::of(&agent())]).await;
    assert_eq!(
        store.timers(10).await.unwrap().len(),
        2,
        "whoever takes a shard looks whether it has entities"
    );
    let marks: Vec<u8> = connection.get(INHABITED).await.unwrap();
    let set: u32 = marks.iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(set, 2, "and marks no other");
}

/// What another program wrote into a body becomes no value of it when changes are put behind it: the body stays
/// garbage, for somebody to mend, with all that was changed.
#[tokio::test]
async fn what_was_scribbled_into_a_body_is_named_still_when_changes_are_put_behind_it() {
    let (server, mut connection) = started().await;
    let bodies = key("bodies:pool/default");
    for garbage in [
        "scribble",
        "{}\nscribble",
        "{}\n",
        "{}\n\n",
        "{}\n#",
        "{}\n#\"a\"",
        "{}\n#\"a\"\n",
        "{}\n#a\n1",
        "{}\n#\"a\"\t\"b\"\n1",
        "{}\n#\"a\"\n1\t2",
        "{}\n#\"a\"\n1\n",
        "{}\n1\n#\"a\"",
    ] {
        let store = alone(&server).await;
        let () = connection.hset(&bodies, "task/0", garbage).await.unwrap();
        store.commit(store.fence(&pool()), changing(MANY).into()).await.unwrap();
        let kept: String = connection.hget(&bodies, "task/0").await.unwrap();
        assert!(kept.len() > MANY, "{garbage:?} keeps a change from being put behind it");
        let problem = store.document(&pool(), "task/0").await.unwrap_err();
        assert!(problem.0.contains(&bodies), "{garbage:?}: {problem}");
    }
}

#[tokio::test]
async fn one_malformed_entry_ends_no_retention() {
    let (server, mut connection) = started().await;
    let (store, alarms) = member(&server).await;
    // The shard that comes first.
    let spoilt = Shard::of(&agent());
    let ages = ["reply-ages", "mark-ages", "archived", "dead-ages", "loose"].map(|list| spoilt.key(list));
    for list in &ages {
        let _: i64 = connection.zadd(list, "scribble", 0).await.unwrap();
    }
    let old = Timestamp::NEVER;
    let all = TrimPlan {
        replies_before: old,
        marks_before: old,
        archived_before: old,
        dead_letters_before: old,
        loose_before: old,
        ..all_that_is_old()
    };
    assert_eq!(store.trim(all.clone()).await.unwrap().records, 2);
    for list in &ages {
        assert!(!connection.exists::<_, bool>(list).await.unwrap(), "{list} keeps what nobody can read");
    }
    assert_eq!(alarms.all(), []);

    commit(&store, 1).await.unwrap();
    let add = cmd("XADD").arg(spoilt.key("events")).arg("99999999999-0").arg("at").arg(1).to_owned();
    let _: String = add.query_async(&mut connection).await.unwrap();
    assert_eq!(store.trim(all.clone()).await.unwrap().records, 1, "that of the other shard");
    assert_eq!(alarms.all()[0].subject, spoilt.key("events"));

    // Somebody else has the first shard by now, of which this process has not heard.
    commit(&store, 2).await.unwrap();
    let () = connection.hset(spoilt.key("lease"), "nonce", "another").await.unwrap();
    assert_eq!(store.trim(all).await.unwrap().records, 1);
}

#[tokio::test]
async fn an_archived_document_is_forgotten_though_something_else_is_where_its_body_was() {
    let (server, mut connection) = started().await;
    let (store, _) = member(&server).await;
    let head = serde_json::json!({}).into();
    let archived =
        DocumentChange::Put { key: "task/0".to_owned(), live: false, head, body: None, new: false };
    let batch = Batch { documents: vec![archived], ..batch(1) };
    store.commit(store.fence(&pool()), batch.into()).await.unwrap();
    for hash in ["heads:pool/default", "bodies:pool/default", "changes:pool/default"].map(key) {
        spoil(&mut connection, &hash).await;
    }
    let all = TrimPlan { archived_before: Timestamp::NEVER, ..all_that_is_old() };
    assert_eq!(store.trim(all).await.unwrap().documents, 1);
    assert!(!connection.exists::<_, bool>(key("archived")).await.unwrap(), "it is tried for ever");
}

/// The keys that tell what an entity is.
const OF_AN_ENTITY: [&str; 4] = ["entity", "live", "heads", "marks"];

#[tokio::test]
async fn what_an_entity_is_loaded_from_is_named_when_something_else_is_there_and_nothing_sound_is() {
    let (server, mut connection) = started().await;
    for name in OF_AN_ENTITY {
        let (store, spoilt) = (alone(&server).await, key(&format!("{name}:pool/default")));
        spoil(&mut connection, &spoilt).await;
        let StoreError(problem) = store.load(&pool()).await.unwrap_err();
        assert!(problem.contains(&spoilt), "{problem}");
        for sound in OF_AN_ENTITY.iter().filter(|sound| **sound != name) {
            assert!(!problem.contains(&key(&format!("{sound}:"))), "{problem}");
        }
        if matches!(name, "live" | "heads") {
            let StoreError(problem) = store.live(&pool(), "", 10).await.unwrap_err();
            assert!(problem.contains(&spoilt), "{problem}");
        }
    }
}

/// Redis answers, and the connection serves on.
#[tokio::test]
async fn what_is_no_text_is_told_by_its_key_and_taken_for_no_silence_of_redis() {
    let (server, mut connection) = started().await;
    for (name, field) in [("entity", "at"), ("heads", "task/0"), ("marks", "agent/default/ann")] {
        empty(&server).await;
        let alarms = Alarms::default();
        let options = Options { alarms: alarms.clone(), ..options(&server.url()) };
        let store = Redis::open(&options, wall()).await.unwrap();
        commit(&store, 0).await.unwrap();
        let spoilt = key(&format!("{name}:pool/default"));
        let () = connection.hset(&spoilt, field, b"1 1 5 \xff").await.unwrap();
        let StoreError(problem) = store.load(&pool()).await.unwrap_err();
        assert!(problem.contains(&spoilt) && !problem.contains("does not answer"), "{problem}");
        let shown: Vec<_> = alarms.all().into_iter().map(|alarm| (alarm.kind, alarm.subject)).collect();
        assert_eq!(shown, [(Kind::StoreGarbage, spoilt)]);
    }

    let (store, _) = member(&server).await;
    let members = store.members();
    members.beat("b", "sound", Duration::from_secs(9), &[]).await.unwrap();
    let strange = b"99999999999999 \xff";
    let () = connection.hset("{skein}:members", "strange", strange).await.unwrap();
    let heard = members.beat("a", "{}", Duration::from_secs(9), &[]).await.unwrap().unwrap();
    assert!(heard.said.iter().any(|said| said.record == "sound"), "{heard:?}");
    let living = members.all().await.unwrap();
    assert!(living.iter().any(|record| record == "sound"), "{living:?}");
}

#[tokio::test]
async fn an_entity_with_a_spoilt_key_keeps_nothing_else_of_its_shard_from_being_forgotten() {
    let (server, mut connection) = started().await;
    for (name, ages, member_of_it) in [
        ("history", None, ""),
        ("replies", Some("reply-ages"), "pool/default 1"),
        ("marks", Some("mark-ages"), "pool/default agent/default/ann"),
    ] {
        let (store, _) = member(&server).await;
        spoil(&mut connection, &key(&format!("{name}:pool/default"))).await;
        if let Some(ages) = ages {
            let _: i64 = connection.zadd(key(ages), member_of_it, 1).await.unwrap();
        }
        let _: i64 = connection.zadd(key("archived"), "lockspace/default lock/0", 1).await.unwrap();
        let always = Timestamp::NEVER;
        let all = TrimPlan {
            replies_before: always,
            marks_before: always,
            archived_before: always,
            ..all_that_is_old()
        };
        assert_eq!(store.trim(all).await.unwrap().documents, 1, "{name}");
        let left: i64 = connection.zcard(key("archived")).await.unwrap();
        assert_eq!(left, 0, "{name}");
    }
}

#[tokio::test]
async fn an_effect_stays_where_its_letter_cannot_be_written() {
    let (server, mut connection) = started().await;
    let (store, alarms) = member(&server).await;
    let effect = store.outbox(0, 10).await.unwrap().into_iter().find(|entry| entry.source == pool()).unwrap();
    let letter = key(&format!("dead:{:020}", effect.position));
    let () = connection.set(&letter, "scribble").await.unwrap();
    let place = OutboxPlace { source: pool(), position: effect.position, fence: store.fence(&pool()) };
    let refused = store.bury(place, "nobody takes it".to_owned(), Timestamp(1)).await;
    assert!(matches!(&refused, Err(CommitError::Failed(said)) if said.contains(&letter)), "{refused:?}");
    assert_eq!(alarms.all()[0].subject, letter);
    assert!(store.outbox(0, 10).await.unwrap().contains(&effect), "it is gone");
}
