use super::*;
use crate::agent::Usage;

/// A run of an agent that spills after a minute, frozen in a wait.
fn sleeper() -> (World, InstanceId) {
    let mut world = World::new(1);
    world.must(define(60_000));
    let run = world.manual();
    world.wait(&run, 1, webhook_filter());
    assert_eq!(world.state(&run), State::Frozen);
    (world, run)
}

fn define(spill_after_ms: u64) -> Command {
    let definition = Definition { spill_after_ms, ..Definition::default() };
    Command::Define { definition, group: name("default") }
}

fn shown(world: &World, run: &InstanceId) -> String {
    world.agent.body(&format!("instance/{run}")).unwrap()["state"].as_str().unwrap().to_owned()
}

fn input(world: &World) -> Value {
    match world.told.last() {
        Some(RunnerCommand::Restore { input, .. }) => input.clone(),
        other => panic!("it was told {other:?}"),
    }
}

#[test]
fn a_long_sleep_is_spilled_once_and_the_wait_goes_on() {
    let (mut world, run) = sleeper();
    world.advance(59);
    assert_eq!(said(&world), ["start", "freeze"]);
    world.advance(1);
    assert_eq!((said(&world).last(), shown(&world, &run)), (Some(&"spill"), "spilled".to_owned()));
    world.advance(600);
    assert_eq!(said(&world), ["start", "freeze", "spill"]);
    assert!(world.agent.entity.waits.values().next().unwrap().is_open());
    assert_eq!(world.busy(), 0);
}

#[test]
fn what_woke_it_goes_with_the_order_to_start_it_again_and_comes_no_second_time() {
    let (mut world, run) = sleeper();
    world.advance(60);
    trigger(&mut world, 1);
    assert_eq!(said(&world), ["start", "freeze", "spill", "restore"]);
    assert_eq!((world.state(&run), shown(&world, &run)), (State::Running, "running".to_owned()));
    assert_eq!(input(&world)["type"], "resumed");
    assert_eq!(input(&world)["outcome"], "triggered");
    assert_eq!(input(&world)["payload"]["event"], "push");
    // The agent waits for the same again, and gets the next event.
    let Reply::Wait(view) = world.wait(&run, 2, webhook_filter()) else { panic!() };
    assert_eq!((view.wait, view.outcome), (id(2), None));
    assert_eq!(world.state(&run), State::Frozen);
    trigger(&mut world, 2);
    assert_eq!(said(&world).last(), Some(&"thaw"), "a short sleep is a freeze and no more");
}

#[test]
fn an_event_while_it_is_being_spilled_waits_for_that() {
    let (mut world, run) = sleeper();
    world.prompt_runner = false;
    world.advance(60);
    trigger(&mut world, 1);
    assert_eq!((said(&world).last(), world.state(&run)), (Some(&"spill"), State::Frozen));
    world.prompt_runner = true;
    let token = world.token(&run);
    world.report(&run, token, Report::Spilled).unwrap();
    world.report(&run, token, Report::Spilled).unwrap_err();
    assert_eq!(said(&world).iter().filter(|verb| **verb == "restore").count(), 1);
    assert_eq!(world.state(&run), State::Running);
}

#[test]
fn one_that_its_runner_cannot_start_again_sleeps_on_and_is_thawed() {
    let (mut world, run) = sleeper();
    world.prompt_runner = false;
    world.advance(60);
    let token = world.token(&run);
    world.prompt_runner = true;
    world.report(&run, token, Report::Frozen).unwrap();
    world.advance(600);
    assert_eq!(shown(&world, &run), "frozen");
    trigger(&mut world, 1);
    assert_eq!(said(&world), ["start", "freeze", "spill", "thaw"]);
    assert!(world.outcome(&run, 1).is_some(), "its call is answered");
}

#[test]
fn a_spilled_wait_times_out_and_the_sleep_counts_against_no_limit() {
    let (mut world, run) = sleeper();
    world.advance(60);
    world.advance(1740);
    assert_eq!(world.state(&run), State::Running);
    assert_eq!(input(&world), json!({ "type": "resumed", "outcome": "wait_timeout" }));
    world.advance(3599);
    assert_eq!(world.state(&run), State::Running);
    world.advance(1);
    assert_eq!(world.end_of(&run), ("error".to_owned(), "timeout".to_owned()));
}

#[test]
fn a_spilled_run_outlives_restarts_and_pauses() {
    let (mut world, run) = sleeper();
    world.advance(60);
    world.agent.restart();
    world.must(Command::SetPaused { paused: true });
    trigger(&mut world, 1);
    assert_eq!(world.state(&run), State::Frozen);
    world.agent.restart();
    world.prompt_runner = false;
    world.must(Command::SetPaused { paused: false });
    assert_eq!(said(&world).last(), Some(&"restore"));
    // The order was lost with the runner's stream, and the runner has not seen it.
    let order = world.told.last().cloned();
    world.agent.restart();
    world.must(Command::RunnerHolds { runner: "r1".to_owned(), held: vec![(run, None)] });
    assert!(matches!(order, Some(RunnerCommand::Restore { .. })));
    assert_eq!(world.told.last().cloned(), order);
}

#[test]
fn an_order_that_was_lost_is_given_again_with_what_it_brings() {
    let (mut world, run) = sleeper();
    world.prompt_runner = false;
    world.advance(60);
    let seen = |token: Token| Some(Token { number: token.number - 1, ..token });
    let holds = |run: &InstanceId, token| Command::RunnerHolds {
        runner: "r1".to_owned(),
        held: vec![(run.clone(), seen(token))],
    };
    let token = world.token(&run);
    world.must(holds(&run, token));
    assert_eq!(said(&world), ["start", "freeze", "spill", "spill"]);
    world.report(&run, token, Report::Spilled).unwrap();
    trigger(&mut world, 1);
    let (told, token) = (input(&world), world.token(&run));
    world.must(holds(&run, token));
    assert_eq!(input(&world), told);
    world.report(&run, token, Report::Restored { pid: Some(8) }).unwrap();
    world.must(holds(&run, token));
    assert_eq!(said(&world).last(), Some(&"thaw"), "it runs, and nothing is told twice");
}

#[test]
fn kill_disable_and_the_loss_of_its_runner_end_a_spilled_run() {
    type End = fn(&mut World, &InstanceId);
    let ends: [(End, &str); 3] = [
        (|world, run| _ = world.must(Command::Kill { instance: run.clone(), reason: "no".into() }), "killed"),
        (|world, _| _ = world.must(Command::SetEnabled { enabled: false }), "killed"),
        (
            |world, run| {
                _ = world.must(Command::RunnerLost { runner: "r1".into(), instances: vec![run.clone()] });
            },
            "error",
        ),
    ];
    for (end, state) in ends {
        let (mut world, run) = sleeper();
        world.advance(60);
        end(&mut world, &run);
        assert_eq!(world.end_of(&run).0, state);
        assert_eq!(world.sent_to(Kind::Triggers), ["register", "cancel"]);
        assert_eq!(world.sent_to(Kind::Lockspace).last().unwrap(), "release_all");
    }
}

#[test]
fn a_run_that_cannot_be_started_again_ends_with_the_reason() {
    let (mut world, run) = sleeper();
    world.advance(60);
    world.prompt_runner = false;
    trigger(&mut world, 1);
    let token = world.token(&run);
    world.prompt_runner = true;
    let usage = Some(Usage { input_tokens: 3, output_tokens: 2, turns: 1, cost_micros: None });
    world
        .report(&run, token, Report::StartFailed { reason: "the program is gone".to_owned(), usage })
        .unwrap();
    assert_eq!(world.end_of(&run), ("error".to_owned(), "start failed: the program is gone".to_owned()));
    assert_eq!(world.sent_to(Kind::Costs).len(), 1, "what it cost until it slept");
}

#[test]
fn a_spilled_run_serves_the_call_that_it_was_started_for() {
    let mut world = World::new(1);
    world.must(define(60_000));
    world.call(1).unwrap();
    let run = world.agent.entity.instances.keys().next().unwrap().clone();
    world.wait(&run, 1, webhook_filter());
    world.advance(60);
    trigger(&mut world, 1);
    world.must(Command::ReturnValue { instance: run.clone(), value: "seven".into() });
    world.exit(&run, 0);
    assert_eq!(world.call_status(1), (CallStatus::Completed, Some("seven".to_owned())));
}

#[test]
fn an_agent_that_does_not_spill_is_never_told_to() {
    let (mut world, _) = sleeper();
    world.must(define(0));
    world.advance(1700);
    assert_eq!(said(&world), ["start", "freeze"]);
}
