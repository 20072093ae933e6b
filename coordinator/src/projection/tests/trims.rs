//! What is forgotten, and how much of it at once.

use rusqlite::TransactionBehavior;

use super::*;

fn archived(number: usize) -> DocumentChange {
    DocumentChange::Put {
        key: format!("task/{number}"),
        live: false,
        head: json!({}).into(),
        body: None,
        new: false,
    }
}

#[tokio::test]
async fn trimming_forgets_old_archives_and_events() {
    let mut world = World::new();
    world
        .feed(&pool(), vec![archived(1), put("task/2", json!({"task": "alpha"}))], vec![event("1", 1)])
        .await;
    world.settle().await;
    world.projection.trim(Timestamp::NEVER, Timestamp(START.0 + 1000), u64::MAX);
    world.feed(&pool(), vec![], vec![]).await;
    world.settle().await;
    assert_eq!(body(&world.projection, "task/1").await, None);
    assert!(body(&world.projection, "task/2").await.is_some(), "a live one stays");
    assert!(
        dump(&world.projection).await.iter().all(|row| !row.contains("[\"pool/default\",\"31\"")),
        "no mention"
    );
}

/// How many documents and eras are left.
async fn left(projection: &Projection) -> i64 {
    let read = |connection: &Connection| -> rusqlite::Result<i64> {
        let count = "SELECT (SELECT count(*) FROM document) + (SELECT count(*) FROM era)";
        connection.query_row(count, [], |row| row.get(0))
    };
    projection.read(read).await.unwrap()
}

/// Has all that is old forgotten, and reports a document right behind it. Gives how many documents there were when that
/// one was written.
async fn trim_and_write(world: &mut World, document: &str) -> i64 {
    let mut connection = Connection::open(world.directory.path().join("view.db")).unwrap();
    // Nothing is written before both are reported.
    let held = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let witness = format!(
        "CREATE TABLE witness (documents INTEGER NOT NULL);
         CREATE TRIGGER document_written AFTER INSERT ON document WHEN new.document = '{document}'
         BEGIN INSERT INTO witness SELECT count(*) FROM document; END;"
    );
    held.execute_batch(&witness).unwrap();
    world.projection.trim(Timestamp::NEVER, Timestamp::NEVER, u64::MAX);
    world.feed(&pool(), vec![put(document, json!({}))], vec![]).await;
    held.commit().unwrap();
    world.settle().await;
    let read = |connection: &Connection| -> rusqlite::Result<i64> {
        connection.query_row("SELECT documents FROM witness", [], |row| row.get(0))
    };
    world.projection.read(read).await.unwrap()
}

/// Commits wait while it is done, and a node may begin with weeks to forget.
#[tokio::test]
async fn much_that_is_old_is_forgotten_a_little_at_a_time() {
    let mut world = World::built().await;
    world.feed(&pool(), (0..=2 * tables::OLD).map(archived).collect(), vec![]).await;
    world.feed(&pool(), vec![put("task/live", json!({}))], vec![]).await;
    for number in 0..=history::OVER {
        let agent = EntityKey::agent(&name("default"), &name(&format!("worker-{number}")));
        world.feed(&agent, vec![], vec![event("1", 1)]).await;
    }
    world.settle().await;
    let steps = {
        let connection = Connection::open(world.directory.path().join("view.db")).unwrap();
        // It is rolled back.
        let transaction = connection.unchecked_transaction().unwrap();
        let of_documents = [(); 3].map(|()| tables::trim(&transaction, Timestamp::NEVER).unwrap());
        let of_eras = [(); 2].map(|()| history::trim(&transaction, Timestamp::NEVER, u64::MAX).unwrap());
        (of_documents, of_eras)
    };
    assert_eq!(steps, ([true, true, false], [true, false]), "whether there is more");

    let documents = trim_and_write(&mut world, "task/late").await;
    assert!(documents > i64::try_from(tables::OLD).unwrap(), "{documents}: it had to wait for all of it");
    let all_that_is_old = async {
        while left(&world.projection).await > 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all_that_is_old).await.expect("it does not go on");
    for live in ["task/live", "task/late"] {
        assert!(body(&world.projection, live).await.is_some(), "{live}");
    }
}
