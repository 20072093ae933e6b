//! The one pump of timers: sleeps until the earliest is due and sends its entity a tick.

use std::time::Duration;

use futures::future::join_all;
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::Entities;

/// Timers read in one step.
pub const PAGE: usize = 256;
/// Looks at the store at least this often, for timers whose tick failed.
const LONGEST: Duration = Duration::from_secs(30);
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// Runs until `stop`.
pub async fn pump(entities: Entities, stop: CancellationToken) {
    let mut set = entities.shared().timers.subscribe();
    loop {
        // From here on a timer that is set earlier wakes the pump.
        entities.shared().timers.send_if_modified(|earliest| {
            *earliest = Timestamp::NEVER;
            false
        });
        let pause = match fire(&entities).await {
            Ok(Some(due)) => entities.clock().until(due).min(LONGEST),
            Ok(None) => LONGEST,
            Err(pause) => pause,
        };
        if pause.is_zero() {
            continue;
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = set.changed() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Ticks everything that is due and says when the next timer is.
async fn fire(entities: &Entities) -> Result<Option<Timestamp>, Duration> {
    let timers = entities.shared().store.timers(PAGE).await.map_err(|problem| {
        warn!(%problem, "timers cannot be read");
        AFTER_ERROR
    })?;
    let (due, later) = due(timers, entities.clock().now());
    // All at once: an entity that is slow to come back must not make the others late.
    let ticks = join_all(due.into_iter().map(|key| async move { tick(entities, &key).await })).await;
    if ticks.contains(&false) { Err(AFTER_ERROR) } else { Ok(later) }
}

/// Of the earliest timers, at most [`PAGE`], those that are due, and when the next one is.
pub fn due(timers: Vec<(EntityKey, Timestamp)>, now: Timestamp) -> (Vec<EntityKey>, Option<Timestamp>) {
    // Behind a full page of due timers there may be more of them.
    let full = (timers.len() == PAGE).then_some(now);
    let later = timers.iter().map(|(_, due)| *due).find(|due| *due > now).or(full);
    (timers.into_iter().filter(|(_, due)| *due <= now).map(|(key, _)| key).collect(), later)
}

/// Says whether the entity took it.
async fn tick(entities: &Entities, key: &EntityKey) -> bool {
    let outcome = entities.tick(key).await;
    if let Err(refusal) = &outcome {
        warn!(entity = %key, code = refusal.code.as_str(), "a tick was refused");
    }
    outcome.is_ok()
}
