use std::collections::BTreeMap;

use proptest::prelude::*;
use rusqlite::params_from_iter;
use serde_json::json;
use skein_shared::entity::DocumentChange;
use skein_shared::id::Kind;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::store::memory::Memory;
use crate::store::{EventRecord, TimerChange};

const START: Timestamp = Timestamp(1_790_000_000_000);
const PATIENCE: Duration = Duration::from_secs(20);

/// A store with its projection, fed as an entity's host does.
struct World {
    directory: TempDir,
    store: Arc<dyn Store>,
    projection: Projection,
    versions: BTreeMap<EntityKey, u64>,
    clock: u64,
}

impl World {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let store: Arc<dyn Store> = Arc::new(Memory::new(START));
        let projection = Projection::open(&directory.path().join("view.db"), Arc::clone(&store)).unwrap();
        Self { directory, store, projection, versions: BTreeMap::new(), clock: START.0 }
    }

    /// Commits without a report.
    async fn commit(
        &mut self,
        key: &EntityKey,
        documents: Vec<DocumentChange>,
        events: Vec<EventRecord>,
    ) -> (Arc<Batch>, Version) {
        let version = self.versions.entry(key.clone()).or_default();
        self.clock += 1;
        let batch = Batch {
            key: key.clone(),
            expected: Version(*version),
            id: Uuid::from_u128(u128::from(self.clock)),
            at: Timestamp(self.clock),
            documents,
            events,
            seen: Vec::new(),
            replies: Vec::new(),
            timer: TimerChange::Keep,
            outbox: Vec::new(),
        };
        *version += 1;
        let batch = Arc::new(batch);
        (Arc::clone(&batch), self.store.commit(self.store.fence(), batch).await.unwrap())
    }

    async fn feed(&mut self, key: &EntityKey, documents: Vec<DocumentChange>, events: Vec<EventRecord>) {
        let (batch, version) = self.commit(key, documents, events).await;
        self.projection.committed(batch, version);
    }

    async fn settle(&self) {
        for (key, version) in &self.versions {
            let freshness = self.projection.caught_up(key, Version(*version), PATIENCE).await;
            assert_eq!(freshness, Freshness::Fresh, "{key}");
        }
    }

    /// Another projection of the same store, all of it built at once.
    async fn rebuilt(&self) -> Projection {
        let path = self.directory.path().join("again.db");
        let projection = Projection::open(&path, Arc::clone(&self.store)).unwrap();
        for (key, version) in &self.versions {
            let freshness = projection.caught_up(key, Version(*version), PATIENCE).await;
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
    DocumentChange::Put { key: key.to_owned(), live: true, head: json!({"v": 1}).into(), body: Some(body) }
}

fn event(subject: &str, number: u64) -> EventRecord {
    EventRecord { subject: Some(subject.to_owned()), body: json!({"started": {"n": number}}).into() }
}

fn tasks() -> Query {
    Query::new(&name("default"), Kind::Pool, "task")
}

/// Everything in the tables but the numbers of rows, which the order of writing decides.
async fn dump(projection: &Projection) -> Vec<String> {
    let read = |connection: &Connection| -> rusqlite::Result<Vec<String>> {
        let mut all = Vec::new();
        for sql in [
            "SELECT json_array(entity, document, swarm, kind, type, id, live, version, written, head, body)
             FROM document ORDER BY entity, document",
            "SELECT json_array(entity, document, tag) FROM tag JOIN document USING (row)
             ORDER BY entity, document, tag",
            "SELECT json_array(position, entity, swarm, version, ordinal, at, subject, kind, body)
             FROM event ORDER BY position",
            "SELECT json_array(entity, document) FROM text JOIN document ON document.row = text.rowid
             WHERE text MATCH 'alpha' ORDER BY entity, document",
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
        let document = world.projection.get(&pool(), "task/1").await.unwrap().unwrap();
        assert_eq!(document.body, body);
        assert_eq!(Some(document), world.store.document(&pool(), "task/1").await.unwrap());
    }
    assert_eq!(world.projection.lag(), 0);
    assert_eq!(world.projection.list(tasks()).await.unwrap().len(), 1);
    assert_eq!(world.projection.get(&pool(), "task/2").await.unwrap(), None);
}

#[tokio::test]
async fn history_is_of_one_subject_in_one_swarm() {
    let mut world = World::new();
    let other = EntityKey::of(Kind::Lockspace, &name("other"));
    for number in 0..5 {
        world.feed(&pool(), vec![], vec![event("deploy", number), event("else", number)]).await;
        world.feed(&other, vec![], vec![event("deploy", 100 + number)]).await;
    }
    world.settle().await;
    let numbers = |events: Vec<Event>| -> Vec<Value> {
        events.into_iter().map(|event| event.body["started"]["n"].clone()).collect()
    };
    let history = world.projection.history(&name("default"), "deploy", 3).await.unwrap();
    assert_eq!(history[0].kind, "started");
    assert_eq!(numbers(history), [2, 3, 4], "the newest ones, oldest first");
    let all = world.projection.events(None, 0, 100).await.unwrap();
    assert_eq!(all.len(), 15);
    assert!(all.windows(2).all(|pair| pair[0].position < pair[1].position));
    let later = world.projection.events(Some(&name("other")), all[7].position, 100).await.unwrap();
    assert_eq!(numbers(later), [102, 103, 104]);
    let rebuilt = world.rebuilt().await;
    assert_eq!(rebuilt.events(None, 0, 100).await.unwrap(), all, "cursors stay valid");
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
    let body = world.projection.get(&pool(), "task/1").await.unwrap().unwrap().body;
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
    while late.lag() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(dump(&late).await, before);
}

/// Pages may be newer than the versions noted before them: a row says itself how new it is.
#[test]
fn a_row_knows_which_changes_it_has() {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(include_str!("schema.sql")).unwrap();
    let page = StoredDocument {
        key: pool(),
        document: "task/1".to_owned(),
        live: true,
        head: json!({}),
        body: json!({"status": "completed", "task": "alpha"}),
        version: Version(5),
        at: START,
    };
    tables::put(&connection, &page).unwrap();
    let delete = DocumentChange::Delete { key: "task/1".to_owned() };
    for older in [put("task/1", json!({"status": "pending"})), delete.clone()] {
        tables::change(&connection, &pool(), Version(4), START, &older).unwrap();
        assert_eq!(tables::document(&connection, &pool(), "task/1").unwrap(), Some(page.clone()));
    }
    let newer = put("task/1", json!({"status": null, "output": "beta"}));
    tables::change(&connection, &pool(), Version(6), START, &newer).unwrap();
    tables::put(&connection, &page).unwrap();
    let row = tables::document(&connection, &pool(), "task/1").unwrap().unwrap();
    assert_eq!((row.version, row.body), (Version(6), json!({"task": "alpha", "output": "beta"})));
    tables::change(&connection, &pool(), Version(7), START, &delete).unwrap();
    assert_eq!(tables::document(&connection, &pool(), "task/1").unwrap(), None);
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

#[tokio::test]
async fn trimming_forgets_old_archives_and_events() {
    let mut world = World::new();
    let archive =
        DocumentChange::Put { key: "task/1".to_owned(), live: false, head: json!({}).into(), body: None };
    world.feed(&pool(), vec![archive, put("task/2", json!({"task": "alpha"}))], vec![event("1", 1)]).await;
    world.settle().await;
    world.projection.trim(Timestamp::NEVER, Timestamp(START.0 + 1000));
    world.feed(&pool(), vec![], vec![]).await;
    world.settle().await;
    assert_eq!(world.projection.get(&pool(), "task/1").await.unwrap(), None);
    assert!(world.projection.get(&pool(), "task/2").await.unwrap().is_some(), "a live one stays");
    assert_eq!(world.projection.events(None, 0, 10).await.unwrap(), []);
}

#[tokio::test]
async fn search_finds_words_and_ranks_titles_higher() {
    let mut world = World::new();
    let memory = EntityKey::of(Kind::Memory, &name("default"));
    let documents = vec![
        put("memory/1", json!({"id": "1", "name": "Deploying", "content": "use the blue button"})),
        put(
            "memory/2",
            json!({"id": "2", "name": "Notes", "content": "deploy on Fridays, café", "scope": "agent"}),
        ),
        put("memory/3", json!({"id": "3", "name": "Other", "content": "nothing"})),
        put("other/4", json!({"id": "4", "name": "deploy", "content": "deploy"})),
    ];
    world.feed(&memory, documents, vec![]).await;
    let swarm = name("default");
    world.settle().await;
    let find = async |text: &str, filters: Vec<Filter>| -> Vec<String> {
        let hits = world.projection.search(&swarm, "memory", text, filters, 10).await.unwrap();
        assert!(hits.windows(2).all(|pair| pair[0].score >= pair[1].score));
        hits.iter().map(|hit| hit.body["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(find("how to deploy?", vec![]).await, ["1", "2"]);
    assert_eq!(find("CAFE", vec![]).await, ["2"]);
    let agents = Filter::new("scope", Test::Eq(json!("agent"))).unwrap();
    assert_eq!(find("deploy", vec![agents]).await, ["2"]);
    assert_eq!(find("* \" AND (", vec![]).await, Vec::<String>::new());
    let elsewhere = world.projection.search(&name("other"), "memory", "deploy", vec![], 10).await.unwrap();
    assert_eq!(elsewhere, []);
}

#[tokio::test]
async fn lists_of_tasks_come_from_an_index_in_their_order() {
    let world = World::new();
    let order = |path: &str| Order { path: FieldPath::parse(path).unwrap(), descending: true };
    let mut all = tasks();
    all.order = vec![order("priority"), order("lastUpdatedAt")];
    let mut pending = all.clone();
    pending.filters = vec![Filter::new("status", Test::Eq(json!("pending"))).unwrap()];
    let mut epic = tasks();
    epic.filters = vec![Filter::new("epicId", Test::Eq(json!("e"))).unwrap()];
    for (query, index, sorts) in
        [(all, "task_all", false), (pending, "task_status", false), (epic, "task_epic", true)]
    {
        let plan = move |connection: &Connection| -> rusqlite::Result<Vec<String>> {
            let sql = query.list_statement();
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {}", sql.text))?;
            statement.query_map(params_from_iter(sql.values), |row| row.get(3))?.collect()
        };
        let plan = world.projection.read(plan).await.unwrap().join("\n");
        assert!(plan.contains(&format!("INDEX {index} ")), "{plan}");
        assert_eq!(plan.contains("TEMP B-TREE"), sorts, "{plan}");
    }
}

/// A change of one document, drawn from few keys and fields, so that they meet often.
fn any_change() -> impl Strategy<Value = DocumentChange> {
    let field = prop_oneof![Just("task"), Just("output"), Just("status"), Just("tags"), Just("n")];
    let value = prop_oneof![
        Just(Value::Null),
        Just(json!("alpha beta")),
        Just(json!(["x", "y"])),
        Just(json!(["y", 1])),
        (0..3_i64).prop_map(|number| json!(number)),
    ];
    let body = prop::option::of(prop::collection::btree_map(field, value, 0..4));
    let key = (prop_oneof![Just("task"), Just("epic"), Just("member")], 0..4_u8)
        .prop_map(|(document_type, id)| format!("{document_type}/{id}"));
    (key, any::<bool>(), body, 0..5_u8).prop_map(|(key, live, body, dice)| match dice {
        0 => DocumentChange::Delete { key },
        _ => DocumentChange::Put {
            key,
            live,
            head: json!({"dice": dice}).into(),
            body: body.map(|body| json!(body)),
        },
    })
}

fn any_task() -> impl Strategy<Value = Value> {
    let text = prop_oneof![Just("Alpha"), Just("alphabet_%"), Just("beta"), Just("")];
    let tags = prop::collection::vec(prop_oneof![Just("x"), Just("y"), Just("z")], 0..3);
    (prop::option::of(0..4_i64), prop::option::of(text), tags, 0..3_i64).prop_map(|(status, text, tags, priority)| {
        json!({"status": status, "task": text, "tags": tags, "priority": priority, "deep": {"n": priority}})
    })
}

fn any_test() -> impl Strategy<Value = (&'static str, Test)> {
    let number = || (0..4_i64).prop_map(|number| json!(number));
    let part = prop_oneof![Just("ALPHA"), Just("_"), Just("%"), Just("t_%"), Just("")];
    prop_oneof![
        (Just("status"), number().prop_map(Test::Eq)),
        (Just("status"), number().prop_map(Test::Not)),
        (Just("status"), prop::collection::vec(number(), 0..3).prop_map(Test::In)),
        (Just("status"), Just(Test::Missing)),
        (Just("task"), Just(Test::Present)),
        (Just("task"), part.prop_map(|part| Test::Like(part.to_owned()))),
        (Just("deep.n"), number().prop_map(Test::AtLeast)),
        (Just("deep.n"), number().prop_map(Test::Below)),
        (Just("tags"), prop_oneof![Just("x"), Just("q")].prop_map(|tag| Test::Has(json!(tag)))),
    ]
}

/// What a filter means, said in the plainest way.
fn meets(body: &Value, path: &str, test: &Test) -> bool {
    let found = path.split('.').try_fold(body, |value, name| value.get(name)).unwrap_or(&Value::Null);
    match test {
        Test::Eq(value) => found == value,
        Test::Not(value) => found != value,
        Test::In(values) => !found.is_null() && values.contains(found),
        Test::Like(part) => {
            found.as_str().is_some_and(|text| text.to_lowercase().contains(&part.to_lowercase()))
        }
        Test::AtLeast(value) => found.as_i64() >= value.as_i64(),
        Test::Below(value) => found.as_i64() < value.as_i64(),
        Test::Has(value) => found.as_array().is_some_and(|values| values.contains(value)),
        Test::Missing => found.is_null(),
        Test::Present => !found.is_null(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_rebuild_equals_the_live_feed(
        batches in prop::collection::vec((any::<bool>(), prop::collection::vec(any_change(), 0..4)), 1..30)
    ) {
        block_on(async {
            let mut world = World::new();
            let other = EntityKey::agent(&name("default"), &name("worker"));
            for (number, (first, documents)) in (0..).zip(batches) {
                let key = if first { pool() } else { other.clone() };
                world.feed(&key, documents, vec![event("1", number)]).await;
            }
            world.settle().await;
            assert_eq!(dump(&world.projection).await, dump(&world.rebuilt().await).await);
        });
    }

    #[test]
    fn filters_equal_their_naive_meaning(
        bodies in prop::collection::vec(any_task(), 0..40),
        queries in prop::collection::vec((prop::collection::vec(any_test(), 0..3), prop::collection::vec(prop_oneof![Just("x"), Just("z")], 0..3), 0..10_usize, 0..5_usize), 1..20),
    ) {
        block_on(async {
            let mut world = World::new();
            let documents = bodies.iter().enumerate();
            let documents = documents.map(|(id, body)| put(&format!("task/{id:03}"), body.clone())).collect();
            world.feed(&pool(), documents, vec![]).await;
            world.settle().await;
            for (tests, tags, limit, offset) in queries {
                let mut query = tasks();
                query.filters = tests.iter().map(|(path, test)| Filter::new(path, test.clone()).unwrap()).collect();
                query.tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
                query.order = vec![Order { path: FieldPath::parse("priority").unwrap(), descending: true }];
                let tagged = |body: &Value| tags.is_empty() || tags.iter().any(|tag| meets(body, "tags", &Test::Has(json!(tag))));
                let mut want: Vec<Value> = bodies.iter().filter(|body| tagged(body) && tests.iter().all(|(path, test)| meets(body, path, test))).cloned().collect();
                want.sort_by_key(|body| std::cmp::Reverse(body["priority"].as_i64()));
                for body in &mut want {
                    body.as_object_mut().unwrap().retain(|_, value| !value.is_null());
                }
                assert_eq!(world.projection.count(query.clone()).await.unwrap(), want.len() as u64);
                query.limit = limit;
                query.offset = offset;
                let page: Vec<Value> = want.into_iter().skip(offset).take(limit).collect();
                assert_eq!(world.projection.list(query).await.unwrap(), page);
            }
        });
    }

    #[test]
    fn no_text_breaks_a_search(
        texts in prop::collection::vec(prop_oneof![any::<String>(), "[\"*()^:+{}\\-\\\\'a-zA-Z \0\u{301}]{0,40}", "(AND|OR|NOT|NEAR\\(a b, 1\\)|title:|\"| |x\\*){0,12}"], 1..40)
    ) {
        block_on(async {
            let mut world = World::new();
            let body = |text: &str| json!({"task": text, "name": text});
            let documents = texts.iter().enumerate().map(|(id, text)| put(&format!("task/{id}"), body(text))).collect();
            world.feed(&pool(), documents, vec![]).await;
            world.settle().await;
            for text in &texts {
                world.projection.search(&name("default"), "task", text, vec![], 10).await.unwrap();
                let mut query = tasks();
                query.search = Some(Search { paths: vec![FieldPath::parse("task").unwrap()], text: text.clone() });
                let found = world.projection.list(query).await.unwrap();
                assert!(found.contains(&body(text)), "a text contains itself: {text:?}");
            }
        });
    }
}
