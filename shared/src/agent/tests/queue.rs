use super::*;
use crate::entity::Entity;
use crate::limits;

fn reason_of(reply: Reply) -> String {
    match reply {
        Reply::DeadLettered { reason, .. } => reason,
        other => panic!("no dead letter: {other:?}"),
    }
}

fn small_queue(work_queue: usize) -> World {
    World::without_runner(Definition { work_queue, ..Definition::default() })
}

#[test]
fn a_run_starts_when_a_slot_is_free_and_queues_when_not() {
    let mut world = World::new(1);
    let first = world.manual();
    let second = world.manual();
    assert_eq!((world.state(&first), world.state(&second)), (State::Running, State::Queued));
    world.exit(&first, 0);
    assert_eq!(world.state(&second), State::Running);
    assert_eq!(world.end_of(&first).0, "completed");
}

#[test]
fn the_more_urgent_class_goes_first_and_age_raises() {
    let mut world = World::new(1);
    let first = world.manual();
    let Reply::Queued { instance: tick } = world.must(enqueue(Class::Schedule)) else { panic!() };
    let late = world.manual();
    world.exit(&first, 0);
    assert_eq!(world.state(&late), State::Running, "manual before schedule");

    world.advance(240);
    let later = world.manual();
    world.exit(&late, 0);
    assert_eq!(world.state(&tick), State::Running, "four minutes make a tick older than any newcomer");
    assert_eq!(world.state(&later), State::Queued);
}

#[test]
fn a_full_queue_drops_its_oldest_but_never_a_call() {
    let mut world = small_queue(2);
    let bidding = world.manual();
    world.call(1).unwrap();
    let Reply::Queued { instance: oldest } = world.must(enqueue(Class::Webhook)) else { panic!() };
    let newest = world.manual();
    assert_eq!(world.state(&oldest), State::Ended);
    assert_eq!(world.state(&newest), State::Queued);
    assert_eq!(world.state(&bidding), State::Queued);
    let dead = world.agent.events.iter().find_map(|event| match event {
        super::super::Event::DeadLettered(letter) => Some(letter.clone()),
        _ => None,
    });
    let dead = dead.unwrap();
    assert_eq!((dead.class, dead.reason.as_str()), (Class::Webhook, "queue_overflow"));
    assert_eq!(world.agent.body(&format!("dead/{}", dead.id)).unwrap()["input"]["prompt"], "go");
    assert_eq!(world.call_status(1).0, CallStatus::Pending);
}

#[test]
fn a_queue_full_of_calls_takes_no_more_of_either() {
    let mut world = small_queue(1);
    world.call(1).unwrap();
    world.call(2).unwrap();
    assert_eq!(world.call(3).unwrap_err().code, Code::QueueFull);
    assert_eq!(reason_of(world.must(enqueue(Class::Webhook))), "queue_overflow");
}

#[test]
fn ticks_of_one_schedule_become_one() {
    let mut world = World::new(1);
    world.manual();
    let Reply::Queued { instance: tick } = world.must(enqueue(Class::Schedule)) else { panic!() };
    assert_eq!(world.must(enqueue(Class::Schedule)), Reply::Coalesced { instance: tick });
}

#[test]
fn an_agent_without_definition_or_disabled_takes_no_work() {
    let mut world = World::undefined();
    assert_eq!(world.refused(enqueue(Class::Manual)), Code::NotFound);
    assert_eq!(reason_of(world.must(enqueue(Class::Webhook))), "not_found");
    world.must(Command::Define { definition: Definition::default(), group: name("default") });
    world.must(Command::SetEnabled { enabled: false });
    assert_eq!(world.refused(enqueue(Class::Manual)), Code::Disabled);
    assert_eq!(world.refused(enqueue(Class::Schedule)), Code::Disabled);
    assert_eq!(reason_of(world.must(enqueue(Class::Webhook))), "agent_disabled");
    assert_eq!(world.refused(enqueue(Class::Resumed)), Code::InvalidArgument);
}

#[test]
fn disabling_empties_the_queue_ends_waits_and_lets_runs_go_on() {
    let mut world = World::new(2);
    let running = world.manual();
    let waiting = world.manual();
    world.wait(&waiting, 1, agent_filter(Some("nobody")));
    world.prompt_runner = false;
    world.manual();
    let queued = world.manual();
    world.call(1).unwrap();
    world.prompt_runner = true;
    world.must(Command::SetEnabled { enabled: false });
    assert_eq!(world.state(&running), State::Running);
    assert_eq!(world.state(&queued), State::Ended);
    assert_eq!(world.end_of(&waiting), ("killed".to_owned(), "the agent was disabled".to_owned()));
    assert_eq!(world.call_status(1), (CallStatus::Error, Some("the agent was disabled".to_owned())));
    assert_eq!(world.agent.run(Command::SetEnabled { enabled: false }).unwrap(), Reply::Done);
}

#[test]
fn removing_the_agent_ends_its_runs() {
    let mut world = World::new(1);
    let running = world.manual();
    let queued = world.manual();
    world.must(Command::Undefine);
    assert_eq!((world.state(&running), world.state(&queued)), (State::Ended, State::Ended));
    assert_eq!(world.busy(), 0);
    assert!(world.agent.head("definition/self").is_none());
}

#[test]
fn a_queue_that_holds_more_than_one_decision_may_write_is_emptied_by_several() {
    for (stop, reason) in
        [(Command::SetEnabled { enabled: false }, "agent_disabled"), (Command::Undefine, "agent_removed")]
    {
        let mut world = World::new(1);
        world.manual();
        let (class, source, receipt) = (Class::Webhook, "github".to_owned(), None);
        let input = json!("x".repeat(9 * 1024 * 1024));
        let webhook = Command::Enqueue { class, source, receipt, input };
        for _ in 0..5 {
            world.agent.run(webhook.clone()).unwrap();
        }
        let (mut next, mut decisions) = (Some(stop), 0);
        while let Some(command) = next {
            let before = world.agent.events.len();
            world.agent.run(command).unwrap();
            let written: usize = world.agent.events[before..].iter().map(crate::json::length).sum();
            assert!(2 * written < limits::DECISION, "{written} bytes");
            decisions += 1;
            let due = world.agent.entity.next_wake().is_some_and(|due| due <= world.agent.now);
            next = due.then_some(Command::Tick);
        }
        assert_eq!(decisions, 3);
        let reasons = world.agent.entity.letters.values().map(|letter| letter.reason.as_str());
        assert_eq!(reasons.collect::<Vec<_>>(), [reason; 5]);
        assert!(world.agent.entity.queue.is_empty());
    }
}

#[test]
fn a_larger_scale_lets_queued_runs_bid_at_once() {
    let mut world = World::new(1);
    world.manual();
    let second = world.manual();
    let definition = Definition { scale: 2, ..Definition::default() };
    world.must(Command::Define { definition, group: name("default") });
    assert_eq!(world.state(&second), State::Running);
}

#[test]
fn moving_to_another_group_bids_there() {
    let mut world = small_queue(5);
    let run = world.manual();
    assert!(world.instance(&run).bid.is_some());
    world.must(Command::Define { definition: Definition::default(), group: name("other") });
    assert_eq!(world.instance(&run).group, Some(name("other")));
    assert!(world.sent.iter().any(|(key, _)| *key == EntityKey::fleet(&name("other"))));
}
