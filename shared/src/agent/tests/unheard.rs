//! Events that have woken an instance which ends before it hears of them.

use super::*;
use crate::agent::Outcome;

/// The waits of which an event was given back, with its receipt.
pub(super) fn given_back(world: &World) -> Vec<(Uuid, Uuid)> {
    let to_triggers = world.sent.iter().filter(|(key, _)| key.kind == Kind::Triggers);
    let unclaimed = to_triggers.map(|(_, sent)| &sent["unclaimed"]).filter(|sent| !sent.is_null());
    let read = |sent: &Value, field: &str| -> Uuid { serde_json::from_value(sent[field].clone()).unwrap() };
    unclaimed.map(|sent| (read(sent, "wait"), read(sent, "receipt"))).collect()
}

/// A run that an event has woken while another one has the only slot.
fn woken() -> (World, InstanceId) {
    let mut world = World::without_runner(Definition { scale: 2, ..Definition::default() });
    world.register(1);
    let sleeper = world.manual();
    world.wait(&sleeper, 1, webhook_filter());
    world.manual();
    trigger(&mut world, 1);
    assert_eq!(world.state(&sleeper), State::Resuming);
    (world, sleeper)
}

fn kill(world: &mut World, run: &InstanceId) {
    world.must(Command::Kill { instance: run.clone(), reason: "enough".to_owned() });
    assert_eq!(world.state(run), State::Ended);
}

#[test]
fn what_woke_a_run_that_ends_before_it_hears_of_it_is_given_back_once() {
    type End = fn(&mut World, &InstanceId);
    let ends: [End; 4] = [
        |world, run| {
            _ = world.must(Command::RunnerLost { runner: "r1".into(), instances: vec![run.clone()] })
        },
        kill,
        |world, _| _ = world.must(Command::SetEnabled { enabled: false }),
        |world, _| _ = world.must(Command::Undefine),
    ];
    for (end, paused) in ends.into_iter().flat_map(|end| [(end, false), (end, true)]) {
        let (mut world, run) = woken();
        if paused {
            world.must(Command::SetPaused { paused });
        }
        world.agent.restart();
        end(&mut world, &run);
        assert_eq!(world.state(&run), State::Ended);
        assert_eq!(given_back(&world), [(id(1), id(901))]);
    }
}

#[test]
fn what_a_run_has_heard_of_is_not_given_back_unless_the_answer_was_lost() {
    for lost in [false, true] {
        let mut world = World::new(1);
        let run = world.manual();
        world.wait(&run, 1, webhook_filter());
        trigger(&mut world, 1);
        assert!(world.outcome(&run, 1).is_some());
        if lost {
            world.must(Command::AnswerLost { instance: run.clone(), asked: id(1), event: Some(envelope()) });
        }
        world.exit(&run, 0);
        assert_eq!(given_back(&world).len(), usize::from(lost));
    }
}

#[test]
fn a_run_gives_back_nothing_that_it_has_not_from_triggers() {
    let mut world = World::new(1);
    let called = world.manual();
    world.wait(&called, 1, agent_filter(None));
    world.call(1).unwrap();
    assert_eq!(world.state(&called), State::Running);
    kill(&mut world, &called);

    let recalls = world.manual();
    let mut begin = begin_wait(&recalls, 2, webhook_filter());
    if let Command::BeginWait { look_back, .. } = &mut begin {
        *look_back = true;
    }
    world.must(begin);
    world.must(Command::LookedBack { wait: id(2), found: Some((id(5), envelope())) });
    assert_eq!(world.state(&recalls), State::Running);
    kill(&mut world, &recalls);
    assert!(given_back(&world).is_empty());
}

/// A run that was spilled and whose runner was told to start it again, with what woke it.
fn begins_again() -> (World, InstanceId) {
    let mut world = World::without_runner(Definition { spill_after_ms: 60_000, ..Definition::default() });
    world.register(1);
    let run = world.manual();
    world.wait(&run, 1, webhook_filter());
    world.advance(60);
    world.prompt_runner = false;
    trigger(&mut world, 1);
    assert_eq!((world.state(&run), said(&world).last()), (State::Running, Some(&"restore")));
    (world, run)
}

fn reports(world: &mut World, run: &InstanceId, what: Report) {
    let token = world.token(run);
    world.report(run, token, what).unwrap();
}

fn is_to_end(world: &mut World, run: &InstanceId) {
    world.must(Command::Kill { instance: run.clone(), reason: "enough".to_owned() });
    assert_eq!(world.state(run), State::Stopping);
    assert!(given_back(world).is_empty(), "its runner may just have started it");
}

fn is_lost(world: &mut World, run: &InstanceId) {
    world.must(Command::RunnerLost { runner: "r1".to_owned(), instances: vec![run.clone()] });
}

fn not_started() -> Report {
    Report::StartFailed { reason: "the program is gone".to_owned(), usage: None }
}

/// As runners say it of what they end in its sleep, and of what they kill.
fn by_signal() -> Report {
    Report::Exited { code: None, signal: Some(15), reason: None, usage: None }
}

#[test]
fn what_a_run_is_not_started_again_with_is_given_back_once() {
    type End = fn(&mut World, &InstanceId);
    let ends: [End; 6] = [
        |world, run| reports(world, run, not_started()),
        |world, run| reports(world, run, by_signal()),
        |world, run| {
            is_to_end(world, run);
            reports(world, run, not_started());
        },
        |world, run| {
            is_to_end(world, run);
            reports(world, run, by_signal());
        },
        |world, run| {
            is_to_end(world, run);
            is_lost(world, run);
        },
        is_lost,
    ];
    for end in ends {
        let (mut world, run) = begins_again();
        world.agent.restart();
        end(&mut world, &run);
        assert_eq!(world.state(&run), State::Ended);
        assert_eq!(given_back(&world), [(id(1), id(901))]);
    }
}

#[test]
fn what_a_run_was_started_again_with_is_not_given_back() {
    type Way = fn(&mut World, &InstanceId);
    let ways: [Way; 4] = [
        |world, run| reports(world, run, Report::Restored { pid: Some(8) }),
        // The report meets the order to end it.
        |world, run| {
            let token = world.token(run);
            is_to_end(world, run);
            world.report(run, token, Report::Restored { pid: Some(8) }).unwrap();
        },
        // It asks for the next before its runner is heard.
        |world, run| _ = world.wait(run, 2, webhook_filter()),
        // Only what runs has a status.
        |world, run| reports(world, run, exited(1)),
    ];
    for way in ways {
        let (mut world, run) = begins_again();
        way(&mut world, &run);
        world.agent.restart();
        if world.state(&run) != State::Ended {
            reports(&mut world, &run, by_signal());
        }
        assert_eq!(world.state(&run), State::Ended);
        assert!(given_back(&world).is_empty());
    }
}

#[test]
fn that_it_was_started_after_an_earlier_sleep_does_not_say_that_it_has_heard_what_came_since() {
    let (mut world, run) = begins_again();
    let token = world.token(&run);
    reports(&mut world, &run, Report::Restored { pid: Some(8) });
    world.prompt_runner = true;
    world.wait(&run, 2, webhook_filter());
    world.advance(60);
    world.prompt_runner = false;
    trigger(&mut world, 2);
    is_to_end(&mut world, &run);
    let late = world.report(&run, token, Report::Restored { pid: Some(8) });
    assert_eq!(late.unwrap_err().code, Code::StaleToken);
    reports(&mut world, &run, by_signal());
    assert_eq!(given_back(&world), [(id(2), id(902))]);
}

#[test]
fn a_hand_made_instance_that_is_forgotten_gives_back_what_it_has_not_heard_of() {
    let mut world = World::undefined();
    let hand = InstanceId("token-1".to_owned());
    world.must(Command::Attach { instance: hand.clone(), agent_id: id(50) });
    world.wait(&hand, 1, webhook_filter());
    trigger(&mut world, 1);
    world.advance(crate::limits::HAND_MADE.as_secs() - 1);
    assert!(given_back(&world).is_empty(), "it may ask still");
    world.advance(1);
    assert_eq!(world.state(&hand), State::Ended);
    assert_eq!(given_back(&world), [(id(1), id(901))]);
}

#[test]
fn an_outcome_of_an_earlier_release_is_read_and_written_as_it_was() {
    let stored = json!({ "triggered": { "payload": envelope() } });
    let outcome: Outcome = serde_json::from_value(stored.clone()).unwrap();
    assert_eq!(outcome, Outcome::Triggered { payload: envelope(), receipt: None });
    assert_eq!(serde_json::to_value(outcome).unwrap(), stored);
}

/// Three such events are more than one decision takes on.
#[test]
fn however_much_is_given_back_at_once_no_decision_takes_on_too_much() {
    let long = json!({ "type": "webhook", "event": "push", "payload": "x".repeat(9 * 1024 * 1024) });
    let event: crate::triggers::Envelope = serde_json::from_value(long).unwrap();
    for rest in ["runner_lost", "kill"] {
        let mut world = World::without_runner(Definition { scale: 4, ..Definition::default() });
        world.register(1);
        let sleepers = [1, 2, 3].map(|number| {
            let sleeper = world.manual();
            world.wait(&sleeper, number, webhook_filter());
            sleeper
        });
        world.manual();
        for number in [1, 2, 3] {
            let (wait, receipt) = (id(number), id(900 + number));
            world.must(Command::Trigger { wait, receipt, payload: event.clone() });
        }
        world.must(match rest {
            "kill" => Command::SetEnabled { enabled: false },
            _ => Command::RunnerLost { runner: "r1".to_owned(), instances: sleepers.to_vec() },
        });
        let own = world.agent.effects.iter().filter_map(|effect| match effect {
            Effect::Entity { key, command } if *key == world.agent.key => {
                Some(command_name(&command.value()))
            }
            _ => None,
        });
        assert_eq!(own.collect::<Vec<_>>(), [rest]);
        assert!(sleepers.iter().all(|sleeper| world.state(sleeper) == State::Ended));
        assert_eq!(given_back(&world).len(), 3);
    }
}
