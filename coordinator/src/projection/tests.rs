mod lists;
mod mentions;
mod owners;
mod random;
mod recall;
mod resume;
mod trims;

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, Row};
use rustix::process::{Pid, getpriority_process};
use serde_json::json;
use skein_shared::entity::DocumentChange;
use skein_shared::id::Kind;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::store::memory::Memory;
use crate::store::{EventRecord, StoredDocument, TimerChange};

const START: Timestamp = Timestamp(1_790_000_000_000);
const PATIENCE: Duration = Duration::from_secs(60);

/// A store with its projection, fed as an entity's host does.
struct World {
    directory: TempDir,
    store: Arc<dyn Store>,
    projection: Projection,
    /// Where each entity stands, and by which batch.
    places: BTreeMap<EntityKey, (Version, Uuid)>,
    clock: u64,
}

impl World {
    fn new() -> Self {
        Self::over(Arc::new(Memory::new(START)))
    }

    fn over(store: Arc<dyn Store>) -> Self {
        let directory = TempDir::new().unwrap();
        let projection = Projection::open(&directory.path().join("view.db"), Arc::clone(&store)).unwrap();
        Self { directory, store, projection, places: BTreeMap::new(), clock: START.0 }
    }

    /// With all its indexes.
    async fn built() -> Self {
        let world = Self::new();
        assert!(world.projection.whole(PATIENCE).await);
        world
    }

    /// Commits without a report.
    async fn commit(
        &mut self,
        key: &EntityKey,
        documents: Vec<DocumentChange>,
        events: Vec<EventRecord>,
    ) -> (Arc<Batch>, Version) {
        let (version, last) = self.places.entry(key.clone()).or_default();
        self.clock += 1;
        let batch = Batch {
            key: key.clone(),
            expected: *version,
            after: *last,
            id: Uuid::from_u128(u128::from(self.clock)),
            at: Timestamp(self.clock),
            documents,
            events,
            seen: Vec::new(),
            replies: Vec::new(),
            timer: TimerChange::Keep,
            outbox: Vec::new(),
            blobs: Vec::new(),
        };
        (*version, *last) = (Version(version.0 + 1), batch.id);
        let batch = Arc::new(batch);
        (Arc::clone(&batch), self.store.commit(self.store.fence(&batch.key), batch).await.unwrap())
    }

    async fn feed(&mut self, key: &EntityKey, documents: Vec<DocumentChange>, events: Vec<EventRecord>) {
        let (batch, version) = self.commit(key, documents, events).await;
        self.projection.committed(batch, version);
    }

    async fn settle(&self) {
        for (key, (version, _)) in &self.places {
            let freshness = self.projection.caught_up(key, *version, PATIENCE).await;
            assert_eq!(freshness, Freshness::Fresh, "{key}");
        }
    }

    /// Another projection of the same store, all of it built at once.
    async fn rebuilt(&self) -> Projection {
        let path = self.directory.path().join(format!("again-{}.db", self.clock));
        let projection = Projection::open(&path, Arc::clone(&self.store)).unwrap();
        for (key, (version, _)) in &self.places {
            let freshness = projection.caught_up(key, *version, PATIENCE).await;
            assert_eq!(freshness, Freshness::Fresh, "{key}");
        }
        projection
    }
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn pool() -> EntityKey {
    EntityKey::of(Kind::Pool, &name("default"))
}

fn put(key: &str, body: Value) -> DocumentChange {
    DocumentChange::Put {
        key: key.to_owned(),
        live: true,
        head: json!({"v": 1}).into(),
        body: Some(body.into()),
        new: false,
    }
}

/// A search of everything by words.
fn sought(text: &str) -> Sought {
    let seen = Seen { by: None, scope: None };
    Sought { text: text.to_owned(), meaning: None, seen, source: None, limit: 10 }
}

fn event(subject: &str, number: u64) -> EventRecord {
    EventRecord { subject: Some(subject.to_owned()), body: json!({"started": {"n": number}}).into() }
}

fn tasks() -> Query {
    Query::new(&name("default"), Kind::Pool, "task")
}

/// A document's row.
async fn row(projection: &Projection, key: &EntityKey, document: &str) -> Option<(Version, Value)> {
    let (key, document) = (key.to_string(), document.to_owned());
    let read = move |connection: &Connection| -> rusqlite::Result<Option<(Version, Value)>> {
        let mut statement = connection.prepare(
            "SELECT version, body FROM document
             WHERE entity = (SELECT number FROM entity WHERE key = ?1) AND document = ?2",
        )?;
        let read = |row: &Row<'_>| {
            Ok((Version(row.get::<_, i64>(0)?.unsigned_abs()), tables::json::<Value>(row, 1)?))
        };
        statement.query_row([key, document], read).optional()
    };
    projection.read(read).await.unwrap()
}

async fn body(projection: &Projection, document: &str) -> Option<Value> {
    row(projection, &pool(), document).await.map(|(_, body)| body)
}

/// Everything in the tables but the numbers of rows, which the order of writing decides.
async fn dump(projection: &Projection) -> Vec<String> {
    let read = |connection: &Connection| -> rusqlite::Result<Vec<String>> {
        let mut all = Vec::new();
        for sql in [
            "SELECT json_array(key, document, swarm, kind, type, live, version, written,
                 status, priority, updated, agent, epic, schedule,
                 (SELECT json_group_array(json_array(field.key, field.value) ORDER BY field.key)
                  FROM json_each(body) AS field))
             FROM document JOIN entity ON entity.number = entity JOIN collection ON collection.number = collection
             ORDER BY key, document",
            "SELECT json_array(key, document, tag) FROM tag JOIN document USING (row)
             JOIN entity ON number = entity ORDER BY key, document, tag",
            "SELECT json_array(key, hex(subject), version) FROM mention JOIN entity ON number = entity
             ORDER BY key, subject, version",
            "SELECT json_array(key, era, at) FROM era JOIN entity ON number = entity ORDER BY key, era",
            "SELECT json_array(key, document) FROM text JOIN document ON document.row = text.rowid
             JOIN entity ON number = entity WHERE text MATCH 'alpha' ORDER BY key, document",
            "SELECT json_array(count(*)) FROM text_docsize",
        ] {
            let mut statement = connection.prepare(sql)?;
            all.extend(
                statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?,
            );
        }
        Ok(all)
    };
    projection.read(read).await.unwrap()
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

#[tokio::test]
async fn a_read_sees_the_writes_before_it() {
    let mut world = World::new();
    for number in 0..50 {
        let body = json!({"status": "pending", "n": number});
        world.feed(&pool(), vec![put("task/1", body.clone())], vec![event("1", number)]).await;
        world.settle().await;
        let row = row(&world.projection, &pool(), "task/1").await.unwrap();
        assert_eq!(row.1, body);
        let stored = world.store.document(&pool(), "task/1").await.unwrap().unwrap();
        assert_eq!(row, (stored.version, stored.body));
    }
    assert_eq!(world.projection.lag(), 0);
    assert_eq!(world.projection.list(tasks()).await.unwrap().len(), 1);
    assert_eq!(body(&world.projection, "task/2").await, None);
}

#[tokio::test]
async fn the_thread_that_writes_gives_way_to_the_others() {
    let _world = World::built().await;
    let own = getpriority_process(None).unwrap();
    let threads = std::fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path());
    // Those of other tests may be about to begin or to end.
    let gives_way = |thread: PathBuf| {
        let number = thread.file_name().unwrap().to_str().unwrap().parse().unwrap();
        std::fs::read_to_string(thread.join("comm")).is_ok_and(|name| name == "projection\n")
            && getpriority_process(Pid::from_raw(number)).is_ok_and(|nice| nice == (own + GIVES_WAY).min(19))
    };
    assert!(threads.into_iter().any(gives_way));
}

fn numbers(events: Vec<Event>) -> Vec<Value> {
    events.into_iter().map(|event| event.body["started"]["n"].clone()).collect()
}

#[tokio::test]
async fn history_is_of_one_subject_of_one_entity() {
    let mut world = World::new();
    let other = EntityKey::of(Kind::Lockspace, &name("other"));
    let id = Uuid::from_u128(7).to_string();
    for number in 0..5 {
        let events = vec![event(&id, number), event("else", number), event(&id, 10 + number)];
        world.feed(&pool(), vec![], events).await;
        world.feed(&other, vec![], vec![event(&id, 100 + number)]).await;
    }
    world.settle().await;
    let history = world.projection.history(&pool(), &id, 3).await.unwrap();
    assert_eq!(history[0].kind, "started");
    let all = world.projection.events(None, 0, 100).await.unwrap().events;
    assert!(history.iter().all(|event| all.contains(event)), "an event is the same in both");
    assert_eq!(numbers(history), [13, 4, 14], "the newest ones, oldest first");
    assert_eq!(numbers(world.projection.history(&pool(), "else", 2).await.unwrap()), [3, 4]);
    assert_eq!(world.projection.history(&other, "else", 2).await.unwrap(), []);
    let rebuilt = world.rebuilt().await;
    assert_eq!(numbers(rebuilt.history(&pool(), &id, 3).await.unwrap()), [13, 4, 14]);
}

#[tokio::test]
async fn events_come_in_pages_whose_cursors_stay_valid() {
    let mut world = World::new();
    let other = EntityKey::of(Kind::Lockspace, &name("other"));
    assert_eq!(
        world.projection.events(None, 0, 10).await.unwrap(),
        EventPage { events: vec![], next: 0, last: true }
    );
    let begin = world.projection.position().await.unwrap();
    for number in 0..150 {
        world.feed(&pool(), vec![], vec![event("a", number), event("b", 1000 + number)]).await;
        world.feed(&other, vec![], vec![event("a", 2000 + number)]).await;
    }
    // No barrier: the events of what was answered are there at once.
    let all = world.projection.events(None, begin, 1000).await.unwrap();
    assert_eq!((all.events.len(), all.last), (450, true));
    assert!(all.events.windows(2).all(|pair| pair[0].position < pair[1].position));
    let end = world.projection.position().await.unwrap();
    assert_eq!(all.next, end);
    assert_eq!(world.projection.events(None, end, 10).await.unwrap().events, []);
    let rebuilt = world.rebuilt().await;
    for (swarm, size) in [(None, 7), (None, 450), (Some(name("default")), 100), (Some(name("other")), 1)] {
        let (mut after, mut found) = (0, Vec::new());
        loop {
            let page = rebuilt.events(swarm.as_ref(), after, size).await.unwrap();
            assert!(page.events.len() <= size && page.next >= after);
            found.extend(page.events);
            after = page.next;
            if page.last {
                break;
            }
        }
        let want =
            all.events.iter().filter(|event| swarm.as_ref().is_none_or(|swarm| event.key.swarm == *swarm));
        assert_eq!(found, want.cloned().collect::<Vec<_>>());
        assert_eq!(after, end, "a quiet swarm's cursor moves on too");
    }
}

/// What a reader waits for is written at once, not after the delay that reports gather in.
#[tokio::test]
async fn a_waiting_reader_is_served_at_once() {
    let mailbox = Mailbox::new();
    let batch = World::new().commit(&pool(), Vec::new(), Vec::new()).await.0;
    let report = || Message::Committed(Arc::clone(&batch), Version(1));
    mailbox.put(report());
    assert!(!mailbox.is_due(), "reports gather");
    let (passed, _reader) = oneshot::channel();
    mailbox.put(Message::Barrier { passed });
    mailbox.put(report());
    assert!(mailbox.is_due(), "a barrier is in it");
    assert_eq!(mailbox.take().unwrap().len(), 3);
    let hurry = mailbox.hurry();
    assert!(!mailbox.is_due(), "nothing to write");
    mailbox.put(report());
    assert!(mailbox.is_due(), "a reader waits for what is to come");
    assert_eq!(mailbox.take().unwrap().len(), 1);
    drop(hurry);
    mailbox.put(report());
    assert!(!mailbox.is_due());
    assert_eq!(mailbox.take().unwrap().len(), 1, "without readers it is written after a while");
    mailbox.close();
    assert!(mailbox.take().is_none());
}

/// Somebody has broken the file.
#[tokio::test]
async fn whoever_waits_for_what_cannot_be_taken_in_is_told() {
    let mut world = World::built().await;
    assert!(world.projection.settled(PATIENCE).await);
    let file = Connection::open(world.directory.path().join("view.db")).unwrap();
    file.execute_batch("DROP TABLE document").unwrap();
    world.feed(&pool(), vec![put("task/1", json!({}))], vec![]).await;
    assert!(!world.projection.settled(PATIENCE).await);
}

#[tokio::test]
async fn a_full_mailbox_makes_writers_wait() {
    let mailbox = Mailbox::new();
    let documents = vec![put("task/1", json!({"output": "x".repeat(1 << 20)}))];
    let batch = World::new().commit(&pool(), documents, Vec::new()).await.0;
    let report = || Message::Committed(Arc::clone(&batch), Version(1));
    mailbox.put(report());
    mailbox.room(PATIENCE).await;
    let mut reports = 1;
    while tokio::time::timeout(Duration::ZERO, mailbox.room(PATIENCE)).await.is_ok() {
        mailbox.put(report());
        reports += 1;
        assert!(reports < 100, "there is always room");
    }
    assert!(mailbox.is_due(), "it is written without a reader");
    let waiting = tokio::spawn({
        let mailbox = Arc::clone(&mailbox);
        async move { mailbox.room(Duration::MAX).await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    assert_eq!(mailbox.take().unwrap().len(), reports);
    waiting.await.unwrap();
    mailbox.put(report());
    mailbox.clear();
    assert_eq!(mailbox.len(), 0);
}

#[tokio::test]
async fn a_commit_that_was_not_reported_is_made_up_for() {
    let mut world = World::new();
    world.feed(&pool(), vec![put("task/1", json!({"a": 1})), put("task/2", json!({}))], vec![]).await;
    world.settle().await;
    let delete = DocumentChange::Delete { key: "task/2".to_owned() };
    let unreported = vec![put("task/1", json!({"b": 2})), delete, put("task/3", json!({"c": 3}))];
    world.commit(&pool(), unreported, vec![]).await;
    let short = Duration::from_millis(20);
    let freshness = world.projection.caught_up(&pool(), Version(2), short).await;
    assert_eq!(freshness, Freshness::Stale, "nobody told it yet");
    world.settle().await;
    assert_eq!(dump(&world.projection).await, dump(&world.rebuilt().await).await);
    world.commit(&pool(), vec![put("task/1", json!({"d": 4}))], vec![]).await;
    world.feed(&pool(), vec![put("task/1", json!({"e": 5}))], vec![]).await;
    world.settle().await;
    let body = body(&world.projection, "task/1").await.unwrap();
    assert_eq!(body, json!({"a": 1, "b": 2, "d": 4, "e": 5}));
}

/// Reports that come after a build which has read their results change nothing.
#[tokio::test]
async fn newer_rows_are_not_overwritten_by_older_changes() {
    let mut world = World::new();
    let mut reports = Vec::new();
    for number in 0..20 {
        let documents = match number % 4 {
            3 => vec![DocumentChange::Delete { key: "task/2".to_owned() }],
            _ => vec![put("task/1", json!({"n": number})), put("task/2", json!({format!("f{number}"): 1}))],
        };
        reports.push(world.commit(&pool(), documents, vec![event("1", number)]).await);
    }
    let late = world.rebuilt().await;
    let before = dump(&late).await;
    // Without the last one, a deletion, the others would bring its document back.
    reports.pop();
    for (batch, version) in reports {
        late.committed(batch, version);
    }
    late.settled(PATIENCE).await;
    assert_eq!(dump(&late).await, before);
}

/// Pages may be newer than the versions noted before them: a row says itself how new it is.
#[test]
fn a_row_knows_which_changes_it_has() {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(include_str!("schema.sql")).unwrap();
    tables::make_indexes(&connection).unwrap();
    let mut numbers = tables::Numbers::default();
    let place = numbers.place(&connection, &pool(), "task/1").unwrap();
    let page = StoredDocument {
        key: pool(),
        document: "task/1".to_owned(),
        live: true,
        head: json!({}),
        body: json!({"status": "completed", "task": "alpha"}),
        version: Version(5),
        at: START,
    };
    tables::put(&connection, place, &page).unwrap();
    let follow = |version: u64, change: DocumentChange| {
        let (key, documents) = (pool(), [change]);
        let mut changes = changes::Changes::default();
        changes.add(&key, Version(version), START, &documents);
        let (_, documents) = changes.into_iter().next().unwrap();
        documents.into_values().for_each(|change| tables::change(&connection, place, change).unwrap());
    };
    let row = || {
        let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, tables::json::<Value>(row, 1)?));
        connection.query_row("SELECT version, body FROM document", [], read).optional().unwrap()
    };
    let delete = || DocumentChange::Delete { key: "task/1".to_owned() };
    for older in [put("task/1", json!({"status": "pending"})), delete()] {
        follow(4, older);
        assert_eq!(row(), Some((5, page.body.clone())));
    }
    follow(6, put("task/1", json!({"status": null, "output": "beta"})));
    assert_eq!(row(), Some((6, json!({"task": "alpha", "output": "beta"}))));
    follow(7, delete());
    assert_eq!(row(), None);
}

/// The projection is opened in the middle of a stream of commits, over several pages of documents.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn building_while_commits_go_on_loses_nothing() {
    let mut world = World::new();
    for number in 0..2000 {
        let document = put(&format!("task/{number:04}"), json!({"task": "alpha", "n": number}));
        world.commit(&pool(), vec![document], vec![]).await;
    }
    world.projection =
        Projection::open(&world.directory.path().join("late.db"), Arc::clone(&world.store)).unwrap();
    for number in 0..1500_u64 {
        let key = format!("task/{:04}", (number * 7919) % 2100);
        let change = match number % 5 {
            0 => DocumentChange::Delete { key },
            _ => put(&key, json!({format!("f{}", number % 3): number, "tags": [number % 7 == 0, "x"]})),
        };
        world.feed(&pool(), vec![change], vec![event("1", number)]).await;
        if number % 50 == 0 {
            tokio::task::yield_now().await;
        }
    }
    world.settle().await;
    let (mut live, mut rebuilt) = (dump(&world.projection).await, dump(&world.rebuilt().await).await);
    for dump in [&mut live, &mut rebuilt] {
        dump.sort();
    }
    assert_eq!(live, rebuilt);
}
