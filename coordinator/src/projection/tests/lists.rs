//! Lists: what they find, and by which index.

use rusqlite::{StatementStatus, params_from_iter};

use super::*;

#[tokio::test]
async fn lists_of_tasks_come_from_an_index_in_their_order() {
    let world = World::built().await;
    let order = |path: &str| Order::descending(path).unwrap();
    let mut all = tasks();
    all.order = vec![order("priority"), order("lastUpdatedAt")];
    let mut pending = all.clone();
    pending.filters = vec![Filter::new("status", Test::Eq(json!("pending"))).unwrap()];
    let mut usual = all.clone();
    usual.filters = vec![Filter::new("taskType", Test::Not(json!("heartbeat"))).unwrap()];
    usual.untagged = vec!["heartbeat".to_owned()];
    let mut epic = tasks();
    epic.filters = vec![Filter::new("epicId", Test::Eq(json!("e"))).unwrap()];
    epic.order = ["priority", "createdAt", "id"].map(order).to_vec();
    let mut mine = tasks();
    mine.order = ["priority", "lastUpdatedAt", "id"].map(order).to_vec();
    mine.filters = vec![Filter::new("agentId", Test::Eq(json!("a"))).unwrap()];
    let mut mine_in_pages = mine.clone();
    mine_in_pages.limit = 1;
    for (query, index, sorts) in [
        (all, "document_all", false),
        (usual, "document_all", false),
        (pending, "document_status", false),
        (epic, "document_epic", true),
        (mine, "document_agent", true),
        (mine_in_pages, "document_agent", true),
    ] {
        let plan = move |connection: &Connection| -> rusqlite::Result<Vec<String>> {
            let sql = query.list_statement();
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {}", sql.text))?;
            statement.query_map(params_from_iter(sql.values), |row| row.get(3))?.collect()
        };
        let plan = world.projection.read(plan).await.unwrap().join("\n");
        assert!(plan.contains(&format!("INDEX {index} ")), "{index}: {plan}");
        // What has a tag is not gone through for those that have not.
        assert!(!plan.contains("LIST SUBQUERY"), "{plan}");
        // Those that are equal in both are few, and sorted among themselves.
        let plan = plan.replace("TEMP B-TREE FOR LAST 2 TERMS", "");
        assert_eq!(plan.contains("TEMP B-TREE"), sorts, "{plan}");
    }
}

/// To prepare it takes longer than to read a page.
#[tokio::test]
async fn a_list_is_prepared_once() {
    let world = World::built().await;
    let mut query = tasks();
    query.live = Some(true);
    query.filters = vec![Filter::new("agentId", Test::Eq(json!("a"))).unwrap()];
    query.order = vec![Order::descending("priority").unwrap()];
    let pages = move |connection: &Connection| -> rusqlite::Result<i32> {
        let mut statement = connection.prepare(&query.list_statement().text)?;
        let mut prepared = Vec::new();
        for offset in 0..3 {
            query.offset = offset;
            let values = params_from_iter(query.list_statement().values);
            assert_eq!(statement.query_map(values, |_| Ok(()))?.count(), 0);
            prepared.push(statement.get_status(StatementStatus::RePrepare));
        }
        // The first page may find that the connection knew the tables as they were before their indexes.
        Ok(prepared[2] - prepared[0])
    };
    assert_eq!(world.projection.read(pages).await.unwrap(), 0);
}

#[tokio::test]
async fn a_list_goes_on_where_another_ended() {
    let mut world = World::new();
    // Some of each kind of value are equal, and some have none.
    let stamps = [json!("b"), Value::Null, json!("a"), json!("b"), json!("c"), Value::Null, json!("a")];
    let documents = stamps.iter().zip(0..).map(|(stamp, number): (_, u32)| {
        let body = json!({"id": format!("{number}"), "lastUpdatedAt": stamp, "priority": number % 2});
        put(&format!("task/{number}"), body)
    });
    world.feed(&pool(), documents.collect(), vec![]).await;
    world.settle().await;
    let order = |path: &str, descending| Order { path: FieldPath::parse(path).unwrap(), descending };
    for descending in [false, true] {
        let mut query = tasks();
        query.order = vec![order("lastUpdatedAt", descending), order("priority", true), order("id", false)];
        let whole = world.projection.list(query.clone()).await.unwrap();
        assert_eq!(whole.len(), stamps.len());
        for page in 1..=stamps.len() {
            query.limit = page;
            query.after.clear();
            let mut listed: Vec<Value> = Vec::new();
            loop {
                let rows = world.projection.list(query.clone()).await.unwrap();
                listed.extend(rows.clone());
                let Some(last) = rows.last() else { break };
                query.after = query.place(last);
            }
            assert_eq!(listed, whole, "pages of {page}, descending: {descending}");
        }
    }
}

#[tokio::test]
async fn a_list_leaves_out_the_fields_that_it_does_not_show() {
    let mut world = World::new();
    let long = json!({"id": "1", "payload": "x".repeat(1000), "by": {"name": "a", "token": [1]}});
    let documents = vec![put("task/1", long), put("task/2", json!({"id": "2", "priority": 1}))];
    world.feed(&pool(), documents, vec![]).await;
    world.settle().await;
    let mut query = tasks();
    query.filters = vec![Filter::new("payload", Test::Present).unwrap()];
    query.without = ["payload", "by.token"].map(|path| FieldPath::parse(path).unwrap()).to_vec();
    let rows = world.projection.list(query.clone()).await.unwrap();
    assert_eq!(rows, [json!({"id": "1", "by": {"name": "a"}})]);
    query.filters.clear();
    let rows = world.projection.list(query).await.unwrap();
    assert_eq!(rows[1], json!({"id": "2", "priority": 1}));
}

#[tokio::test]
async fn tasks_are_counted_in_the_index() {
    let mut world = World::new();
    let pool = EntityKey::of(Kind::Pool, &name("default"));
    let task = |id: u32, status: &str, minute: u32| {
        let body = json!({
            "id": id.to_string(), "status": status, "lastUpdatedAt": format!("2026-11-21T10:{minute:02}:30.000Z"),
        });
        put(&format!("task/{id}"), body)
    };
    let documents = vec![
        task(1, "pending", 1),
        task(2, "completed", 1),
        task(3, "completed", 1),
        task(4, "completed", 2),
        put("task/5", json!({ "id": "5" })),
    ];
    world.feed(&pool, documents, vec![]).await;
    world.settle().await;
    let by_status = Tally { by: FieldPath::parse("status").unwrap(), letters: None };
    let by_minute = Tally { by: FieldPath::parse("lastUpdatedAt").unwrap(), letters: Some(16) };
    let mut present = tasks();
    present.filters = vec![Filter::new("status", Test::Present).unwrap()];
    let mut completed = tasks();
    completed.filters = vec![
        Filter::new("status", Test::Eq(json!("completed"))).unwrap(),
        Filter::new("lastUpdatedAt", Test::AtLeast(json!("2026-11-21T10:00:00.000Z"))).unwrap(),
    ];
    for (query, by, counts) in [
        (tasks(), &by_status, vec![("", 1), ("completed", 3), ("pending", 1)]),
        (present.clone(), &by_status, vec![("completed", 3), ("pending", 1)]),
        (completed.clone(), &by_minute, vec![("2026-11-21T10:01", 2), ("2026-11-21T10:02", 1)]),
    ] {
        let counted = world.projection.tally(query, by.clone()).await.unwrap();
        let counted: Vec<(&str, u64)> = counted.iter().map(|(key, count)| (key.as_str(), *count)).collect();
        assert_eq!(counted, counts);
    }
    for (query, by) in [(present, by_status), (completed, by_minute)] {
        let plan = move |connection: &Connection| -> rusqlite::Result<Vec<String>> {
            let sql = query.tally_statement(&by);
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {}", sql.text))?;
            statement.query_map(params_from_iter(sql.values), |row| row.get(3))?.collect()
        };
        let plan = world.projection.read(plan).await.unwrap().join("\n");
        assert!(plan.contains("COVERING INDEX document_status "), "{plan}");
    }
}
