//! Values that are too long for a document: when they are kept, and when they are let go.

use super::*;
use crate::agent::Returned;
use crate::limits;

fn long(number: u128) -> Returned {
    let bytes = limits::TEXT as u64 + 1;
    Returned::Long { blob: Blob { id: id(1000 + number), bytes }, preview: format!("value {number} …") }
}

fn give(world: &mut World, run: &InstanceId, value: Returned) {
    world.must(Command::ReturnValue { instance: run.clone(), value });
}

fn kept(world: &World) -> Vec<u128> {
    world.agent.blobs().iter().map(|blob| blob.as_u128() - id(1000).as_u128()).collect()
}

fn the_run(world: &World) -> InstanceId {
    world.agent.entity.instances.keys().next().unwrap().clone()
}

#[test]
fn a_long_value_is_kept_until_its_call_is_forgotten() {
    let mut world = World::new(1);
    world.call(1).unwrap();
    let run = the_run(&world);
    give(&mut world, &run, long(1));
    assert_eq!(kept(&world), [1]);
    give(&mut world, &run, long(2));
    assert_eq!(kept(&world), [2], "the last word wins, and the one before is let go");
    world.exit(&run, 0);
    world.agent.restart();
    let instance = caller("lead", &[]).instance;
    let Reply::Call(view) = world.must(Command::CheckCall { call: id(1), instance }) else { panic!() };
    assert_eq!(view.return_value.as_deref(), Some("value 2 …"));
    assert_eq!(view.blob, Some(Blob { id: id(1002), bytes: limits::TEXT as u64 + 1 }));
    world.advance(limits::CALL_KEEP.as_secs() - 1);
    assert_eq!(kept(&world), [2]);
    world.advance(2);
    assert!(kept(&world).is_empty() && world.agent.entity.blobs.is_empty());
}

#[test]
fn a_value_that_nobody_gets_is_let_go() {
    let mut world = World::new(1);
    let run = world.manual();
    give(&mut world, &run, long(1));
    world.exit(&run, 0);
    assert!(kept(&world).is_empty(), "nobody called");

    world.call(1).unwrap();
    let run = the_run(&world);
    give(&mut world, &run, long(2));
    world.exit(&run, 3);
    assert!(kept(&world).is_empty(), "the call failed");

    world.call(2).unwrap();
    let run = the_run(&world);
    give(&mut world, &run, long(3));
    give(&mut world, &run, "short".into());
    assert!(kept(&world).is_empty(), "another value took its place");

    let gone = Command::ReturnValue { instance: InstanceId("worker-00000000".to_owned()), value: long(4) };
    assert_eq!(world.refused(gone), Code::NotFound);
    assert!(kept(&world).is_empty());
}

#[test]
fn a_value_that_several_calls_get_is_kept_for_the_last_of_them() {
    let mut world = World::undefined();
    let hand = InstanceId("token-1".to_owned());
    world.must(Command::Attach { instance: hand.clone(), agent_id: id(9) });
    give(&mut world, &hand, long(1));
    assert!(kept(&world).is_empty(), "it serves no call");
    for number in [1, 2] {
        world.wait(&hand, 10 + number, agent_filter(None));
        world.call(number).unwrap();
        world.outcome(&hand, 10 + number);
    }
    give(&mut world, &hand, long(2));
    assert_eq!(world.agent.entity.blobs.get(&id(1002)), Some(&2));
    world.advance(limits::CALL_KEEP.as_secs() + 1);
    assert!(kept(&world).is_empty());
}
