//! The one pump of timers: sleeps until the earliest is due and sends its entity a tick.
//!
//! An entity that is slow to come back, or does not come back at all, makes no other late: its tick goes on beside the
//! pump, which leaves it out until it has ended, and for a pause if it has failed.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use skein_shared::id::{EntityKey, Kind};
use skein_shared::time::Timestamp;
use tokio::task::{self, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::Entities;
use super::clock::Time;
use crate::store::StoreError;

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
        // If the schedules cannot be listed, it is as if it had not been noticed yet.
        if !was_set_back(before, time) || ticks.plan_anew(&entities).await {
            before = time;
        }
        // From here on a timer that is set earlier wakes the pump.
        entities.shared().timers.send_if_modified(|earliest| {
            *earliest = Timestamp::NEVER;
            false
        });
        ticks.rested();
        ticks.look_at_the_wall(&entities);
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
    let time = entities.clock().time();
    let left_out = ticks.left_out();
    let mut timers = earliest(entities, PAGE + left_out.len(), time).await.map_err(|problem| {
        warn!(%problem, "timers cannot be read");
        AFTER_ERROR
    })?;
    timers.retain(|(key, _)| !left_out.contains(key));
    let (due, later) = due(timers, time);
    for key in due {
        ticks.begin(entities, key);
    }
    Ok(later)
}

/// So many of the earliest timers, and where the wall is ahead all that it has passed: a schedule's may be among them,
/// behind those of entities that do not go by it.
async fn earliest(
    entities: &Entities,
    mut limit: usize,
    time: Time,
) -> Result<Vec<(EntityKey, Timestamp)>, StoreError> {
    loop {
        let timers = entities.shared().store.timers(limit).await?;
        let ends_behind_the_wall = timers.last().is_none_or(|(_, at)| *at <= time.now || *at > time.wall);
        if timers.len() < limit || ends_behind_the_wall {
            return Ok(timers);
        }
        limit *= 2;
    }
}

/// The ticks that have no end yet, and those that are tried again.
#[derive(Default)]
struct Ticks {
    running: JoinSet<bool>,
    under_way: HashMap<task::Id, Tick>,
    /// Until when those whose tick failed are left alone.
    resting: HashMap<EntityKey, Instant>,
    /// Schedules that have yet to look at a wall clock that was set back.
    to_look: HashSet<EntityKey>,
}

struct Tick {
    key: EntityKey,
    /// It is one of those that have to look at the wall, and was begun for that.
    looks: bool,
}

impl Ticks {
    fn begin(&mut self, entities: &Entities, key: EntityKey) {
        let (entities, of) = (entities.clone(), key.clone());
        let begun = self.running.spawn(async move { tick(&entities, &of).await });
        let looks = self.to_look.remove(&key);
        self.under_way.insert(begun.id(), Tick { key, looks });
    }

    /// Those that are not begun now.
    fn left_out(&self) -> HashSet<EntityKey> {
        let under_way = self.under_way.values().map(|tick| &tick.key);
        under_way.chain(self.resting.keys()).cloned().collect()
    }

    /// Schedules that were planned by the wall as it was may have their timers behind a time that is far away now. Says
    /// whether it is known which there are.
    async fn plan_anew(&mut self, entities: &Entities) -> bool {
        match entities.of_kind(Kind::Schedules).await {
            Ok(schedules) => {
                self.to_look.extend(schedules);
                true
            }
            Err(refusal) => {
                warn!(%refusal, "the wall clock was set back, and the schedules cannot be listed yet");
                false
            }
        }
    }

    fn look_at_the_wall(&mut self, entities: &Entities) {
        if self.to_look.is_empty() {
            return;
        }
        let left_out = self.left_out();
        let now: Vec<_> = self.to_look.difference(&left_out).cloned().collect();
        for key in now {
            self.begin(entities, key);
        }
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
        let Some(Tick { key, looks }) = self.under_way.remove(&id).filter(|_| !taken) else { return };
        if looks {
            self.to_look.insert(key.clone());
        }
        self.resting.insert(key, Instant::now() + AFTER_ERROR);
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

/// Of the earliest timers those that are due, at most [`PAGE`], and when the next one is, in the entities' time.
pub fn due(timers: Vec<(EntityKey, Timestamp)>, time: Time) -> (Vec<EntityKey>, Option<Timestamp>) {
    let (mut due, later): (Vec<_>, Vec<_>) =
        timers.into_iter().partition(|(key, at)| *at <= time.for_timers_of(key));
    // Behind a full page of due timers there may be more of them.
    let full = (due.len() >= PAGE).then_some(time.now);
    due.truncate(PAGE);
    let later = later.iter().map(|(key, at)| time.now + at.since(time.for_timers_of(key)));
    (due.into_iter().map(|(key, _)| key).collect(), full.into_iter().chain(later).min())
}

/// Whether the wall clock has lost time against that of the entities.
fn was_set_back(before: Time, time: Time) -> bool {
    let passed = time.now.since(before.now);
    (before.wall + passed).since(time.wall) > SET_BACK
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
    use skein_shared::entity::DocumentChange;
    use skein_shared::id::Name;

    use super::*;
    use crate::entity::tests::{Node, first_batch, node};
    use crate::store::{Store, TimerChange};

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

    async fn set(node: &Node, key: EntityKey, documents: Vec<DocumentChange>, due: Timestamp) {
        let batch = first_batch(node, key);
        let batch = crate::store::Batch { documents, timer: TimerChange::Set(due), ..batch };
        node.store.commit(node.store.fence(&batch.key), batch.into()).await.unwrap();
    }

    #[tokio::test]
    async fn a_schedule_that_the_wall_has_passed_is_found_behind_more_than_a_page_of_others() {
        let node = node();
        let now = node.entities.clock().now();
        let slept = Time { now, wall: now + Duration::from_secs(3600) };
        for number in 0..=PAGE {
            let swarm = Name::parse(&format!("swarm-{number}")).unwrap();
            let minutes = Duration::from_secs(600);
            set(&node, EntityKey::of(Kind::Lockspace, &swarm), vec![], now + minutes).await;
        }
        set(&node, key(Kind::Schedules), vec![], now + Duration::from_secs(1800)).await;
        let found = earliest(&node.entities, PAGE, slept).await.unwrap();
        assert_eq!(due(found, slept).0, [key(Kind::Schedules)]);
        let awake = Time { now, wall: now };
        assert_eq!(
            earliest(&node.entities, PAGE, awake).await.unwrap().len(),
            PAGE,
            "no more than is needed"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn schedules_that_cannot_look_at_the_wall_are_tried_again_by_themselves() {
        let node = node();
        let of = |swarm: &str| EntityKey::of(Kind::Schedules, &Name::parse(swarm).unwrap());
        let poison = DocumentChange::Put {
            key: "schedule/poison".to_owned(),
            live: true,
            head: serde_json::json!(["not", "a", "head"]).into(),
            body: None,
            new: false,
        };
        set(&node, of("broken"), vec![poison], Timestamp::NEVER).await;
        set(&node, of("sound"), vec![], Timestamp::NEVER).await;
        let mut ticks = Ticks::default();
        assert!(ticks.plan_anew(&node.entities).await);
        ticks.look_at_the_wall(&node.entities);
        assert_eq!((ticks.under_way.len(), ticks.to_look.len()), (2, 0));
        ticks.all_ended().await;
        assert!(ticks.to_look.contains(&of("broken")) && ticks.to_look.len() == 1);
        ticks.look_at_the_wall(&node.entities);
        assert!(ticks.under_way.is_empty(), "it rests first");
        tokio::time::advance(AFTER_ERROR).await;
        ticks.rested();
        ticks.look_at_the_wall(&node.entities);
        assert_eq!(ticks.under_way.len(), 1);
    }
}
