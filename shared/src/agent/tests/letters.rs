use super::super::{DeadLetter, Event};
use super::*;

fn letters(world: &World) -> Vec<DeadLetter> {
    let letters = world.agent.events.iter().filter_map(|event| match event {
        Event::DeadLettered(letter) => Some(letter.clone()),
        _ => None,
    });
    letters.collect()
}

fn replay(letter: &DeadLetter) -> Command {
    Command::Replay { letter: Box::new(letter.clone()) }
}

#[test]
fn a_letter_is_replayed_once_and_says_as_what() {
    let mut world = World::new(1);
    world.must(Command::SetEnabled { enabled: false });
    world.must(enqueue(Class::Webhook));
    let letter = letters(&world).remove(0);
    assert_eq!(letter.reason, "agent_disabled");
    assert_eq!(world.refused(replay(&letter)), Code::Disabled, "it stays replayable");
    world.must(Command::SetEnabled { enabled: true });
    world.agent.restart();
    let Reply::Queued { instance } = world.must(replay(&letter)) else { panic!() };
    assert_eq!(world.state(&instance), State::Running);
    let Some(RunnerCommand::Start { input, .. }) = world.told.first() else { panic!() };
    assert_eq!(input["prompt"], "go");
    assert_eq!(world.refused(replay(&letter)), Code::NotFound);
    let body = world.agent.body(&format!("dead/{}", letter.id)).unwrap();
    assert_eq!(
        (body["replayedAs"].as_str(), body["replayable"].as_bool()),
        (Some(&*instance.0), Some(false))
    );
}

#[test]
fn a_full_queue_keeps_the_letter_instead_of_making_another() {
    let mut world = World::without_runner(Definition { work_queue: 1, ..Definition::default() });
    for _ in 0..3 {
        world.must(enqueue(Class::Webhook));
    }
    let letter = letters(&world).remove(0);
    assert_eq!(world.refused(replay(&letter)), Code::QueueFull);
    assert_eq!(letters(&world).len(), 1);
    world.register(1);
    let first =
        world.agent.entity.instances.values().find(|run| run.state == State::Running).unwrap().id.clone();
    world.exit(&first, 0);
    world.must(replay(&letter));
}

#[test]
fn a_tick_that_is_replayed_beside_another_runs_once() {
    let mut world = World::without_runner(Definition { work_queue: 1, ..Definition::default() });
    world.must(enqueue(Class::Webhook));
    world.must(enqueue(Class::Schedule));
    world.must(enqueue(Class::Webhook));
    let letter = letters(&world).remove(0);
    assert_eq!(letter.class, Class::Schedule);
    world.register(1);
    world.must(Command::SetPaused { paused: true });
    let Reply::Queued { instance } = world.must(enqueue(Class::Schedule)) else { panic!() };
    assert_eq!(world.must(replay(&letter)), Reply::Coalesced { instance });
    assert_eq!(world.refused(replay(&letter)), Code::NotFound);
}

#[test]
fn a_tick_is_not_replayed_as_one_that_asks_for_something_else() {
    let mut world = World::new(1);
    world.must(Command::SetPaused { paused: true });
    world.must(enqueue(Class::Schedule));
    world.must(Command::SetEnabled { enabled: false });
    let letter = letters(&world).remove(0);
    world.must(Command::SetEnabled { enabled: true });
    let (source, input) = (letter.source.clone(), json!({ "prompt": "stop" }));
    let other = Command::Enqueue { class: Class::Schedule, source, receipt: None, input };
    let Reply::Queued { instance } = world.must(other) else { panic!() };
    let Reply::Queued { instance: replayed } = world.must(replay(&letter)) else { panic!() };
    assert_ne!(instance, replayed);
}

#[test]
fn a_rerun_that_is_replayed_counts_on() {
    let mut world = World::without_runner(Definition { max_reruns: 2, ..Definition::default() });
    world.register(1);
    let first = world.manual();
    world.must(Command::SetPaused { paused: true });
    world.exit(&first, 42);
    world.must(Command::SetEnabled { enabled: false });
    let letter = letters(&world).remove(0);
    assert_eq!(world.agent.body(&format!("dead/{}", letter.id)).unwrap()["rerun"], 1);
    world.must(Command::SetEnabled { enabled: true });
    world.must(Command::SetPaused { paused: false });
    let Reply::Queued { instance } = world.must(replay(&letter)) else { panic!() };
    let again = Command::RequestRerun { instance };
    assert_eq!(world.must(again), Reply::WillRerun { number: 2, most: 2 });
}

#[test]
fn the_oldest_letters_are_kept_for_reading_alone() {
    let mut world = World::undefined();
    for _ in 0..=crate::limits::LETTERS {
        world.agent.run(enqueue(Class::Webhook)).unwrap();
        world.agent.now = world.agent.now + std::time::Duration::from_millis(1);
    }
    assert_eq!(world.agent.entity.letters.len(), crate::limits::LETTERS);
    let oldest = letters(&world).remove(0);
    assert_eq!(world.refused(replay(&oldest)), Code::NotFound);
    assert_eq!(world.agent.body(&format!("dead/{}", oldest.id)).unwrap()["replayable"], false);
}
