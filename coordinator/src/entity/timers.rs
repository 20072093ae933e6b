//! The one pump of timers: sleeps until the earliest is due and sends its entity a tick.

use std::time::Duration;

use futures::future::join_all;
use skein_shared::id::{EntityKey, Kind};
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
/// A wall clock that goes back by more than this has been set, and is not only kept right.
const SET_BACK: Duration = Duration::from_secs(10);

/// Runs until `stop`.
pub async fn pump(entities: Entities, stop: CancellationToken) {
    let mut set = entities.shared().timers.subscribe();
    let mut before = entities.clock().time();
    loop {
        let time = entities.clock().time();
        // If not all of them are, it is as if it had not been noticed yet.
        if !was_set_back(before, time) || plan_anew(&entities).await {
            before = time;
        }
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

/// Whether the wall clock has lost time against that of the entities.
fn was_set_back(before: Time, time: Time) -> bool {
    let passed = time.now.since(before.now);
    (before.wall + passed).since(time.wall) > SET_BACK
}

/// Schedules that were planned by the wall as it was may have their timers behind a time that is far away now. Says
/// whether all have looked at it.
async fn plan_anew(entities: &Entities) -> bool {
    let schedules = match entities.of_kind(Kind::Schedules).await {
        Ok(schedules) => schedules,
        Err(refusal) => {
            warn!(%refusal, "the wall clock was set back, and the schedules cannot be listed yet");
            return false;
        }
    };
    let ticks = schedules.iter().map(|key| tick(entities, key));
    !join_all(ticks).await.contains(&false)
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
    use skein_shared::id::Name;

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
    fn a_wall_clock_that_is_set_back_is_noticed_and_one_that_is_kept_right_is_not() {
        let at = |now: u64, wall: u64| Time { now: Timestamp(now), wall: Timestamp(wall) };
        let before = at(HOUR, 30 * HOUR);
        assert!(was_set_back(before, at(HOUR, 20 * HOUR)));
        assert!(was_set_back(before, at(HOUR + 30_000, 30 * HOUR + 19_000)));
        assert!(!was_set_back(before, at(HOUR + 30_000, 30 * HOUR + 20_000)));
        assert!(!was_set_back(before, at(HOUR + 30_000, 40 * HOUR)), "the machine has slept");
    }

    #[test]
    fn no_timer_waits_for_a_wall_clock_that_went_back() {
        let back = Time { now: Timestamp(20 * HOUR), wall: Timestamp(10 * HOUR) };
        assert_eq!(due(timers(20 * HOUR), back).0.len(), 2);
        assert_eq!(due(timers(21 * HOUR), back), (vec![], Some(Timestamp(21 * HOUR))));
    }
}
