//! Entities that come to a process and go from it while its read side is built and follows.

use std::collections::BTreeSet;

use async_trait::async_trait;
use skein_shared::entity::LiveDocument;

use super::*;
use crate::store::{
    Chunk, CommitError, CopyError, DeadLetter, Fence, Loaded, OutboxEntry, OutboxPlace, Receipt, Record,
    StoreError, StoredBlob, TrimPlan, Trimmed,
};

/// A store of which other processes own some entities.
struct Divided {
    memory: Memory,
    elsewhere: Mutex<BTreeSet<EntityKey>>,
    /// Documents of pages that were read.
    shown: AtomicUsize,
}

impl Divided {
    fn new() -> Self {
        Self { memory: Memory::new(START), elsewhere: Mutex::default(), shown: AtomicUsize::new(0) }
    }

    fn lose(&self, key: &EntityKey) {
        self.elsewhere.lock().unwrap().insert(key.clone());
    }

    fn take(&self, key: &EntityKey) {
        self.elsewhere.lock().unwrap().remove(key);
    }

    fn owns(&self, key: &EntityKey) -> bool {
        !self.elsewhere.lock().unwrap().contains(key)
    }

    async fn has_shown(&self, documents: usize) {
        let shown = async {
            while self.shown.load(Ordering::Relaxed) < documents {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, shown).await.expect("nobody reads such a page");
    }
}

#[async_trait]
impl Store for Divided {
    fn fence(&self, key: &EntityKey) -> Fence {
        if self.owns(key) { self.memory.fence(key) } else { Fence::NONE }
    }

    fn submit(&self, fence: Fence, batch: Arc<Batch>, receipt: Receipt) {
        self.memory.submit(fence, batch, receipt);
    }

    async fn load(&self, key: &EntityKey) -> Result<Loaded, StoreError> {
        self.memory.load(key).await
    }

    async fn live(
        &self,
        key: &EntityKey,
        after: &str,
        limit: usize,
    ) -> Result<Vec<LiveDocument>, StoreError> {
        self.memory.live(key, after, limit).await
    }

    async fn document(&self, key: &EntityKey, document: &str) -> Result<Option<StoredDocument>, StoreError> {
        self.memory.document(key, document).await
    }

    async fn documents(
        &self,
        after: Option<(EntityKey, String)>,
        limit: usize,
    ) -> Result<Vec<StoredDocument>, StoreError> {
        let all = self.memory.documents(after, usize::MAX).await?;
        let ours = all.into_iter().filter(|document| self.owns(&document.key));
        let page: Vec<StoredDocument> = ours.take(limit).collect();
        self.shown.fetch_add(page.len(), Ordering::Relaxed);
        Ok(page)
    }

    async fn documents_of(
        &self,
        key: &EntityKey,
        after: &str,
        limit: usize,
    ) -> Result<Vec<StoredDocument>, StoreError> {
        self.memory.documents_of(key, after, limit).await
    }

    async fn versions(&self) -> Result<Vec<(EntityKey, Version)>, StoreError> {
        let all = self.memory.versions().await?;
        Ok(all.into_iter().filter(|(key, _)| self.owns(key)).collect())
    }

    async fn records(&self, after: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.memory.records(after, limit).await
    }

    async fn own_records(
        &self,
        after: Option<(EntityKey, u64)>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let all = self.memory.own_records(after, usize::MAX).await?;
        Ok(all.into_iter().filter(|record| self.owns(&record.key)).take(limit).collect())
    }

    async fn records_of(&self, key: &EntityKey, versions: Vec<Version>) -> Result<Vec<Record>, StoreError> {
        self.memory.records_of(key, versions).await
    }

    async fn history(
        &self,
        key: &EntityKey,
        after: Version,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.memory.history(key, after, limit).await
    }

    async fn last_position(&self) -> Result<u64, StoreError> {
        self.memory.last_position().await
    }

    async fn timers(&self, limit: usize) -> Result<Vec<(EntityKey, Timestamp)>, StoreError> {
        self.memory.timers(limit).await
    }

    async fn outbox(&self, after: u64, limit: usize) -> Result<Vec<OutboxEntry>, StoreError> {
        self.memory.outbox(after, limit).await
    }

    async fn delivered(&self, effects: Vec<OutboxPlace>) -> Result<(), CommitError> {
        self.memory.delivered(effects).await
    }

    async fn bury(&self, effect: OutboxPlace, reason: String, at: Timestamp) -> Result<(), CommitError> {
        self.memory.bury(effect, reason, at).await
    }

    async fn dead_letters(&self, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.memory.dead_letters(after, limit).await
    }

    async fn write_chunk(&self, fence: Fence, chunk: Chunk) -> Result<(), CommitError> {
        self.memory.write_chunk(fence, chunk).await
    }

    async fn chunk(&self, key: &EntityKey, blob: Uuid, place: u32) -> Result<Option<Vec<u8>>, StoreError> {
        self.memory.chunk(key, blob, place).await
    }

    async fn blobs(
        &self,
        after: Option<(EntityKey, Uuid)>,
        limit: usize,
    ) -> Result<Vec<StoredBlob>, StoreError> {
        self.memory.blobs(after, limit).await
    }

    async fn trim(&self, plan: TrimPlan) -> Result<Trimmed, CommitError> {
        self.memory.trim(plan).await
    }

    async fn backup(&self, path: &Path) -> Result<(), CopyError> {
        self.memory.backup(path).await
    }
}

/// The store, and its projection with all its indexes.
async fn divided() -> (Arc<Divided>, World) {
    let store = Arc::new(Divided::new());
    let shared: Arc<dyn Store> = store.clone();
    let world = World::over(shared);
    assert!(world.projection.whole(PATIENCE).await);
    (store, world)
}

/// The first page is read before the pool comes, and the second one while it is there.
#[tokio::test]
async fn what_came_and_went_during_a_build_leaves_no_rows() {
    let (store, mut world) = divided().await;
    let locks = EntityKey::of(Kind::Lockspace, &name("default"));
    world.commit(&locks, vec![put("lock/1", json!({}))], vec![event("1", 1)]).await;
    let documents = vec![put("task/1", json!({})), put("task/2", json!({}))];
    world.commit(&pool(), documents, vec![event("1", 1)]).await;
    store.lose(&pool());
    let path = world.directory.path().join("late.db");
    world.projection = Projection::open(&path, Arc::clone(&world.store)).unwrap();
    let hold = world.projection.hold();
    store.has_shown(1).await;
    store.take(&pool());
    drop(hold);
    store.has_shown(3).await;
    store.lose(&pool());
    world.projection.adopt();
    world.projection.disown(|key| *key == pool());
    assert!(world.projection.settled(PATIENCE).await);
    assert_eq!(world.projection.list(tasks()).await.unwrap(), Vec::<Value>::new());
    assert!(row(&world.projection, &locks, "lock/1").await.is_some(), "what is ours stays");
}

/// The next owner has it in its lists.
#[tokio::test]
async fn a_first_commit_that_is_heard_of_behind_the_loss_of_its_shard_leaves_no_rows() {
    let (store, mut world) = divided().await;
    let (batch, version) = world.commit(&pool(), vec![put("task/1", json!({}))], vec![event("1", 1)]).await;
    store.lose(&pool());
    world.projection.disown(|key| *key == pool());
    world.projection.committed(batch, version);
    assert!(world.projection.settled(PATIENCE).await);
    assert_eq!(body(&world.projection, "task/1").await, None);
    store.take(&pool());
    world.projection.adopt();
    world.settle().await;
    assert_eq!(body(&world.projection, "task/1").await, Some(json!({})), "it is back");
}

/// What is under way is committed meanwhile, and whoever was told of it looks for it here.
#[tokio::test]
async fn a_first_commit_in_a_shard_that_is_being_given_away_is_shown() {
    let memory = Memory::new(START);
    let contents = memory.contents().clone();
    let mut world = World::over(Arc::new(memory));
    assert!(world.projection.whole(PATIENCE).await);
    let (batch, version) = world.commit(&pool(), vec![put("task/1", json!({}))], vec![event("1", 1)]).await;
    contents.close();
    world.projection.committed(batch, version);
    world.settle().await;
    assert_eq!(body(&world.projection, "task/1").await, Some(json!({})));
}
