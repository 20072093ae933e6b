//! An agent and its fleet, with every effect carried between them.

use super::*;

#[test]
fn one_run_from_start_over_a_wait_to_its_end() {
    let mut world = World::new(1);
    let run = world.manual();
    assert_eq!((world.state(&run), world.busy()), (State::Running, 1));
    world.wait(&run, 1, webhook_filter());
    assert_eq!((world.state(&run), world.busy()), (State::Frozen, 0));
    assert!(world.fleet.entity.places.contains_key(&run), "the runner still holds it");
    world.must(Command::Trigger { wait: id(1), receipt: id(2), payload: envelope() });
    assert_eq!((world.state(&run), world.busy()), (State::Running, 1));
    assert!(world.outcome(&run, 1).is_some());
    world.exit(&run, 0);
    assert_eq!((world.state(&run), world.busy()), (State::Ended, 0));
    assert!(world.fleet.entity.places.is_empty() && world.fleet.entity.bids.is_empty());
    let tokens: Vec<Token> = world
        .told
        .iter()
        .map(|command| match command {
            RunnerCommand::Start { token, .. }
            | RunnerCommand::Freeze { token, .. }
            | RunnerCommand::Thaw { token, .. }
            | RunnerCommand::Stop { token, .. }
            | RunnerCommand::Spill { token, .. }
            | RunnerCommand::Restore { token, .. }
            | RunnerCommand::Forget { token, .. } => *token,
        })
        .collect();
    assert_eq!(tokens.len(), 4);
    assert!(tokens.is_sorted_by(|a, b| a < b), "every command has a higher token");
}

#[test]
fn two_instances_wait_and_one_event_resumes_the_first() {
    let mut world = World::new(2);
    let (first, second) = (world.manual(), world.manual());
    world.wait(&first, 1, agent_filter(None));
    world.advance(1);
    world.wait(&second, 2, agent_filter(None));
    assert_eq!(world.busy(), 0);
    world.call(1).unwrap();
    assert_eq!((world.state(&first), world.state(&second)), (State::Running, State::Frozen));
    assert_eq!(world.busy(), 1);
    world.call(2).unwrap();
    assert_eq!(world.state(&second), State::Running);
    world.call(3).unwrap();
    assert_eq!(world.call_status(3).0, CallStatus::Pending, "nobody waits: it queues");
}

#[test]
fn two_waiters_leave_both_slots_to_others() {
    let mut world = World::new(2);
    let (first, second) = (world.manual(), world.manual());
    world.wait(&first, 1, webhook_filter());
    world.wait(&second, 2, webhook_filter());
    let (third, fourth) = (world.manual(), world.manual());
    assert_eq!((world.state(&third), world.state(&fourth)), (State::Running, State::Running));
    world.must(Command::Trigger { wait: id(2), receipt: id(9), payload: envelope() });
    assert_eq!(world.state(&second), State::Resuming, "the scale holds for resumed runs too");
    world.exit(&third, 0);
    assert_eq!(world.state(&second), State::Running);
    assert_eq!(world.busy(), 2);
}

fn define(scale: u32) -> Command {
    let definition = Definition { scale, ..Definition::default() };
    Command::Define { definition, group: name("default") }
}

#[test]
fn a_run_that_wakes_goes_on_under_the_scale_that_is_defined_since() {
    let mut world = World::new(1);
    let sleeper = world.manual();
    world.wait(&sleeper, 1, webhook_filter());
    let works = world.manual();
    let queued = world.manual();
    trigger(&mut world, 1);
    assert_eq!((world.state(&sleeper), world.state(&works)), (State::Resuming, State::Running));
    world.must(define(2));
    assert_eq!((world.state(&sleeper), world.state(&queued)), (State::Running, State::Queued));

    assert!(world.outcome(&sleeper, 1).is_some());
    world.wait(&sleeper, 2, webhook_filter());
    assert_eq!(world.state(&queued), State::Running);
    trigger(&mut world, 2);
    world.must(define(1));
    world.exit(&works, 0);
    assert_eq!((world.state(&sleeper), world.busy()), (State::Resuming, 1), "one of one slot is in use");
    world.exit(&queued, 0);
    assert_eq!((world.state(&sleeper), world.busy()), (State::Running, 1));
}

#[test]
fn a_new_scale_that_crosses_a_grant_leaves_no_slot_behind() {
    let mut world = World::new(1);
    let sleeper = world.manual();
    world.wait(&sleeper, 1, webhook_filter());
    world.agent.run(Command::Trigger { wait: id(1), receipt: id(2), payload: envelope() }).unwrap();
    let Some(Effect::Entity { command, .. }) = world.agent.effects.last().cloned() else { panic!() };
    world.fleet.run(command.read().unwrap()).unwrap();
    assert_eq!(world.busy(), 1);
    world.agent.run(define(2)).unwrap();
    world.settle();
    assert_eq!((world.state(&sleeper), world.busy()), (State::Running, 1));
    world.exit(&sleeper, 0);
    assert_eq!(world.busy(), 0);
}

#[test]
fn a_silent_runner_takes_its_frozen_instances_with_it() {
    let mut world = World::new(2);
    let (frozen, running) = (world.manual(), world.manual());
    world.wait(&frozen, 1, webhook_filter());
    world.fleet.advance(std::time::Duration::from_secs(29));
    world.settle();
    assert_eq!(world.state(&running), State::Running);
    world.fleet.advance(std::time::Duration::from_secs(1));
    world.settle();
    for run in [&frozen, &running] {
        assert_eq!(world.end_of(run), ("error".to_owned(), "runner lost: r1".to_owned()));
    }
    let queued = world.manual();
    assert_eq!(world.state(&queued), State::Queued);
    world.register(1);
    assert_eq!(world.state(&queued), State::Running);
}

#[test]
fn a_kill_that_crosses_a_grant_leaves_no_slot_behind() {
    let mut world = World::new(1);
    let waiter = world.manual();
    world.wait(&waiter, 1, webhook_filter());
    // The wait ends; the fleet grants; the agent hears of the kill before it hears of the grant.
    world.agent.run(Command::Trigger { wait: id(1), receipt: id(2), payload: envelope() }).unwrap();
    let bid = world.agent.effects.last().cloned().unwrap();
    let Effect::Entity { command, .. } = bid else { panic!() };
    world.fleet.run(command.read().unwrap()).unwrap();
    assert_eq!(world.busy(), 1);
    world.agent.run(Command::Kill { instance: waiter.clone(), reason: "enough".to_owned() }).unwrap();
    world.settle();
    assert_eq!((world.state(&waiter), world.busy()), (State::Ended, 0));
    assert!(world.fleet.entity.places.is_empty());
}

#[test]
fn what_is_queued_starts_though_others_wake_all_the_time() {
    let mut world = World::new(1);
    let mut sleepers = Vec::new();
    for wait in 1..=3 {
        let sleeper = world.manual();
        world.wait(&sleeper, wait, webhook_filter());
        sleepers.push((sleeper, wait));
    }
    let wake = |world: &mut World, wait: u128| {
        world.must(Command::Trigger { wait: id(wait), receipt: id(900 + wait), payload: envelope() });
    };
    wake(&mut world, 1);
    wake(&mut world, 2);
    let queued = world.manual();
    // Whoever runs goes back to sleep after a while and is woken again, and always another one is awake.
    for round in 0..40 {
        let running = sleepers.iter().position(|(run, _)| world.state(run) == State::Running);
        let Some(running) = running else { break };
        world.advance(10);
        let (run, wait) = sleepers[running].clone();
        assert!(world.outcome(&run, wait).is_some());
        let next = 100 + round;
        world.wait(&run, next, webhook_filter());
        wake(&mut world, next);
        sleepers[running].1 = next;
    }
    assert_eq!(world.state(&queued), State::Running);
}
