//! Texts too long for a document, when the process or its store fails between their chunks and the commit.

use skein_shared::agent::{Agent, Blob, Caller, Command, Reply, Returned};
use skein_shared::limits::CHUNK;
use skein_shared::time::Timestamp;
use skein_shared::triggers::{Filter, FilterKind};

use super::*;
use crate::store::{TrimPlan, Trimmed};

const BLOB: Uuid = Uuid::from_u128(0xb10b);

fn worker() -> EntityKey {
    EntityKey::agent(&swarm(), &Name::parse("worker").unwrap())
}

fn instance(name: &str) -> InstanceId {
    InstanceId(name.to_owned())
}

/// Two chunks of different letters.
fn value() -> String {
    "a".repeat(CHUNK) + &"b".repeat(1000)
}

async fn ask(node: &Node, request: u128, command: Command) -> Result<Reply, Refusal> {
    node.entities.ask::<Agent>(&worker(), Request::once(Uuid::from_u128(request)), command).await
}

/// A worker that nobody runs serves a call.
async fn called(node: &Node) {
    let attach = Command::Attach { instance: instance("hand"), agent_id: Uuid::nil() };
    let filter = Filter {
        kind: FilterKind::AgentTrigger,
        source: None,
        event: None,
        matches: Default::default(),
        only: Default::default(),
        source_agent: None,
    };
    let wait = Command::BeginWait {
        instance: instance("hand"),
        wait: Uuid::from_u128(1),
        filter,
        timeout_ms: None,
        broadcast: false,
        look_back: false,
        asked: Uuid::nil(),
    };
    let agent = Name::parse("lead").unwrap();
    let caller = Caller { agent, instance: instance("lead"), chain: Vec::new(), depth: None };
    let call = Command::Call { call: Uuid::from_u128(2), caller, context: String::new(), noted: false };
    for (request, command) in (10..).zip([attach, wait, call]) {
        ask(node, request, command).await.unwrap();
    }
}

fn give() -> Command {
    Command::ReturnValue { instance: instance("hand"), value: Returned::long(BLOB, &value()) }
}

/// Tries until the entity is back after a failed commit.
async fn patiently(node: &Node, request: u128, command: Command) -> Reply {
    for _ in 0..1000 {
        match ask(node, request, command.clone()).await {
            Err(refusal) if refusal.code == Code::Unavailable => tokio::task::yield_now().await,
            answer => return answer.unwrap(),
        }
    }
    panic!("the entity did not come back");
}

async fn blob_of(node: &Node) -> Option<Blob> {
    let check = Command::CheckCall { call: Uuid::from_u128(2), instance: instance("lead") };
    match patiently(node, 99, check).await {
        Reply::Call(view) => view.blob,
        other => panic!("{other:?}"),
    }
}

async fn read(node: &Node, offset: u64, limit: usize) -> Option<String> {
    let blob = Blob { id: BLOB, bytes: value().len() as u64 };
    let bytes = node.entities.read_blob(&worker(), blob, offset, limit).await.unwrap();
    bytes.map(|bytes| String::from_utf8(bytes).unwrap())
}

async fn sweep(node: &Node) -> Trimmed {
    let now = node.entities.clock().now();
    let plan = TrimPlan {
        now,
        events_before: Timestamp::ZERO,
        events_per_entity: u64::MAX >> 1,
        replies_before: Timestamp::ZERO,
        marks_before: Timestamp::ZERO,
        archived_before: Timestamp::ZERO,
        dead_letters_before: Timestamp::ZERO,
        loose_before: Timestamp(now.0 + 1),
        limit: 10,
    };
    node.entities.forget(&plan).await.unwrap()
}

#[tokio::test]
async fn a_crash_between_chunks_and_commit_leaves_nothing_that_anybody_sees() {
    let node = node();
    called(&node).await;
    node.entities.write_blob(&worker(), BLOB, value().as_bytes()).await.unwrap();

    let node = node_on(node.store.contents().open(Clock::start().wall()));
    assert_eq!((read(&node, 0, 10).await, blob_of(&node).await), (None, None));
    assert_eq!(sweep(&node).await, Trimmed { loose: 1, ..Trimmed::default() });
    assert!(sweep(&node).await.is_nothing());

    // Whoever names it all the same names nothing: the refusal is for now, and whoever repeats it writes it again.
    let refusal = ask(&node, 20, give()).await.unwrap_err();
    assert_eq!(refusal.code, Code::Unavailable, "{}", refusal.message);
    assert_eq!((read(&node, 0, 10).await, blob_of(&node).await), (None, None));
    node.entities.write_blob(&worker(), BLOB, value().as_bytes()).await.unwrap();
    patiently(&node, 20, give()).await;
    assert_eq!(blob_of(&node).await, Some(Blob { id: BLOB, bytes: value().len() as u64 }));
    assert_eq!(sweep(&node).await, Trimmed::default());
    let border = CHUNK as u64 - 2;
    assert_eq!(read(&node, border, 4).await.as_deref(), Some("aabb"));
    assert_eq!(read(&node, 0, value().len() + 9).await, Some(value()));
    assert_eq!(read(&node, value().len() as u64 - 1, 9).await.as_deref(), Some("b"));
    // Told more than there is, a reader gets nothing, rather than the same end again and again.
    let longer = Blob { id: BLOB, bytes: value().len() as u64 + 10 };
    let behind = node.entities.read_blob(&worker(), longer, value().len() as u64, 5).await.unwrap();
    assert_eq!(behind, None);
}

#[tokio::test]
async fn whatever_the_store_does_with_the_commit_a_value_is_there_whole_or_not_at_all() {
    for fault in [Fault::Refused, Fault::RequestLost, Fault::AnswerLost] {
        let node = node();
        called(&node).await;
        node.entities.write_blob(&worker(), BLOB, value().as_bytes()).await.unwrap();
        node.store.contents().faults().push(fault.clone());
        let told = ask(&node, 20, give()).await;
        let seen = blob_of(&node).await.is_some();
        assert_eq!(seen, told.is_ok(), "{fault:?}: {told:?}");
        assert_eq!(read(&node, 0, value().len()).await, seen.then(value), "{fault:?}");
        patiently(&node, 20, give()).await;
        assert_eq!(read(&node, 0, value().len()).await, Some(value()), "{fault:?}");
    }
}
