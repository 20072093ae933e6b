//! Rows in which somebody has scribbled, in a file that is sound as such.

use super::*;

fn write(file: &File, update: &str) {
    assert_eq!(Connection::open(file.path()).unwrap().execute(update, []).unwrap(), 1);
}

async fn names(store: &Sqlite, limit: usize) -> Result<Vec<String>, StoreError> {
    let page = store.documents(None, limit).await?;
    Ok(page.into_iter().map(|document| document.document).collect())
}

/// Commits changes of the document until it is at a version at which long ones are joined.
async fn change_until_it_is_looked_at(store: &Sqlite, versions: std::ops::Range<u64>) {
    for expected in versions {
        let changed = change(expected, vec![put("task/1", json!({"number": expected}))]);
        store.commit(store.fence, changed.into()).await.unwrap();
    }
}

#[tokio::test]
async fn a_body_that_cannot_be_read_stops_nobody_else() {
    let file = File::new();
    let key = batch(0, "").key;
    let other = EntityKey::of(Kind::Channels, &Name::parse("default").unwrap());
    let former = Sqlite::open(&file.path(), START).unwrap();
    let made = vec![put("task/1", json!({"text": "x".repeat(9000)})), put("task/2", json!({"b": 2}))];
    former.commit(former.fence, change(0, made).into()).await.unwrap();
    former.fold(None).await.unwrap();
    write(&file, "UPDATE document SET body = '?' || body WHERE document = 'task/1'");

    change_until_it_is_looked_at(&former, 1..16).await;
    former.fold(None).await.expect("what waits is folded");
    let mut neighbour = Batch { key: other.clone(), ..change(0, vec![put("channel/1", json!({"c": 3}))]) };
    former.commit(former.fence, neighbour.clone().into()).await.unwrap();
    assert_eq!(former.load(&other).await.unwrap().live.len(), 1);
    change_until_it_is_looked_at(&former, 16..32).await;

    // It ends without a word, and what waits is folded as the next one starts.
    let alarms = Alarms::default();
    let store = Sqlite::open(&file.path(), START).expect("it starts again").serving(alarms.clone());
    assert_eq!(store.versions().await.unwrap(), [(other.clone(), Version(1)), (key.clone(), Version(32))]);
    neighbour = Batch { key: other, ..change(1, Vec::new()) };
    store.commit(store.fence, neighbour.into()).await.unwrap();
    assert_eq!(store.load(&key).await.unwrap().live.len(), 2);
    assert_eq!(store.document(&key, "task/2").await.unwrap().unwrap().body, json!({"b": 2}));

    assert_eq!(alarms.all(), []);
    let StoreError(refused) = store.document(&key, "task/1").await.unwrap_err();
    assert!(
        refused.starts_with("the document `task/1` of pool/default cannot be read: expected"),
        "{refused}"
    );
    assert!(refused.ends_with("restore a backup"), "{refused}");
    let [alarm] = &alarms.all()[..] else { panic!("{:?}", alarms.all()) };
    assert_eq!((alarm.kind, alarm.subject.as_str()), (Alarm::StoreGarbage, "pool/default task/1"));
    assert_eq!(alarm.problem, refused);

    // Lists leave it out, and their pages are as long as others; a copy is whole or none.
    assert_eq!(names(&store, 2).await.unwrap(), ["channel/1", "task/2"]);
    let of_pool = store.documents_of(&key, "", 1).await.unwrap();
    assert_eq!(of_pool[0].document, "task/2");
    let copied = Sqlite::open(&file.path(), START).unwrap();
    assert_eq!(names(&copied, 2).await, Err(StoreError(refused)));

    // Nothing that came since is lost.
    write(&file, "UPDATE document SET body = substr(body, 2) WHERE document = 'task/1'");
    let mended = copied.document(&key, "task/1").await.unwrap().unwrap();
    assert_eq!((mended.body["number"].as_u64(), mended.version), (Some(31), Version(32)));
    assert_eq!(mended.body["text"].as_str().map(str::len), Some(9000));
}

/// A part is folded with commits that have nothing to do with it. Here a trigger stands for a damaged page.
#[tokio::test]
async fn what_cannot_be_folded_refuses_no_commit_and_is_an_alarm() {
    let file = File::new();
    let alarms = Alarms::default();
    let store = Sqlite::open(&file.path(), START).unwrap().serving(alarms.clone());
    let somebody = Connection::open(file.path()).unwrap();
    let trigger = "CREATE TRIGGER broken BEFORE INSERT ON document WHEN NEW.document = 'task/2047'
                   BEGIN SELECT RAISE(FAIL, 'broken'); END";
    somebody.execute_batch(trigger).unwrap();
    // So many that they begin to be folded with the next commit, the last one first.
    let many = |kind: &str| -> Vec<DocumentChange> {
        (0..2048).map(|number| put(&format!("{kind}/{number:04}"), json!({}))).collect()
    };
    store.commit(store.fence, change(0, many("task")).into()).await.unwrap();
    assert_eq!(alarms.all(), []);

    let other = EntityKey::of(Kind::Channels, &Name::parse("default").unwrap());
    for expected in 0..3 {
        let neighbour = Batch { key: other.clone(), ..change(expected, many("message")) };
        assert_eq!(store.commit(store.fence, neighbour.into()).await, Ok(Version(expected + 1)));
        let [alarm] = &alarms.all()[..] else { panic!("{:?}", alarms.all()) };
        assert_eq!((alarm.kind, alarm.subject.as_str()), (Alarm::StoreGarbage, "journal"));
        assert!(alarm.problem.contains("broken; nothing is lost"), "{}", alarm.problem);
    }
    let key = batch(0, "").key;
    assert_eq!(store.document(&key, "task/2047").await.unwrap().unwrap().version, Version(1));
    store.fold(None).await.expect_err("it is tried for whoever reads");

    somebody.execute_batch("DROP TRIGGER broken").unwrap();
    store.fold(None).await.unwrap();
    assert_eq!(alarms.all(), []);
    assert!(store.writer.look(Waiting::is_empty));
    assert_eq!(store.versions().await.unwrap(), [(other, Version(3)), (key.clone(), Version(1))]);
    assert_eq!(store.document(&key, "task/2047").await.unwrap().unwrap().version, Version(1));
}
