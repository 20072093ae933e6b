//! However much is due at a time: no decision writes more than can be committed, and the rest follows.

use super::super::Event;
use super::*;
use crate::agent::{CallRecord, Input, Item, Outcome, Returned};
use crate::entity::{Changes, Entity};
use crate::limits;

/// Follows events without the documents, which would take most of the time.
fn follow(world: &mut World, events: &[Event]) {
    events.iter().for_each(|event| world.agent.entity.apply(event, &mut Changes::of_blobs()));
}

/// Ticks while something is due. How many decisions it took.
fn tick_through(world: &mut World) -> usize {
    let mut decisions = 0;
    while world.agent.entity.next_wake().is_some_and(|due| due <= world.agent.now) {
        let written = world.agent.weight(&Command::Tick);
        assert!(written < limits::DECISION, "{written} bytes");
        let mut ctx = world.agent.ctx();
        let decision = world.agent.entity.decide(&Command::Tick, &mut ctx).unwrap();
        follow(world, &decision.events);
        decisions += 1;
        assert!(decisions < 100, "a tick leaves what is due");
    }
    world.agent.entity.check().unwrap();
    decisions
}

/// An agent with so many runs that were given much.
fn with_long_runs(count: u32) -> World {
    let mut world = World::without_runner(Definition { scale: count, ..Definition::default() });
    let at = world.agent.now;
    let input = Input::from(json!("x".repeat(9 * 1024 * 1024)));
    for number in 0..u64::from(count) {
        let instance = InstanceId(format!("worker-0000000{number}"));
        let (source, input) = ("cli".to_owned(), input.clone());
        let (class, receipt) = (Class::Manual, None);
        let item = Item { instance: instance.clone(), number, class, source, receipt, at, input };
        let token = Token { epoch: world.agent.epoch, number: 1 };
        let (runner, timeout_ms, terms) = ("r1".to_owned(), 3_600_000, None);
        follow(
            &mut world,
            &[
                Event::Queued { instance: Instance::of(&item), item },
                Event::Granted { instance: instance.clone(), runner, token, timeout_ms, terms, at },
                Event::Started { instance, pid: None, at },
            ],
        );
    }
    world
}

fn stopping(world: &World) -> usize {
    world.agent.entity.instances.values().filter(|run| run.state == State::Stopping).count()
}

#[test]
fn runs_whose_time_is_over_at_once_are_ended_by_as_many_ticks_as_it_takes() {
    let mut world = with_long_runs(3);
    world.agent.now = world.agent.now + std::time::Duration::from_secs(3600);
    assert_eq!(tick_through(&mut world), 2);
    assert_eq!(stopping(&world), 3);
}

#[test]
fn runs_of_an_agent_that_is_removed_are_ended_by_as_many_decisions_as_it_takes() {
    let mut world = with_long_runs(10);
    let mut commands = VecDeque::from([Command::Undefine]);
    while let Some(command) = commands.pop_front() {
        let written = world.agent.weight(&command);
        assert!(written < limits::DECISION, "{written} bytes");
        let mut ctx = world.agent.ctx();
        let decision = world.agent.entity.decide(&command, &mut ctx).unwrap();
        follow(&mut world, &decision.events);
        for effect in decision.effects {
            if let Effect::Entity { key, command } = effect
                && key == world.agent.key
            {
                commands.push_back(command.read().unwrap());
            }
        }
    }
    assert!(world.agent.entity.defined.is_none());
    assert_eq!(stopping(&world), 10);
}

#[test]
fn what_many_who_are_forgotten_at_once_give_back_takes_as_many_ticks_as_it_takes() {
    let mut world = World::undefined();
    let long = json!({ "type": "webhook", "event": "push", "payload": "x".repeat(9 * 1024 * 1024) });
    let event: crate::triggers::Envelope = serde_json::from_value(long).unwrap();
    let hands = [1, 2, 3].map(|number: u128| (number, InstanceId(format!("token-{number}"))));
    for (number, hand) in &hands {
        world.must(Command::Attach { instance: hand.clone(), agent_id: id(50) });
        world.wait(hand, *number, webhook_filter());
    }
    let at = world.agent.now;
    for (number, instance) in hands {
        let outcome = Outcome::Triggered { payload: event.clone(), receipt: Some(id(900 + number)) };
        follow(
            &mut world,
            &[Event::WaitEnded { wait: id(number), outcome }, Event::Resumed { instance, token: None, at }],
        );
    }
    world.agent.now = at + limits::HAND_MADE;
    assert_eq!(tick_through(&mut world), 2);
    assert!(world.agent.entity.instances.is_empty());
}

/// Calls that were answered just now.
fn answered(world: &mut World, calls: std::ops::Range<u128>, value: &Returned) {
    for call in calls.map(id) {
        let caller = caller("lead", &[]);
        let record = CallRecord {
            id: call,
            status: CallStatus::Running,
            caller: caller.agent,
            caller_instance: caller.instance,
            callee: None,
            chain: Vec::new(),
            depth: None,
            until: world.agent.now,
            value: None,
            error: None,
        };
        let at = world.agent.now;
        follow(
            world,
            &[
                Event::Called { call: record, depth: 1, at },
                Event::CallEnded { call, value: Some(value.clone()), error: None, at },
            ],
        );
    }
}

#[test]
fn a_call_is_forgotten_without_its_value_being_written_once_more() {
    let mut world = World::undefined();
    answered(&mut world, 0..50, &"v".repeat(limits::TEXT).as_str().into());
    let known = world.agent.entity.finished.get(id(1)).unwrap();
    assert_eq!(known.value.as_ref().unwrap().shown().len(), limits::TEXT);
    world.agent.now = world.agent.now + limits::CALL_KEEP;
    let written = world.agent.weight(&Command::Tick);
    assert!(written < limits::TEXT, "{written} bytes");
    assert_eq!(tick_through(&mut world), 1);
    assert_eq!(world.agent.entity.finished.values().count(), 0);
}

#[test]
fn so_many_calls_are_forgotten_by_one_tick() {
    let mut world = World::undefined();
    answered(&mut world, 0..12_000, &"done".into());
    world.agent.now = world.agent.now + limits::CALL_KEEP;
    assert_eq!(tick_through(&mut world), 3);
    assert_eq!(world.agent.entity.finished.values().count(), 0);
}
