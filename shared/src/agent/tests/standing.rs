use std::num::NonZeroU32;

use super::*;
use crate::agent::Standing;

fn paused(paused: bool) -> Command {
    Command::SetPaused { paused }
}

fn redefine(world: &mut World, scale: u32) {
    let definition = Definition { scale, ..Definition::default() };
    world.must(Command::Define { definition, group: name("default") });
}

fn scaled(scale: u32) -> Command {
    Command::SetScale { scale: NonZeroU32::new(scale) }
}

#[test]
fn what_an_operator_says_of_the_scale_holds_until_it_is_taken_back_or_the_definition_says_another() {
    let mut world = World::new(1);
    let runs = [world.manual(), world.manual(), world.manual()];
    let states = |world: &World| runs.clone().map(|run| world.state(&run));
    let (running, queued) = (State::Running, State::Queued);
    world.must(scaled(2));
    assert_eq!(states(&world), [running, running, queued], "at once");
    // Its runner registers again, with something else of it changed, and the coordinator is another one.
    let definition = Definition { scale: 1, work_queue: 7, ..Definition::default() };
    world.must(Command::Define { definition, group: name("default") });
    world.agent.restart();
    let fourth = world.manual();
    world.exit(&runs[0], 0);
    assert_eq!((world.state(&runs[2]), world.busy()), (running, 2));

    world.must(scaled(1));
    assert_eq!(world.agent.entity.standing.scale, None, "the definition says so itself");
    world.exit(&runs[1], 0);
    assert_eq!((world.state(&fourth), world.busy()), (queued, 1), "what runs goes on, and no more begins");

    world.must(scaled(4));
    assert_eq!(world.state(&fourth), running);
    redefine(&mut world, 2);
    assert_eq!((world.agent.entity.standing.scale, world.agent.entity.scale()), (None, 2));
    world.must(scaled(3));
    world.must(Command::SetScale { scale: None });
    assert_eq!((world.agent.entity.standing.scale, world.agent.entity.scale()), (None, 2));
}

#[test]
fn an_operator_lets_an_agent_work_of_which_its_definition_wants_no_run() {
    let mut world = World::new(0);
    assert_eq!(world.refused(enqueue(Class::Manual)), Code::Disabled);
    world.must(scaled(1));
    let (running, waiting) = (world.manual(), world.manual());
    assert_eq!((world.state(&running), world.state(&waiting)), (State::Running, State::Queued));
    world.must(Command::SetScale { scale: None });
    assert_eq!((world.state(&running), world.state(&waiting)), (State::Running, State::Ended));
    assert_eq!(world.refused(enqueue(Class::Manual)), Code::Disabled);
    // What is gone and comes again is another agent.
    world.must(scaled(5));
    world.must(Command::Undefine);
    assert_eq!(world.refused(scaled(2)), Code::NotFound);
    redefine(&mut world, 0);
    assert_eq!(world.agent.entity.scale(), 0);
}

#[test]
fn what_is_said_of_an_agent_is_read_as_it_was_written_before_there_was_a_scale() {
    let standing: Standing = serde_json::from_value(json!({ "disabled": true, "swarm_word": 3 })).unwrap();
    assert_eq!((standing.disabled, standing.scale), (true, None));
    assert_eq!(
        serde_json::to_value(Standing::default()).unwrap().get("scale"),
        None,
        "older nodes know none"
    );
}

#[test]
fn what_an_operator_disabled_stays_so_when_its_runner_registers_again() {
    let mut world = World::new(1);
    world.must(Command::SetEnabled { enabled: false });
    redefine(&mut world, 2);
    world.agent.restart();
    assert_eq!(world.refused(enqueue(Class::Manual)), Code::Disabled);
    world.must(Command::SetEnabled { enabled: true });
    let run = world.manual();
    assert_eq!(world.state(&run), State::Running);
}

#[test]
fn an_operator_enables_what_its_definition_disables_until_that_says_so_again() {
    let mut world = World::new(1);
    let definition = Definition { enabled: false, ..Definition::default() };
    world.must(Command::Define { definition: definition.clone(), group: name("default") });
    assert_eq!(world.refused(enqueue(Class::Manual)), Code::Disabled);
    world.must(Command::SetEnabled { enabled: true });
    world.manual();
    // The word counts also if nothing seems to change by it.
    world.must(Command::Define { definition, group: name("default") });
    world.must(Command::SetEnabled { enabled: false });
    redefine(&mut world, 1);
    assert_eq!(world.refused(enqueue(Class::Manual)), Code::Disabled);
}

#[test]
fn a_paused_agent_takes_work_and_starts_it_at_the_end_of_the_pause() {
    let mut world = World::new(2);
    let before = world.manual();
    world.must(paused(true));
    let queued = world.manual();
    world.call(1).unwrap();
    redefine(&mut world, 3);
    world.agent.restart();
    assert_eq!((world.state(&before), world.state(&queued)), (State::Running, State::Queued));
    assert_eq!(world.call_status(1).0, CallStatus::Pending);
    assert!(world.fleet.entity.bids.is_empty(), "what may not start keeps no place in the line");
    world.must(paused(false));
    assert_eq!(world.state(&queued), State::Running, "at once, without another end");
    assert_eq!(world.call_status(1).0, CallStatus::Running);
}

#[test]
fn a_pause_takes_back_the_bids_that_are_out() {
    let mut world = World::without_runner(Definition::default());
    let run = world.manual();
    world.must(paused(true));
    world.register(1);
    assert_eq!((world.state(&run), world.busy()), (State::Queued, 0));
    world.must(paused(false));
    assert_eq!((world.state(&run), world.busy()), (State::Running, 1));
}

#[test]
fn a_grant_that_crosses_a_pause_leaves_no_slot_behind() {
    let mut world = World::new(1);
    let Reply::Queued { instance } = world.agent.run(enqueue(Class::Manual)).unwrap() else { panic!() };
    let Some(Effect::Entity { command, .. }) = world.agent.effects.last().cloned() else { panic!() };
    world.fleet.run(command.read().unwrap()).unwrap();
    assert_eq!(world.busy(), 1);
    world.agent.run(paused(true)).unwrap();
    world.settle();
    assert_eq!((world.state(&instance), world.busy()), (State::Queued, 0));
    assert!(world.told.is_empty());
}

#[test]
fn what_wakes_during_a_pause_runs_on_after_it_the_longest_waiting_first() {
    let mut world = World::new(1);
    let first = world.manual();
    world.wait(&first, 1, webhook_filter());
    world.advance(1);
    let second = world.manual();
    world.wait(&second, 2, webhook_filter());
    world.must(paused(true));
    let queued = world.manual();
    for wait in [2, 1] {
        world.must(Command::Trigger { wait: id(wait), receipt: id(90 + wait), payload: envelope() });
    }
    assert_eq!((world.state(&first), world.state(&second)), (State::Frozen, State::Frozen));
    assert!(world.outcome(&first, 1).is_none());
    world.agent.restart();
    world.must(paused(false));
    assert_eq!((world.state(&first), world.state(&second)), (State::Running, State::Resuming));
    assert!(world.outcome(&first, 1).is_some(), "the event was kept");
    // What was about to run on goes back to sleep with the next pause.
    world.must(paused(true));
    assert_eq!(world.state(&second), State::Frozen);
    world.exit(&first, 0);
    assert_eq!((world.state(&second), world.busy()), (State::Frozen, 0));
    world.must(paused(false));
    assert_eq!((world.state(&second), world.state(&queued)), (State::Running, State::Queued));
}

#[test]
fn a_wait_that_times_out_during_a_pause_says_so_after_it() {
    let mut world = World::new(1);
    let run = world.manual();
    world.wait(&run, 1, webhook_filter());
    world.must(paused(true));
    world.advance(1800);
    assert_eq!(world.state(&run), State::Frozen);
    world.must(paused(false));
    assert_eq!(world.outcome(&run, 1), Some(json!("wait_timeout")));
}

#[test]
fn a_paused_agent_that_is_disabled_ends_what_sleeps() {
    let mut world = World::new(1);
    let run = world.manual();
    world.wait(&run, 1, webhook_filter());
    world.must(paused(true));
    world.must(Command::Trigger { wait: id(1), receipt: id(9), payload: envelope() });
    world.must(Command::SetEnabled { enabled: false });
    assert_eq!(world.end_of(&run), ("killed".to_owned(), "the agent was disabled".to_owned()));
    assert!(world.fleet.entity.places.is_empty());
}

#[test]
fn the_swarm_and_the_agent_are_paused_each_by_itself() {
    let mut world = World::new(1);
    world.must(Command::SetSwarmPaused { paused: true, word: 5 });
    world.must(paused(true));
    let run = world.manual();
    world.must(Command::SetSwarmPaused { paused: false, word: 6 });
    world.must(Command::SetSwarmPaused { paused: true, word: 5 });
    assert_eq!(world.state(&run), State::Queued);
    world.must(paused(false));
    assert_eq!(world.state(&run), State::Running, "the earlier word came too late");
    let Reply::Overview(all) = world.must(Command::List) else { panic!() };
    assert!(all.enabled && !all.standing.is_paused());
}

#[test]
fn nobody_pauses_what_is_not_there() {
    let mut world = World::undefined();
    assert_eq!(world.refused(paused(true)), Code::NotFound);
    assert_eq!(world.refused(Command::SetEnabled { enabled: false }), Code::NotFound);
    world.must(Command::SetSwarmPaused { paused: true, word: 1 });
    redefine(&mut world, 1);
    world.register(1);
    let run = world.manual();
    assert_eq!(world.state(&run), State::Queued, "a swarm is paused before all its agents are known");
}

#[test]
fn a_start_that_is_lost_once_its_agent_is_disabled_comes_back_to_no_queue() {
    let definition = Definition { scale: 0, ..Definition::default() };
    for stop in [
        Command::SetEnabled { enabled: false },
        Command::Define { definition: definition.clone(), group: name("default") },
    ] {
        let mut world = World::new(2);
        world.prompt_runner = false;
        world.call(1).unwrap();
        let webhook = world.must(enqueue(Class::Webhook));
        let Reply::Queued { instance: webhook } = webhook else { panic!("not queued: {webhook:?}") };
        let call = world.agent.entity.calls.get(&id(1)).unwrap().callee.clone().unwrap();
        assert_eq!([world.state(&call), world.state(&webhook)], [State::Starting; 2]);
        world.must(stop);
        let lost = vec![call.clone(), webhook.clone()];
        world.must(Command::RunnerLost { runner: "r1".to_owned(), instances: lost });
        assert_eq!(world.call_status(1), (CallStatus::Error, Some("the agent was disabled".to_owned())));
        assert_eq!(world.end_of(&call), ("killed".to_owned(), "the agent was disabled".to_owned()));
        world.advance(0);
        assert_eq!(world.state(&webhook), State::Ended);
        let reasons = world.agent.entity.letters.values().map(|letter| letter.reason.clone());
        assert_eq!(reasons.collect::<Vec<_>>(), ["agent_disabled"], "it can be replayed");
        assert!(world.agent.entity.queue.is_empty());
    }
}

#[test]
fn an_agent_whose_scale_becomes_nothing_has_nothing_left_in_its_queue_and_nobody_asleep() {
    let mut world = World::new(1);
    let (asleep, woken) = (world.manual(), world.manual());
    world.wait(&asleep, 1, webhook_filter());
    world.wait(&woken, 2, webhook_filter());
    let running = world.manual();
    trigger(&mut world, 2);
    let queued = world.manual();
    world.call(1).unwrap();
    assert_eq!((world.state(&asleep), world.state(&woken)), (State::Frozen, State::Resuming));
    redefine(&mut world, 0);
    let disabled = || "the agent was disabled".to_owned();
    for waited in [&asleep, &woken] {
        assert_eq!(world.end_of(waited), ("killed".to_owned(), disabled()));
    }
    assert_eq!((world.state(&running), world.state(&queued)), (State::Running, State::Ended));
    assert_eq!(world.call_status(1), (CallStatus::Error, Some(disabled())));
    let reasons = world.agent.entity.letters.values().map(|letter| letter.reason.clone());
    assert_eq!(reasons.collect::<Vec<_>>(), ["agent_disabled"]);
    assert!(world.fleet.entity.bids.is_empty());
    assert_eq!(world.fleet.entity.places.len(), 1, "that of what runs");
    redefine(&mut world, 1);
    let next = world.manual();
    world.exit(&running, 0);
    assert_eq!(world.state(&next), State::Running);
}

#[test]
fn what_runs_when_the_scale_becomes_nothing_goes_on_also_after_a_wait() {
    let mut world = World::new(2);
    let (first, second) = (world.manual(), world.manual());
    redefine(&mut world, 0);
    for (run, number) in [(&first, 1), (&second, 2)] {
        world.wait(run, number, webhook_filter());
        trigger(&mut world, number);
    }
    assert_eq!((world.state(&first), world.state(&second)), (State::Running, State::Resuming));
    world.exit(&first, 0);
    assert_eq!(world.state(&second), State::Running, "one after the other");
    assert_eq!(world.refused(enqueue(Class::Manual)), Code::Disabled);
}

#[test]
fn hand_made_instances_serve_the_calls_of_an_agent_whose_scale_becomes_nothing_as_long_as_there_is_one() {
    let mut world = World::undefined();
    let hand = InstanceId("token-1".to_owned());
    world.must(Command::Attach { instance: hand.clone(), agent_id: id(5) });
    world.call(1).unwrap();
    redefine(&mut world, 1);
    redefine(&mut world, 0);
    assert_eq!(world.call_status(1).0, CallStatus::Pending);
    world.must(Command::Complete { instance: hand });
    let nobody = "no instance is left to serve the call".to_owned();
    assert_eq!(world.call_status(1), (CallStatus::Error, Some(nobody)));
    assert!(world.agent.entity.queue.is_empty());
}

#[test]
fn what_a_runner_was_told_to_start_serves_its_call_though_a_hand_made_instance_waits() {
    let mut world = World::new(1);
    world.prompt_runner = false;
    let hand = beside_runs(&mut world);
    world.call(1).unwrap();
    let run = world.agent.entity.queue.keys().next().unwrap().clone();
    redefine(&mut world, 0);
    assert_eq!(world.state(&run), State::Starting);
    let Reply::Wait(view) = world.wait(&hand, 1, agent_filter(None)) else { panic!("no wait") };
    assert!(view.outcome.is_none(), "the call would be served twice: {view:?}");
    let token = world.token(&run);
    world.report(&run, token, Report::Started { pid: Some(7) }).unwrap();
    world.must(Command::ReturnValue { instance: run.clone(), value: "done".into() });
    world.exit(&run, 0);
    assert_eq!(world.call_status(1), (CallStatus::Completed, Some("done".to_owned())));
    assert_eq!(world.state(&hand), State::Waiting);
}

/// A hand-made instance beside the runs of an agent of scale 1.
fn beside_runs(world: &mut World) -> InstanceId {
    let hand = InstanceId("token-1".to_owned());
    world.must(Command::Attach { instance: hand.clone(), agent_id: id(5) });
    hand
}

/// It has been given the call that it waited for, and serves it.
fn assert_serves(world: &mut World, hand: InstanceId) {
    assert!(world.outcome(&hand, 1).is_some(), "it is not told of the call");
    world.must(Command::ReturnValue { instance: hand, value: "yes".into() });
    assert_eq!(world.call_status(1), (CallStatus::Completed, Some("yes".to_owned())));
    assert!(world.agent.entity.queue.is_empty());
}

#[test]
fn who_waits_already_serves_the_queued_calls_of_an_agent_whose_scale_becomes_nothing() {
    let mut world = World::new(1);
    let hand = beside_runs(&mut world);
    let busy = world.manual();
    world.call(1).unwrap();
    world.wait(&hand, 1, agent_filter(None));
    assert!(world.outcome(&hand, 1).is_none(), "the agent serves its queue by itself");
    redefine(&mut world, 0);
    assert_serves(&mut world, hand);
    assert_eq!(world.state(&busy), State::Running);
}

#[test]
fn who_waits_already_serves_a_call_whose_start_is_lost_once_its_agent_starts_nothing() {
    let mut world = World::new(1);
    world.prompt_runner = false;
    let hand = beside_runs(&mut world);
    world.call(1).unwrap();
    let run = world.agent.entity.queue.keys().next().unwrap().clone();
    world.wait(&hand, 1, agent_filter(None));
    redefine(&mut world, 0);
    assert!(world.outcome(&hand, 1).is_none(), "its run is about to start");
    world.must(Command::RunnerLost { runner: "r1".to_owned(), instances: vec![run] });
    assert_serves(&mut world, hand);
}

#[test]
fn what_was_called_before_its_agent_is_defined_and_disabled_is_not_left_in_its_queue() {
    let mut world = World::undefined();
    let instance = InstanceId("token-1".to_owned());
    world.must(Command::Attach { instance: instance.clone(), agent_id: id(5) });
    world.call(1).unwrap();
    let definition = Definition { enabled: false, ..Definition::default() };
    world.must(Command::Define { definition, group: name("default") });
    assert_eq!(world.call_status(1), (CallStatus::Error, Some("the agent was disabled".to_owned())));
    assert_eq!(world.state(&instance), State::Running);
    assert!(world.agent.entity.queue.is_empty());
}
