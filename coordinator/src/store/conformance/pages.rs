//! What is read of one entity, a page at a time.

use std::sync::Arc;

use futures::StreamExt;

use super::trims::nothing;
use super::{Backend, START, agent, batch, commit, event, id, pool, put, reply, swarm};
use crate::store::{Batch, LIVE_PAGE, LivePage, Store, StoredDocument, TrimPlan, Version};

async fn documents(store: &Arc<dyn Store>, after: &str, limit: usize) -> Vec<StoredDocument> {
    store.documents_of(&pool(), after, limit).await.unwrap()
}

pub(super) async fn documents_of_one_entity_come_in_pages(backend: &impl Backend) {
    let store = backend.open(START).await;
    assert_eq!(documents(&store, "", 10).await, []);
    // Neighbours on both sides in the order of all.
    for key in [agent("worker"), swarm("defaul"), pool(), swarm("default-2")] {
        let names = ["task/2", "epic/9", "task/1", "task/3"];
        let documents = names.map(|name| put(name, name != "task/2", None)).to_vec();
        commit(&store, Batch { documents, ..batch(&key, 0) }).await;
    }
    let mut want = store.documents(None, 100).await.unwrap();
    want.retain(|document| document.key == pool());
    assert_eq!(documents(&store, "", 10).await, want);
    assert_eq!(documents(&store, "", 3).await, want[..3]);
    assert_eq!(documents(&store, "task/2", 3).await, want[3..]);
    assert_eq!(documents(&store, "task/15", 1).await, want[2..3], "it need not be there");
    assert_eq!(documents(&store, "task/3", 3).await, []);
    let change = vec![put("task/3", true, Some(serde_json::json!({"a": 1})))];
    commit(&store, Batch { documents: change, ..batch(&pool(), 1) }).await;
    let found = documents(&store, "task/2", 3).await;
    assert_eq!(found, [store.document(&pool(), "task/3").await.unwrap().unwrap()]);
    assert_eq!(found[0].version, Version(2), "what was committed a moment ago is there");
}

/// What is live behind the first page, and how many documents each page of that has.
async fn rest(store: &Arc<dyn Store>) -> (Vec<LivePage>, Vec<usize>) {
    let first = store.load(&pool()).await.unwrap().live;
    assert_eq!(first.len(), LIVE_PAGE);
    let key = pool();
    let mut rest = store.rest(&key, first.last().unwrap().key.clone());
    let mut pages: Vec<LivePage> = Vec::new();
    while pages.last().is_none_or(|page| page.documents.len() == LIVE_PAGE) {
        pages.push(rest.next().await.unwrap().unwrap());
    }
    let lengths = pages.iter().map(|page| page.documents.len()).collect();
    (pages, lengths)
}

pub(super) async fn what_is_live_behind_the_first_page_comes_page_after_page(backend: &impl Backend) {
    let store = backend.open(START).await;
    let documents = (0..3 * LIVE_PAGE).map(|number| put(&format!("task/{number:05}"), true, None)).collect();
    commit(&store, Batch { documents, ..batch(&pool(), 0) }).await;
    let (pages, lengths) = rest(&store).await;
    assert_eq!(lengths, [LIVE_PAGE, LIVE_PAGE, 0], "none is missed where the last page is full");
    let found = pages.iter().flat_map(|page| &page.documents).map(|document| document.key.clone());
    assert!(found.eq((LIVE_PAGE..3 * LIVE_PAGE).map(|number| format!("task/{number:05}"))));
    assert!(pages.iter().all(|page| page.version == Version(1) && page.batch == id(&pool(), 1)));
    // What is archived before them, and between them, is on no page.
    let documents = ["task/00007", "task/03000"].map(|name| put(name, false, None)).to_vec();
    commit(&store, Batch { documents, ..batch(&pool(), 1) }).await;
    let (pages, lengths) = rest(&store).await;
    assert_eq!(lengths, [LIVE_PAGE, LIVE_PAGE - 2]);
    let whole = store.live(&pool(), "", 4 * LIVE_PAGE).await.unwrap();
    let found = pages.iter().flat_map(|page| &page.documents);
    assert!(found.eq(&whole.documents[LIVE_PAGE..]));
    assert!(pages.iter().all(|page| page.version == Version(2) && page.batch == whole.batch));
}

pub(super) async fn the_history_of_one_entity_begins_with_what_is_kept(backend: &impl Backend) {
    let store = backend.open(START).await;
    for expected in 0..12 {
        // Of every third nothing is told.
        let events = if expected % 3 == 2 { vec![] } else { vec![event(expected)] };
        commit(&store, Batch { events, replies: vec![reply(expected)], ..batch(&pool(), expected) }).await;
        commit(&store, Batch { events: vec![event(expected)], ..batch(&agent("worker"), expected) }).await;
    }
    let newest = TrimPlan { events_per_entity: 6, ..nothing() };
    while !store.trim(newest.clone()).await.unwrap().is_nothing() {}
    commit(&store, Batch { events: vec![event(12)], ..batch(&pool(), 12) }).await;
    let mut want = store.records(0, 100).await.unwrap();
    want.retain(|record| record.key == pool());
    let versions: Vec<u64> = want.iter().map(|record| record.version.0).collect();
    assert_eq!(versions, [7, 8, 10, 11, 13]);
    for (after, limit, page) in
        [(0, 10, 0..5), (0, 2, 0..2), (8, 2, 2..4), (9, 2, 2..4), (11, 2, 4..5), (13, 2, 5..5), (99, 2, 5..5)]
    {
        let found = store.history(&pool(), Version(after), limit).await.unwrap();
        assert_eq!(found, want[page], "after {after}");
    }
    assert_eq!(store.history(&agent("other"), Version(0), 2).await.unwrap(), []);
}
