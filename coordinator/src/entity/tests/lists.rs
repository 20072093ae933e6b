//! Lists while the read side brings in what has come to its node.

use std::time::Duration;

use super::*;
use crate::projection::{Freshness, Hold, Query};

/// A run has come with its agent, `worker`. The read side was told, and does not get on until the guard is dropped.
pub(crate) async fn arriving(node: &Node, instance: &str) -> Hold {
    let projection = &node.entities.shared().projection;
    assert!(projection.whole(Duration::from_secs(60)).await);
    let mut batch = first_batch(node, EntityKey::agent(&swarm(), &Name::parse("worker").unwrap()));
    let body = json!({"instance": instance, "agent": "worker", "state": "running"});
    let key = format!("instance/{instance}");
    batch.documents = vec![DocumentChange::Put {
        key,
        live: true,
        head: json!({}).into(),
        body: Some(body.into()),
        new: true,
    }];
    let hold = projection.hold();
    node.store.commit(node.store.fence(&batch.key), batch.into()).await.unwrap();
    projection.adopt();
    hold
}

#[tokio::test]
async fn each_list_shows_what_was_acknowledged_right_before_it() {
    let node = node();
    for number in 1..=50 {
        change(&node, number, task(1000 + number, None, Vec::new())).await;
        let tasks = Query::new(&swarm(), Kind::Pool, "task");
        let (rows, freshness) = node.entities.list(&pool(), tasks).await.unwrap();
        let made = json!(Uuid::from_u128(1000 + number));
        assert!(rows.iter().any(|row| row["id"] == made), "task {number} is not among {} rows", rows.len());
        assert_eq!(freshness, Freshness::Fresh);
    }
}

#[tokio::test]
async fn a_list_says_that_it_has_gaps_until_what_came_is_brought_in() {
    let node = node();
    let hold = arriving(&node, "worker-1").await;
    let runs = Query::new(&swarm(), Kind::Agent, "instance");
    tokio::time::pause();
    let listed = node.entities.list_everywhere(runs.clone()).await.unwrap();
    assert_eq!(listed, (Vec::new(), Freshness::Rebuilding));
    assert_eq!(node.entities.look_up(runs.clone()).await.unwrap_err().code, Code::Unavailable);
    tokio::time::resume();
    drop(hold);
    let (rows, freshness) = node.entities.list_everywhere(runs.clone()).await.unwrap();
    assert_eq!((rows.len(), freshness), (1, Freshness::Fresh));
    assert_eq!(node.entities.look_up(runs).await.unwrap(), rows);
}
