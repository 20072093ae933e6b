//! Entities that are larger than a page.

use super::*;
use crate::entity::load;
use crate::store::LIVE_PAGE;

#[tokio::test]
async fn a_pool_of_many_pages_comes_back_whole() {
    let node = node();
    for count in [LIVE_PAGE - 1, LIVE_PAGE, 2 * LIVE_PAGE, 2 * LIVE_PAGE + 1] {
        let key = EntityKey::of(Kind::Pool, &Name::parse(&format!("swarm-{count}")).unwrap());
        let documents = (0..count).map(waiting).collect();
        let batch = Batch { documents, ..first_batch(&node, key.clone()) };
        node.store.commit(node.store.fence(&batch.key), Arc::new(batch)).await.unwrap();
        let (pool, loaded) = load::load::<Pool>(node.entities.shared(), &key).await.unwrap();
        assert_eq!(loaded.version, Version(1));
        let found = (0..=count).filter(|&number| pool.task(Uuid::from_u128(number as u128)).is_some());
        assert_eq!(found.count(), count);
    }
}

/// One of many futures may be left alone while their owner waits for something else.
#[tokio::test]
async fn whoever_asks_first_and_is_left_alone_holds_up_nobody() {
    let node = node();
    let mut first = std::pin::pin!(take(&node, Uuid::from_u128(1), "file:///a"));
    assert!(futures::poll!(&mut first).is_pending(), "it loads the entity");
    let second = take(&node, Uuid::from_u128(2), "file:///b");
    tokio::time::timeout(Request::TIMEOUT, second).await.expect("nobody loads the entity").unwrap();
}

/// The duplicate guard compares texts, which no head has.
#[tokio::test]
async fn a_duplicate_is_known_after_a_restart() {
    let node = node();
    let (key, agent) = (EntityKey::of(Kind::Pool, &swarm()), Uuid::from_u128(1));
    let join = pool::Command::Join(pool::Join {
        agent,
        name: "ann".to_owned(),
        lead: false,
        role: None,
        capabilities: Vec::new(),
        description: None,
        max_tasks: None,
        managed: false,
        texts: None,
    });
    node.entities.ask::<Pool>(&key, Request::once(Uuid::now_v7()), join).await.unwrap();
    let create = pool::Command::Create(Box::new(pool::Create {
        by: Some(agent),
        spec: pool::TaskSpec::new("Fix the login bug"),
        target: pool::Target::Pool,
        rules: pool::Rules::Delegation { allow_duplicate: false },
        facts: Vec::new(),
    }));
    node.entities.ask::<Pool>(&key, Request::once(Uuid::now_v7()), create.clone()).await.unwrap();
    let refusal = again(&node).ask::<Pool>(&key, Request::once(Uuid::now_v7()), create).await.unwrap_err();
    assert_eq!(refusal.code, Code::Duplicate);
}

/// The entities of another process over the same store.
fn again(node: &Node) -> Entities {
    let store: Arc<dyn Store> = Arc::clone(&node.store) as Arc<dyn Store>;
    let projection = node.entities.shared().projection.clone();
    Entities::new(store, projection, Clock::start(), Hub::default())
}
