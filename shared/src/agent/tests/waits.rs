use std::num::NonZeroU64;

use super::*;

#[test]
fn nothing_freezes_before_locks_leases_and_triggers_are_ready() {
    let mut world = World::new(1);
    world.prompt_acks = false;
    let run = world.manual();
    world.wait(&run, 1, webhook_filter());
    assert_eq!(world.sent_to(Kind::Lockspace), ["extend"]);
    assert_eq!(world.sent_to(Kind::Pool), ["extend_lease"]);
    assert_eq!(world.sent_to(Kind::Triggers), ["register"]);
    world.must(Command::LocksExtended { wait: id(1) });
    world.must(Command::WaitRegistered { wait: id(1) });
    assert_eq!(world.state(&run), State::Waiting);
    world.must(Command::LeasesExtended { wait: id(1) });
    assert_eq!(world.state(&run), State::Frozen);
    assert_eq!(world.busy(), 0);
}

#[test]
fn an_event_before_the_freeze_resumes_without_one() {
    let mut world = World::new(1);
    world.prompt_acks = false;
    let run = world.manual();
    world.wait(&run, 1, webhook_filter());
    trigger(&mut world, 1);
    assert_eq!(world.state(&run), State::Running);
    assert!(world.outcome(&run, 1).is_some());
    world.must(Command::LocksExtended { wait: id(1) });
    world.must(Command::LeasesExtended { wait: id(1) });
    world.must(Command::WaitRegistered { wait: id(1) });
    assert_eq!(said(&world), ["start"]);
}

#[test]
fn an_event_during_the_freeze_thaws_with_a_higher_token() {
    let mut world = World::new(1);
    let run = world.manual();
    world.prompt_runner = false;
    world.wait(&run, 1, webhook_filter());
    assert_eq!(world.state(&run), State::Freezing);
    let freeze = world.token(&run);
    trigger(&mut world, 1);
    assert_eq!(said(&world), ["start", "freeze", "thaw"]);
    assert!(world.token(&run) > freeze);
    assert_eq!(world.report(&run, freeze, Report::Frozen).unwrap_err().code, Code::StaleToken);
    assert_eq!((world.state(&run), world.busy()), (State::Running, 1));
}

#[test]
fn a_frozen_instance_gets_its_outcome_only_with_a_slot() {
    let mut world = World::without_runner(Definition { scale: 2, ..Definition::default() });
    world.register(1);
    let waiter = world.manual();
    world.wait(&waiter, 1, webhook_filter());
    let other = world.manual();
    assert_eq!(world.state(&other), State::Running, "the slot was released");
    trigger(&mut world, 1);
    assert_eq!(world.state(&waiter), State::Resuming);
    assert_eq!(world.outcome(&waiter, 1), None);
    world.exit(&other, 0);
    assert_eq!(world.state(&waiter), State::Running);
    assert_eq!(world.outcome(&waiter, 1).unwrap()["triggered"]["payload"]["event"], "push");
    assert_eq!(said(&world).last(), Some(&"thaw"));
}

#[test]
fn a_resumed_run_goes_before_queued_ones() {
    let mut world = World::new(1);
    let waiter = world.manual();
    world.wait(&waiter, 1, webhook_filter());
    let running = world.manual();
    let queued = world.manual();
    trigger(&mut world, 1);
    world.exit(&running, 0);
    assert_eq!((world.state(&waiter), world.state(&queued)), (State::Running, State::Queued));
}

#[test]
fn a_second_event_is_given_back() {
    let mut world = World::new(1);
    let run = world.manual();
    world.wait(&run, 1, webhook_filter());
    trigger(&mut world, 1);
    trigger(&mut world, 1);
    trigger(&mut world, 7);
    let unclaimed = world.sent_to(Kind::Triggers).iter().filter(|name| *name == "unclaimed").count();
    assert_eq!(unclaimed, 2);
}

#[test]
fn a_wait_times_out_and_the_run_goes_on() {
    let mut world = World::new(1);
    let run = world.manual();
    world.wait(&run, 1, webhook_filter());
    world.advance(1799);
    assert_eq!(world.state(&run), State::Frozen);
    world.advance(1);
    assert_eq!(world.state(&run), State::Running);
    assert_eq!(world.outcome(&run, 1), Some(json!("wait_timeout")));
    assert_eq!(world.sent_to(Kind::Triggers), ["register", "cancel"]);
}

#[test]
fn a_definition_bounds_how_long_its_runs_may_wait() {
    let max_wait_timeout_ms = NonZeroU64::new(60_000);
    let mut world = World::without_runner(Definition { max_wait_timeout_ms, ..Definition::default() });
    let run = world.manual();
    let wait = |timeout_ms| Command::BeginWait {
        instance: run.clone(),
        wait: Uuid::from_u128(1),
        filter: webhook_filter(),
        timeout_ms,
        broadcast: false,
        look_back: false,
        asked: id(1),
    };
    let refusal = world.agent.run(wait(Some(60_001))).unwrap_err();
    assert_eq!(refusal.code, Code::InvalidArgument);
    assert!(refusal.message.ends_with("at most 1m"), "{refusal}");
}

#[test]
fn an_outcome_is_never_lost_between_calls() {
    let mut world = World::new(1);
    let run = world.manual();
    world.wait(&run, 1, webhook_filter());
    trigger(&mut world, 1);
    let again = world.wait(&run, 2, agent_filter(None));
    let Reply::Wait(view) = again else { panic!() };
    assert_eq!((view.wait, view.redelivered), (id(1), false), "the unseen event comes before a new wait");
    assert!(view.outcome.is_some());
    assert!(world.outcome(&run, 1).is_some(), "and can be read again by its id");
    let latest = Command::CheckWait { instance: run.clone(), wait: None, asked: id(2) };
    assert_eq!(world.refused(latest), Code::NotFound);
    world.wait(&run, 2, agent_filter(None));
    assert_eq!(world.state(&run), State::Frozen, "sequential waits");
}

/// Whether a question about a wait was answered with an event.
fn told(reply: &Reply) -> bool {
    let Reply::Wait(view) = reply else { panic!("no wait: {reply:?}") };
    view.outcome.is_some()
}

/// The answer to the question of this number has reached nobody.
fn lost(run: &InstanceId, asked: u128) -> Command {
    Command::AnswerLost { instance: run.clone(), asked: id(asked), event: Some(envelope()) }
}

#[test]
fn an_answer_that_reached_nobody_is_given_to_who_asks_again() {
    let mut world = World::new(1);
    let run = world.manual();
    world.wait(&run, 1, webhook_filter());
    trigger(&mut world, 1);
    assert!(world.outcome(&run, 1).is_some());
    world.must(lost(&run, 1));
    let Reply::Wait(view) = world.wait(&run, 2, webhook_filter()) else { panic!() };
    assert_eq!((view.wait, view.redelivered), (id(1), false), "it comes before a new wait, as new");
    assert!(view.outcome.is_some());
    // The loss is told of once more, late: what was heard meanwhile was another answer.
    world.must(lost(&run, 1));
    assert!(!told(&world.wait(&run, 3, webhook_filter())), "a new wait begins");
}

#[test]
fn an_answer_whose_loss_is_learnt_late_ends_the_wait_that_came_after_it() {
    let mut world = World::new(1);
    let run = world.manual();
    world.wait(&run, 1, webhook_filter());
    trigger(&mut world, 1);
    assert!(world.outcome(&run, 1).is_some());
    world.prompt_acks = false;
    world.wait(&run, 2, webhook_filter());
    world.wait(&run, 3, agent_filter(None));
    world.must(lost(&run, 2));
    assert_eq!(world.outcome(&run, 3), None, "no event went with that answer");
    world.must(lost(&run, 1));
    assert_eq!(world.state(&run), State::Running);
    assert_eq!(world.outcome(&run, 3).unwrap()["triggered"]["payload"]["event"], "push");
    assert!(!told(&world.wait(&run, 4, webhook_filter())), "and once");
    world.must(lost(&run, 1));
    assert_eq!(world.outcome(&run, 4), None);
}

#[test]
fn an_answer_that_was_given_again_and_heard_is_not_lost() {
    let mut world = World::new(1);
    let run = world.manual();
    world.wait(&run, 1, webhook_filter());
    trigger(&mut world, 1);
    assert!(world.outcome(&run, 1).is_some());
    let repeat = Command::CheckWait { instance: run.clone(), wait: Some(id(1)), asked: id(9) };
    assert!(told(&world.must(repeat)));
    world.must(lost(&run, 1));
    assert!(!told(&world.wait(&run, 2, webhook_filter())));
}

#[test]
fn asking_again_goes_on_with_the_same_wait_and_another_filter_replaces_it() {
    let mut world = World::new(1);
    world.prompt_acks = false;
    let run = world.manual();
    world.wait(&run, 1, webhook_filter());
    world.advance(10);
    let Reply::Wait(view) = world.wait(&run, 2, webhook_filter()) else { panic!() };
    assert_eq!(view.wait, id(1));
    let Reply::Wait(view) = world.wait(&run, 3, agent_filter(None)) else { panic!() };
    assert_eq!(view.wait, id(3));
    assert_eq!(world.sent_to(Kind::Triggers), ["register", "cancel"]);
    assert_eq!(world.agent.entity.waits.len(), 1);
}

#[test]
fn replacing_a_wait_while_freezing_thaws() {
    let mut world = World::new(1);
    let run = world.manual();
    world.prompt_runner = false;
    world.wait(&run, 1, webhook_filter());
    world.wait(&run, 2, agent_filter(None));
    assert_eq!(said(&world), ["start", "freeze", "thaw", "freeze"]);
    let token = world.token(&run);
    world.report(&run, token, Report::Frozen).unwrap();
    assert_eq!(world.refused(begin_wait(&run, 3, webhook_filter())), Code::WrongState);
}

#[test]
fn waiting_counts_against_neither_the_run() {
    let mut world = World::new(1);
    let run = world.manual();
    world.advance(3000);
    world.wait(&run, 1, webhook_filter());
    world.advance(1500);
    trigger(&mut world, 1);
    world.advance(599);
    assert_eq!(world.state(&run), State::Running);
    world.advance(1);
    assert_eq!(world.end_of(&run), ("error".to_owned(), "timeout".to_owned()));
    let exit = &world.agent.body(&format!("instance/{run}")).unwrap()["exit"];
    assert_eq!(exit["code"], 124);
}

#[test]
fn killing_a_waiting_instance_ends_all_that_hangs_on_it() {
    let mut world = World::new(1);
    world.call(1).unwrap();
    let run = world.agent.entity.instances.keys().next().unwrap().clone();
    world.wait(&run, 1, webhook_filter());
    world.must(Command::Kill { instance: run.clone(), reason: "enough".to_owned() });
    assert_eq!(world.end_of(&run), ("killed".to_owned(), "enough".to_owned()));
    assert_eq!(said(&world), ["start", "freeze", "stop", "forget"]);
    assert_eq!(world.sent_to(Kind::Lockspace), ["extend", "release_all"]);
    assert_eq!(world.sent_to(Kind::Pool), ["extend_lease", "end_instance"]);
    assert_eq!(world.sent_to(Kind::Triggers), ["register", "cancel"]);
    assert_eq!(world.call_status(1), (CallStatus::Error, Some("enough".to_owned())));
    assert!(world.agent.entity.waits.is_empty() && world.fleet.entity.places.is_empty());
    trigger(&mut world, 1);
    assert_eq!(world.sent_to(Kind::Triggers).last().unwrap(), "unclaimed");
}

#[test]
fn waits_are_limited_in_number_and_length() {
    let mut world = World::without_runner(Definition { scale: 2, max_waiting: 1, ..Definition::default() });
    world.register(2);
    let (first, second) = (world.manual(), world.manual());
    world.wait(&first, 1, webhook_filter());
    assert_eq!(world.refused(begin_wait(&second, 2, webhook_filter())), Code::NoCapacity);
    for timeout_ms in [0, 31 * 86_400_000] {
        let filter = webhook_filter();
        let (instance, timeout_ms) = (second.clone(), Some(timeout_ms));
        let begin = Command::BeginWait {
            instance,
            wait: id(2),
            filter,
            timeout_ms,
            broadcast: false,
            look_back: false,
            asked: id(1),
        };
        assert_eq!(world.refused(begin), Code::InvalidArgument);
    }
}

#[test]
fn a_hand_made_instance_gets_its_outcome_at_once() {
    let mut world = World::undefined();
    let hand = InstanceId("token-1".to_owned());
    assert_eq!(world.refused(begin_wait(&hand, 1, webhook_filter())), Code::NotFound);
    world.must(Command::Attach { instance: hand.clone(), agent_id: id(50) });
    world.wait(&hand, 1, webhook_filter());
    trigger(&mut world, 1);
    assert!(world.outcome(&hand, 1).is_some());
    assert!(world.told.is_empty());
}

#[test]
fn a_hand_made_instance_is_forgotten_after_long_silence_until_it_comes_back() {
    const DAY: u64 = 86_400;
    let silence = crate::limits::HAND_MADE.as_secs();
    let mut world = World::undefined();
    let hand = InstanceId("token-1".to_owned());
    let attach = Command::Attach { instance: hand.clone(), agent_id: id(50) };
    world.must(attach.clone());
    world.advance(silence - 1);
    let Command::BeginWait { instance, wait, filter, broadcast, look_back, asked, .. } =
        begin_wait(&hand, 1, webhook_filter())
    else {
        panic!("begins to wait")
    };
    let timeout_ms = Some(14 * DAY * 1000);
    world.must(Command::BeginWait { instance, wait, filter, timeout_ms, broadcast, look_back, asked });
    world.advance(14 * DAY - 1);
    assert_eq!(world.state(&hand), State::Waiting, "who waits is there");
    world.advance(1);
    world.advance(silence - 1);
    assert!(world.outcome(&hand, 1).is_some());
    world.advance(1);
    assert!(world.agent.entity.instances.is_empty() && world.agent.entity.waits.is_empty());
    assert_eq!(world.agent.head(&format!("instance/{hand}")), None);
    assert!(!world.sent_to(Kind::Lockspace).contains(&"release_all".to_owned()), "it may live all the same");
    assert_eq!(world.refused(begin_wait(&hand, 2, webhook_filter())), Code::NotFound);
    world.must(attach);
    world.wait(&hand, 2, webhook_filter());
}

#[test]
fn a_call_that_a_hand_made_instance_makes_is_a_sign_of_life() {
    let silence = crate::limits::HAND_MADE.as_secs();
    let news = crate::limits::HAND_MADE_NEWS.as_secs();
    let mut world = World::undefined();
    let hand = InstanceId("token-1".to_owned());
    world.must(Command::Attach { instance: hand.clone(), agent_id: id(50) });
    let note = Command::NoteCallee { instance: hand.clone(), target: name("other") };
    world.must(note.clone());
    let written = world.agent.events.len();
    world.must(note.clone());
    world.advance(news - 1);
    world.must(note.clone());
    assert_eq!(world.agent.events.len(), written, "not each of them is written down");
    world.advance(1);
    world.must(note.clone());
    world.must(note.clone());
    assert_eq!(world.agent.events.len(), written + 1, "one a day is");
    world.advance(silence - 1);
    world.must(note);
    world.advance(silence - 1);
    assert_eq!(world.state(&hand), State::Running);
    world.advance(1);
    assert!(world.agent.entity.instances.is_empty());
}

#[test]
fn a_call_that_a_hand_made_instance_has_served_is_a_sign_of_life() {
    let silence = crate::limits::HAND_MADE.as_secs();
    let mut world = World::undefined();
    let hand = InstanceId("token-1".to_owned());
    world.must(Command::Attach { instance: hand.clone(), agent_id: id(50) });
    world.call(1).unwrap();
    world.wait(&hand, 1, agent_filter(None));
    world.advance(3600);
    world.must(Command::ReturnValue { instance: hand.clone(), value: "yes".into() });
    assert_eq!(world.call_status(1), (CallStatus::Completed, Some("yes".to_owned())));
    world.advance(silence - 1);
    assert_eq!(world.state(&hand), State::Running, "it has served within that time");
    world.advance(1);
    assert!(world.agent.entity.instances.is_empty());
}

#[test]
fn a_wait_survives_a_restart() {
    let mut world = World::new(1);
    let run = world.manual();
    world.wait(&run, 1, webhook_filter());
    let before = world.token(&run);
    world.agent.restart();
    trigger(&mut world, 1);
    assert_eq!(world.state(&run), State::Running);
    assert!(world.token(&run) > before);
}

fn look_back(world: &mut World, run: &InstanceId, wait: u128) -> Option<crate::time::Timestamp> {
    let (instance, filter, wait) = (run.clone(), webhook_filter(), id(wait));
    let (timeout_ms, asked) = (None, wait);
    let (broadcast, look_back) = (false, true);
    let begin = Command::BeginWait { instance, wait, filter, timeout_ms, broadcast, look_back, asked };
    world.must(begin);
    match world.must(Command::CheckWait { instance: run.clone(), wait: Some(wait), asked: wait }) {
        Reply::Wait(view) => view.look_back_to,
        other => panic!("no wait: {other:?}"),
    }
}

#[test]
fn a_look_back_begins_once_triggers_have_the_wait_and_ends_before_the_freeze() {
    let mut world = World::new(1);
    world.prompt_acks = false;
    let run = world.manual();
    let began = world.agent.now;
    world.advance(60);
    assert_eq!(look_back(&mut world, &run, 1), None, "an event could fall between");
    for ack in [
        Command::WaitRegistered { wait: id(1) },
        Command::LocksExtended { wait: id(1) },
        Command::LeasesExtended { wait: id(1) },
    ] {
        world.must(ack);
    }
    assert_eq!(world.state(&run), State::Waiting);
    assert_eq!(look_back(&mut world, &run, 1), Some(began));
    world.must(Command::LookedBack { wait: id(1), found: None });
    assert_eq!(world.state(&run), State::Frozen);
}

#[test]
fn what_a_look_back_finds_ends_the_wait_and_is_remembered() {
    let mut world = World::new(1);
    let run = world.manual();
    look_back(&mut world, &run, 1).unwrap();
    let foreign = crate::triggers::Envelope::agent_trigger("lead", json!("no webhook"));
    let found = |envelope| Command::LookedBack { wait: id(1), found: Some((id(5), envelope)) };
    world.must(found(envelope()));
    assert_eq!(said(&world), ["start"], "it was not frozen for that");
    assert!(world.outcome(&run, 1).is_some());
    assert_eq!(world.sent_to(Kind::Triggers), ["register", "cancel"]);
    assert!(world.instance(&run).recalled.contains(&id(5)));
    world.must(found(envelope()));
    look_back(&mut world, &run, 2).unwrap();
    world.must(Command::LookedBack { wait: id(2), found: Some((id(6), foreign)) });
    assert_eq!(world.state(&run), State::Frozen, "what does not match ends nothing");
}

#[test]
fn an_event_during_the_look_back_comes_first() {
    let mut world = World::new(1);
    let run = world.manual();
    look_back(&mut world, &run, 1).unwrap();
    trigger(&mut world, 1);
    world.must(Command::LookedBack { wait: id(1), found: Some((id(5), envelope())) });
    assert!(world.instance(&run).recalled.is_empty());
    assert!(world.outcome(&run, 1).is_some());
}

#[test]
fn only_runs_look_back_and_only_for_webhooks() {
    let mut world = World::new(1);
    let run = world.manual();
    let hand = InstanceId("token-1".to_owned());
    world.must(Command::Attach { instance: hand.clone(), agent_id: id(50) });
    for (instance, filter) in [(hand, webhook_filter()), (run, agent_filter(None))] {
        let begin = Command::BeginWait {
            instance,
            wait: id(1),
            filter,
            timeout_ms: None,
            broadcast: false,
            look_back: true,
            asked: id(1),
        };
        assert_eq!(world.refused(begin), Code::InvalidArgument);
    }
}
