//! Which batches mention what: how far back, and what it costs to read and to forget.

use super::*;

/// How many mentions an entity has, and the oldest of them.
async fn kept(projection: &Projection, key: &EntityKey) -> (u64, Version) {
    let key = key.to_string();
    let read = move |connection: &Connection| {
        let sql = "SELECT count(*), min(version) FROM mention JOIN entity ON number = entity WHERE key = ?1";
        let number = |row: &Row<'_>, column| row.get::<_, i64>(column).map(i64::unsigned_abs);
        connection.query_row(sql, [key], |row| Ok((number(row, 0)?, Version(number(row, 1)?))))
    };
    projection.read(read).await.unwrap()
}

/// A trim, once it is done.
async fn trimmed(world: &World, events_before: Timestamp, events_per_entity: u64) {
    world.projection.trim(Timestamp::ZERO, events_before, events_per_entity);
    world.projection.settled(PATIENCE).await;
}

#[tokio::test]
async fn mentions_go_with_the_events_that_the_store_forgets() {
    let mut world = World::built().await;
    let other = EntityKey::of(Kind::Lockspace, &name("default"));
    let early = world.clock;
    for number in 0..10 {
        world.feed(&other, vec![], vec![event("1", number)]).await;
    }
    let all = history::ERA * 7 / 2;
    for number in 0..all {
        let subject = if number % 2 == 0 { "even" } else { "odd" };
        world.feed(&pool(), vec![], vec![event(subject, number)]).await;
    }
    world.settle().await;
    trimmed(&world, Timestamp(early), all).await;
    assert_eq!(kept(&world.projection, &pool()).await, (all, Version(1)));
    // The store keeps the newest ones, and here lie no more than an era's before them.
    trimmed(&world, Timestamp(early), history::ERA * 2).await;
    let first = Version(history::ERA);
    assert_eq!(kept(&world.projection, &pool()).await, (all - first.0 + 1, first));
    assert_eq!(kept(&world.projection, &other).await.0, 10, "it has few");
    // Over the end of an era, the newest ones.
    let limit = usize::try_from(history::ERA).unwrap();
    let found = world.projection.history(&pool(), "odd", limit).await.unwrap();
    let want: Vec<u64> = (0..all).filter(|number| number % 2 == 1).collect();
    assert_eq!(numbers(found), want[want.len() - limit..].iter().map(|n| json!(n)).collect::<Vec<_>>());
    // Those of a quiet entity go by age.
    trimmed(&world, Timestamp(early + 11), u64::MAX).await;
    let found = world.projection.history(&other, "1", 10).await.unwrap();
    assert_eq!(found, []);
    assert_eq!(kept(&world.projection, &pool()).await.0, all - first.0 + 1);
}

/// There may be millions of them.
#[tokio::test]
async fn nothing_goes_through_all_mentions() {
    let world = World::built().await;
    for (statement, found_by) in
        [(history::NEWEST, "(entity=? AND era=? AND subject=?)"), (history::FORGET, "(entity=? AND era=?)")]
    {
        let plan = move |connection: &Connection| -> rusqlite::Result<Vec<String>> {
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}"))?;
            statement.raw_bind_parameter(1, 1)?;
            statement.raw_query().mapped(|row| row.get(3)).collect()
        };
        let plan = world.projection.read(plan).await.unwrap().join("\n");
        assert!(plan.contains(&format!("SEARCH mention USING PRIMARY KEY {found_by}")), "{plan}");
        assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{plan}");
    }
}

#[tokio::test]
async fn a_build_reads_few_large_records_at_once_and_each_of_them_once() {
    const LARGE: usize = 500_000;
    let memory = Memory::new(START);
    let contents = memory.contents().clone();
    let mut world = World::over(Arc::new(memory));
    assert!(world.projection.whole(PATIENCE).await);
    for number in 0..40 {
        let body = json!({"started": {"n": number, "text": "x".repeat(LARGE)}}).into();
        world.commit(&pool(), vec![], vec![EventRecord { subject: Some("1".to_owned()), body }]).await;
    }
    let before = contents.read();
    let rebuilt = world.rebuilt().await;
    let after = contents.read();
    assert_eq!(after.records - before.records, 40);
    let pages = after.pages - before.pages;
    assert_eq!(pages, 4 + 1, "16, 16 and 8 records, and two that say that there is no more");
    let found = numbers(rebuilt.history(&pool(), "1", 100).await.unwrap());
    assert_eq!(found, (0..40).map(|number| json!(number)).collect::<Vec<_>>());
}
