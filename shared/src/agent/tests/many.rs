//! Long queues: what one decision does to all of them, it does to each once.

use super::super::Event;
use super::*;
use crate::agent::{CallRecord, Item};
use crate::cow_map::walked;
use crate::entity::{Changes, Decision, Entity};
use crate::limits;

const MANY: usize = 1500;
/// How many entries of maps a decision may walk over, for each of those that it is about.
const EACH: usize = 20;

/// An agent of one slot, which a run has, and so many calls behind it, of one caller.
fn queue_of(calls: usize) -> World {
    let mut world = World::without_runner(Definition { work_queue: calls, ..Definition::default() });
    let (at, caller) = (world.agent.now, caller("lead", &[]));
    for number in 0..calls {
        let call = id(number as u128);
        let instance = InstanceId(format!("worker-{number:08x}"));
        let (class, source, receipt) = (Class::Call, "agent:lead".to_owned(), None);
        let input = json!({ "call": { "call_id": call } }).into();
        let item =
            Item { instance: instance.clone(), number: number as u64, class, source, receipt, at, input };
        let run = Instance { call: Some(call), ..Instance::of(&item) };
        let call = CallRecord {
            id: call,
            status: CallStatus::Pending,
            caller: caller.agent.clone(),
            caller_instance: caller.instance.clone(),
            callee: Some(instance),
            chain: Vec::new(),
            depth: None,
            until: at + limits::CALL_EXPIRY,
            value: None,
            error: None,
        };
        follow(&mut world, &[Event::Queued { instance: run, item }, Event::Called { call, depth: 1, at }]);
    }
    // The first of them bids.
    decided(&mut world, Command::Tick);
    world.agent.entity.check().unwrap();
    world
}

/// Without the documents, which would take most of the time.
fn follow(world: &mut World, events: &[Event]) {
    events.iter().for_each(|event| world.agent.entity.apply(event, &mut Changes::of_blobs()));
}

/// Decides and follows. How many entries were walked over for the decision, and what it was.
fn decided(world: &mut World, command: Command) -> (usize, Decision<Agent>) {
    let mut ctx = world.agent.ctx();
    let (steps, decision) = walked::by(|| world.agent.entity.decide(&command, &mut ctx).unwrap());
    follow(world, &decision.events);
    (steps, decision)
}

fn ended(decision: &Decision<Agent>) -> usize {
    decision.events.iter().filter(|event| matches!(event, Event::Ended { .. })).count()
}

fn bids(decision: &Decision<Agent>) -> usize {
    decision.events.iter().filter(|event| matches!(event, Event::Bid { .. })).count()
}

#[test]
fn a_queue_of_many_calls_is_ended_by_going_through_it_and_not_through_all_for_each() {
    let caller = caller("lead", &[]).instance;
    for command in [
        Command::SetEnabled { enabled: false },
        Command::Undefine,
        Command::CallerEnded { instance: caller, cancel: true },
    ] {
        let mut world = queue_of(MANY);
        let (steps, decision) = decided(&mut world, command.clone());
        assert_eq!((ended(&decision), bids(&decision)), (MANY, 0), "{command:?}");
        assert!(steps < EACH * MANY, "{steps} steps for {command:?}");
        world.agent.entity.check().unwrap();
        assert!(world.agent.entity.queue.is_empty() && world.agent.entity.calls.is_empty());
    }
}

#[test]
fn of_many_calls_whose_time_is_over_none_bids_before_it_is_dropped() {
    let mut world = queue_of(MANY);
    world.agent.now = world.agent.now + limits::CALL_EXPIRY;
    let (steps, decision) = decided(&mut world, Command::Tick);
    assert_eq!((ended(&decision), bids(&decision)), (MANY, 0));
    assert!(steps < EACH * MANY, "{steps} steps");
}

#[test]
fn what_enters_a_long_queue_or_starts_from_it_goes_through_none_of_it() {
    let mut world = queue_of(MANY);
    let queued = Command::Enqueue {
        class: Class::Manual,
        source: "cli".to_owned(),
        receipt: None,
        input: json!({ "prompt": "go" }),
    };
    // There is room for one more, and that gives way to the next.
    for _ in 0..2 {
        let (steps, decision) = decided(&mut world, queued.clone());
        assert!(!decision.events.is_empty() && steps < 100, "{steps} steps");
    }
    let bid = world.agent.entity.instances.values().find_map(|run| run.bid).unwrap();
    let (steps, _) = decided(&mut world, Command::Granted { bid, runner: "r1".to_owned() });
    assert!(steps < 2 * MANY, "{steps} steps to find whose bid it is");
    let first = InstanceId("worker-00000000".to_owned());
    assert_eq!(world.state(&first), State::Starting);
    let (token, runner) = (world.token(&first), "r1".to_owned());
    let report = Command::Report { instance: first, token, runner, what: exited(0) };
    let (steps, decision) = decided(&mut world, report);
    assert_eq!((ended(&decision), bids(&decision)), (1, 1), "the next one bids");
    assert!(steps < 100, "{steps} steps");
    world.agent.entity.check().unwrap();
}
