//! Takes an entity from the store into memory.

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;
use skein_shared::entity::{Corrupt, Entity, LiveDocument};
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;
use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::directory::Shared;
use crate::store::{LIVE_PAGE, LivePage, Loaded, Store, StoreError, StoredDocument, Version};

/// How often a large entity is read anew when a commit, whose answer was lost, came in between.
const TRIES: usize = 3;
/// Bodies that are read at the same time: of a pool those of the newest tasks of each creator, and whoever claims waits
/// for all of them.
const BODIES: usize = 32;

/// Why an entity could not be taken into memory.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unloadable {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A document cannot be read.
    #[error("{0}")]
    Document(String),
}

/// The entity as its live documents give it, and what else was stored of it.
pub(super) async fn load<E: Entity>(shared: &Shared, key: &EntityKey) -> Result<(E, Loaded), Unloadable> {
    let store = shared.store.as_ref();
    for _ in 0..TRIES {
        let mut loaded = store.load(key).await?;
        let now = shared.clock.now().max(loaded.at);
        let first = std::mem::take(&mut loaded.live);
        if first.len() < LIVE_PAGE {
            let entity = restore(E::empty(key), first, true)?;
            return Ok((recall(store, key, entity, now).await?, loaded));
        }
        // Somebody waits for it, and for the lists nobody yet.
        let _hold = shared.projection.hold();
        if let Some(entity) = restore_pages(store, key, first, (loaded.version, loaded.batch)).await? {
            return Ok((recall(store, key, entity, now).await?, loaded));
        }
    }
    Err(StoreError("it was written while it was read".to_owned()).into())
}

/// Restores a page while the next one is read. A million documents take a second of the processor, so that is
/// not done on a thread that serves others.
///
/// No transaction holds the pages together. Nobody else writes the entity, but a commit of its last host may have been
/// under way: nothing is given if one page is of another version than the first.
async fn restore_pages<E: Entity>(
    store: &dyn Store,
    key: &EntityKey,
    mut page: Vec<LiveDocument>,
    first: (Version, Uuid),
) -> Result<Option<E>, Unloadable> {
    let mut entity = E::empty(key);
    let mut rest = store.rest(key, page.last().map(|last| last.key.clone()).unwrap_or_default());
    loop {
        let full = page.len() == LIVE_PAGE;
        let next = async { if full { rest.try_next().await } else { Ok(None) } };
        let (restored, next) = tokio::join!(spawn_blocking(move || restore(entity, page, !full)), next);
        let ended = |_| StoreError("the process is shutting down".to_owned());
        entity = restored.map_err(ended)??;
        let Some(LivePage { version, batch, documents }) = next? else {
            return Ok((!full).then_some(entity));
        };
        if (version, batch) != first {
            return Ok(None);
        }
        page = documents;
    }
}

fn restore<E: Entity>(mut entity: E, page: Vec<LiveDocument>, last: bool) -> Result<E, Unloadable> {
    let all = || {
        page.into_iter().try_for_each(|document| entity.restore(document))?;
        if last {
            entity.restored();
        }
        Ok::<_, Corrupt>(())
    };
    match catch_unwind(AssertUnwindSafe(all)) {
        Ok(Ok(())) => Ok(entity),
        Ok(Err(corrupt)) => Err(Unloadable::Document(corrupt.to_string())),
        // A document that makes the entity panic is as unreadable as any other.
        Err(_) => Err(Unloadable::Document("it fails at its documents".to_owned())),
    }
}

/// Shows the entity the bodies that it asks for.
async fn recall<E: Entity>(
    store: &dyn Store,
    key: &EntityKey,
    mut entity: E,
    now: Timestamp,
) -> Result<E, StoreError> {
    entity.loaded(now);
    let read = |document: String| async move { store.document(key, &document).await };
    let mut found = stream::iter(entity.recalls(now)).map(read).buffer_unordered(BODIES);
    while let Some(stored) = found.try_next().await? {
        if let Some(StoredDocument { document, body: Value::Object(body), .. }) = stored {
            entity.recall(&document, &body);
        }
    }
    drop(found);
    Ok(entity)
}

#[cfg(test)]
mod tests {
    use skein_shared::id::Kind;
    use skein_shared::pool::Pool;

    use super::*;
    use crate::entity::tests::{first_batch, node, swarm, waiting};
    use crate::store::Batch;

    #[tokio::test]
    async fn pages_of_two_versions_make_no_entity() {
        let (node, key) = (node(), EntityKey::of(Kind::Pool, &swarm()));
        let documents = (0..LIVE_PAGE).map(waiting).collect();
        let made = Batch { documents, ..first_batch(&node, key.clone()) };
        let late = Batch { expected: Version(1), after: made.id, ..first_batch(&node, key.clone()) };
        let (first, second) = ((Version(1), made.id), (Version(2), late.id));
        let store: &dyn Store = &*node.store;
        store.commit(store.fence(&key), made.into()).await.unwrap();
        let page = store.load(&key).await.unwrap().live;
        store.commit(store.fence(&key), late.into()).await.unwrap();
        let torn = restore_pages::<Pool>(store, &key, page.clone(), first).await.unwrap();
        assert!(torn.is_none(), "the second page was written since");
        let whole = restore_pages::<Pool>(store, &key, page, second).await.unwrap();
        assert!(whole.is_some_and(|pool| pool.task(Uuid::from_u128(1)).is_some()));
    }
}
