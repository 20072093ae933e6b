//! What every backend of the store must do. A backend runs [`suite`] from its own tests.
//!
//! Each case gets contents of its own. A case fails by a panic that says what did not hold.

#![expect(clippy::unwrap_used, reason = "the suite speaks through panics, as tests do")]

mod blobs;
mod bodies;
mod commits;
mod pages;
mod trims;

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use skein_shared::entity::{DocumentChange, Effect};
use skein_shared::id::{EntityKey, Kind, Name};
use skein_shared::time::Timestamp;
use uuid::Uuid;

pub use commits::contents;
pub use trims::nothing;

use super::{Batch, EventRecord, Mark, OutboxEffect, Store, StoredReply, TimerChange, Version};

/// When the cases play.
const START: Timestamp = Timestamp(1_790_000_000_000);

/// Contents of a store that can be opened again and again, as a restarted process does.
#[async_trait]
pub trait Backend: Send + Sync {
    async fn open(&self, wall: Timestamp) -> Arc<dyn Store>;

    /// Whether epochs come from the clock of a server instead of from `wall`.
    fn has_a_clock_of_its_own(&self) -> bool {
        false
    }
}

/// Runs every case, each on new contents.
///
/// # Panics
/// When the backend breaks the contract: that is what it is for.
pub async fn suite<B: Backend>(fresh: impl Fn() -> B) {
    commits::versions_rise_and_conflicts_change_nothing(&fresh()).await;
    commits::a_batch_that_follows_another_one_is_refused(&fresh()).await;
    commits::the_same_batch_again_commits_once(&fresh()).await;
    commits::the_same_batch_is_known_to_a_later_owner(&fresh()).await;
    commits::a_second_owner_fences_the_first(&fresh()).await;
    commits::a_takeover_in_mid_flight_loses_and_doubles_nothing(&fresh()).await;
    commits::epochs_rise_even_when_the_wall_clock_goes_back(&fresh()).await;
    commits::bodies_merge_at_the_top_level_alone(&fresh()).await;
    commits::archived_documents_are_kept_and_not_restored(&fresh()).await;
    commits::deleted_documents_are_gone(&fresh()).await;
    commits::new_documents_change_like_others(&fresh()).await;
    bodies::many_changes_leave_the_last_of_each_field(&fresh()).await;
    commits::documents_come_in_key_order(&fresh()).await;
    commits::loading_gives_everything_back(&fresh()).await;
    commits::marks_never_move_back(&fresh()).await;
    commits::effects_come_in_order_until_they_are_delivered(&fresh()).await;
    commits::buried_effects_become_dead_letters(&fresh()).await;
    commits::timers_come_earliest_first(&fresh()).await;
    commits::records_are_a_feed_with_a_cursor(&fresh()).await;
    commits::records_are_found_by_version(&fresh()).await;
    commits::many_committers_lose_nothing(&fresh()).await;
    commits::reopening_gives_all_that_was_acknowledged(&fresh()).await;
    pages::documents_of_one_entity_come_in_pages(&fresh()).await;
    pages::what_is_live_behind_the_first_page_comes_page_after_page(&fresh()).await;
    pages::the_history_of_one_entity_begins_with_what_is_kept(&fresh()).await;
    blobs::a_blob_is_there_once_a_commit_keeps_it(&fresh()).await;
    blobs::a_commit_that_keeps_what_is_not_whole_changes_nothing(&fresh()).await;
    blobs::chunks_that_nobody_keeps_are_swept(&fresh()).await;
    blobs::a_chunk_of_a_former_owner_is_refused(&fresh()).await;
    blobs::blobs_come_in_order(&fresh()).await;
    trims::what_loading_needs_outlives_events(&fresh()).await;
    trims::each_entity_keeps_its_newest_events(&fresh()).await;
    trims::a_step_keeps_to_its_limit(&fresh()).await;
    trims::what_a_clock_that_was_ahead_has_written_holds_up_no_trim(&fresh()).await;
    trims::loading_gives_the_replies_that_may_be_asked_for(&fresh()).await;
    trims::archives_marks_and_dead_letters_go_by_age(&fresh()).await;
    trims::positions_are_not_given_out_twice(&fresh()).await;
}

fn pool() -> EntityKey {
    swarm("default")
}

fn swarm(name: &str) -> EntityKey {
    EntityKey::of(Kind::Pool, &Name::parse(name).unwrap())
}

fn agent(name: &str) -> EntityKey {
    EntityKey::agent(&Name::parse("default").unwrap(), &Name::parse(name).unwrap())
}

/// The batch that makes a version.
fn id(key: &EntityKey, version: u64) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{key} {version}").as_bytes())
}

/// A batch that changes nothing yet, one millisecond after the last version's.
fn batch(key: &EntityKey, expected: u64) -> Batch {
    Batch {
        key: key.clone(),
        expected: Version(expected),
        after: if expected == 0 { Uuid::nil() } else { id(key, expected) },
        id: id(key, expected + 1),
        at: Timestamp(START.0 + expected),
        documents: Vec::new(),
        events: Vec::new(),
        seen: Vec::new(),
        replies: Vec::new(),
        timer: TimerChange::Keep,
        outbox: Vec::new(),
        blobs: Vec::new(),
    }
}

fn put(key: &str, live: bool, body: Option<Value>) -> DocumentChange {
    let body = body.map(Into::into);
    DocumentChange::Put { key: key.to_owned(), live, head: json!({"of": key}).into(), body, new: false }
}

fn event(number: u64) -> EventRecord {
    EventRecord { subject: Some(format!("task {number}")), body: json!({"made": number}).into() }
}

fn effect(sequence: u64) -> OutboxEffect {
    let command = json!({"number": sequence}).into();
    OutboxEffect { sequence, effect: Effect::Entity { key: agent("worker"), command } }
}

fn mark(source: &EntityKey, epoch: u64, sequence: u64) -> Mark {
    Mark { source: source.clone(), epoch: skein_shared::fence::Epoch(epoch), sequence }
}

fn reply(number: u64) -> StoredReply {
    StoredReply {
        request: Uuid::from_u128(u128::from(number)),
        digest: u64::MAX - number,
        at: Timestamp(START.0 + number),
        reply: json!({"answer": number}).into(),
    }
}

/// Commits under the store's own fence.
async fn commit(store: &Arc<dyn Store>, batch: Batch) -> Version {
    store.commit(store.fence(&batch.key), batch.into()).await.unwrap()
}
