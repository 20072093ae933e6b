//! Entities that come to a process and go from it while its read side is built and follows.

use super::*;
use crate::store::memory::Contents;

/// The contents of a store, and its projection with all its indexes.
async fn owned() -> (Contents, World) {
    let memory = Memory::new(START);
    let contents = memory.contents().clone();
    let world = World::over(Arc::new(memory));
    assert!(world.projection.whole(PATIENCE).await);
    (contents, world)
}

/// Waits until so many documents were read of it.
async fn have_been_read(contents: &Contents, documents: usize) {
    let read = async {
        while contents.read().documents < documents {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, read).await.expect("nobody reads such a page");
}

/// The first page is read before the pool comes, and the second one while it is there.
#[tokio::test]
async fn what_came_and_went_during_a_build_leaves_no_rows() {
    let (contents, mut world) = owned().await;
    let locks = EntityKey::of(Kind::Lockspace, &name("default"));
    world.commit(&locks, vec![put("lock/1", json!({}))], vec![event("1", 1)]).await;
    let documents = vec![put("task/1", json!({})), put("task/2", json!({}))];
    world.commit(&pool(), documents, vec![event("1", 1)]).await;
    contents.lose(&pool());
    let path = world.directory.path().join("late.db");
    let before = contents.read().documents;
    world.projection = Projection::open(&path, Arc::clone(&world.store)).unwrap();
    let hold = world.projection.hold();
    have_been_read(&contents, before + 1).await;
    contents.take(&pool());
    drop(hold);
    have_been_read(&contents, before + 3).await;
    contents.lose(&pool());
    world.projection.adopt();
    world.projection.disown(|key| *key == pool());
    assert!(world.projection.settled(PATIENCE).await);
    assert_eq!(world.projection.list(tasks()).await.unwrap(), Vec::<Value>::new());
    assert!(row(&world.projection, &locks, "lock/1").await.is_some(), "what is ours stays");
}

/// No more of them are held in memory at a time.
#[tokio::test]
async fn an_entity_with_more_documents_than_are_removed_at_once_leaves_no_rows() {
    let (contents, mut world) = owned().await;
    let locks = EntityKey::of(Kind::Lockspace, &name("default"));
    world.feed(&locks, vec![put("lock/1", json!({}))], vec![event("1", 1)]).await;
    let many = (0..=2 * tables::OLD).map(|number| put(&format!("task/{number}"), json!({}))).collect();
    world.feed(&pool(), many, vec![event("1", 1)]).await;
    world.settle().await;
    contents.lose(&pool());
    world.projection.disown(|key| *key == pool());
    assert!(world.projection.settled(PATIENCE).await);
    assert_eq!(world.projection.count(tasks()).await, Ok(0));
    assert!(row(&world.projection, &locks, "lock/1").await.is_some(), "what is ours stays");
}

/// The next owner has it in its lists.
#[tokio::test]
async fn a_first_commit_that_is_heard_of_behind_the_loss_of_its_shard_leaves_no_rows() {
    let (contents, mut world) = owned().await;
    let (batch, version) = world.commit(&pool(), vec![put("task/1", json!({}))], vec![event("1", 1)]).await;
    contents.lose(&pool());
    world.projection.disown(|key| *key == pool());
    world.projection.committed(batch, version);
    assert!(world.projection.settled(PATIENCE).await);
    assert_eq!(body(&world.projection, "task/1").await, None);
    contents.take(&pool());
    world.projection.adopt();
    world.settle().await;
    assert_eq!(body(&world.projection, "task/1").await, Some(json!({})), "it is back");
}

/// What is under way is committed meanwhile, and whoever was told of it looks for it here.
#[tokio::test]
async fn a_first_commit_in_a_shard_that_is_being_given_away_is_shown() {
    let (contents, mut world) = owned().await;
    let (batch, version) = world.commit(&pool(), vec![put("task/1", json!({}))], vec![event("1", 1)]).await;
    contents.close();
    world.projection.committed(batch, version);
    world.settle().await;
    assert_eq!(body(&world.projection, "task/1").await, Some(json!({})));
}
