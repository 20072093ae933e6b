//! The host against a store that fails on purpose.

mod blobs;
pub(crate) mod lists;
mod loading;
mod passivation;
mod pipeline;
mod supervision;
mod time;
mod timers;
mod weight;

use std::sync::Arc;

use serde_json::json;
use skein_shared::entity::DocumentChange;
use skein_shared::id::{EntityKey, InstanceId, Kind, Name};
use skein_shared::json::Json;
use skein_shared::lockspace::{self, Lockspace};
use skein_shared::pool::{self, Pool};
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::{Clock, Entities, Hub, Request, remote};
use crate::projection::Projection;
use crate::store::memory::{Fault, Gate, Memory};
use crate::store::{Batch, Mark, Store, TimerChange, Version};

pub(crate) struct Node {
    pub(crate) entities: Entities,
    pub(crate) store: Arc<Memory>,
    _folder: tempfile::TempDir,
}

fn node_on(store: Memory) -> Node {
    node_by(store, Clock::start())
}

fn node_by(store: Memory, clock: Clock) -> Node {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(store);
    let projection = Projection::open(&folder.path().join("projection.db"), store.clone()).unwrap();
    let entities = Entities::new(store.clone(), projection, clock, Hub::default());
    Node { entities, store, _folder: folder }
}

pub(crate) fn node() -> Node {
    node_on(Memory::new(Clock::start().wall()))
}

pub(crate) fn swarm() -> Name {
    Name::parse("default").unwrap()
}

pub(crate) fn locks() -> EntityKey {
    EntityKey::of(Kind::Lockspace, &swarm())
}

fn acquire(holder: &str, key: &str) -> lockspace::Command {
    lockspace::Command::Acquire {
        holder: InstanceId(holder.to_owned()),
        agent: Name::parse("worker").unwrap(),
        key: key.to_owned(),
        ttl_ms: None,
    }
}

async fn take(node: &Node, id: Uuid, key: &str) -> Result<String, Refusal> {
    let reply = node.entities.ask::<Lockspace>(&locks(), Request::once(id), acquire("a", key)).await?;
    Ok(format!("{reply:?}"))
}

/// A task that waits in the pool.
pub(crate) fn waiting(number: usize) -> DocumentChange {
    DocumentChange::Put {
        key: format!("task/{}", Uuid::from_u128(number as u128)),
        live: true,
        head: json!({"s": "unassigned", "p": 50, "b": number, "u": number}).into(),
        body: None,
        new: false,
    }
}

/// A commit as it could come from anywhere, the first one of its entity.
pub(crate) fn first_batch(node: &Node, key: EntityKey) -> Batch {
    Batch {
        key,
        expected: Version(0),
        after: Uuid::nil(),
        id: Uuid::now_v7(),
        at: node.entities.clock().now(),
        documents: Vec::new(),
        events: Vec::new(),
        seen: Vec::new(),
        replies: Vec::new(),
        timer: TimerChange::Keep,
        outbox: Vec::new(),
        blobs: Vec::new(),
    }
}

/// Gives an entity a document that it cannot read.
pub(crate) async fn poison(node: &Node, key: EntityKey) {
    let (document, head) = ("learning/poison".to_owned(), json!(["not", "a", "head"]));
    let mut batch = first_batch(node, key);
    batch.documents =
        vec![DocumentChange::Put { key: document, live: true, head: head.into(), body: None, new: false }];
    node.store.commit(node.store.fence(&batch.key), batch.into()).await.unwrap();
}

fn pool() -> EntityKey {
    EntityKey::of(Kind::Pool, &swarm())
}

pub(crate) fn member(agent: Uuid, lead: bool) -> pool::Command {
    pool::Command::Join(pool::Join {
        agent,
        name: format!("agent-{}", agent.as_u128()),
        lead,
        role: None,
        capabilities: Vec::new(),
        description: None,
        max_tasks: None,
        managed: false,
        texts: None,
    })
}

pub(crate) fn task(id: u128, by: Option<Uuid>, depends_on: Vec<Uuid>) -> pool::Command {
    let id = Uuid::from_u128(id);
    let spec = pool::TaskSpec { id: Some(id), depends_on, ..pool::TaskSpec::new(format!("task {id}")) };
    let (target, rules) = (pool::Target::Pool, pool::Rules::Plain);
    let facts = vec![pool::Fact::unknown(id)];
    pool::Command::Create(Box::new(pool::Create { by, spec, target, rules, facts }))
}

/// Asks the pool for something that happens once.
pub(crate) async fn change(node: &Node, request: u128, command: pool::Command) -> pool::Reply {
    let request = Request::once(Uuid::from_u128(request));
    node.entities.ask::<Pool>(&pool(), request, command).await.unwrap()
}

#[tokio::test]
async fn a_repeat_gets_the_stored_answer_and_a_reused_key_is_refused() {
    let node = node();
    let id = Uuid::from_u128(1);
    let first = take(&node, id, "file:///a").await.unwrap();
    assert_eq!(take(&node, id, "file:///a").await.unwrap(), first);
    assert_eq!(take(&node, id, "file:///b").await.unwrap_err().code, Code::KeyReused);

    let again = node_on(node.store.contents().open(Clock::start().wall()));
    assert_eq!(take(&again, id, "file:///a").await.unwrap(), first, "the answer outlives a restart");
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_and_commits_once() {
    let node = node();
    node.store.contents().faults().push(Fault::AnswerLost);
    node.store.contents().faults().push(Fault::RequestLost);
    take(&node, Uuid::from_u128(1), "file:///a").await.unwrap();
    let loaded = node.store.load(&locks()).await.unwrap();
    assert_eq!(loaded.version.0, 1);
}

#[tokio::test]
async fn after_a_refused_write_the_entity_loads_afresh() {
    let node = node();
    node.store.contents().faults().push(Fault::Refused);
    let refusal = take(&node, Uuid::from_u128(1), "file:///a").await.unwrap_err();
    assert_eq!(refusal.code, Code::Unavailable);
    // What was not committed is not there: another holder gets the lock.
    let other = acquire("b", "file:///a");
    for _ in 0..50 {
        let request = Request::once(Uuid::from_u128(2));
        match node.entities.ask::<Lockspace>(&locks(), request, other.clone()).await {
            Err(refusal) if refusal.code == Code::Unavailable => tokio::task::yield_now().await,
            outcome => {
                assert!(matches!(outcome.unwrap(), lockspace::Reply::Acquired { .. }));
                return;
            }
        }
    }
    panic!("the entity did not come back");
}

#[tokio::test]
async fn commands_that_arrive_during_a_commit_share_the_next_one() {
    let node = node();
    let gate = Gate::default();
    node.store.contents().faults().push(Fault::Slow(gate.clone()));
    let mut asked = Vec::new();
    for number in 0..20_u128 {
        let entities = node.entities.clone();
        let command = acquire(&format!("holder-{number}"), &format!("file:///{number}"));
        asked.push(tokio::spawn(async move {
            entities.ask::<Lockspace>(&locks(), Request::once(Uuid::from_u128(number + 1)), command).await
        }));
    }
    while node.entities.in_memory().iter().map(|(_, waiting)| waiting).sum::<usize>() < 20 {
        tokio::task::yield_now().await;
    }
    gate.open();
    for answer in asked {
        answer.await.unwrap().unwrap();
    }
    let version = node.store.load(&locks()).await.unwrap().version.0;
    assert!(version <= 3, "20 commands took {version} commits");
}

#[tokio::test]
async fn a_delivery_with_a_known_mark_does_nothing() {
    let node = node();
    let key = EntityKey::of(Kind::Pool, &swarm());
    let mark = |sequence| Mark { source: locks(), epoch: skein_shared::fence::Epoch(5), sequence };
    let create = Json::from(json!({"create": {
        "by": null, "spec": {"task": "once"}, "target": "pool", "rules": "plain",
    }}));
    let deliver = async |sequences: &[u64]| {
        let commands = sequences.iter().map(|sequence| (mark(*sequence), &create)).collect();
        let outcomes = node.entities.deliver(&key, 0, commands).await;
        outcomes.into_iter().map(|outcome| outcome.err().map(|refusal| refusal.code)).collect::<Vec<_>>()
    };
    assert_eq!(deliver(&[2]).await, [None]);
    assert_eq!(
        deliver(&[1, 2, 3, 3]).await,
        [Some(Code::Duplicate), Some(Code::Duplicate), None, Some(Code::Duplicate)]
    );
    let loaded = node.store.load(&key).await.unwrap();
    assert_eq!(loaded.live.iter().filter(|document| document.key.starts_with("task/")).count(), 2);
}

/// It is compared at the door already, and another life may begin behind that.
#[tokio::test]
async fn what_another_node_has_decided_in_another_life_is_not_taken_in_behind_the_door_either() {
    let node = node();
    let mark = Mark { source: pool(), epoch: skein_shared::fence::Epoch(5), sequence: 1 };
    let command = Json::of(&acquire("a", "file:///a"));
    let call = remote::Call::<serde_json::Value>::Deliver(vec![(mark, command)]);
    let call = remote::write(&call).unwrap();
    let deliver = async |life: u64| {
        let answer = node.entities.answer_for(&locks(), life, Request::TIMEOUT, &call).await.unwrap();
        let outcomes = remote::read::<Vec<Result<(), Refusal>>>(&answer).unwrap();
        outcomes.into_iter().map(|outcome| outcome.err().map(|refusal| refusal.code)).collect::<Vec<_>>()
    };
    assert_eq!(deliver(node.entities.life() + 1).await, [Some(Code::NotOwner)]);
    assert_eq!(node.store.load(&locks()).await.unwrap().version, Version(0));
    assert_eq!(deliver(0).await, [None], "a node that does not say it relies on the same");
}
