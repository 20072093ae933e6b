//! The one pump of timers: sleeps until the earliest is due and sends its entity a tick.

use std::time::Duration;

use futures::future::join_all;
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::Entities;
use super::clock::Time;

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
    let (due, later) = due(timers, entities.clock().time());
    // All at once: an entity that is slow to come back must not make the others late.
    let ticks = join_all(due.into_iter().map(|key| async move { tick(entities, &key).await })).await;
    if ticks.contains(&false) { Err(AFTER_ERROR) } else { Ok(later) }
}

/// Of the earliest timers, at most [`PAGE`], those that are due, and when the next one is, in the entities' time.
pub fn due(timers: Vec<(EntityKey, Timestamp)>, time: Time) -> (Vec<EntityKey>, Option<Timestamp>) {
    // Behind a full page of due timers there may be more of them.
    let full = (timers.len() == PAGE).then_some(time.now);
    let (due, later): (Vec<_>, Vec<_>) =
        timers.into_iter().partition(|(key, at)| *at <= time.for_timers_of(key));
    let later = later.iter().map(|(key, at)| time.now + at.since(time.for_timers_of(key))).min();
    (due.into_iter().map(|(key, _)| key).collect(), later.or(full))
}

/// Says whether the entity took it.
async fn tick(entities: &Entities, key: &EntityKey) -> bool {
    let outcome = entities.tick(key).await;
    if let Err(refusal) = &outcome {
        warn!(entity = %key, code = refusal.code.as_str(), "a tick was refused");
    }
    outcome.is_ok()
}

#[cfg(test)]
mod tests {
    use skein_shared::id::{Kind, Name};

    use super::*;

    const HOUR: u64 = 3_600_000;

    fn key(kind: Kind) -> EntityKey {
        EntityKey::of(kind, &Name::parse("default").unwrap())
    }

    fn timers(at: u64) -> Vec<(EntityKey, Timestamp)> {
        [Kind::Pool, Kind::Schedules].map(|kind| (key(kind), Timestamp(at))).to_vec()
    }

    #[test]
    fn schedules_are_due_by_the_wall_after_the_machine_has_slept() {
        let slept = Time { now: Timestamp(10 * HOUR), wall: Timestamp(20 * HOUR) };
        let (ticked, later) = due(timers(19 * HOUR), slept);
        assert_eq!(ticked, [key(Kind::Schedules)]);
        assert_eq!(later, Some(Timestamp(19 * HOUR)), "what is left goes by the time that has passed");
        let (ticked, later) = due(timers(21 * HOUR), slept);
        assert_eq!((ticked, later), (vec![], Some(Timestamp(11 * HOUR))), "an hour from now by the wall");
    }

    #[test]
    fn no_timer_waits_for_a_wall_clock_that_went_back() {
        let back = Time { now: Timestamp(20 * HOUR), wall: Timestamp(10 * HOUR) };
        assert_eq!(due(timers(20 * HOUR), back).0.len(), 2);
        assert_eq!(due(timers(21 * HOUR), back), (vec![], Some(Timestamp(21 * HOUR))));
    }
}
