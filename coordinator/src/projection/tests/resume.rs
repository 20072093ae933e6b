//! A process that goes on with the file of an earlier one.

use std::os::unix::fs::FileExt;

use super::*;

impl World {
    /// Another projection over the same file, as after the end of the process.
    async fn reopened(&mut self) {
        // What nobody could have written tells a file that was gone on with from one that was built.
        let connection = Connection::open(self.file()).unwrap();
        connection.execute("INSERT INTO tag (tag, row) VALUES ('kept', 0)", []).unwrap();
        self.projection = Projection::open(&self.file(), Arc::clone(&self.store)).unwrap();
        self.settle().await;
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("view.db")
    }

    fn was_kept(&self) -> bool {
        let connection = Connection::open(self.file()).unwrap();
        connection.query_row("SELECT count(*) > 0 FROM tag WHERE tag = 'kept'", [], |row| row.get(0)).unwrap()
    }

    /// Breaks the page of a table that all ways into it lead through.
    fn damage(&self, table: &str) {
        let root = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
        let file = Connection::open(self.file()).unwrap();
        let page = file.query_row(root, [table], |row| row.get(0)).unwrap();
        scribble(&file, &self.file(), page);
    }

    async fn is_as_rebuilt(&self) -> bool {
        let connection = Connection::open(self.file()).unwrap();
        connection.execute("DELETE FROM tag WHERE tag = 'kept'", []).unwrap();
        dump(&self.projection).await == dump(&self.rebuilt().await).await
    }
}

/// Writes over a page of a file of which nothing lies in its log.
fn scribble(connection: &Connection, file: &Path, page: u32) {
    let busy = |row: &Row<'_>| row.get::<_, i64>(0);
    assert_eq!(connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], busy).unwrap(), 0);
    let size: u32 = connection.pragma_query_value(None, "page_size", |row| row.get(0)).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    let junk = vec![0xa5; usize::try_from(size).unwrap()];
    file.write_all_at(&junk, u64::from(page - 1) * u64::from(size)).unwrap();
}

fn lockspace() -> EntityKey {
    EntityKey::of(Kind::Lockspace, &name("default"))
}

/// More documents than are read at once, so that each page has its neighbours.
async fn busy() -> World {
    let mut world = World::new();
    world.projection.settled(PATIENCE).await;
    let many = (0..1200).map(|number| put(&format!("task/{number:04}"), json!({"n": number}))).collect();
    world.feed(&pool(), many, vec![event("0001", 1)]).await;
    world.feed(&lockspace(), vec![put("lock/1", json!({"a": 1}))], vec![event("1", 1)]).await;
    world.settle().await;
    world
}

#[tokio::test]
async fn only_what_has_changed_since_is_read() {
    let mut world = busy().await;
    let delete = |key: &str| DocumentChange::Delete { key: key.to_owned() };
    let first = vec![put("task/0000", json!({"b": 2})), delete("task/0499"), delete("task/1199")];
    world.commit(&pool(), first, vec![event("0000", 2)]).await;
    let then =
        vec![put("task/0500", json!({"n": null})), put("task/9999", json!({})), put("other/1", json!({}))];
    world.commit(&pool(), then, vec![event("9999", 3)]).await;
    let channels = EntityKey::of(Kind::Channels, &name("default"));
    world.commit(&channels, vec![put("message/1", json!({"c": 3}))], vec![event("1", 1)]).await;
    world.reopened().await;
    assert!(world.was_kept());
    assert!(world.is_as_rebuilt().await);
    world.feed(&pool(), vec![put("task/0001", json!({"d": 4}))], vec![event("0001", 4)]).await;
    world.reopened().await;
    assert!(world.was_kept());
    assert!(world.is_as_rebuilt().await);
}

/// Each that looked for itself would ask for all of them.
#[tokio::test]
async fn of_many_that_have_changed_it_is_asked_together_how_they_stand() {
    let store = Memory::new(START);
    let contents = store.contents().clone();
    let mut world = World::over(Arc::new(store));
    assert!(world.projection.whole(PATIENCE).await);
    let agents = (0..50).map(|number| EntityKey::agent(&name("default"), &name(&format!("agent-{number}"))));
    let agents: Vec<EntityKey> = agents.collect();
    for agent in &agents {
        world.feed(agent, vec![put("instance/1", json!({"n": 1}))], vec![event("1", 1)]).await;
    }
    world.settle().await;
    for agent in &agents {
        world.commit(agent, vec![put("instance/1", json!({"n": 2}))], vec![event("1", 2)]).await;
    }
    let before = contents.read().surveys;
    world.reopened().await;
    assert!(world.was_kept());
    assert!(contents.read().surveys - before <= 2, "{} times", contents.read().surveys - before);
    assert!(world.is_as_rebuilt().await);
    // Of each a commit was reported to nobody.
    let mut reports = Vec::new();
    for agent in &agents {
        world.commit(agent, vec![put("instance/1", json!({"n": 3}))], vec![event("1", 3)]).await;
        reports.push(world.commit(agent, vec![put("instance/2", json!({}))], vec![event("2", 4)]).await);
    }
    let before = contents.read().surveys;
    reports.into_iter().for_each(|(batch, version)| world.projection.committed(batch, version));
    world.settle().await;
    // They may come in more than one group.
    assert!(contents.read().surveys - before <= 10, "{} times", contents.read().surveys - before);
    assert!(world.is_as_rebuilt().await);
}

/// Whoever asks for no version of his own sees what the store had.
#[tokio::test]
async fn nobody_reads_what_is_older_than_the_process() {
    let mut world = busy().await;
    world.commit(&pool(), vec![put("task/0000", json!({"n": -1}))], vec![event("0000", 2)]).await;
    world.projection = Projection::open(&world.file(), Arc::clone(&world.store)).unwrap();
    assert!(world.projection.whole(PATIENCE).await);
    let mut query = Query::new(&name("default"), Kind::Pool, "task");
    query.filters.push(Filter::new("n", Test::Eq(json!(-1))).unwrap());
    assert_eq!(world.projection.list(query).await.unwrap().len(), 1);
}

/// Somebody has put back a backup: what has been written since is another history.
#[tokio::test]
async fn the_file_of_another_history_is_built_anew() {
    let mut world = busy().await;
    world.store = Arc::new(Memory::new(START));
    let places = std::mem::take(&mut world.places);
    world.clock += 1000;
    for (key, (version, _)) in places {
        for number in 0..version.0 {
            world.commit(&key, vec![put("task/1", json!({"n": number}))], vec![event("1", number)]).await;
        }
    }
    world.reopened().await;
    assert!(!world.was_kept());
    assert!(world.is_as_rebuilt().await);
}

#[tokio::test]
async fn the_file_of_another_program_is_built_anew() {
    let mut world = busy().await;
    Connection::open(world.file()).unwrap().execute("UPDATE built SET writer = 'another'", []).unwrap();
    world.reopened().await;
    assert!(!world.was_kept());
    assert!(world.is_as_rebuilt().await);
}

/// It is found as the file is gone on with.
#[tokio::test]
async fn a_file_that_is_damaged_is_made_anew() {
    let mut world = busy().await;
    world.damage("entity");
    world.reopened().await;
    assert!(!world.was_kept());
    assert!(world.is_as_rebuilt().await);
    world.feed(&pool(), vec![put("task/0001", json!({"d": 4}))], vec![event("0001", 4)]).await;
    world.reopened().await;
    assert!(world.was_kept(), "it can be gone on with again");
    assert!(world.is_as_rebuilt().await);
}

/// The thread that writes looks at nothing that has not changed.
#[tokio::test]
async fn a_file_that_a_reader_finds_damaged_is_made_anew_while_the_node_runs() {
    let mut world = busy().await;
    world.damage("document");
    world.reopened().await;
    assert!(world.was_kept());
    let ProjectionError(told) = world.projection.list(tasks()).await.unwrap_err();
    assert!(told.contains("made anew") && told.contains("the store, which is not concerned"), "{told}");
    // Whether it lets those go who wait or has them wait for the build, it knows of the damage then.
    world.projection.settled(PATIENCE).await;
    assert!(world.projection.whole(PATIENCE).await);
    assert!(!world.was_kept());
    assert!(world.is_as_rebuilt().await);
    world.feed(&pool(), vec![put("task/0001", json!({"d": 4}))], vec![event("0001", 4)]).await;
    world.settle().await;
    assert!(world.is_as_rebuilt().await);
}

#[test]
fn a_file_whose_first_page_is_damaged_is_written_over_too() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("view.db");
    let mut connection = create(&path).unwrap();
    scribble(&connection, &path, 1);
    connection.execute_batch("PRAGMA shrink_memory").unwrap();
    let begun = connection.execute_batch("BEGIN IMMEDIATE").unwrap_err();
    assert!(connection::is_damage(&begun), "{begun}");
    tables::overwrite(&mut connection).unwrap();
    let sound = Connection::open(&path).unwrap();
    let said: String = sound.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(said, "ok");
    let rows: i64 = sound.query_row("SELECT count(*) FROM document", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 0);
}

/// While somebody goes first no page is written.
#[tokio::test]
async fn a_build_lets_others_go_first() {
    let mut world = World::new();
    world.commit(&pool(), vec![put("task/1", json!({}))], vec![event("1", 1)]).await;
    let path = world.directory.path().join("held.db");
    let gate = Arc::new(Gate::default());
    let hold = Arc::clone(&gate).hold();
    let passed = std::thread::spawn(move || gate.pass());
    assert!(!passed.is_finished());
    drop(hold);
    passed.join().unwrap();
    let projection = Projection::open(&path, Arc::clone(&world.store)).unwrap();
    drop(projection.hold());
    assert_eq!(projection.caught_up(&pool(), Version(1), PATIENCE).await, Freshness::Fresh);
}

/// Of an entity that a node takes over it reads what the store keeps, however often the entity has committed, and
/// nothing of any other.
#[tokio::test]
async fn what_is_taken_over_is_read_once() {
    const VERSIONS: u64 = 5_000;
    const AGENTS: usize = 40;
    let memory = Memory::new(START);
    let contents = memory.contents().clone();
    let mut world = World::over(Arc::new(memory));
    assert!(world.projection.whole(PATIENCE).await);
    for _ in 3..VERSIONS {
        world.commit(&pool(), vec![], vec![]).await;
    }
    for number in 0..3 {
        world.commit(&pool(), vec![put("task/1", json!({"n": number}))], vec![event("1", number)]).await;
    }
    for number in 0..AGENTS {
        let agent = EntityKey::agent(&name("default"), &name(&format!("worker-{number}")));
        let documents = vec![put("run/1", json!({})), put("run/2", json!({}))];
        world.commit(&agent, documents, vec![event("1", 1)]).await;
    }
    let before = contents.read();
    world.projection.adopt();
    world.settle().await;
    let after = contents.read();
    assert_eq!(after.documents - before.documents, 1 + 2 * AGENTS);
    assert_eq!(after.records - before.records, 3 + AGENTS);
    assert_eq!(after.pages - before.pages, 2 * (1 + AGENTS), "one of documents and one of records each");
    assert_eq!(numbers(world.projection.history(&pool(), "1", 9).await.unwrap()), [0, 1, 2]);
    assert_eq!(dump(&world.projection).await, dump(&world.rebuilt().await).await);
}

#[tokio::test]
async fn a_long_history_is_taken_over_page_by_page() {
    let mut world = World::built().await;
    for number in 0..250 {
        let events = if number % 5 == 0 { vec![] } else { vec![event("1", number)] };
        world.commit(&pool(), vec![], events).await;
    }
    world.projection.adopt();
    world.settle().await;
    assert_eq!(world.projection.history(&pool(), "1", 1000).await.unwrap().len(), 200);
    assert_eq!(dump(&world.projection).await, dump(&world.rebuilt().await).await);
}
