//! Forgets what nobody needs any more, a little at a time.

use std::time::Duration;

use skein_shared::limits::{BLOB_LOOSE, EFFECT_EXPIRY};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::config::Retention;
use crate::entity::Entities;
use crate::service::forgotten::note_forgotten;
use crate::store::TrimPlan;

/// Rows in one step: some milliseconds of the writer's time.
const STEP: usize = 500;
/// The channels are looked through for messages that are gone no more often than this.
const LOOK: Duration = Duration::from_secs(3600);

/// Runs until `stop`.
pub(super) async fn run(entities: Entities, keep: Retention, stop: CancellationToken) {
    // What the last process has removed it may not have told.
    let (mut is_news, mut looked) = (true, None::<Instant>);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(keep.every) => {}
        }
        match entities.forget(&plan(&keep, &entities)).await {
            Ok(trimmed) => {
                is_news |= trimmed.documents > 0;
                debug!(?trimmed, "forgot what is old");
            }
            Err(refusal) => {
                is_news = true;
                warn!(problem = %refusal.message, "old data could not be forgotten; it goes on later");
            }
        }
        if is_news && looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            match note_forgotten(&entities).await {
                Ok(()) => (is_news, looked) = (false, Some(Instant::now())),
                Err(refusal) => {
                    debug!(problem = %refusal.message, "some channels count what is gone for a while yet");
                }
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
