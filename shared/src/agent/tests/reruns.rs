use super::*;

/// The instances in the order in which they were started, with their inputs.
fn started(world: &World) -> Vec<(InstanceId, Value)> {
    let starts = world.told.iter().filter_map(|command| match command {
        RunnerCommand::Start { instance, input, .. } => Some((InstanceId(instance.clone()), input.clone())),
        _ => None,
    });
    starts.collect()
}

fn limited(max_reruns: u32) -> World {
    let mut world = World::without_runner(Definition { max_reruns, ..Definition::default() });
    world.register(4);
    world
}

#[test]
fn a_run_that_asks_for_it_is_run_again_with_the_same_input_so_often_and_no_more() {
    let mut world = limited(2);
    let first = world.manual();
    let again = Command::RequestRerun { instance: first.clone() };
    assert_eq!(world.must(again.clone()), Reply::WillRerun { number: 1, most: 2 });
    assert_eq!(world.must(again), Reply::WillRerun { number: 1, most: 2 });
    world.agent.restart();
    world.exit(&first, 0);
    let second = started(&world)[1].0.clone();
    world.exit(&second, 42);
    assert_eq!(world.end_of(&second).0, "completed");
    let third = started(&world)[2].0.clone();
    assert_eq!(world.refused(Command::RequestRerun { instance: third.clone() }), Code::NoCapacity);
    world.exit(&third, 42);
    let all = started(&world);
    assert_eq!(all.len(), 3, "the limit counts for the exit status too");
    assert!(all.iter().all(|(_, input)| input["prompt"] == "go"));
    let sources = [&first, &second, &third].map(|run| {
        world.agent.body(&format!("instance/{run}")).unwrap()["source"].as_str().unwrap().to_owned()
    });
    assert_eq!(sources, ["test", "rerun 1/2", "rerun 2/2"]);
}

#[test]
fn a_run_that_fails_or_is_killed_is_not_run_again() {
    let mut world = limited(10);
    let failed = world.manual();
    world.must(Command::RequestRerun { instance: failed.clone() });
    world.exit(&failed, 1);
    let killed = world.manual();
    world.must(Command::RequestRerun { instance: killed.clone() });
    world.must(Command::Kill { instance: killed, reason: "enough".to_owned() });
    assert_eq!(started(&world).len(), 2);
}

#[test]
fn calls_and_webhooks_are_never_run_again() {
    let mut world = limited(10);
    world.call(1).unwrap();
    let called = started(&world)[0].0.clone();
    assert_eq!(world.refused(Command::RequestRerun { instance: called.clone() }), Code::WrongState);
    world.exit(&called, 42);
    assert_eq!(world.call_status(1).0, CallStatus::Completed);
    world.must(enqueue(Class::Webhook));
    let woken = started(&world)[1].0.clone();
    assert_eq!(world.refused(Command::RequestRerun { instance: woken.clone() }), Code::WrongState);
    world.exit(&woken, 42);
    assert_eq!(started(&world).len(), 2);
    let hand = InstanceId("token-1".to_owned());
    world.must(Command::Attach { instance: hand.clone(), agent_id: id(50) });
    assert_eq!(world.refused(Command::RequestRerun { instance: hand }), Code::WrongState);
}

#[test]
fn a_disabled_agent_is_not_run_again_and_a_paused_one_later() {
    let mut world = limited(10);
    let first = world.manual();
    world.must(Command::SetPaused { paused: true });
    world.exit(&first, 42);
    assert_eq!(started(&world).len(), 1);
    world.must(Command::SetPaused { paused: false });
    let second = started(&world)[1].0.clone();
    world.must(Command::SetEnabled { enabled: false });
    world.exit(&second, 42);
    world.must(Command::SetEnabled { enabled: true });
    assert_eq!(started(&world).len(), 2);
}

#[test]
fn the_history_of_a_run_says_how_long_it_took_and_waited() {
    let mut world = World::new(1);
    let run = world.manual();
    world.advance(5);
    world.wait(&run, 1, webhook_filter());
    world.advance(60);
    world.must(Command::Trigger { wait: id(1), receipt: id(9), payload: envelope() });
    assert!(world.outcome(&run, 1).is_some());
    world.advance(5);
    world.wait(&run, 2, webhook_filter());
    world.advance(30);
    world.must(Command::Kill { instance: run.clone(), reason: "enough".to_owned() });
    let body = world.agent.body(&format!("instance/{run}")).unwrap();
    assert_eq!((body["durationMs"].as_u64(), body["waitedMs"].as_u64()), (Some(100_000), Some(90_000)));
    assert_eq!((body["class"].as_str(), body["source"].as_str()), (Some("manual"), Some("test")));
}
