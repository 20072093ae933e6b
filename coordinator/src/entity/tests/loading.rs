//! Entities that are larger than a page.

use super::*;
use crate::entity::load;
use crate::store::LIVE_PAGE;

#[tokio::test]
async fn a_pool_of_many_pages_comes_back_whole() {
    let node = node();
    let waiting = |number: usize| DocumentChange::Put {
        key: format!("task/{}", Uuid::from_u128(number as u128)),
        live: true,
        head: json!({"s": "unassigned", "p": 50, "b": number, "u": number}).into(),
        body: None,
        new: false,
    };
    for count in [LIVE_PAGE - 1, LIVE_PAGE, 2 * LIVE_PAGE, 2 * LIVE_PAGE + 1] {
        let key = EntityKey::of(Kind::Pool, &Name::parse(&format!("swarm-{count}")).unwrap());
        let documents = (0..count).map(waiting).collect();
        let batch = Batch { documents, ..first_batch(&node, key.clone()) };
        node.store.commit(node.store.fence(), Arc::new(batch)).await.unwrap();
        let (pool, loaded) = load::load::<Pool>(node.store.as_ref(), &key).await.unwrap();
        assert_eq!(loaded.version, Version(1));
        let found = (0..=count).filter(|&number| pool.task(Uuid::from_u128(number as u128)).is_some());
        assert_eq!(found.count(), count);
    }
}
