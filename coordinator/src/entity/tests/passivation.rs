//! Entities that leave memory, and what must outlive that.

use std::time::Duration;

use skein_shared::entity::Signal;
use skein_shared::limits::{TASK_LEASE_AGENT, TASK_UNCLAIMED};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::supervision::{Fragile, Touch};
use super::*;
use crate::alarms::Kind as Alarm;
use crate::entity::{notice, passivation, timers};

const MINUTE: Duration = Duration::from_secs(60);

/// Starts what a node has running for its entities; ends with the guard.
fn keep_house(node: &Node) -> DropGuard {
    let stop = CancellationToken::new();
    tokio::spawn(timers::pump(node.entities.clone(), stop.clone()));
    tokio::spawn(notice::look(node.entities.clone(), stop.clone()));
    tokio::spawn(passivation::sweep(node.entities.clone(), passivation::IDLE, stop.clone()));
    stop.drop_guard()
}

fn is_in_memory(node: &Node, key: &EntityKey) -> bool {
    node.entities.in_memory().iter().any(|(held, _)| held == key)
}

#[tokio::test(start_paused = true)]
async fn idle_entities_leave_memory_and_come_back_as_they_were() {
    let node = node();
    let _house = keep_house(&node);
    let id = Uuid::from_u128(1);
    let first = take(&node, id, "file:///a").await.unwrap();
    tokio::time::sleep(4 * MINUTE).await;
    assert!(is_in_memory(&node, &locks()));
    tokio::time::sleep(3 * MINUTE).await;
    assert!(!is_in_memory(&node, &locks()));
    assert_eq!(take(&node, id, "file:///a").await.unwrap(), first);
}

#[tokio::test(start_paused = true)]
async fn whoever_looks_at_lists_keeps_no_entity_in_memory() {
    let node = node();
    let _house = keep_house(&node);
    take(&node, Uuid::from_u128(1), "file:///a").await.unwrap();
    for _ in 0..7 {
        tokio::time::sleep(MINUTE).await;
        // So a list learns of each that is in memory whether the read side has all of it.
        if is_in_memory(&node, &locks()) {
            node.entities.version(&locks()).await.unwrap();
        }
    }
    assert!(!is_in_memory(&node, &locks()));
}

#[tokio::test(start_paused = true)]
async fn a_lock_ends_at_its_time_though_its_lockspace_left_memory() {
    let node = node();
    let _house = keep_house(&node);
    take(&node, Uuid::from_u128(1), "file:///a").await.unwrap();
    tokio::time::sleep(29 * MINUTE).await;
    assert!(!is_in_memory(&node, &locks()));
    let other =
        async || node.entities.ask::<Lockspace>(&locks(), Request::read(), acquire("b", "file:///a")).await;
    assert!(!matches!(other().await, Ok(lockspace::Reply::Acquired { .. })), "not sooner");
    tokio::time::sleep(2 * MINUTE).await;
    assert!(matches!(other().await, Ok(lockspace::Reply::Acquired { .. })), "and not later");
}

/// Whether the pool has a task that somebody works on, as the store has it.
async fn is_leased(node: &Node) -> bool {
    let loaded = node.store.load(&pool()).await.unwrap();
    let task = loaded.live.iter().find(|document| document.key.starts_with("task/")).unwrap();
    task.head.contains("in_progress")
}

#[tokio::test(start_paused = true)]
async fn signs_of_life_keep_a_lease_and_silence_ends_it_once() {
    let node = node();
    let _house = keep_house(&node);
    let agent = Uuid::from_u128(7);
    change(&node, 1, member(agent, false)).await;
    change(&node, 2, task(100, None, Vec::new())).await;
    tokio::time::sleep(10 * MINUTE).await;
    assert!(!is_in_memory(&node, &pool()), "without a lease the pool may leave");

    let instance = InstanceId("worker-00000001".to_owned());
    let claim = pool::Command::Claim { agent, instance, managed: false, task: Uuid::from_u128(100) };
    change(&node, 3, claim).await;
    for _ in 0..12 {
        tokio::time::sleep(10 * MINUTE).await;
        let signal = Signal::AgentsAlive { agents: vec![(agent, "worker-00000001".to_owned())] };
        node.entities.observe(&pool(), signal);
    }
    assert!(is_leased(&node).await, "two hours of signs that nobody wrote down");
    tokio::time::sleep(TASK_LEASE_AGENT - MINUTE).await;
    assert!(is_leased(&node).await);
    tokio::time::sleep(2 * MINUTE).await;
    assert!(!is_leased(&node).await, "the pool watched all the time");
}

/// Waits until work that nobody claims is an alarm of the node, or is none any more.
async fn alarmed(node: &Node, is_one: bool) {
    let raised = || node.entities.shared().alarms.all().iter().any(|alarm| alarm.kind == Alarm::Unclaimed);
    while raised() != is_one {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_alarm_lasts_as_long_as_its_cause_and_over_a_restart() {
    let node = node();
    let house = keep_house(&node);
    let agent = Uuid::from_u128(7);
    change(&node, 1, member(agent, false)).await;
    change(&node, 2, task(100, None, Vec::new())).await;
    alarmed(&node, true).await;
    tokio::time::sleep(TASK_UNCLAIMED / 2).await;
    assert!(is_in_memory(&node, &pool()), "between two ticks too");
    drop(house);

    let again = node_on(node.store.contents().open(Clock::start().wall()));
    let house = keep_house(&again);
    alarmed(&again, true).await;
    let instance = InstanceId("worker-00000001".to_owned());
    let claim = pool::Command::Claim { agent, instance, managed: false, task: Uuid::from_u128(100) };
    change(&again, 3, claim).await;
    alarmed(&again, false).await;
    drop(house);
}

/// No answer is kept by which a second execution would be found out before it happens.
#[tokio::test]
async fn a_command_that_meets_an_entity_on_its_way_out_is_executed_once() {
    let node = node();
    let counter = EntityKey::of(Kind::Memory, &swarm());
    let mut totals = Vec::new();
    for _ in 0..50 {
        let asked: Vec<_> = (0..4)
            .map(|_| {
                let (entities, counter) = (node.entities.clone(), counter.clone());
                tokio::spawn(async move {
                    entities.passivate(Duration::ZERO);
                    let total = entities.ask::<Fragile>(&counter, Request::read(), Touch::Add).await;
                    entities.passivate(Duration::ZERO);
                    total
                })
            })
            .collect();
        for answer in asked {
            totals.push(answer.await.unwrap().unwrap());
        }
    }
    totals.sort_unstable();
    assert_eq!(totals, (1..=200).collect::<Vec<u64>>());
    let live = node.store.load(&counter).await.unwrap().live;
    assert_eq!(live.iter().map(|document| document.head.as_str()).collect::<Vec<_>>(), ["200"]);
}

#[tokio::test]
async fn an_entity_with_work_under_way_stays() {
    let node = node();
    let gate = Gate::default();
    node.store.contents().faults().push(Fault::Slow(gate.clone()));
    let entities = node.entities.clone();
    let asked = tokio::spawn(async move {
        entities.ask::<Lockspace>(&locks(), Request::read(), acquire("a", "file:///a")).await
    });
    while node.entities.in_memory().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(node.entities.passivate(Duration::ZERO), 0);
    gate.open();
    asked.await.unwrap().unwrap();
    assert_eq!(node.entities.passivate(Duration::ZERO), 1);
}
