//! Whatever is written and asked: the tables are what a rebuild makes, and a list is what its filters mean.

use proptest::prelude::*;

use super::*;

/// A change of one document, drawn from few keys and fields, so that they meet often.
fn any_change() -> impl Strategy<Value = DocumentChange> {
    let field = prop_oneof![Just("task"), Just("content"), Just("status"), Just("tags"), Just("n")];
    let value = prop_oneof![
        Just(Value::Null),
        Just(json!("alpha beta")),
        Just(json!(["x", "y"])),
        Just(json!(["y", 1])),
        (0..3_i64).prop_map(|number| json!(number)),
    ];
    let body = prop::option::of(prop::collection::btree_map(field, value, 0..4));
    let key = (prop_oneof![Just("task"), Just("epic"), Just("memory")], 0..4_u8)
        .prop_map(|(document_type, id)| format!("{document_type}/{id}"));
    (key, any::<bool>(), body, 0..5_u8).prop_map(|(key, live, body, dice)| match dice {
        0 => DocumentChange::Delete { key },
        _ => DocumentChange::Put {
            key,
            live,
            head: json!({"dice": dice}).into(),
            body: body.map(|body| json!(body).into()),
            new: false,
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
        queries in prop::collection::vec((prop::collection::vec(any_test(), 0..3), prop::collection::vec(prop_oneof![Just("x"), Just("z")], 0..3), prop::option::of(prop_oneof![Just("x"), Just("q")]), 0..10_usize, 0..5_usize), 1..20),
    ) {
        block_on(async {
            let mut world = World::new();
            let documents = bodies.iter().enumerate();
            let documents = documents.map(|(id, body)| put(&format!("task/{id:03}"), body.clone())).collect();
            world.feed(&pool(), documents, vec![]).await;
            world.settle().await;
            for (tests, tags, untagged, limit, offset) in queries {
                let mut query = tasks();
                query.filters = tests.iter().map(|(path, test)| Filter::new(path, test.clone()).unwrap()).collect();
                query.tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
                query.untagged = untagged.iter().map(|tag| (*tag).to_owned()).collect();
                query.order = vec![Order::descending("priority").unwrap()];
                let has = |body: &Value, tag: &str| meets(body, "tags", &Test::Has(json!(tag)));
                let tagged = |body: &Value| (tags.is_empty() || tags.iter().any(|tag| has(body, tag))) && !untagged.is_some_and(|tag| has(body, tag));
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
            let documents = texts.iter().enumerate().map(|(id, text)| put(&format!("memory/{id}"), body(text))).collect();
            let memory = EntityKey::of(Kind::Memory, &name("default"));
            world.feed(&memory, documents, vec![]).await;
            world.settle().await;
            for text in &texts {
                world.projection.search(&memory, sought(text)).await.unwrap();
                let mut query = Query::new(&name("default"), Kind::Memory, "memory");
                query.search = Some(Search { paths: vec![FieldPath::parse("task").unwrap()], text: text.clone() });
                let found = world.projection.list(query).await.unwrap();
                assert!(found.contains(&body(text)), "a text contains itself: {text:?}");
            }
        });
    }
}
