use std::time::Duration;

use super::*;
use crate::limits;

fn steer(task: Uuid, by: Option<Uuid>, text: &str) -> Command {
    Command::Steer { task, by, text: text.to_owned() }
}

fn take(swarm: &mut Swarm, agent: Uuid, instance: InstanceId) -> Vec<Uuid> {
    match swarm.run(Command::TakeSteering { agent, instance }).unwrap() {
        Reply::Steering(messages) => messages,
        other => panic!("{other:?}"),
    }
}

fn message(swarm: &Swarm, id: Uuid) -> Map<String, Value> {
    swarm.0.body(&format!("steering/{id}")).unwrap().clone()
}

fn said(swarm: &Swarm, id: Uuid) -> Timestamp {
    Timestamp::parse_iso(message(swarm, id)["createdAt"].as_str().unwrap()).unwrap()
}

#[test]
fn what_is_said_about_a_task_is_taken_once_by_whoever_works_on_it() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(ANN);
    swarm.run(steer(task, Some(LEAD), "first")).unwrap();
    assert!(take(&mut swarm, ANN, instance(ANN)).is_empty(), "it has not begun");
    swarm.poll_managed(ANN);
    swarm.run(steer(task, None, "second")).unwrap();
    assert!(take(&mut swarm, BOB, instance(BOB)).is_empty());
    assert!(
        take(&mut swarm, ANN, instance(BOB)).is_empty(),
        "another instance, which works on something else"
    );
    swarm.0.restart();
    let taken = take(&mut swarm, ANN, instance(ANN));
    let texts: Vec<_> = taken.iter().map(|id| message(&swarm, *id)["content"].clone()).collect();
    assert_eq!(texts, ["first", "second"]);
    assert!(message(&swarm, taken[0]).contains_key("deliveredAt"));
    assert!(take(&mut swarm, ANN, instance(ANN)).is_empty());
    assert_eq!(swarm.0.restored(), swarm.0.entity);
}

#[test]
fn what_its_agent_has_not_had_goes_to_its_successor_and_ends_with_the_task() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(ANN);
    swarm.poll(ANN);
    swarm.run(steer(task, Some(LEAD), "careful")).unwrap();
    swarm.run(Command::Release { agent: ANN, task }).unwrap();
    swarm.run(claim(BOB, task)).unwrap();
    assert_eq!(take(&mut swarm, ANN, instance(ANN)).len(), 0);
    assert_eq!(take(&mut swarm, BOB, instance(BOB)).len(), 1);
    let Reply::Steered { message: last, .. } = swarm.run(steer(task, Some(LEAD), "late")).unwrap() else {
        panic!("not steered")
    };
    swarm.finish(task, BOB, completed("done")).unwrap();
    assert_eq!(message(&swarm, last)["missed"], true);
    assert_eq!(take(&mut swarm, BOB, instance(BOB)).len(), 0);
    assert_eq!(swarm.refused(steer(task, Some(LEAD), "too late")), Code::NotFound);
}

#[test]
fn what_went_with_a_lost_answer_is_taken_once_more_in_its_order() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(ANN);
    swarm.poll_managed(ANN);
    for text in ["first", "second"] {
        swarm.run(steer(task, Some(LEAD), text)).unwrap();
    }
    let taken = take(&mut swarm, ANN, instance(ANN));
    let untold = |message: &Uuid| Untold { message: *message, task, since: said(&swarm, *message) };
    let lost = Command::SteeringLost { messages: taken.iter().rev().map(untold).collect() };
    swarm.0.advance(Duration::from_secs(1));
    swarm.run(steer(task, Some(LEAD), "third")).unwrap();
    swarm.run(lost.clone()).unwrap();
    assert!(!message(&swarm, taken[0]).contains_key("deliveredAt"));
    assert_eq!(swarm.run(lost.clone()).unwrap(), Reply::Steering(Vec::new()), "it waits already");
    assert_eq!(swarm.0.restored(), swarm.0.entity);
    let again = take(&mut swarm, ANN, instance(ANN));
    assert_eq!((again.len(), &again[..2]), (3, &taken[..]));
    assert!(take(&mut swarm, ANN, instance(ANN)).is_empty());
    swarm.finish(task, ANN, completed("done")).unwrap();
    assert_eq!(swarm.run(lost).unwrap(), Reply::Steering(Vec::new()), "its task has ended");
}

#[test]
fn the_lead_and_the_creator_steer_and_nobody_says_more_than_is_heard() {
    let mut swarm = Swarm::new();
    let mut spec = TaskSpec::new("of bob's");
    spec.id = None;
    let create = Create {
        by: Some(BOB),
        spec,
        target: Target::Assign { agent: Some(ANN) },
        rules: Rules::Plain,
        facts: Vec::new(),
    };
    let task = created(swarm.run(Command::Create(Box::new(create))));
    assert_eq!(swarm.refused(steer(task, Some(ANN), "x")), Code::Forbidden);
    assert_eq!(swarm.refused(steer(task, Some(Uuid::from_u128(9)), "x")), Code::NotJoined);
    assert_eq!(swarm.refused(steer(task, Some(LEAD), "")), Code::InvalidArgument);
    assert_eq!(swarm.refused(steer(task, Some(LEAD), &"x".repeat(limits::MESSAGE + 1))), Code::TooLarge);
    for number in 0..limits::STEERING {
        let by = if number % 2 == 0 { LEAD } else { BOB };
        swarm.run(steer(task, Some(by), "go on")).unwrap();
    }
    assert_eq!(swarm.refused(steer(task, Some(LEAD), "one more")), Code::QueueFull);
    let pool = swarm.task(Target::Pool);
    assert_eq!(swarm.refused(steer(pool, Some(LEAD), "x")), Code::WrongState);
}
