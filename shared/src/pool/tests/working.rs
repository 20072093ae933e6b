use super::*;

#[test]
fn poll_takes_by_priority_then_age() {
    let mut swarm = Swarm::new();
    swarm.run(Command::SetCapacity { agent: ANN, max_tasks: 3 }).unwrap();
    let old = swarm.assigned(ANN);
    swarm.0.advance(std::time::Duration::from_millis(5));
    let young = swarm.assigned(ANN);
    let urgent =
        swarm.create(TaskSpec { priority: 90, ..TaskSpec::new("now") }, Target::Assign { agent: Some(ANN) });
    for want in [urgent, old, young] {
        let (task, redelivered, _) = swarm.poll(ANN);
        assert_eq!((task.unwrap().id, redelivered), (want, false));
        swarm.say(want, ANN, "on it").unwrap();
    }
    assert_eq!(swarm.member(ANN)["status"], "busy");
}

#[test]
fn poll_honours_capacity_and_never_dispenses_the_pool() {
    let mut swarm = Swarm::new();
    let first = swarm.assigned(ANN);
    swarm.assigned(ANN);
    swarm.task(Target::Pool);
    swarm.poll(ANN);
    swarm.say(first, ANN, "on it").unwrap();
    let Reply::Polled { task, pool, full, empty_polls, .. } = swarm.run(poll(ANN, true)).unwrap() else {
        panic!();
    };
    assert_eq!((task, pool, full, empty_polls), (None, 1, true, 0));
}

#[test]
fn a_lost_answer_is_given_again_to_the_same_instance() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(ANN);
    assert!(!swarm.poll(ANN).1);
    let (again, redelivered, _) = swarm.poll(ANN);
    assert_eq!((again.unwrap().id, redelivered), (task, true));
    assert_eq!(swarm.head(task).attempt, 1);
    let other = Command::Poll { agent: ANN, instance: InstanceId("x".into()), managed: false, last: false };
    assert!(matches!(swarm.run(other).unwrap(), Reply::Polled { task: None, .. }));
    swarm.say(task, ANN, "on it").unwrap();
    assert!(swarm.poll(ANN).0.is_none());
}

#[test]
fn empty_polls_are_counted_until_there_is_work() {
    let mut swarm = Swarm::new();
    for want in 1..=2 {
        let Reply::Polled { empty_polls, .. } = swarm.run(poll(ANN, true)).unwrap() else { panic!() };
        assert_eq!(empty_polls, want);
    }
    assert_eq!(swarm.member(ANN)["emptyPollCount"], 2);
    swarm.assigned(ANN);
    swarm.poll(ANN);
    assert_eq!(swarm.member(ANN)["emptyPollCount"], 0);
}

#[test]
fn a_claim_has_one_winner() {
    let mut swarm = Swarm::new();
    let task = swarm.task(Target::Pool);
    swarm.run(claim(ANN, task)).unwrap();
    assert_eq!(swarm.refused(claim(BOB, task)), Code::WrongState);
    assert!(matches!(swarm.run(claim(ANN, task)).unwrap(), Reply::Task { repeated: true, .. }));
    let second = swarm.task(Target::Pool);
    assert_eq!(swarm.refused(claim(ANN, second)), Code::NoCapacity);
    assert_eq!(swarm.refused(claim(BOB, Uuid::from_u128(5))), Code::NotFound);
    assert_eq!(swarm.refused(claim(Uuid::from_u128(5), second)), Code::NotJoined);
}

#[test]
fn release_keeps_the_progress() {
    let mut swarm = Swarm::new();
    let task = swarm.task(Target::Pool);
    swarm.run(claim(ANN, task)).unwrap();
    swarm.say(task, ANN, "half done").unwrap();
    assert_eq!(swarm.refused(Command::Release { agent: BOB, task }), Code::Forbidden);
    swarm.run(Command::Release { agent: ANN, task }).unwrap();
    let body = swarm.body(task);
    assert_eq!((&body["status"], &body["progress"]), (&"unassigned".into(), &"half done".into()));
    assert_eq!(swarm.member(ANN)["status"], "idle");
    assert_eq!(swarm.refused(Command::Release { agent: ANN, task }), Code::Forbidden);
}

#[test]
fn offers_are_answered_from_offered_and_reviewing() {
    let mut swarm = Swarm::new();
    let offer = Target::Offer { agent: Some(ANN) };
    let first = swarm.task(offer);
    swarm.0.advance(std::time::Duration::from_millis(5));
    let second = swarm.task(offer);
    swarm.assigned(ANN);
    let (task, _, offers) = swarm.poll(ANN);
    assert!(task.is_none(), "offers are answered before new work begins");
    assert_eq!(offers.iter().map(|offer| offer.id).collect::<Vec<_>>(), [first, second]);
    let Reply::Reviewing { task: Some(reviewed) } = swarm.run(Command::Review { agent: ANN }).unwrap() else {
        panic!();
    };
    assert_eq!((reviewed.id, swarm.status(first)), (first, Status::Reviewing));
    assert_eq!(swarm.refused(Command::Accept { agent: BOB, task: first }), Code::Forbidden);
    swarm.run(Command::Accept { agent: ANN, task: first }).unwrap();
    let body = swarm.body(first);
    assert_eq!((&body["status"], &body["agentId"]), (&"pending".into(), &ANN.to_string().into()));
    assert!(body.contains_key("acceptedAt") && body.contains_key("offeredTo"));
    let reason = Some("not mine".to_owned());
    swarm.run(Command::Reject { agent: ANN, task: second, reason }).unwrap();
    let body = swarm.body(second);
    assert_eq!((&body["status"], &body["rejectionReason"]), (&"unassigned".into(), &"not mine".into()));
    assert!(!body.contains_key("offeredTo") && !body.contains_key("offeredAt"));
    assert_eq!(swarm.refused(Command::Reject { agent: ANN, task: second, reason: None }), Code::WrongState);
}

#[test]
fn the_backlog_hides_from_the_pool() {
    let mut swarm = Swarm::new();
    let task = swarm.task(Target::Pool);
    let (park, unpark) = (|by| Command::ToBacklog { task, by }, |by| Command::FromBacklog { task, by });
    assert_eq!(swarm.refused(park(Some(Uuid::from_u128(99)))), Code::NotJoined);
    swarm.run(park(Some(ANN))).unwrap();
    assert_eq!(swarm.refused(claim(ANN, task)), Code::WrongState);
    assert_eq!(swarm.refused(park(None)), Code::WrongState);
    assert_eq!(swarm.refused(unpark(Some(Uuid::from_u128(99)))), Code::NotJoined);
    swarm.run(unpark(None)).unwrap();
    swarm.run(claim(ANN, task)).unwrap();
}

#[test]
fn a_paused_task_leaves_room_and_needs_room_to_go_on() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(ANN);
    swarm.poll(ANN);
    assert_eq!(swarm.refused(Command::Pause { task, by: Some(BOB) }), Code::Forbidden);
    swarm.run(Command::Pause { task, by: Some(ANN) }).unwrap();
    assert!(matches!(
        swarm.run(Command::Pause { task, by: None }).unwrap(),
        Reply::Task { repeated: true, .. }
    ));
    let other = swarm.task(Target::Pool);
    swarm.run(claim(ANN, other)).unwrap();
    let resume = Command::Resume { task, by: Some(ANN), instance: instance(ANN), managed: false };
    assert_eq!(swarm.refused(resume.clone()), Code::NoCapacity);
    swarm.finish(other, ANN, completed("")).unwrap();
    swarm.run(resume).unwrap();
    assert_eq!((swarm.status(task), swarm.head(task).attempt), (Status::InProgress, 2));
}

#[test]
fn the_same_words_after_a_pause_are_a_report_too() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(ANN);
    swarm.say(task, ANN, "half").unwrap();
    swarm.run(Command::Pause { task, by: Some(ANN) }).unwrap();
    swarm.say(task, ANN, "half").unwrap();
    assert!(swarm.head(task).reported);
    assert!(swarm.poll(ANN).0.is_none(), "what it works on is not given again");
}

#[test]
fn only_the_lead_moves_tasks_between_epics_and_epics_hear_of_it() {
    let mut swarm = Swarm::new();
    let (task, epic) = (swarm.task(Target::Pool), Uuid::from_u128(7));
    let assign = |by| Command::AssignEpic { task, epic, by: Some(by) };
    assert_eq!(swarm.refused(assign(ANN)), Code::Forbidden);
    assert_eq!(swarm.refused(Command::UnassignEpic { task, by: Some(LEAD) }), Code::WrongState);
    swarm.run(assign(LEAD)).unwrap();
    assert_eq!(swarm.body(task)["epicId"], epic.to_string());
    swarm.run(claim(ANN, task)).unwrap();
    swarm.finish(task, ANN, completed("done")).unwrap();
    let steps: Vec<_> = swarm
        .sent(Kind::Epics)
        .iter()
        .map(|command| (command["task_changed"]["from"].clone(), command["task_changed"]["to"].clone()))
        .collect();
    let want: [(Value, Value); 3] = [
        (Value::Null, "unassigned".into()),
        ("unassigned".into(), "in_progress".into()),
        ("in_progress".into(), "completed".into()),
    ];
    assert_eq!(steps, want);
}
