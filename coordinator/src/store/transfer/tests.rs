use std::io::Cursor;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use skein_shared::entity::{BlobChange, DocumentChange};
use skein_shared::id::{Kind, Name};
use uuid::Uuid;

use super::*;
use crate::store::memory::{Contents, Fault, Gate, Memory};
use crate::store::sqlite::Sqlite;
use crate::store::{Batch, Chunk, OutboxEffect, Store, TimerChange, Version};

const START: Timestamp = Timestamp(1_790_000_000_000);
const LATER: Timestamp = Timestamp(START.0 + 60_000);
/// A number that a hasty reader takes for its neighbour.
const LONG: f64 = 31.245270191439438;

fn pool() -> EntityKey {
    EntityKey::of(Kind::Pool, &Name::parse("default").unwrap())
}

fn agent() -> EntityKey {
    EntityKey::agent(&Name::parse("default").unwrap(), &Name::parse("worker").unwrap())
}

fn batch(key: EntityKey, expected: u64) -> Batch {
    Batch {
        key,
        expected: Version(expected),
        after: Uuid::from_u128(expected.into()),
        id: Uuid::from_u128(u128::from(expected) + 1),
        at: Timestamp(START.0 + expected * 1000),
        documents: Vec::new(),
        events: Vec::new(),
        seen: Vec::new(),
        replies: Vec::new(),
        timer: TimerChange::Keep,
        outbox: Vec::new(),
        blobs: Vec::new(),
    }
}

fn put(key: &str, live: bool, body: Value) -> DocumentChange {
    DocumentChange::Put {
        key: key.to_owned(),
        live,
        head: json!({"h": key}).into(),
        body: Some(body.into()),
        new: false,
    }
}

fn effect(sequence: u64) -> OutboxEffect {
    let command = json!({"n": sequence}).into();
    OutboxEffect { sequence, effect: Effect::Entity { key: agent(), command } }
}

/// Something of every sort: of three effects one is buried, one was taken in, one is to be delivered.
async fn filled() -> Arc<dyn Store> {
    let store = Memory::new(START);
    let fence = store.fence(&pool());
    let events = vec![EventRecord { subject: Some("1".to_owned()), body: json!({"made": 1}).into() }];
    let first = Batch {
        documents: vec![put("task/1", true, json!({"b": 2, "a": {"y": 1, "x": [LONG, null]}}))],
        events: events.clone(),
        outbox: vec![effect(1), effect(2)],
        timer: TimerChange::Set(LATER),
        ..batch(pool(), 0)
    };
    let second = Batch {
        documents: vec![put("task/0", false, json!({"late": true})), put("task/1", true, json!({"b": 3}))],
        events,
        outbox: vec![effect(3)],
        replies: vec![StoredReply {
            request: Uuid::nil(),
            digest: u64::MAX,
            at: START,
            reply: json!({"b": 1, "a": 2}).into(),
        }],
        ..batch(pool(), 1)
    };
    for (place, bytes) in [(0, vec![0, 255]), (1, vec![7])] {
        // One chunk of a blob that is kept, and one that nobody keeps, which is not carried over.
        let chunk = Chunk { key: agent(), blob: Uuid::from_u128(place), place: 0, bytes, at: START };
        store.write_chunk(fence, chunk).await.unwrap();
    }
    let blobs = vec![BlobChange::Keep { blob: Uuid::from_u128(0), bytes: 2 }];
    let seen = vec![Mark { source: pool(), epoch: fence.epoch, sequence: 2 }];
    for batch in [first, second, Batch { seen, blobs, ..batch(agent(), 0) }] {
        store.commit(fence, batch.into()).await.unwrap();
    }
    let entries = store.outbox(0, 10).await.unwrap();
    store.bury(entries[0].place(), "no such agent".to_owned(), LATER).await.unwrap();
    Arc::new(store)
}

async fn exported(store: &dyn Store) -> (Summary, Vec<u8>) {
    let mut file = Vec::new();
    (export(store, &mut file).await.unwrap(), file)
}

async fn imported(store: Arc<dyn Store>, file: &[u8]) -> Result<Summary, TransferError> {
    import(store, &mut Cursor::new(file)).await
}

#[tokio::test]
async fn a_store_of_another_kind_has_the_same_state() {
    let (old, file) = exported(&*filled().await).await;
    let folder = tempfile::tempdir().unwrap();
    let sqlite: Arc<dyn Store> = Arc::new(Sqlite::open(&folder.path().join("store.db"), LATER).unwrap());
    assert_eq!(imported(Arc::clone(&sqlite), &file).await.unwrap(), old);
    let left = sqlite.outbox(0, 10).await.unwrap();
    assert_eq!(left.iter().map(|entry| entry.sequence).collect::<Vec<_>>(), [3], "2 was taken in");
    let loaded = sqlite.load(&pool()).await.unwrap();
    assert_eq!((loaded.timer, loaded.sequence, loaded.replies.len()), (Some(LATER), 3, 1));
    let body = sqlite.document(&pool(), "task/1").await.unwrap().unwrap().body;
    assert_eq!(body, json!({"a": {"x": [LONG, null], "y": 1}, "b": 3}));
    let kept = Uuid::from_u128(0);
    assert_eq!(sqlite.chunk(&agent(), kept, 0).await.unwrap(), Some(vec![0, 255]));
    assert_eq!(sqlite.blobs(None, 10).await.unwrap().len(), 1);
    let (back, file) = exported(&*sqlite).await;
    assert_eq!(back.state, old.state);
    let memory = Arc::new(Contents::default().open(Timestamp(LATER.0 + 1)));
    assert_eq!(imported(memory, &file).await.unwrap(), back);
}

#[tokio::test]
async fn an_export_reads_few_large_records_at_once_and_each_of_them_once() {
    const LARGE: usize = 500_000;
    let store = Memory::new(START);
    let fence = store.fence(&pool());
    for expected in 0..40 {
        let body = json!({"number": expected, "text": "x".repeat(LARGE)}).into();
        let events = vec![EventRecord { subject: None, body }];
        store.commit(fence, Batch { events, ..batch(pool(), expected) }.into()).await.unwrap();
    }
    let (summary, _) = exported(&store).await;
    assert_eq!(summary.lines, 40 + 1, "each record and the entity");
    let read = store.contents().read();
    assert_eq!(read.records, 40);
    assert_eq!(read.pages, 4 + 1, "16, 16 and 8 records, and two that say that there is no more");
}

/// Redis refuses commits that are very long, and a busy entity has answered much in a quarter of an hour.
#[tokio::test]
async fn much_of_one_entity_goes_in_commits_of_a_few_mib() {
    let long = "x".repeat(1 << 20);
    let reply = |number: u128| StoredReply {
        request: Uuid::from_u128(number),
        digest: 1,
        at: START,
        reply: json!({"text": long}).into(),
    };
    let document = |number: u128| put(&format!("task/{number}"), true, json!({"text": long}));
    let store = Memory::new(START);
    let fence = store.fence(&pool());
    let answered = Batch { replies: (0..10).map(reply).collect(), ..batch(pool(), 0) };
    let written = Batch { documents: (0..10).map(document).collect(), ..batch(agent(), 0) };
    for batch in [answered, written] {
        store.commit(fence, batch.into()).await.unwrap();
    }
    let (old, file) = exported(&store).await;
    let new: Arc<dyn Store> = Arc::new(Memory::new(LATER));
    assert_eq!(imported(Arc::clone(&new), &file).await.unwrap(), old);
    // Three of them at a time.
    let versions = new.versions().await.unwrap();
    assert!(versions.iter().all(|(_, version)| version.0 >= 4), "{versions:?}");
    assert_eq!(new.load(&pool()).await.unwrap().replies.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn an_import_into_a_slow_store_has_few_bytes_under_way() {
    const LARGE: usize = 1_000_000;
    const AGENTS: usize = 24;
    let store = Memory::new(START);
    for number in 0..AGENTS {
        let name = Name::parse(&format!("worker-{number}")).unwrap();
        let key = EntityKey::agent(&Name::parse("default").unwrap(), &name);
        let events = vec![EventRecord { subject: None, body: json!("x".repeat(LARGE)).into() }];
        store.commit(store.fence(&key), Batch { events, ..batch(key, 0) }.into()).await.unwrap();
    }
    let (old, file) = exported(&store).await;
    let (new, gate) = (Memory::new(LATER), Gate::default());
    let faults = new.contents().faults().clone();
    for _ in 0..AGENTS {
        faults.push(Fault::Slow(gate.clone()));
    }
    let mut importing = pin!(imported(Arc::new(new), &file));
    // Time passes once nothing else is left to do.
    tokio::time::timeout(Duration::from_secs(1), &mut importing).await.unwrap_err();
    let under_way = AGENTS - faults.left();
    assert!((1..=(16 << 20) / LARGE).contains(&under_way), "{under_way} are under way");
    gate.open();
    assert_eq!(importing.await.unwrap(), old);
}

/// What comes last, effects that are to be delivered and timers, would be missed by nobody.
#[tokio::test]
async fn a_store_that_an_import_has_filled_in_part_is_taken_for_none() {
    let (old, file) = exported(&*filled().await).await;
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str| Sqlite::open(&folder.path().join(name), LATER);
    let broken = with_a_line_that_no_import_reads(&file);
    let problem = imported(Arc::new(open("part.db").unwrap()), &broken).await.unwrap_err();
    assert!(matches!(problem, TransferError::Format { .. }), "{problem}");
    let said = open("part.db").err().unwrap().to_string();
    assert!(said.contains("part.db") && said.contains("import again"), "{said}");
    assert_eq!(imported(Arc::new(open("whole.db").unwrap()), &file).await.unwrap(), old);
    let (again, _) = exported(&open("whole.db").unwrap()).await;
    assert_eq!(again.state, old.state);
}

/// It is found behind all that comes before it, for the checksums are right.
fn with_a_line_that_no_import_reads(file: &[u8]) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = file.split_inclusive(|byte| *byte == b'\n').collect();
    lines.pop();
    lines.push(b"{}\n");
    let mut sum = Sum::default();
    sum.head(lines[0]);
    for line in &lines[1..] {
        sum.line(line);
    }
    let mut changed = lines.concat();
    changed.extend(serde_json::to_vec(&sum.finish()).unwrap());
    changed
}

/// Cut anywhere, or with any byte changed, a file is refused before anything is written.
#[tokio::test]
async fn a_damaged_file_changes_nothing() {
    let (_, file) = exported(&*filled().await).await;
    for end in 0..file.len() - 1 {
        refused_untouched(&file[..end]).await;
    }
    for place in (0..file.len() - 1).step_by(7) {
        let mut changed = file.clone();
        changed[place] ^= 1;
        refused_untouched(&changed).await;
    }
}

async fn refused_untouched(file: &[u8]) {
    let store: Arc<dyn Store> = Arc::new(Memory::new(LATER));
    let problem = imported(Arc::clone(&store), file).await.unwrap_err();
    assert!(matches!(problem, TransferError::Checksum | TransferError::Format { .. }), "{problem}");
    assert_eq!(store.versions().await.unwrap(), []);
}

#[tokio::test]
async fn what_is_there_is_not_mixed_with_what_comes() {
    let (_, file) = exported(&*filled().await).await;
    let problem = imported(filled().await, &file).await.unwrap_err();
    assert!(matches!(problem, TransferError::NotEmpty), "{problem}");
}

/// Receivers would take new effects for repeats, and resources would refuse new tokens.
#[tokio::test]
async fn a_clock_that_is_behind_is_refused() {
    let (_, file) = exported(&*filled().await).await;
    let behind: Arc<dyn Store> = Arc::new(Memory::new(Timestamp(START.0 - 5)));
    let problem = imported(behind, &file).await.unwrap_err();
    assert!(matches!(problem, TransferError::Clock(6)), "{problem}");
}
