//! What time it is for an entity.

use std::time::Duration;

use super::supervision::{Touch, touch};
use super::*;

/// What comes from a node whose clock is ahead decides no earlier than it did there. Whatever else is served here keeps
/// its own time: a lock does not end because of it.
#[tokio::test]
async fn the_time_of_an_entity_is_no_others() {
    let node = node();
    take(&node, Uuid::from_u128(1), "file:///1").await.unwrap();
    let memory = EntityKey::of(Kind::Memory, &swarm());
    let ahead = node.entities.clock().now() + Duration::from_secs(86_400);
    let batch = Batch { at: ahead, ..first_batch(&node, memory.clone()) };
    node.store.commit(node.store.fence(&memory), Arc::new(batch)).await.unwrap();
    touch(node.entities.clone(), Touch::Add).await.unwrap();
    assert!(node.store.load(&memory).await.unwrap().at >= ahead);

    let request = Request::once(Uuid::from_u128(2));
    let asked = node.entities.ask::<Lockspace>(&locks(), request, acquire("b", "file:///1")).await.unwrap();
    assert!(matches!(&asked, lockspace::Reply::Refused(why) if why.code == Code::LockHeld), "{asked:?}");
}
