//! Forgets what nobody needs any more, a little at a time.

use skein_shared::limits::{BLOB_LOOSE, EFFECT_EXPIRY};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::config::Retention;
use crate::entity::Entities;
use crate::store::TrimPlan;

/// Rows in one step: some milliseconds of the writer's time.
const STEP: usize = 500;

/// Runs until `stop`.
pub(super) async fn run(entities: Entities, keep: Retention, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(keep.every) => {}
        }
        match entities.forget(&plan(&keep, &entities)).await {
            Ok(trimmed) => debug!(?trimmed, "forgot what is old"),
            Err(refusal) => {
                warn!(problem = %refusal.message, "old data could not be forgotten; it goes on later")
            }
        }
    }
}

fn plan(keep: &Retention, entities: &Entities) -> TrimPlan {
    let now = entities.clock().now();
    TrimPlan {
        now,
        events_before: now - keep.events_age,
        events_per_entity: keep.events,
        replies_before: now - keep.replies,
        marks_before: now - 2 * EFFECT_EXPIRY,
        archived_before: now - keep.archived,
        dead_letters_before: now - keep.dead_letters,
        loose_before: now - BLOB_LOOSE,
        limit: STEP,
    }
}
