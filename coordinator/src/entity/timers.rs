//! The one pump of timers: sleeps until the earliest is due and sends its entity a tick.
//!
//! An entity that is slow to come back, or does not come back at all, makes no other late: its tick goes on beside the
//! pump, which leaves it out until it has ended, and for a pause if it has failed.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures::future::join_all;
use skein_shared::id::{EntityKey, Kind};
use skein_shared::time::Timestamp;
use tokio::task::{self, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::Entities;
use super::clock::Time;

/// Timers read in one step.
pub const PAGE: usize = 256;
/// With so many ticks under way the pump begins no more.
const UNDER_WAY: usize = 4 * PAGE;
/// Looks at the store at least this often.
const LONGEST: Duration = Duration::from_secs(30);
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// A wall clock that goes back by more than this has been set, and is not only kept right.
const SET_BACK: Duration = Duration::from_secs(10);
/// How long the pump waits for the ticks that it has begun. Most end sooner, and then one look at the store serves what
/// all of them have set.
const BESIDE: Duration = Duration::from_millis(100);

/// Runs until `stop`.
pub async fn pump(entities: Entities, stop: CancellationToken) {
    let mut set = entities.shared().timers.subscribe();
    let mut before = entities.clock().time();
    let mut ticks = Ticks::default();
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
        ticks.rested();
        let fired = fire(&entities, &mut ticks).await;
        let _ = tokio::time::timeout(BESIDE, ticks.all_ended()).await;
        let pause = match fired {
            Ok(Some(due)) => entities.clock().until(due).min(LONGEST),
            Ok(None) => LONGEST,
            Err(pause) => pause,
        };
        let pause = pause.min(ticks.rest());
        if pause.is_zero() {
            continue;
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = set.changed() => {}
            () = ticks.some_ended() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Begins to tick what is due and not under way, and says when the next timer is.
async fn fire(entities: &Entities, ticks: &mut Ticks) -> Result<Option<Timestamp>, Duration> {
    if ticks.under_way.len() >= UNDER_WAY {
        return Ok(None);
    }
    let left_out: HashSet<EntityKey> =
        ticks.under_way.values().chain(ticks.resting.keys()).cloned().collect();
    let mut timers = entities.shared().store.timers(PAGE + left_out.len()).await.map_err(|problem| {
        warn!(%problem, "timers cannot be read");
        AFTER_ERROR
    })?;
    timers.retain(|(key, _)| !left_out.contains(key));
    timers.truncate(PAGE);
    let (due, later) = due(timers, entities.clock().time());
    for key in due {
        ticks.begin(entities, key);
    }
    Ok(later)
}

/// The ticks that have no end yet, and those that are tried again.
#[derive(Default)]
struct Ticks {
    running: JoinSet<bool>,
    under_way: HashMap<task::Id, EntityKey>,
    /// Until when those whose tick failed are left alone.
    resting: HashMap<EntityKey, Instant>,
}

impl Ticks {
    fn begin(&mut self, entities: &Entities, key: EntityKey) {
        let (entities, of) = (entities.clone(), key.clone());
        let begun = self.running.spawn(async move { tick(&entities, &of).await });
        self.under_way.insert(begun.id(), key);
    }

    /// Waits for one at least to end; for ever if there is none.
    async fn some_ended(&mut self) {
        let Some(ended) = self.running.join_next_with_id().await else { return std::future::pending().await };
        self.ended(ended);
        while let Some(ended) = self.running.try_join_next_with_id() {
            self.ended(ended);
        }
    }

    async fn all_ended(&mut self) {
        while let Some(ended) = self.running.join_next_with_id().await {
            self.ended(ended);
        }
    }

    fn ended(&mut self, ended: Result<(task::Id, bool), task::JoinError>) {
        let (id, taken) = ended.unwrap_or_else(|failed| (failed.id(), false));
        if let Some(key) = self.under_way.remove(&id).filter(|_| !taken) {
            self.resting.insert(key, Instant::now() + AFTER_ERROR);
        }
    }

    fn rested(&mut self) {
        let now = Instant::now();
        self.resting.retain(|_, until| now < *until);
    }

    /// How long until the first of those whose tick failed is to be tried again.
    fn rest(&self) -> Duration {
        let first = self.resting.values().min();
        first.map_or(LONGEST, |until| until.saturating_duration_since(Instant::now()))
    }
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
