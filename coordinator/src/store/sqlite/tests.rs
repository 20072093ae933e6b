mod damage;
mod trims;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use proptest::prelude::{ProptestConfig, proptest};
use rusqlite::{StatementStatus, ffi};
use serde_json::{Value, json};
use skein_shared::entity::DocumentChange;
use skein_shared::id::{Kind, Name};
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::alarms::Kind as Alarm;
use crate::store::conformance::{self, Backend, contents};
use crate::store::memory::Memory;
use crate::store::{EventRecord, Mark, StoredReply, TimerChange, TrimPlan};

const START: Timestamp = Timestamp(1_790_000_000_000);

struct File(TempDir);

impl File {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("skein.db")
    }

    fn log(&self) -> PathBuf {
        self.path().with_extension("db-wal")
    }
}

#[async_trait]
impl Backend for File {
    async fn open(&self, wall: Timestamp) -> Arc<dyn Store> {
        Arc::new(Sqlite::open(&self.path(), wall).unwrap())
    }
}

fn batch(expected: u64, text: &str) -> Batch {
    Batch {
        key: EntityKey::of(Kind::Pool, &Name::parse("default").unwrap()),
        expected: Version(expected),
        after: Uuid::from_u128(expected.into()),
        id: Uuid::from_u128(u128::from(expected) + 1),
        at: Timestamp(START.0 + expected),
        documents: Vec::new(),
        events: vec![EventRecord { subject: None, body: skein_shared::json::Json::of(text) }],
        seen: Vec::new(),
        replies: Vec::new(),
        timer: TimerChange::Keep,
        outbox: Vec::new(),
        blobs: Vec::new(),
    }
}

fn refusal(path: &Path) -> String {
    Sqlite::open(path, START).err().unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_conforms() {
    conformance::suite(File::new).await;
}

#[tokio::test]
async fn every_commit_is_flushed() {
    let file = File::new();
    let store = Sqlite::open(&file.path(), START).unwrap();
    let settings = store.writer.settings(store.fence).await.unwrap();
    assert_eq!(settings, (2, "wal".to_owned()), "2 is FULL");
}

#[tokio::test]
async fn a_backup_opens_and_equals_the_store() {
    let file = File::new();
    let store = Sqlite::open(&file.path(), START).unwrap();
    for expected in 0..50 {
        store.commit(store.fence, batch(expected, "event").into()).await.unwrap();
    }
    let copy = file.0.path().join("copy.db");
    store.backup(&copy).await.unwrap();
    for path in [file.path(), copy.clone()] {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{} holds what agents told each other", path.display());
    }
    let again = store.backup(&copy).await.unwrap_err();
    assert!(again.to_string().contains("exists already"), "{again}");
    let restored = Sqlite::open(&copy, START).unwrap();
    assert_eq!(contents(&restored).await, contents(&store).await);
    assert!(restored.fence.epoch > store.fence.epoch);
    store.commit(store.fence, batch(50, "the original goes on").into()).await.unwrap();
}

/// As if a node had died over a copy, and while another one is made under the same name.
#[tokio::test]
async fn a_copy_minds_no_other_that_was_left_in_part_or_is_under_way() {
    let file = File::new();
    let store = Sqlite::open(&file.path(), START).unwrap();
    store.commit(store.fence, batch(0, "event").into()).await.unwrap();
    let copies = file.0.path().join("copies");
    std::fs::create_dir(&copies).unwrap();
    let (copy, left) = (copies.join("copy.db"), copies.join("copy.db.partial"));
    std::fs::copy(file.path(), &left).unwrap();
    let (one, other) = tokio::join!(store.backup(&copy), store.backup(&copy));
    let refused = match (one, other) {
        (Ok(()), Err(refused)) | (Err(refused), Ok(())) => refused.to_string(),
        both => panic!("one of them makes it: {both:?}"),
    };
    assert!(refused.contains("exists already"), "{refused}");
    assert_eq!(contents(&Sqlite::open(&copy, START).unwrap()).await, contents(&store).await);
    let names = std::fs::read_dir(&copies).unwrap().map(|entry| entry.unwrap().path());
    let partial = names.filter(|path| path.extension().is_some_and(|extension| extension == "partial"));
    assert_eq!(partial.collect::<Vec<_>>(), [left], "of the one that was refused nothing is left");
}

async fn versions_in(file: &File) -> Vec<(EntityKey, Version)> {
    Sqlite::open(&file.path(), START).unwrap().versions().await.unwrap()
}

/// A process that was killed leaves its log, and so does one that still runs.
#[tokio::test]
async fn a_copy_in_place_of_a_store_that_was_killed_is_not_mixed_with_its_log() {
    let file = File::new();
    let store = Sqlite::open(&file.path(), START).unwrap();
    store.commit(store.fence, batch(0, "event").into()).await.unwrap();
    let copy = file.0.path().join("copy.db");
    store.backup(&copy).await.unwrap();
    store.commit(store.fence, batch(1, "later").into()).await.unwrap();
    let key = batch(0, "").key;

    let (killed, restored) = (File::new(), File::new());
    for (from, to) in [(&file.path(), &killed), (&copy, &restored)] {
        std::fs::copy(from, to.path()).unwrap();
        std::fs::copy(file.log(), to.log()).unwrap();
    }
    assert_eq!(versions_in(&killed).await, [(key.clone(), Version(2))], "its own log is read");
    let refused = refusal(&restored.path());
    assert!(refused.contains("skein.db-wal") && refused.contains("new data folder"), "{refused}");
    assert_eq!(std::fs::read(restored.path()).unwrap(), std::fs::read(&copy).unwrap());
    std::fs::remove_file(restored.log()).unwrap();
    assert_eq!(versions_in(&restored).await, [(key, Version(1))]);
}

#[test]
fn files_of_others_are_refused_and_left_alone() {
    let file = File::new();
    let text = file.0.path().join("notes.txt");
    std::fs::write(&text, "not a database, but long enough to have a header ".repeat(40)).unwrap();
    assert!(refusal(&text).contains("not a SQLite database"));
    assert!(std::fs::read_to_string(&text).unwrap().starts_with("not a database"));

    let foreign = file.0.path().join("foreign.db");
    Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    assert!(refusal(&foreign).contains("no store of Skein"));

    drop(Sqlite::open(&file.path(), START).unwrap());
    Connection::open(file.path()).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert!(refusal(&file.path()).contains("schema 99"));
}

#[tokio::test]
async fn damage_is_reported_not_guessed_over() {
    let file = File::new();
    let store = Sqlite::open(&file.path(), START).unwrap();
    for expected in 0..200 {
        store.commit(store.fence, batch(expected, &"x".repeat(1000)).into()).await.unwrap();
    }
    drop(store);
    let mut bytes = std::fs::read(file.path()).unwrap();
    for byte in &mut bytes[8192..] {
        *byte = 0xA5;
    }
    std::fs::write(file.path(), bytes).unwrap();
    let error = match Sqlite::open(&file.path(), START) {
        Err(error) => error,
        Ok(store) => store.records(0, 1000).await.unwrap_err(),
    };
    assert!(error.to_string().contains("damaged"), "{error}");
}

fn writer(mut connection: Connection, file: &File, fence: Fence) -> Writer {
    let checkpoints = Checkpoints::start(&mut connection, &file.path(), Durability::Full).unwrap();
    Writer::start(connection, checkpoints, fence).unwrap()
}

async fn write(writer: &Writer, fence: Fence, batch: Batch) -> Result<Version, CommitError> {
    let (receipt, outcome) = Receipt::awaited();
    writer.commit(fence, Prepared::new(batch.into()).unwrap(), receipt);
    outcome.await
}

/// Copied while commits go on, and begun anew in between: the log is never as long as all that was written.
#[tokio::test]
async fn the_log_stays_short_under_load() {
    let file = File::new();
    let store = Sqlite::open_with(&file.path(), START, Durability::Disposable).unwrap();
    let text = "x".repeat(100_000);
    for version in 0..1500 {
        store.commit(store.fence, batch(version, &text).into()).await.unwrap();
    }
    let log = std::fs::metadata(file.log()).unwrap().len();
    assert!(log < 75_000_000, "{log} bytes");
}

/// A full disk, by way of the page limit: the write fails for certain, and the store goes on once there is room.
#[tokio::test]
async fn a_full_disk_refuses_and_recovers() {
    let file = File::new();
    let store = Sqlite::open(&file.path(), START).unwrap();
    store.commit(store.fence, batch(0, "small").into()).await.unwrap();
    drop(store);
    let connection = connection::writable(&file.path(), Durability::Full).unwrap();
    let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    connection.pragma_update(None, "max_page_count", pages + 8).unwrap();
    let fence = apply::stored_fence(&connection).unwrap();
    let writer = writer(connection, &file, fence);
    let alarms = Alarms::default();
    writer.serve(alarms.clone());
    let ask = |batch| write(&writer, fence, batch);
    let answer = ask(batch(1, &"x".repeat(1_000_000))).await;
    assert!(matches!(&answer, Err(CommitError::Failed(why)) if why.contains("disk is full")), "{answer:?}");
    let [alarm] = &alarms.all()[..] else { panic!("{:?}", alarms.all()) };
    assert_eq!((alarm.kind, alarm.subject.as_str()), (Alarm::StoreFull, "commits"));
    assert!(alarm.problem.contains("free some space"), "{}", alarm.problem);
    assert_eq!(ask(batch(1, "small")).await, Ok(Version(2)));
    assert_eq!(alarms.all(), [], "a write was taken");
}

/// The page that makes a commit of the others is written last, and flushed after that.
#[test]
fn what_had_no_room_was_not_committed_and_whatever_else_failed_may_be() {
    let outcome = |code| writer::not_committed(&rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
    assert!(matches!(outcome(ffi::SQLITE_FULL), CommitError::Failed(why) if why.contains("disk is full")));
    for code in [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_BUSY] {
        assert!(matches!(outcome(code), CommitError::Unknown(_)), "{code}");
    }
}

/// A write that fails half way, by way of a trigger, leaves nothing, and its neighbours stand.
#[tokio::test]
async fn a_failed_batch_is_rolled_back_alone() {
    let file = File::new();
    let store = Sqlite::open(&file.path(), START).unwrap();
    let connection = connection::writable(&file.path(), Durability::Full).unwrap();
    let trigger = "CREATE TEMP TRIGGER broken BEFORE INSERT ON timer BEGIN SELECT RAISE(FAIL, 'broken'); END";
    connection.execute_batch(trigger).unwrap();
    let writer = writer(connection, &file, store.fence);
    let ask = |batch| write(&writer, store.fence, batch);
    let other = EntityKey::of(Kind::Channels, &Name::parse("default").unwrap());
    let broken = Batch { timer: TimerChange::Set(START), ..batch(0, "broken") };
    let (failed, neighbour) =
        tokio::join!(ask(broken), ask(Batch { key: other.clone(), ..batch(0, "whole") }));
    assert!(matches!(&failed, Err(CommitError::Failed(why)) if why.contains("broken")), "{failed:?}");
    assert_eq!(neighbour, Ok(Version(1)));
    assert_eq!(ask(batch(0, "whole")).await, Ok(Version(1)));
    drop(writer);
    assert_eq!(store.versions().await.unwrap(), [(other, Version(1)), (batch(0, "").key, Version(1))]);
}

fn change(expected: u64, changes: Vec<DocumentChange>) -> Batch {
    Batch { documents: changes, ..batch(expected, "changed") }
}

fn put(document: &str, body: Value) -> DocumentChange {
    let head = skein_shared::json::Json::of(&body);
    DocumentChange::Put { key: document.to_owned(), live: true, head, body: Some(body.into()), new: false }
}

/// A process that ends without a word leaves its journal, and the next one takes it up.
#[tokio::test]
async fn what_waits_outlives_the_process() {
    let file = File::new();
    let dead = Sqlite::open(&file.path(), START).unwrap();
    let mark = Mark { source: batch(0, "").key, epoch: Epoch(3), sequence: 9 };
    let first = Batch { seen: vec![mark.clone()], ..change(0, vec![put("task/1", json!({"a": 1, "b": 1}))]) };
    dead.commit(dead.fence, first.into()).await.unwrap();
    let second = change(1, vec![put("task/1", json!({"b": null, "c": 2})), put("task/2", json!({}))]);
    dead.commit(dead.fence, second.clone().into()).await.unwrap();

    let store = Sqlite::open(&file.path(), START).unwrap();
    let key = batch(0, "").key;
    let found = store.document(&key, "task/1").await.unwrap().unwrap();
    assert_eq!((found.body, found.version), (json!({"a": 1, "c": 2}), Version(2)));
    let loaded = store.load(&key).await.unwrap();
    assert_eq!((loaded.version, loaded.live.len(), loaded.marks), (Version(2), 2, vec![mark]));
    assert_eq!(store.commit(store.fence, second.into()).await, Ok(Version(2)), "a repeat");

    let late = dead.commit(dead.fence, change(2, Vec::new()).into()).await;
    assert_eq!(late, Err(CommitError::Fenced(store.fence.epoch)));
    assert_eq!(contents(&dead).await, contents(&store).await, "the dead one would read what is there");
}

/// A record that carries nothing any more goes with its place, the newest one stays with its own.
#[tokio::test]
async fn places_go_with_their_records() {
    let file = File::new();
    let store = Sqlite::open(&file.path(), START).unwrap();
    for version in 0..40 {
        store.commit(store.fence, batch(version, "small").into()).await.unwrap();
    }
    let nothing = Timestamp(0);
    let plan = TrimPlan {
        now: START + Duration::from_secs(1),
        events_before: START + Duration::from_secs(1),
        events_per_entity: 1000,
        replies_before: nothing,
        marks_before: nothing,
        archived_before: nothing,
        dead_letters_before: nothing,
        loose_before: nothing,
        limit: 16,
    };
    let both = "SELECT (SELECT count(*) FROM record), (SELECT count(*) FROM place)";
    for left in [24, 8, 1] {
        store.trim(plan.clone()).await.unwrap();
        let counts = store
            .read(move |connection| connection.query_row(both, [], |row| Ok((row.get(0)?, row.get(1)?))));
        assert_eq!(counts.await.unwrap(), (left, left));
    }
}

/// So many documents that they are folded with the commits that follow; and the process ends in the middle of that.
#[tokio::test]
async fn what_is_folded_bit_by_bit_reads_the_same() {
    let file = File::new();
    let store = Sqlite::open(&file.path(), START).unwrap();
    let (memory, key) = (Memory::new(START), batch(0, "").key);
    let document = |number: u64| format!("task/{:04}", number % 2400);
    let (mut parts, mut both) = (0, false);
    for expected in 0..150 {
        let changes = (0..48).map(|n| put(&document(expected * 48 + n), json!({"a": expected, "b": n})));
        let gone = document(expected * 31);
        let mut changes: Vec<_> = changes.collect();
        changes.push(DocumentChange::Delete { key: gone.clone() });
        changes.extend((expected % 3 == 0).then(|| put(&gone, json!({"c": expected}))));
        let reply = StoredReply {
            request: Uuid::from_u128(expected.into()),
            digest: expected,
            at: START + Duration::from_millis(expected),
            reply: skein_shared::json::Json::of(&expected),
        };
        let change = Batch { replies: vec![reply], ..change(expected, changes) };
        store.commit(store.fence, change.clone().into()).await.unwrap();
        memory.commit(memory.fence(&key), change.into()).await.unwrap();
        let asked = BTreeSet::from([0, 1, expected / 2, expected, expected + 1, 1000]);
        let versions: Vec<_> = asked.into_iter().map(Version).collect();
        let (ours, theirs) =
            (store.records_of(&key, versions.clone()).await, memory.records_of(&key, versions).await);
        assert_eq!(ours.unwrap(), theirs.unwrap(), "after {expected}");
        for name in [document(expected * 48), document(expected * 7), gone] {
            let (ours, theirs) = (store.document(&key, &name).await, memory.document(&key, &name).await);
            assert_eq!(ours.unwrap(), theirs.unwrap(), "{name} after {expected}");
        }
        both = store.writer.look(|waiting| !waiting.old.is_empty() && !waiting.young.is_empty());
        parts += u32::from(both);
    }
    assert!(parts > 20 && both, "it never folded bit by bit");
    let next = Sqlite::open(&file.path(), START).unwrap();
    assert_eq!(contents(&next).await, contents(&memory).await);
    let versions: Vec<_> = (0..=151).map(Version).collect();
    let (ours, theirs) =
        (next.records_of(&key, versions.clone()).await, memory.records_of(&key, versions).await);
    assert_eq!(ours.unwrap(), theirs.unwrap());
    let replies = next.load(&key).await.unwrap().replies;
    assert_eq!(replies.iter().map(|reply| reply.digest).collect::<Vec<_>>(), (0..150).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever is put and deleted, and whenever it is folded: a document reads the same before, between and after.
    #[test]
    fn folding_changes_nothing_that_is_read(steps in proptest::collection::vec((0..3_u8, 0..6_u8), 1..40)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.block_on(async {
            let file = File::new();
            let store = Sqlite::open(&file.path(), START).unwrap();
            let memory = Memory::new(START);
            let key = batch(0, "").key;
            for (expected, (document, what)) in (0_u64..).zip(steps) {
                let name = format!("task/{document}");
                let change = change(expected, match what {
                    0 => vec![DocumentChange::Delete { key: name.clone() }],
                    1 => vec![put(&name, json!({"a": null, "b": expected}))],
                    2 => vec![DocumentChange::Delete { key: name.clone() }, put(&name, json!({"d": expected}))],
                    _ => vec![put(&name, json!({"a": expected, "c": what}))],
                });
                store.commit(store.fence, change.clone().into()).await.unwrap();
                memory.commit(memory.fence(&key), change.into()).await.unwrap();
                if what == 5 {
                    store.fold(None).await.unwrap();
                }
                let (ours, theirs) = (store.document(&key, &name).await, memory.document(&key, &name).await);
                assert_eq!(ours.unwrap(), theirs.unwrap());
            }
            assert_eq!(contents(&store).await, contents(&memory).await);
        });
    }
}

/// Pages, loads and trims must not read a table from end to end: it may have millions of rows.
#[test]
fn statements_use_their_indexes() {
    let mut connection = Connection::open_in_memory().unwrap();
    migrate::migrate(&mut connection).unwrap();
    for (sql, plan) in [
        (
            "SELECT body FROM document WHERE (entity, document) > (?1, ?2) ORDER BY entity, document",
            "SEARCH document USING PRIMARY KEY ((entity,document)>(?,?))",
        ),
        (
            "SELECT body FROM document WHERE entity = ?1 AND document > ?2 ORDER BY document",
            "SEARCH document USING PRIMARY KEY (entity=? AND document>?)",
        ),
        (
            "SELECT record.events FROM place CROSS JOIN record ON record.position = place.position
             WHERE place.entity = ?1 AND place.version > ?2 AND record.events IS NOT NULL ORDER BY place.version",
            "SEARCH place USING PRIMARY KEY (entity=? AND version>?)\n\
             SEARCH record USING INTEGER PRIMARY KEY (rowid=?)",
        ),
        (
            "SELECT head FROM document INDEXED BY document_live WHERE entity = ?1 AND live = 1 ORDER BY document",
            "SEARCH document USING INDEX document_live (entity=?)",
        ),
        (
            "SELECT record.at, record.replies FROM place CROSS JOIN record ON record.position = place.position
             WHERE place.entity = ?1 ORDER BY place.version DESC",
            "SEARCH place USING PRIMARY KEY (entity=?)\nSEARCH record USING INTEGER PRIMARY KEY (rowid=?)",
        ),
        (
            "SELECT position, at, events IS NOT NULL FROM record WHERE position > ?1 ORDER BY position",
            "SEARCH record USING INTEGER PRIMARY KEY (rowid>?)",
        ),
        (
            "SELECT position, at, 1 FROM record WHERE replies IS NOT NULL AND position > ?1 ORDER BY position",
            "SEARCH record USING INDEX record_answered (position>?)",
        ),
        (
            "SELECT place.version, place.position, record.events IS NOT NULL FROM place
             CROSS JOIN record ON record.position = place.position
             WHERE place.entity = ?1 AND place.version > ?2 AND place.version <= ?3 ORDER BY place.version",
            "SEARCH place USING PRIMARY KEY (entity=? AND version>? AND version<?)\n\
             SEARCH record USING INTEGER PRIMARY KEY (rowid=?)",
        ),
        (
            "SELECT position, entity, version FROM record WHERE events IS NULL AND replies IS NULL
             AND position < (SELECT max(position) FROM record) LIMIT ?1",
            "SEARCH record USING INDEX record_empty (position<?)\nSCALAR SUBQUERY 1\nSEARCH record",
        ),
        (
            "SELECT entity, due FROM timer ORDER BY due, entity LIMIT ?1",
            "SCAN timer USING COVERING INDEX timer_due",
        ),
    ] {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let rows = statement.raw_query();
        let steps: Vec<String> = rows.mapped(|row| row.get(3)).map(Result::unwrap).collect();
        assert_eq!(steps.join("\n"), plan, "{sql}");
    }
}

/// To prepare one takes longer than to run it.
#[test]
fn statements_are_prepared_once() {
    let file = File::new();
    let connection = connection::writable(&file.path(), Durability::Full).unwrap();
    let mut statement =
        connection.prepare("SELECT name FROM sqlite_schema WHERE rootpage > ?1 LIMIT ?2").unwrap();
    for number in 1..4 {
        let names: Vec<String> =
            statement.query_map([number, number], |row| row.get(0)).unwrap().flatten().collect();
        assert!(names.is_empty());
    }
    assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
}
