use std::time::Duration;

use super::*;
use crate::limits;

fn after(dependencies: &[Uuid]) -> TaskSpec {
    TaskSpec { depends_on: dependencies.to_vec(), ..TaskSpec::new("then") }
}

fn create(spec: TaskSpec, facts: Vec<Fact>) -> Command {
    let (target, rules) = (Target::Pool, Rules::Plain);
    Command::Create(Box::new(Create { by: Some(ANN), spec, target, rules, facts }))
}

#[test]
fn nothing_starts_before_its_dependencies() {
    let mut swarm = Swarm::new();
    let first = swarm.task(Target::Pool);
    let pooled = swarm.create(after(&[first]), Target::Pool);
    let queued = swarm.create(after(&[first]), Target::Assign { agent: Some(BOB) });
    let offered = swarm.create(after(&[first]), Target::Offer { agent: Some(BOB) });
    let later =
        swarm.create(TaskSpec { priority: 1, ..TaskSpec::new("ready") }, Target::Assign { agent: Some(BOB) });
    assert_eq!(swarm.refused(claim(BOB, pooled)), Code::Blocked);
    assert_eq!(swarm.refused(Command::Accept { agent: BOB, task: offered }), Code::Blocked);
    assert_eq!(swarm.say(queued, BOB, "early").unwrap_err().code, Code::Blocked);
    let (task, _, offers) = swarm.poll(BOB);
    assert_eq!((task.unwrap().id, offers.len()), (later, 0), "what cannot start blocks nothing");
    swarm.finish(later, BOB, completed("")).unwrap();
    swarm.run(claim(ANN, first)).unwrap();
    swarm.finish(first, ANN, completed("")).unwrap();
    swarm.run(Command::Accept { agent: BOB, task: offered }).unwrap();
    assert!(swarm.poll(BOB).0.is_some());
    swarm.run(claim(ANN, pooled)).unwrap();
}

#[test]
fn a_broken_dependency_is_seen_and_told() {
    let mut swarm = Swarm::new();
    let first = swarm.task(Target::Pool);
    let Reply::Created { task, .. } = swarm.run(create(after(&[first]), Vec::new())).unwrap() else {
        panic!()
    };
    swarm.run(Command::Cancel { task: first, by: Some(LEAD), reason: None }).unwrap();
    assert_eq!(swarm.body(task.id)["blockedBy"], serde_json::json!([first]));
    assert_eq!(swarm.0.entity.task(task.id).unwrap().broken(), [first]);
    let (left, posted) = (swarm.sent(Kind::Inboxes), swarm.sent(Kind::Channels));
    let ([left], [posted]) = (&left[..], &posted[..]) else { panic!("{left:?} {posted:?}") };
    let (left, posted) = (&left["deliver"], &posted["post"]);
    assert_eq!(left["agent"], LEAD.to_string());
    assert_eq!(posted["mentions"], serde_json::json!([ANN]), "only leads read inboxes");
    for content in [&left["content"], &posted["content"]] {
        assert!(content.as_str().unwrap().contains(&task.id.to_string()), "{content}");
    }
    assert_eq!(swarm.refused(claim(BOB, task.id)), Code::Blocked);
}

#[test]
fn of_many_that_a_broken_dependency_blocks_the_first_are_named_and_all_counted() {
    let mut swarm = Swarm::new();
    let first = swarm.assigned(BOB);
    for _ in 0..25 {
        created(swarm.run(create(after(&[first]), Vec::new())));
    }
    swarm.poll(BOB);
    swarm.finish(first, BOB, Finish::Failed { reason: None }).unwrap();
    let (left, posted) = (swarm.sent(Kind::Inboxes), swarm.sent(Kind::Channels));
    let follow_up = swarm.poll(LEAD).0.unwrap().id;
    let follow_up = swarm.body(follow_up);
    for content in [&left[0]["deliver"]["content"], &posted[0]["post"]["content"], &follow_up["task"]] {
        let content = content.as_str().unwrap();
        assert!(content.matches(", ").count() >= 19 && content.contains(" and 5 more"), "{content}");
        assert!(content.len() < limits::MESSAGE, "{content}");
    }
}

#[test]
fn an_offer_has_its_time_from_when_it_can_be_accepted() {
    const STEP: Duration = Duration::from_secs(1);
    let mut swarm = Swarm::new();
    let first = swarm.assigned(ANN);
    let offered = swarm.create(after(&[first]), Target::Offer { agent: Some(BOB) });
    swarm.0.advance(3 * limits::OFFER);
    assert_eq!(swarm.status(offered), Status::Offered);
    swarm.0.restart();
    swarm.poll(ANN);
    swarm.finish(first, ANN, completed("")).unwrap();
    swarm.0.advance(limits::OFFER - STEP);
    assert_eq!((swarm.status(offered), swarm.poll(BOB).2.len()), (Status::Offered, 1));
    swarm.0.advance(STEP);
    assert_eq!(swarm.status(offered), Status::Unassigned);
}

#[test]
fn ended_and_unknown_dependencies_need_facts() {
    let mut swarm = Swarm::new();
    let (done, failed, unknown) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
    let spec = after(&[done, failed, unknown]);
    assert_eq!(needed(swarm.run(create(spec.clone(), Vec::new()))).0, [done, failed, unknown]);
    let ended = |task, outcome| Fact { outcome: Some(outcome), ..Fact::unknown(task) };
    let facts = vec![ended(done, Outcome::Completed), ended(failed, Outcome::Failed), Fact::unknown(unknown)];
    let Reply::Created { task, warnings } = swarm.run(create(spec, facts)).unwrap() else { panic!() };
    assert_eq!(warnings.len(), 2);
    assert_eq!((task.unmet, task.blocked_by), (vec![failed, unknown], vec![failed]));
    assert_eq!(swarm.body(task.id)["blockedBy"], serde_json::json!([failed]));
}

/// Makes a task of this id, and ends it.
fn comes_and_goes(swarm: &mut Swarm, id: Uuid, finish: Finish) {
    let spec = TaskSpec { id: Some(id), ..TaskSpec::new("first") };
    let (_, asked) = needed(swarm.run(create(spec.clone(), Vec::new())));
    created(swarm.run(create(spec, vec![Fact { asked, ..Fact::unknown(id) }])));
    swarm.run(claim(BOB, id)).unwrap();
    swarm.finish(id, BOB, finish).unwrap();
}

#[test]
fn what_is_made_and_ends_while_its_dependant_is_made_is_seen() {
    let mut swarm = Swarm::new();
    let (done, failed) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let spec = after(&[done, failed]);
    let (tasks, asked) = needed(swarm.run(create(spec.clone(), Vec::new())));
    assert_eq!(tasks, [done, failed]);
    // The service finds neither of them.
    comes_and_goes(&mut swarm, done, completed(""));
    comes_and_goes(&mut swarm, failed, Finish::Failed { reason: None });
    let facts = [done, failed].map(|task| Fact { asked, ..Fact::unknown(task) }).to_vec();
    let Reply::Created { task, warnings } = swarm.run(create(spec, facts)).unwrap() else { panic!() };
    assert_eq!((task.unmet, task.blocked_by, warnings.len()), (vec![failed], vec![failed], 1));
}

#[test]
fn an_id_that_was_taken_while_it_was_looked_up_is_not_taken_twice() {
    let mut swarm = Swarm::new();
    let id = Uuid::from_u128(1);
    let spec = TaskSpec { id: Some(id), ..TaskSpec::new("another") };
    let (_, asked) = needed(swarm.run(create(spec.clone(), Vec::new())));
    comes_and_goes(&mut swarm, id, completed("one"));
    let late = create(spec, vec![Fact { asked, ..Fact::unknown(id) }]);
    assert_eq!(swarm.refused(late), Code::AlreadyExists);
    assert_eq!(swarm.body(id)["output"], "one");
}

#[test]
fn what_may_have_ended_under_somebody_else_is_asked_for_once_more() {
    let mut swarm = Swarm::new();
    let first = Uuid::from_u128(1);
    let (_, asked) = needed(swarm.run(create(after(&[first]), Vec::new())));
    comes_and_goes(&mut swarm, first, completed(""));
    swarm.0.advance(Duration::from_millis(1));
    swarm.0.restart();
    // Another owner, and the same one that has loaded the pool anew.
    for epoch in [swarm.0.epoch, asked.unwrap().epoch] {
        swarm.0.epoch = epoch;
        let facts = vec![Fact { asked, ..Fact::unknown(first) }];
        assert_eq!(needed(swarm.run(create(after(&[first]), facts))).0, [first]);
    }
    let facts = vec![Fact { outcome: Some(Outcome::Completed), asked, ..Fact::unknown(first) }];
    let Reply::Created { task, .. } = swarm.run(create(after(&[first]), facts)).unwrap() else { panic!() };
    assert!(task.unmet.is_empty());
}

#[test]
fn a_graph_may_be_laid_in_any_order_but_not_in_a_circle() {
    let mut swarm = Swarm::new();
    let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let first = TaskSpec { id: Some(a), ..after(&[b]) };
    let unknown = || vec![Fact::unknown(a), Fact::unknown(b)];
    swarm.run(create(first.clone(), unknown())).unwrap();
    assert_eq!(swarm.refused(create(first, unknown())), Code::AlreadyExists);
    let circle = TaskSpec { id: Some(b), ..after(&[a]) };
    assert_eq!(swarm.refused(create(circle, unknown())), Code::Cycle);
    let itself = TaskSpec { id: Some(b), ..after(&[b]) };
    assert_eq!(swarm.refused(create(itself, unknown())), Code::Cycle);
    let between = created(swarm.run(create(after(&[a]), Vec::new())));
    let longer = TaskSpec { id: Some(b), ..after(&[between]) };
    assert_eq!(swarm.refused(create(longer, unknown())), Code::Cycle);
    let second = TaskSpec { id: Some(b), ..TaskSpec::new("first of all") };
    created(swarm.run(create(second, unknown())));
    swarm.run(claim(BOB, b)).unwrap();
    swarm.finish(b, BOB, completed("")).unwrap();
    swarm.run(claim(BOB, a)).unwrap();
}

#[test]
fn the_end_of_a_dependency_concerns_those_who_can_start() {
    let mut swarm = Swarm::new();
    let first = swarm.assigned(ANN);
    swarm.create(after(&[first]), Target::Assign { agent: Some(BOB) });
    let event = Event::Finished {
        task: first,
        outcome: Outcome::Completed,
        output: None,
        reason: None,
        cost: None,
        at: swarm.0.now,
    };
    let concerned = swarm.0.entity.concerned(&event);
    assert!(concerned.is_superset(&[first, ANN, BOB, LEAD].into()), "{concerned:?}");
}
