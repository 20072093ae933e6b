//! How much the store in Redis asks, reads and writes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, cmd};
use serde_json::{Value, json};
use skein_coordinator::entity::{Clock, Entities, Hub};
use skein_coordinator::projection::Projection;
use skein_coordinator::store::conformance::nothing;
use skein_coordinator::store::redis::Redis;
use skein_coordinator::store::redis::shard::Shard;
use skein_coordinator::store::{Batch, EventRecord, LIVE_PAGE, Store, StoredReply, TrimPlan};
use skein_shared::channels::{self, Channels, Post};
use skein_shared::entity::{Changes, Ctx, DocumentChange, Entity};
use skein_shared::epics::{self, Epics};
use skein_shared::fence::Epoch;
use skein_shared::id::{EntityKey, Name};
use skein_shared::inboxes::{self, Inboxes};
use skein_shared::memory::{self, Memory, Remember};
use skein_shared::profiles::{self, Profiles};
use skein_shared::triggers::{self, Incoming, Triggers};
use skein_tests::redis::Server;
use skein_tests::stored::{batch, commit, key, open, pool, versions};
use uuid::Uuid;

/// An entity may have answered a great many requests whose repeat is over, as long as its replies are kept.
#[tokio::test]
async fn loading_reads_no_more_replies_than_may_be_asked_for() {
    let server = Server::start().await.unwrap();
    let store = open(&server.url()).await;
    commit(&store, 0).await.unwrap();
    let mut connection = server.connection().await.unwrap();
    let shard = Shard::of(&pool());
    let () = connection.hset(shard.key("entity:pool/default"), "version", 3000).await.unwrap();
    let reply = |version: u64| StoredReply {
        request: Uuid::from_u128(version.into()),
        digest: version,
        at: batch(0).at,
        reply: json!(version).into(),
    };
    let kept = (1..=3000_u64).map(|version| {
        let at = if version <= 2990 { version } else { batch(0).at.0 };
        let replies = serde_json::to_string(&[reply(version)]).unwrap();
        (version, format!("{version} {at} {replies}"))
    });
    let kept: Vec<_> = kept.collect();
    let () = connection.zadd_multiple(shard.key("replies:pool/default"), &kept).await.unwrap();
    let () = cmd("CONFIG").arg("RESETSTAT").query_async(&mut connection).await.unwrap();
    let loaded = store.load(&pool()).await.unwrap();
    assert_eq!(loaded.replies, (2991..=3000).map(reply).collect::<Vec<_>>());
    let asked: String = cmd("INFO").arg("commandstats").query_async(&mut connection).await.unwrap();
    let pages = asked.lines().filter(|line| line.contains("rangebyscore")).collect::<Vec<_>>();
    assert!(matches!(pages[..], [page] if page.contains("calls=1,")), "{pages:?}");
}

/// How often a command was carried out.
async fn calls(connection: &mut MultiplexedConnection, command: &str) -> usize {
    let said: String = cmd("INFO").arg("commandstats").query_async(connection).await.unwrap();
    let line = format!("cmdstat_{command}:calls=");
    let counted = said.lines().find_map(|said| said.strip_prefix(&line)?.split(',').next()?.parse().ok());
    counted.unwrap_or_default()
}

/// An order over all shards would have each of them asked for every page, and most of what they say left for the next
/// one.
#[tokio::test(flavor = "multi_thread")]
async fn building_the_read_side_asks_each_shard_once_for_what_it_has() {
    const SHARDS: usize = 32;
    const BATCHES: u64 = 20;
    let server = Server::in_memory().await.unwrap();
    let mut connection = server.connection().await.unwrap();
    let store = Arc::new(open(&server.url()).await);
    let swarm = Name::parse("default").unwrap();
    let mut shards = BTreeSet::new();
    let agents = (0..).map(|n| EntityKey::agent(&swarm, &Name::parse(&format!("agent-{n}")).unwrap()));
    let keys: Vec<EntityKey> = agents.filter(|key| shards.insert(Shard::of(key))).take(SHARDS).collect();
    let events = vec![EventRecord { subject: Some("geese".to_owned()), body: json!("counted").into() }];
    for key in &keys {
        for version in 0..BATCHES {
            let batch = Batch { key: key.clone(), events: events.clone(), ..batch(version) };
            store.commit(store.fence(key), batch.into()).await.unwrap();
        }
    }
    let () = cmd("CONFIG").arg("RESETSTAT").query_async(&mut connection).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let projection = Projection::open(&folder.path().join("projection.db"), store).unwrap();
    assert!(projection.whole(Duration::from_secs(60)).await);
    let asked = calls(&mut connection, "xrange").await;
    assert!((SHARDS..=2 * SHARDS).contains(&asked), "{asked} questions to {SHARDS} shards");
    for key in &keys {
        let history = projection.history(key, "geese", 100).await.unwrap();
        let versions: Vec<u64> = history.iter().map(|event| event.version.0).collect();
        assert_eq!(versions, (1..=BATCHES).collect::<Vec<_>>(), "{key}");
    }
}

/// A batch that changes fields of the body of the pool's first document.
fn changing(expected: u64, fields: Value) -> Batch {
    let head = json!({"n": 0}).into();
    let body = Some(fields.into());
    let change = DocumentChange::Put { key: "task/0".to_owned(), live: true, head, body, new: false };
    Batch { documents: vec![change], ..batch(expected) }
}

/// Bytes of what was changed of that body.
async fn changes(connection: &mut MultiplexedConnection) -> usize {
    let changes = cmd("HSTRLEN").arg(key("changes:pool/default")).arg("task/0").to_owned();
    changes.query_async(connection).await.unwrap()
}

/// Each change of a body writes those before it once more, and a document may change for years.
#[tokio::test]
async fn what_was_changed_of_a_body_is_put_behind_it_before_it_grows_long() {
    const CHANGE: usize = 100;
    const FIELDS: u64 = 20;
    let server = Server::start().await.unwrap();
    let mut connection = server.connection().await.unwrap();
    let store = open(&server.url()).await;
    commit(&store, 0).await.unwrap();
    let mut longest = 0;
    for expected in 1..300 {
        let (first, second) = (format!("f{}", expected % FIELDS), format!("f{}", expected % 7 + FIELDS));
        let change = changing(expected, json!({first: format!("{expected:0CHANGE$}"), second: expected}));
        store.commit(store.fence(&pool()), change.into()).await.unwrap();
        longest = longest.max(changes(&mut connection).await);
    }
    assert!((512..=1024).contains(&longest), "{longest} bytes of changes at most");
    let body: String = connection.hget(key("bodies:pool/default"), "task/0").await.unwrap();
    let lines: Vec<&str> = body.lines().collect();
    let [_, names, values] = lines[..] else { panic!("as it was made, and one change: {body}") };
    let fields = usize::try_from(FIELDS).unwrap() + 7;
    assert_eq!([names, values].map(|line| line.split('\t').count()), [fields; 2], "the last change of each");
}

#[tokio::test]
async fn a_change_takes_the_place_of_the_last_one_of_the_same_fields() {
    let server = Server::start().await.unwrap();
    let mut connection = server.connection().await.unwrap();
    let store = open(&server.url()).await;
    commit(&store, 0).await.unwrap();
    let of_each = [json!({"state": "a", "at": 1}), json!({"at": 1}), json!({"state": "b"})];
    let mut lengths = Vec::new();
    for expected in 1..=12_u64 {
        let change = of_each[usize::try_from(expected).unwrap() % 3].clone();
        store.commit(store.fence(&pool()), changing(expected, change).into()).await.unwrap();
        lengths.push(changes(&mut connection).await);
    }
    assert!(lengths[2..].iter().all(|length| *length == lengths[2]), "{lengths:?}");
    let document = store.document(&pool(), "task/0").await.unwrap().unwrap();
    assert_eq!(document.body, json!({"text": "do it", "state": "a", "at": 1}), "the last of each counts");
}

/// What a script reads it holds beside the memory that Redis was given, and an event may have many MiB.
#[tokio::test]
async fn a_trim_reads_a_little_at_a_time_and_less_of_what_is_large() {
    const LARGE: usize = 5 << 20;
    let server = Server::in_memory().await.unwrap();
    let mut connection = server.connection().await.unwrap();
    let store = open(&server.url()).await;
    let large = vec![EventRecord { subject: None, body: json!("x".repeat(LARGE)).into() }];
    for expected in 0..12 {
        let batch = Batch { events: large.clone(), ..batch(expected) };
        store.commit(store.fence(&pool()), batch.into()).await.unwrap();
    }
    for expected in 12..60 {
        commit(&store, expected).await.unwrap();
    }
    let forgotten = async |before: u64| {
        let plan = TrimPlan { now: batch(1000).at, events_before: batch(before).at, limit: 500, ..nothing() };
        store.trim(plan).await.unwrap().records
    };
    let steps = [forgotten(12).await, forgotten(12).await, forgotten(12).await];
    assert_eq!(steps, [8, 4, 0], "what weighs much is forgotten in several steps");
    for (before, records, looks) in [(12, 0, 1), (30, 18, 3)] {
        let () = cmd("CONFIG").arg("RESETSTAT").query_async(&mut connection).await.unwrap();
        assert_eq!(forgotten(before).await, records);
        assert_eq!(calls(&mut connection, "xrange").await, looks, "no more than a few beyond what is old");
    }
    assert_eq!(versions(&store).await, (31..=60).collect::<Vec<_>>());
}

/// There may be many thousands of entities, of which a few have too much.
#[tokio::test]
async fn the_steps_of_a_trim_ask_each_entity_once_how_much_it_has() {
    const OTHERS: usize = 40;
    const KEEP: u64 = 4;
    let server = Server::in_memory().await.unwrap();
    let mut connection = server.connection().await.unwrap();
    let store = open(&server.url()).await;
    for expected in 0..KEEP + 45 {
        commit(&store, expected).await.unwrap();
    }
    let swarm = Name::parse("default").unwrap();
    for number in 0..OTHERS {
        let key = EntityKey::agent(&swarm, &Name::parse(&format!("agent-{number}")).unwrap());
        // Of some there are too many as well.
        let batches = if number < 5 { KEEP + 3 } else { 1 };
        for expected in 0..batches {
            let batch = Batch { key: key.clone(), ..batch(expected) };
            store.commit(store.fence(&key), batch.into()).await.unwrap();
        }
    }
    let plan = TrimPlan { events_per_entity: KEEP, limit: 10, ..nothing() };
    let all = async || {
        let mut steps = Vec::new();
        loop {
            match store.trim(plan.clone()).await.unwrap().records {
                0 => return steps,
                records => steps.push(records),
            }
        }
    };
    let () = cmd("CONFIG").arg("RESETSTAT").query_async(&mut connection).await.unwrap();
    assert_eq!(all().await, [10; 6]);
    assert_eq!(calls(&mut connection, "zrange").await, OTHERS + 1, "each entity once");
    commit(&store, KEEP + 45).await.unwrap();
    assert_eq!(all().await, [1], "what was committed since has made one too many");
    assert_eq!(store.records(0, 1000).await.unwrap().len(), 6 * 4 + OTHERS - 5);
}

/// Commits what an entity makes of its first command. Gives the bodies of its documents as they were made, and what was
/// changed of others.
async fn first<E: Entity>(
    store: &Redis,
    connection: &mut MultiplexedConnection,
    command: E::Command,
) -> [HashMap<String, String>; 2] {
    let key = EntityKey::of(E::KIND, &Name::parse("default").unwrap());
    let (mut entity, at) = (E::empty(&key), batch(0).at);
    let mut ctx = Ctx::new(at, at, at, Epoch(1), Uuid::from_u128(1));
    let mut changes = Changes::default();
    let decision = entity.decide(&command, &mut ctx).unwrap();
    decision.events.iter().for_each(|event| entity.apply(event, &mut changes));
    let batch = Batch { key: key.clone(), documents: changes.documents, ..batch(0) };
    store.commit(store.fence(&key), batch.into()).await.unwrap();
    let shard = Shard::of(&key);
    let bodies = connection.hgetall(shard.key(&format!("bodies:{key}"))).await.unwrap();
    [bodies, connection.hgetall(shard.key(&format!("changes:{key}"))).await.unwrap()]
}

/// What is changed of a body is put behind it in Lua, which takes many times as long where it is the whole of it.
#[tokio::test]
async fn what_comes_once_and_may_be_long_is_made_and_no_change_of_nothing() {
    let server = Server::in_memory().await.unwrap();
    let mut connection = server.connection().await.unwrap();
    let store = open(&server.url()).await;
    let long = "x".repeat(3000);
    let made = [
        first::<Memory>(&store, &mut connection, learning(&long)).await,
        first::<Triggers>(&store, &mut connection, webhook(&long)).await,
        first::<Channels>(&store, &mut connection, post(&long)).await,
        first::<Inboxes>(&store, &mut connection, letter(&long)).await,
        first::<Epics>(&store, &mut connection, epic(&long)).await,
        first::<Profiles>(&store, &mut connection, profile(&long)).await,
    ];
    for [bodies, changes] in made {
        assert!(bodies.values().any(|body| body.contains(&long)), "it is made: {bodies:?}");
        assert!(!changes.values().any(|change| change.contains(&long)), "it is no change: {changes:?}");
    }
}

fn learning(content: &str) -> memory::Command {
    memory::Command::Remember(Box::new(Remember {
        id: None,
        agent: None,
        scope: memory::Scope::Swarm,
        name: "geese".to_owned(),
        content: content.to_owned(),
        summary: None,
        source: memory::Source::Manual,
        source_task: None,
        source_path: None,
        tags: Vec::new(),
        chunk_index: 0,
        total_chunks: 1,
    }))
}

fn webhook(text: &str) -> triggers::Command {
    let incoming = Incoming {
        receipt: Uuid::from_u128(7),
        delivery: "d1".to_owned(),
        source: "acme".to_owned(),
        provider: "github".to_owned(),
        event: "issues".to_owned(),
        context: json!({}),
        payload: json!({ "text": text }),
        received_at: batch(0).at,
        unsigned: false,
        said: None,
        letter: None,
        activity: None,
    };
    triggers::Command::Deliver { incoming }
}

fn post(content: &str) -> channels::Command {
    channels::Command::Post(Box::new(Post {
        author: None,
        channel: None,
        content: content.to_owned(),
        reply_to: None,
        mentions: Vec::new(),
        strangers: Vec::new(),
        assignees: Vec::new(),
    }))
}

fn letter(content: &str) -> inboxes::Command {
    inboxes::Command::Deliver(Box::new(inboxes::Deliver {
        agent: Uuid::from_u128(7),
        content: content.to_owned(),
        source: inboxes::Source::System,
        slack: inboxes::Slack::default(),
        mail: None,
        dedupe: None,
    }))
}

fn epic(goal: &str) -> epics::Command {
    epics::Command::Create(Box::new(epics::Create {
        name: "fly south".to_owned(),
        creator: None,
        lead: None,
        priority: 50,
        texts: epics::Texts { goal: Some(goal.to_owned()), ..epics::Texts::default() },
    }))
}

fn profile(text: &str) -> profiles::Command {
    let change = profiles::Change { text: text.to_owned(), before: None };
    profiles::Command::Changed {
        agent: Uuid::from_u128(7),
        texts: BTreeMap::from([(profiles::Field::ClaudeMd, change)]),
        source: profiles::Source::SelfEdit,
        by: None,
        reason: None,
    }
}

/// How all others stand says nothing about it, and there may be a hundred thousand of them between a takeover and the
/// first claim.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_entity_is_loaded_without_a_look_at_any_other() {
    let server = Server::in_memory().await.unwrap();
    let mut connection = server.connection().await.unwrap();
    let store = Arc::new(open(&server.url()).await);
    let waiting = |number: usize| DocumentChange::Put {
        key: format!("task/{}", Uuid::from_u128(number as u128)),
        live: true,
        head: json!({"s": "unassigned", "p": 50, "b": number, "u": number}).into(),
        body: None,
        new: true,
    };
    let large = Batch { documents: (0..2 * LIVE_PAGE + 100).map(waiting).collect(), ..batch(0) };
    store.commit(store.fence(&pool()), large.into()).await.unwrap();
    let swarm = Name::parse("default").unwrap();
    for number in 0..50 {
        let key = EntityKey::agent(&swarm, &Name::parse(&format!("agent-{number}")).unwrap());
        let batch = Batch { key: key.clone(), documents: Vec::new(), ..batch(0) };
        store.commit(store.fence(&key), batch.into()).await.unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let projection = Projection::open(&folder.path().join("projection.db"), store.clone()).unwrap();
    assert!(projection.whole(Duration::from_secs(60)).await);
    let entities = Entities::new(store, projection, Clock::start(), Hub::default());
    let () = cmd("CONFIG").arg("RESETSTAT").query_async(&mut connection).await.unwrap();
    entities.tick(&pool()).await.unwrap();
    assert_eq!(calls(&mut connection, "zrangebylex").await, 1, "its first page");
    let pages = calls(&mut connection, "zrange").await;
    assert!((2..=5).contains(&pages), "its others, and three at most that are read ahead: {pages}");
    assert_eq!(calls(&mut connection, "hget").await, 0, "nobody asks for the versions of others");
}
