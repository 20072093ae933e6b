use super::*;
use crate::agent::{Event, Usage};
use crate::id::agent_id;

#[test]
fn an_instance_that_calls_in_is_running_whatever_was_reported() {
    let mut world = World::new(1);
    world.prompt_runner = false;
    world.call(1).unwrap();
    let run = world.agent.entity.instances.keys().next().unwrap().clone();
    assert_eq!((world.state(&run), world.call_status(1).0), (State::Starting, CallStatus::Pending));
    world.wait(&run, 1, webhook_filter());
    assert_eq!(world.call_status(1).0, CallStatus::Running);
    assert_eq!(world.state(&run), State::Freezing);
}

/// A report that is refused is sent again, and comes behind later ones.
#[test]
fn a_run_that_is_heard_of_at_its_end_has_begun() {
    let mut world = World::new(1);
    world.prompt_runner = false;
    world.call(1).unwrap();
    let run = world.agent.entity.instances.keys().next().unwrap().clone();
    let token = world.token(&run);
    world.report(&run, token, exited(0)).unwrap();
    let began = world.agent.events.iter().filter_map(|event| match event {
        Event::Started { instance, .. } => Some(("started", instance.clone())),
        Event::CallRuns { instance, .. } => Some(("serves", instance.clone())),
        Event::Ended { instance, .. } => Some(("ended", instance.clone())),
        _ => None,
    });
    let told = ["started", "serves", "ended"].map(|what| (what, run.clone()));
    assert_eq!(began.collect::<Vec<_>>(), told);
    world.report(&run, token, Report::Started { pid: Some(7) }).unwrap();
    assert!(matches!(world.told.last(), Some(RunnerCommand::Stop { .. })), "it has ended here");
}

#[test]
fn reports_of_earlier_attempts_are_refused_and_repeats_change_nothing() {
    let mut world = World::new(1);
    world.prompt_runner = false;
    let run = world.manual();
    let first = world.token(&run);
    world.must(Command::RunnerLost { runner: "r1".to_owned(), instances: vec![run.clone()] });
    let second = world.token(&run);
    assert!(second > first);
    assert_eq!(world.report(&run, first, Report::Started { pid: None }).unwrap_err().code, Code::StaleToken);
    assert_eq!(world.report(&run, first, exited(0)).unwrap_err().code, Code::StaleToken);
    world.report(&run, second, Report::Started { pid: None }).unwrap();
    let events = world.agent.events.len();
    world.report(&run, second, Report::Started { pid: None }).unwrap();
    assert_eq!(world.agent.events.len(), events);
}

#[test]
fn a_new_run_begins_where_the_last_one_has_left_its_files() {
    let mut world = World::new(1);
    let on = |world: &World, run: &InstanceId| world.instance(run).runner.clone().unwrap();
    let first = world.manual();
    assert_eq!(on(&world, &first), "r1");
    world.register_as("r0", 9);
    let token = world.token(&first);
    world.report(&first, token, exited(0)).unwrap();
    let second = world.manual();
    assert_eq!(on(&world, &second), "r1", "the other one is emptier, and has none of its files");

    world.fleet.run(fleet::Command::Drain { runner: "r1".to_owned() }).unwrap();
    let token = world.token(&second);
    world.report(&second, token, exited(0)).unwrap();
    let third = world.manual();
    assert_eq!(on(&world, &third), "r0", "where they were is no place any more");
    assert_eq!(world.agent.entity.files.as_deref(), Some("r0"));
}

#[test]
fn an_exit_counts_whatever_was_commanded_since() {
    let mut world = World::new(1);
    let run = world.manual();
    let started = world.token(&run);
    world.prompt_runner = false;
    world.wait(&run, 1, webhook_filter());
    world.report(&run, started, exited(0)).unwrap();
    assert_eq!(world.end_of(&run).0, "completed");
    assert_eq!(world.sent_to(Kind::Triggers), ["register", "cancel"]);
}

#[test]
fn a_run_that_is_not_ours_is_stopped_and_an_ended_one_forgotten() {
    let mut world = World::new(1);
    world.prompt_runner = false;
    let stray = InstanceId("worker-deadbeef".to_owned());
    let token = Token { epoch: world.agent.epoch, number: 5 };
    world.report(&stray, token, Report::Started { pid: None }).unwrap();
    world.report(&stray, token, exited(0)).unwrap();
    assert!(matches!(&world.told[0], RunnerCommand::Stop { token: stop, .. } if *stop == token));
    assert!(matches!(&world.told[1], RunnerCommand::Forget { .. }));
}

#[test]
fn a_lost_start_is_made_again_a_lost_run_is_an_error() {
    let mut world = World::new(1);
    let run = world.manual();
    world.must(Command::RunnerLost { runner: "r1".to_owned(), instances: vec![run.clone()] });
    assert_eq!(world.end_of(&run), ("error".to_owned(), "runner lost: r1".to_owned()));

    world.prompt_runner = false;
    let run = world.manual();
    for attempt in 1..=3 {
        assert_eq!((world.state(&run), world.instance(&run).attempts), (State::Starting, attempt));
        world.must(Command::RunnerLost { runner: "r1".to_owned(), instances: vec![run.clone()] });
    }
    assert_eq!(world.end_of(&run).0, "error", "three runners were enough");
}

fn holds(runner: &str, run: &InstanceId, seen: Option<Token>) -> Command {
    Command::RunnerHolds { runner: runner.to_owned(), held: vec![(run.clone(), seen)] }
}

#[test]
fn a_start_that_its_runner_does_not_have_yet_is_sent_again_and_made_nowhere_else() {
    let mut world = World::new(1);
    world.prompt_runner = false;
    let run = world.manual();
    let (token, sent) = (world.token(&run), world.told.len());
    world.must(holds("r1", &run, None));
    assert_eq!((world.state(&run), world.token(&run)), (State::Starting, token));
    let again = &world.told[sent..];
    assert!(
        matches!(again, [RunnerCommand::Start { instance, token: again, .. }] if *instance == run.0 && *again == token),
        "{again:?}"
    );
    // It has run to its end by now, and nobody runs it again.
    world.report(&run, token, Report::Started { pid: None }).unwrap();
    world.report(&run, token, exited(0)).unwrap();
    world.must(holds("r1", &run, None));
    assert_eq!(world.end_of(&run).0, "completed");
}

/// What a runner says that it holds is old by the time it is compared: a run may have come to it over another stream
/// since, and have begun.
#[test]
fn a_run_that_its_runner_did_not_hold_yet_is_asked_after_and_not_given_up() {
    let mut world = World::new(1);
    world.prompt_runner = false;
    let run = world.manual();
    let first = world.token(&run);
    world.report(&run, first, Report::Started { pid: None }).unwrap();
    assert_asks(&mut world, &run, "thaw");
    world.wait(&run, 1, webhook_filter());
    assert_asks(&mut world, &run, "freeze");
    let token = world.token(&run);
    world.report(&run, token, Report::Frozen).unwrap();
    assert_asks(&mut world, &run, "freeze");
    world.must(Command::Trigger { wait: id(1), receipt: id(2), payload: envelope() });
    assert_asks(&mut world, &run, "thaw");
    world.must(Command::Kill { instance: run.clone(), reason: "enough".to_owned() });
    assert_asks(&mut world, &run, "stop");
    let token = world.token(&run);
    world.report(&run, token, gone()).unwrap();
    assert_eq!(world.end_of(&run), ("killed".to_owned(), "enough".to_owned()));

    let run = world.manual();
    let first = world.token(&run);
    world.report(&run, first, Report::Started { pid: None }).unwrap();
    assert_asks(&mut world, &run, "thaw");
    world.report(&run, first, gone()).unwrap();
    assert_eq!(world.end_of(&run), ("error".to_owned(), "its runner knows nothing of it".to_owned()));
}

/// The wait and the freeze are gone with the failover, and the runner has obeyed: nobody else would let the run go on.
#[test]
fn what_a_runner_obeyed_and_a_failover_dropped_is_overruled() {
    let mut world = World::new(1);
    world.prompt_runner = false;
    let run = world.manual();
    let later = |token: Token| Token { number: token.number + 3, ..token };
    // More than its start was told to it, so it has begun.
    let seen = later(world.token(&run));
    assert_overruled(&mut world, holds("r1", &run, Some(seen)), &run, (seen, "thaw"));
    assert_eq!(world.state(&run), State::Running);
    // A former owner's command may be on its way still when the runner says what it holds.
    let report = |world: &World, token, what| {
        let (instance, runner) = (world.instance(&run).id.clone(), "r1".to_owned());
        Command::Report { instance, token, runner, what }
    };
    let seen = later(world.token(&run));
    let late = report(&world, seen, Report::Frozen);
    assert_overruled(&mut world, late, &run, (seen, "thaw"));
    world.wait(&run, 1, webhook_filter());
    let token = world.token(&run);
    world.report(&run, token, Report::Frozen).unwrap();
    let seen = later(token);
    let late = report(&world, seen, Report::Thawed);
    assert_overruled(&mut world, late, &run, (seen, "freeze"));
    assert_eq!(world.state(&run), State::Frozen);
    let (known, told) = (world.token(&run), world.told.len());
    world.must(holds("r1", &run, Some(known)));
    assert_eq!(world.told.len(), told, "it is as it is to be");
}

/// What the runner has answered is gone with the failover.
#[test]
fn a_runner_is_asked_again_for_an_answer_that_a_run_waits_for() {
    let mut world = World::new(1);
    world.prompt_runner = false;
    let run = world.manual();
    let token = world.token(&run);
    world.report(&run, token, Report::Started { pid: None }).unwrap();
    world.wait(&run, 1, webhook_filter());
    let (token, told) = (world.token(&run), world.told.len());
    world.must(holds("r1", &run, Some(token)));
    assert_eq!((world.told.len(), *said(&world).last().unwrap()), (told + 1, "freeze"));
    world.report(&run, token, Report::Frozen).unwrap();
    world.must(holds("r1", &run, Some(token)));
    assert_eq!(world.told.len(), told + 1);
}

fn assert_overruled(world: &mut World, told: Command, run: &InstanceId, (seen, by): (Token, &str)) {
    let count = world.told.len();
    world.must(told);
    assert_eq!((world.told.len(), *said(world).last().unwrap()), (count + 1, by));
    assert!(world.token(run) > seen);
}

/// What a runner answers that knows nothing of a run.
fn gone() -> Report {
    let reason = Some("its runner knows nothing of it".to_owned());
    Report::Exited { code: None, signal: None, reason, usage: None }
}

/// A runner that does not hold a run is told something that it follows only if it does, and answers if it does not.
fn assert_asks(world: &mut World, run: &InstanceId, by: &str) {
    let (count, now) = (world.told.len(), world.instance(run).clone());
    world.must(holds("r1", run, None));
    assert_eq!((world.told.len(), *said(world).last().unwrap()), (count + 1, by));
    assert_eq!(*world.instance(run), now, "nothing else is done about it");
}

#[test]
fn what_a_runner_was_told_last_and_has_not_heard_is_sent_again() {
    let mut world = World::new(1);
    world.prompt_runner = false;
    let run = world.manual();
    let earlier = world.token(&run);
    world.must(Command::RunnerLost { runner: "r1".to_owned(), instances: vec![run.clone()] });
    assert_repeats(&mut world, &run, earlier);

    let started = world.token(&run);
    world.report(&run, started, Report::Started { pid: None }).unwrap();
    world.wait(&run, 1, webhook_filter());
    assert_eq!(world.state(&run), State::Freezing);
    assert_repeats(&mut world, &run, started);

    let frozen = world.token(&run);
    world.must(Command::Trigger { wait: id(1), receipt: id(2), payload: envelope() });
    assert_eq!(world.state(&run), State::Running);
    assert_repeats(&mut world, &run, frozen);

    let thawed = world.token(&run);
    world.must(Command::Kill { instance: run.clone(), reason: "enough".to_owned() });
    assert_repeats(&mut world, &run, thawed);
}

/// The command that a run's runner was given last comes again if it has seen less, or if the run waits for its answer,
/// and only then.
fn assert_repeats(world: &mut World, run: &InstanceId, less: Token) {
    let (last, count) = (world.told.last().cloned(), world.told.len());
    let now = world.instance(run).clone();
    world.must(holds("r1", run, Some(now.token.unwrap())));
    let awaited = usize::from(now.state == State::Freezing);
    assert_eq!(world.told.len(), count + awaited, "it has all of it");
    let count = world.told.len();
    world.must(holds("r2", run, Some(less)));
    assert_eq!(world.told.len(), count, "another one says so");
    world.must(holds("r1", run, Some(less)));
    assert_eq!(world.told.len(), count + 1);
    assert_eq!(world.told.last().cloned(), last);
    assert_eq!(*world.instance(run), now, "nothing else is done about it");
}

#[test]
fn a_failed_start_ends_the_run_with_the_reason() {
    let mut world = World::new(1);
    world.prompt_runner = false;
    world.call(1).unwrap();
    let run = world.agent.entity.instances.keys().next().unwrap().clone();
    let token = world.token(&run);
    world
        .report(&run, token, Report::StartFailed { reason: "no such image".to_owned(), usage: None })
        .unwrap();
    assert_eq!(world.call_status(1), (CallStatus::Error, Some("start failed: no such image".to_owned())));
    assert_eq!(world.busy(), 0);
}

#[test]
fn locks_and_slot_stay_until_the_process_is_dead() {
    let mut world = World::new(1);
    let run = world.manual();
    world.prompt_runner = false;
    world.must(Command::Kill { instance: run.clone(), reason: "enough".to_owned() });
    assert_eq!((world.state(&run), world.busy()), (State::Stopping, 1));
    assert!(world.sent_to(Kind::Lockspace).is_empty());
    world.must(Command::Kill { instance: run.clone(), reason: "again".to_owned() });
    assert_eq!(world.told.len(), 2, "asked once");
    world.exit(&run, 0);
    assert_eq!(world.end_of(&run), ("killed".to_owned(), "enough".to_owned()));
    assert_eq!(world.sent_to(Kind::Lockspace), ["release_all"]);
    assert_eq!(world.busy(), 0);
}

#[test]
fn killing_a_queued_run_withdraws_its_bid() {
    let mut world = World::without_runner(Definition::default());
    let run = world.manual();
    assert_eq!(world.fleet.entity.bids.len(), 1);
    world.must(Command::Kill { instance: run.clone(), reason: "changed my mind".to_owned() });
    assert!(world.fleet.entity.bids.is_empty());
    assert_eq!(world.end_of(&run).0, "killed");
    assert!(world.sent_to(Kind::Lockspace).is_empty(), "it never ran");
}

#[test]
fn a_grant_for_a_bid_withdrawn_meanwhile_is_nothing() {
    let mut world = World::without_runner(Definition::default());
    let run = world.manual();
    let bid = world.instance(&run).bid.unwrap();
    world.must(Command::Kill { instance: run, reason: "late".to_owned() });
    assert_eq!(world.must(Command::Granted { bid, runner: "r1".to_owned() }), Reply::Done);
    assert!(world.told.is_empty());
}

#[test]
fn status_and_completion() {
    let mut world = World::new(1);
    let run = world.manual();
    world.must(Command::SetStatus { instance: run.clone(), text: "ä".repeat(600) });
    let text = world.agent.body(&format!("instance/{run}")).unwrap()["statusText"].clone();
    assert_eq!(text.as_str().unwrap().chars().count(), 500);
    assert_eq!(world.refused(Command::Complete { instance: run.clone() }), Code::WrongState);
    let Reply::Instance(seen) = world.must(Command::Inspect { instance: run.clone() }) else { panic!() };
    assert_eq!(seen.id, run);
    let Reply::Overview(all) = world.must(Command::List) else { panic!() };
    assert_eq!(all.instances.len(), 1);
}

#[test]
fn a_run_without_a_status_is_done_if_it_returned_a_value() {
    let mut world = World::new(2);
    let (silent, spoke) = (world.manual(), world.manual());
    world.must(Command::ReturnValue { instance: spoke.clone(), value: "done".into() });
    for run in [&silent, &spoke] {
        let token = world.token(run);
        world
            .report(run, token, Report::Exited { code: None, signal: None, reason: None, usage: None })
            .unwrap();
    }
    assert_eq!((world.end_of(&silent).0.as_str(), world.end_of(&spoke).0.as_str()), ("error", "completed"));
    assert!(world.end_of(&silent).1.contains("runner"), "{:?}", world.end_of(&silent));
}

#[test]
fn what_a_run_cost_is_told_once() {
    let mut world = World::new(2);
    let (costly, silent) = (world.manual(), world.manual());
    world.advance(9);
    let token = world.token(&costly);
    let usage = Usage { input_tokens: 42, output_tokens: 20, turns: 4, cost_micros: Some(560) };
    let exited = Report::Exited { code: Some(1), signal: None, reason: None, usage: Some(usage) };
    for _ in 0..2 {
        world.report(&costly, token, exited.clone()).unwrap();
    }
    world.exit(&silent, 0);
    let told: Vec<&Value> = world
        .sent
        .iter()
        .filter(|(key, _)| key.kind == Kind::Costs)
        .map(|(_, told)| &told["report"])
        .collect();
    let [told] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((&told["source"], &told["session"]), (&json!("run"), &json!(costly)));
    assert_eq!(told["agent"], json!(agent_id(&name("s"), &name("worker"))));
    let cost = json!({
        "totalCostUsd": 0.000_56, "inputTokens": 42, "outputTokens": 20, "durationMs": 9000, "numTurns": 4,
    });
    assert_eq!((&told["cost"], &told["failed"]), (&cost, &json!(true)));
}

#[test]
fn a_run_ends_with_the_status_that_it_chooses() {
    let mut world = World::new(4);
    for (code, end, reason) in [
        (0, "completed", "completed"),
        (3, "error", "the run exited with status 3"),
        (12, "error", "the run ended itself with status 12: rate limited"),
        (124, "error", "timeout"),
    ] {
        let run = world.manual();
        world.must(Command::Finish { instance: run.clone(), code });
        assert_eq!(world.end_of(&run), (end.to_owned(), reason.to_owned()));
        let exit = &world.agent.body(&format!("instance/{run}")).unwrap()["exit"];
        assert_eq!((&exit["code"], exit.get("signal").unwrap_or(&Value::Null)), (&json!(code), &Value::Null));
    }
    let again = world.manual();
    world.must(Command::Finish { instance: again.clone(), code: 42 });
    assert_eq!(world.agent.entity.instances.len(), 1, "it asked to be run again");
    let ended = Command::Finish { instance: again, code: 0 };
    assert_eq!(world.refused(ended), Code::NotFound);
}

#[test]
fn what_a_run_returned_is_the_answer_if_it_chooses_to_have_succeeded() {
    let mut world = World::new(4);
    for (number, code, status) in [(1, 0, CallStatus::Completed), (2, 15, CallStatus::Error)] {
        world.call(number).unwrap();
        let run = world.agent.entity.instances.keys().next().unwrap().clone();
        world.must(Command::ReturnValue { instance: run.clone(), value: "seen".into() });
        world.must(Command::Finish { instance: run, code });
        assert_eq!(world.call_status(number).0, status);
    }
}
