//! Tasks for agents that wait.

use super::*;
use crate::entity::{Ctx, Entity, Poller, Signal};
use crate::limits;

const POLL: Uuid = Uuid::from_u128(0xcafe);

pub(super) fn waits(swarm: &mut Swarm, agent: Uuid) {
    let poller = Poller { agent, instance: instance(agent), managed: false, poll: POLL };
    let now = swarm.0.now;
    swarm.0.entity.observe(&Signal::AgentPolls(poller), now);
}

/// Polls again, as the same request or as another one.
fn polled(swarm: &mut Swarm, request: Uuid) -> (Option<Uuid>, bool) {
    let mut ctx = Ctx::new(swarm.0.now, swarm.0.now, swarm.0.serving_since, swarm.0.epoch, request);
    let decision = swarm.0.entity.decide(&poll(ANN, false), &mut ctx).unwrap();
    assert!(decision.events.is_empty(), "it was started before");
    let Reply::Polled { task, redelivered, .. } = decision.reply else { panic!("no poll") };
    (task.map(|task| task.id), redelivered)
}

#[test]
fn a_task_for_an_agent_that_waits_is_started_by_its_creation() {
    let mut swarm = Swarm::new();
    waits(&mut swarm, ANN);
    let task = swarm.assigned(ANN);
    assert_eq!(swarm.status(task), Status::InProgress);
    assert_eq!(polled(&mut swarm, POLL), (Some(task), false));
    assert_eq!(polled(&mut swarm, Uuid::from_u128(1)), (Some(task), true), "another poll of the instance");
    assert_eq!(polled(&mut swarm, POLL), (Some(task), false), "the same one, whose answer was lost");
}

#[test]
fn an_open_poll_gets_one_task() {
    let mut swarm = Swarm::new();
    let capacity = Command::SetCapacity { agent: ANN, max_tasks: 3 };
    swarm.run(capacity).unwrap();
    waits(&mut swarm, ANN);
    let (first, second) = (swarm.assigned(ANN), swarm.assigned(ANN));
    assert_eq!((swarm.status(first), swarm.status(second)), (Status::InProgress, Status::Pending));
}

#[test]
fn nothing_is_started_for_who_is_gone_or_busy_nor_before_its_dependencies() {
    let mut swarm = Swarm::new();
    waits(&mut swarm, ANN);
    let now = swarm.0.now;
    swarm.0.entity.observe(&Signal::AgentWent { agent: ANN, poll: Uuid::from_u128(1) }, now);
    let foundation = swarm.assigned(BOB);
    let spec = TaskSpec { depends_on: vec![foundation], ..TaskSpec::new("the walls") };
    let walls = swarm.create(spec, Target::Assign { agent: Some(ANN) });
    assert_eq!(swarm.status(walls), Status::Pending, "it depends on another");
    swarm.0.entity.observe(&Signal::AgentWent { agent: ANN, poll: POLL }, now);
    let task = swarm.assigned(ANN);
    assert_eq!(swarm.status(task), Status::Pending, "it waits no more");

    swarm.poll(ANN);
    waits(&mut swarm, ANN);
    let more = swarm.assigned(ANN);
    assert_eq!(swarm.status(more), Status::Pending, "it is busy");
}

#[test]
fn a_new_task_does_not_overtake_what_its_agent_can_start_by_then() {
    let mut swarm = Swarm::new();
    let foundation = swarm.assigned(BOB);
    let spec = TaskSpec { depends_on: vec![foundation], ..TaskSpec::new("the walls") };
    let walls = swarm.create(spec, Target::Assign { agent: Some(ANN) });
    waits(&mut swarm, ANN);
    swarm.poll(BOB);
    swarm.finish(foundation, BOB, completed("it stands")).unwrap();
    // Ann is woken for the walls, and has not polled again.
    swarm.0.advance(std::time::Duration::from_secs(1));
    let task = swarm.assigned(ANN);
    assert_eq!(swarm.status(task), Status::Pending);
    assert_eq!(swarm.poll(ANN).0.map(|task| task.id), Some(walls));
}

#[test]
fn a_poll_whose_end_was_lost_gets_nothing_once_it_must_be_over() {
    let mut swarm = Swarm::new();
    waits(&mut swarm, ANN);
    swarm.0.advance(limits::POLL);
    let task = swarm.assigned(ANN);
    assert_eq!(swarm.status(task), Status::Pending);
}

#[test]
fn who_waits_is_forgotten_by_a_restart_and_gets_its_task_all_the_same() {
    let mut swarm = Swarm::new();
    waits(&mut swarm, ANN);
    swarm.0.restart();
    let task = swarm.assigned(ANN);
    assert_eq!(swarm.status(task), Status::Pending);
    assert_eq!(swarm.poll(ANN).0.map(|task| task.id), Some(task));
}
