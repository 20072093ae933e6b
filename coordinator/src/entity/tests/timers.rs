//! Timers: none is lost, none is late for want of looking, and quiet costs nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use skein_shared::entity::{Entity, Signal};
use skein_shared::schedules::{Command as Schedule, Create, Schedules};
use skein_shared::time::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::*;
use crate::cluster::Tenants;
use crate::entity::clock::Time;
use crate::entity::desk::{Begun, Desk, Pending};
use crate::entity::timers;
use crate::sleep::tests::told;
use crate::store::{Fence, Loaded};

fn pump(node: &Node) -> DropGuard {
    let stop = CancellationToken::new();
    tokio::spawn(timers::pump(node.entities.clone(), stop.clone()));
    stop.drop_guard()
}

async fn take_for(node: &Node, key: &str, ttl: Duration) {
    let command = lockspace::Command::Acquire {
        holder: InstanceId(format!("holder of {key}")),
        agent: Name::parse("worker").unwrap(),
        key: key.to_owned(),
        ttl_ms: Some(u64::try_from(ttl.as_millis()).unwrap()),
    };
    node.entities.ask::<Lockspace>(&locks(), Request::read(), command).await.unwrap();
}

async fn locks_held(node: &Node, key: &EntityKey) -> usize {
    let live = node.store.load(key).await.unwrap().live;
    live.iter().filter(|document| document.key.starts_with("lock/")).count()
}

#[tokio::test(start_paused = true)]
async fn a_timer_that_is_set_earlier_wakes_the_pump_at_once() {
    let node = node();
    let _pump = pump(&node);
    take_for(&node, "file:///long", Duration::from_secs(3600)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    take_for(&node, "file:///short", Duration::from_secs(5)).await;
    let begun = Instant::now();
    let mut changes = node.entities.hub().subscribe(locks().to_string());
    changes.changed().await;
    let took = begun.elapsed();
    assert!((Duration::from_secs(5)..Duration::from_secs(6)).contains(&took), "{took:?}");
    assert_eq!(locks_held(&node, &locks()).await, 1);
}

#[tokio::test(start_paused = true)]
async fn what_fell_due_in_a_sleep_ends_once_the_node_catches_up_with_the_others() {
    let (sleep, slept) = told();
    let node = node_by(Memory::new(Clock::start().wall()), Clock::of(sleep));
    let _pump = pump(&node);
    take_for(&node, "file:///a", Duration::from_secs(300)).await;
    slept.store(3600, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(locks_held(&node, &locks()).await, 1, "a node by itself stands still with its machine");
    let begun = Instant::now();
    let mut changes = node.entities.hub().subscribe(locks().to_string());
    Tenants::catch_up(&node.entities);
    changes.changed().await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(locks_held(&node, &locks()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn what_falls_due_soon_after_a_tick_is_not_late() {
    let node = node();
    let _pump = pump(&node);
    for (number, ttl) in (5_000..5_200).step_by(40).enumerate() {
        take_for(&node, &format!("file:///{number}"), Duration::from_millis(ttl)).await;
    }
    tokio::time::sleep(Duration::from_millis(5_090)).await;
    assert_eq!(locks_held(&node, &locks()).await, 2, "three of five are over");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(locks_held(&node, &locks()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_was_refused_is_tried_again() {
    let node = node();
    let _pump = pump(&node);
    take_for(&node, "file:///short", Duration::from_secs(5)).await;
    node.store.contents().faults().push(Fault::Refused);
    tokio::time::sleep(Duration::from_millis(5_900)).await;
    assert_eq!(locks_held(&node, &locks()).await, 1, "the script refused the first tick");
    tokio::time::sleep(Duration::from_millis(2_000)).await;
    assert_eq!(locks_held(&node, &locks()).await, 0);
}

fn lockspace(number: usize) -> EntityKey {
    EntityKey::of(Kind::Lockspace, &Name::parse(&format!("swarm-{number}")).unwrap())
}

#[tokio::test(start_paused = true)]
async fn an_entity_that_is_slow_makes_no_other_late() {
    let node = node();
    let _pump = pump(&node);
    let command = |ttl_ms| lockspace::Command::Acquire {
        holder: InstanceId("worker-00000001".to_owned()),
        agent: Name::parse("worker").unwrap(),
        key: "file:///a".to_owned(),
        ttl_ms: Some(ttl_ms),
    };
    for (number, ttl_ms) in [(0, 5_000), (1, 6_000)] {
        node.entities.ask::<Lockspace>(&lockspace(number), Request::read(), command(ttl_ms)).await.unwrap();
    }
    let gate = Gate::default();
    node.store.contents().faults().push(Fault::Slow(gate.clone()));
    tokio::time::sleep(Duration::from_millis(6_500)).await;
    assert_eq!(locks_held(&node, &lockspace(1)).await, 0);
    assert_eq!(locks_held(&node, &lockspace(0)).await, 1, "its commit is still under way");
    gate.open();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(locks_held(&node, &lockspace(0)).await, 0);
}

#[tokio::test(start_paused = true)]
async fn entities_that_cannot_be_ticked_make_no_other_late() {
    let node = node();
    for number in 0..timers::PAGE + 1 {
        let (document, head) = ("lock/poison".to_owned(), serde_json::json!(["not", "a", "head"]));
        let mut batch = first_batch(&node, lockspace(number));
        batch.documents = vec![DocumentChange::Put {
            key: document,
            live: true,
            head: head.into(),
            body: None,
            new: false,
        }];
        batch.timer = TimerChange::Set(batch.at);
        node.store.commit(node.store.fence(&batch.key), batch.into()).await.unwrap();
    }
    let _pump = pump(&node);
    take_for(&node, "file:///short", Duration::from_secs(5)).await;
    tokio::time::sleep(Duration::from_millis(5_500)).await;
    assert_eq!(locks_held(&node, &locks()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn many_timers_at_one_moment_all_fire() {
    const SWARMS: usize = 600;
    let node = node();
    let _pump = pump(&node);
    let keys: Vec<EntityKey> = (0..SWARMS)
        .map(|number| EntityKey::of(Kind::Lockspace, &Name::parse(&format!("swarm-{number}")).unwrap()))
        .collect();
    let takes = keys.iter().map(|key| {
        let command = lockspace::Command::Acquire {
            holder: InstanceId("worker-00000001".to_owned()),
            agent: Name::parse("worker").unwrap(),
            key: "file:///a".to_owned(),
            ttl_ms: Some(5_000),
        };
        node.entities.ask::<Lockspace>(key, Request::read(), command)
    });
    join_all(takes).await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    for key in &keys {
        assert_eq!(locks_held(&node, key).await, 0, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_leases_kept_by_heartbeats_cost_a_handful_of_commits_a_minute() {
    const MEMBERS: u128 = 1_000;
    let node = node();
    let instance = |number: u128| format!("worker-{number:08x}");
    let members = (1..=MEMBERS).map(|number| change(&node, number, member(Uuid::from_u128(number), false)));
    join_all(members).await;
    join_all(
        (1..=MEMBERS).map(|number| change(&node, 10_000 + number, task(20_000 + number, None, Vec::new()))),
    )
    .await;
    let claims = (1..=MEMBERS).map(|number| {
        let (agent, task) = (Uuid::from_u128(number), Uuid::from_u128(20_000 + number));
        let instance = InstanceId(instance(number));
        change(&node, 30_000 + number, pool::Command::Claim { agent, instance, managed: true, task })
    });
    join_all(claims).await;

    let _pump = pump(&node);
    let instances: Vec<String> = (1..=MEMBERS).map(instance).collect();
    let beat = async |minutes: u32| {
        for _ in 0..minutes * 6 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let signal = Signal::RunnerAlive { runner: "r1".to_owned(), instances: instances.clone() };
            node.entities.observe(&pool(), signal);
        }
    };
    beat(2).await;
    let before = node.store.load(&pool()).await.unwrap().version.0;
    beat(10).await;
    let commits = node.store.load(&pool()).await.unwrap().version.0 - before;
    assert!(commits <= 30, "{commits} commits in ten idle minutes");
    let tasks = node.store.live(&pool(), "task/", 10_000).await.unwrap();
    let leased = tasks.documents.iter().filter(|document| document.head.contains("in_progress")).count();
    assert_eq!(leased, 1_000, "every lease was kept");
}

/// Makes a batch of one command, and commits it. Gives what becomes of the timer, unless there is nothing to commit.
fn decide<E: Entity>(desk: &mut Desk<E, ()>, command: E::Command, time: Time) -> Option<TimerChange> {
    let request = Request::once(Uuid::now_v7());
    assert!(desk.take_in(vec![Pending { request, mark: None, command, ticket: () }]).is_empty());
    let batch = match desk.begin(time, Uuid::now_v7()) {
        Begun::Batch(batch) => batch,
        Begun::Answers(_) => return None,
        Begun::Broken(_) => panic!("the entity fails at it"),
    };
    assert!(desk.committed(Ok(Version(batch.expected.0 + 1))).is_some_and(|done| done.is_ok()));
    Some(batch.timer)
}

/// The pump looks at the wall too, so that a timer which was passed by it alone would be due for ever.
#[test]
fn what_has_fired_by_the_wall_is_set_anew_by_it() {
    const HOUR: u64 = 3_600_000;
    let at = |now, wall| Time { now: Timestamp(now), wall: Timestamp(wall) };
    let key = EntityKey::of(Kind::Schedules, &swarm());
    let entity = Schedules::empty(&key);
    let mut desk = Desk::new(key, Fence::NONE, Timestamp(0), (entity, Loaded::default()));
    let every_hour = Create { interval_ms: Some(HOUR), ..Create::new("hourly", "do it") };
    let made = decide(&mut desk, Schedule::Create(Box::new(every_hour)), at(10 * HOUR, 10 * HOUR));
    assert_eq!(made, Some(TimerChange::Set(Timestamp(11 * HOUR))));
    // The machine has slept for five hours, which its own clock does not count.
    let fired = decide(&mut desk, Schedule::Tick, at(10 * HOUR + 1, 15 * HOUR + 1));
    let Some(TimerChange::Set(next)) = fired else { panic!("{fired:?}") };
    assert!(next > Timestamp(15 * HOUR + 1) && next <= Timestamp(16 * HOUR + 1), "{next:?}");
}

/// Under steady load something always comes before the tick, which would never find anything due.
#[test]
fn what_comes_before_the_tick_of_a_timer_does_not_push_it_back() {
    const HOUR: u64 = 3_600_000;
    const DUE: u64 = HOUR + 5_000;
    let at = |now| Time { now: Timestamp(now), wall: Timestamp(now) };
    let acquire = |holder: &str, key: &str, ttl_ms| lockspace::Command::Acquire {
        holder: InstanceId(holder.to_owned()),
        agent: Name::parse("worker").unwrap(),
        key: key.to_owned(),
        ttl_ms: Some(ttl_ms),
    };
    let entity = Lockspace::empty(&locks());
    let mut desk = Desk::new(locks(), Fence::NONE, Timestamp(0), (entity, Loaded::default()));
    let short = decide(&mut desk, acquire("a", "file:///short", 5_000), at(HOUR));
    assert_eq!(short, Some(TimerChange::Set(Timestamp(DUE))));
    let long = decide(&mut desk, acquire("b", "file:///long", HOUR), at(HOUR));
    assert_eq!(long, Some(TimerChange::Keep));

    assert_eq!(decide(&mut desk, lockspace::Command::List, at(DUE)), None, "a read costs no commit");
    let refused = decide(&mut desk, acquire("c", "file:///long", 5_000), at(DUE + 1));
    assert_eq!(refused, Some(TimerChange::Keep), "that the try is noted ends no lock");
    let ticked = decide(&mut desk, lockspace::Command::Tick, at(DUE + 2));
    let Some(TimerChange::Set(next)) = ticked else { panic!("{ticked:?}") };
    assert!(next > Timestamp(DUE + 2_000), "nothing more is due: {next:?}");
}
