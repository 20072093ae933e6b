use std::time::Duration;

use super::*;
use crate::entity::Entity;
use crate::limits;

const STEP: Duration = Duration::from_secs(1);

/// The agent calls again and again, and reports nothing.
fn lives_on(swarm: &mut Swarm, agent: Uuid, span: Duration) {
    let mut left = span;
    while left > Duration::ZERO {
        let step = left.min(limits::TASK_LEASE_AGENT / 3);
        let now = swarm.0.now;
        let agents = vec![(agent, instance(agent).to_string())];
        swarm.0.entity.observe(&Signal::AgentsAlive { agents }, now);
        swarm.0.advance(step);
        left -= step;
    }
}

/// Ann's wait until then, or its end.
fn sleep(until: Timestamp, over: bool) -> Command {
    Command::ExtendLease {
        instance: instance(ANN),
        until,
        wait: Uuid::nil(),
        reply_to: EntityKey::agent(&Name::parse("default").unwrap(), &Name::parse("ann").unwrap()),
        over,
    }
}

fn triages(swarm: &Swarm) -> Vec<String> {
    let created = swarm.0.events.iter().filter_map(|event| match event {
        Event::Created(created) if created.spec.task_type.as_deref() == Some("heartbeat") => Some(created),
        _ => None,
    });
    created.map(|created| created.spec.task.clone()).collect()
}

#[test]
fn a_task_that_stalls_is_put_before_the_lead_once() {
    let mut swarm = Swarm::new();
    let (first, second) = (swarm.assigned(ANN), swarm.assigned(BOB));
    swarm.poll(ANN);
    swarm.poll(BOB);
    swarm.say(second, BOB, "going").unwrap();
    lives_on(&mut swarm, ANN, limits::TASK_STALL - STEP);
    assert_eq!(triages(&swarm).len(), 0);
    swarm.say(second, BOB, "still going").unwrap();
    lives_on(&mut swarm, ANN, STEP);
    let told = triages(&swarm);
    assert!(told.len() == 1 && told[0].contains(&first.to_string()) && told[0].contains("ann"), "{told:?}");
    assert!(!told[0].contains(&second.to_string()));
    assert_eq!(swarm.body(first)["stalled"], true);
    assert_eq!(swarm.status(first), Status::InProgress);
    swarm.0.restart();
    lives_on(&mut swarm, ANN, 3 * limits::TASK_STALL);
    assert_eq!(triages(&swarm).iter().filter(|text| text.contains(&first.to_string())).count(), 1);
    let (task, ..) = swarm.poll(LEAD);
    let triage = swarm.body(task.unwrap().id);
    assert_eq!((&triage["priority"], &triage["tags"][1]), (&Value::from(70), &Value::from("triage")));
    // Whoever reports again and stalls again is told of again.
    swarm.say(first, ANN, "back").unwrap();
    assert!(!swarm.body(first).contains_key("stalled"));
    lives_on(&mut swarm, ANN, limits::TASK_STALL);
    assert_eq!(triages(&swarm).iter().filter(|text| text.contains(&first.to_string())).count(), 2);
}

#[test]
fn what_is_given_back_or_ends_is_stalled_no_more() {
    let mut swarm = Swarm::new();
    swarm.run(Command::SetCapacity { agent: ANN, max_tasks: 3 }).unwrap();
    let tasks = [(); 3].map(|()| swarm.task(Target::Pool));
    for task in tasks {
        swarm.run(claim(ANN, task)).unwrap();
    }
    lives_on(&mut swarm, ANN, limits::TASK_STALL);
    for task in tasks {
        assert_eq!(swarm.body(task)["stalled"], true);
    }
    let [returned, paused, ended] = tasks;
    swarm.run(Command::Release { agent: ANN, task: returned }).unwrap();
    swarm.run(Command::Pause { task: paused, by: Some(ANN) }).unwrap();
    swarm.finish(ended, ANN, completed("at last")).unwrap();
    for task in tasks {
        assert!(!swarm.body(task).contains_key("stalled"), "{:?}", swarm.body(task));
    }
    assert_eq!(swarm.0.restored(), swarm.0.entity);
}

#[test]
fn what_stalls_while_nobody_leads_is_put_before_whoever_comes_to_lead() {
    let next = Uuid::from_u128(0xa3);
    let leads = |agent: Uuid, name: &str| Command::Join(join(agent, name, true));
    let mut swarm = Swarm::new();
    let stalled = swarm.assigned(ANN);
    swarm.poll(ANN);
    swarm.run(Command::Leave { agent: LEAD }).unwrap();
    swarm.run(leads(next, "next")).unwrap();
    assert_eq!(triages(&swarm), Vec::<String>::new(), "nothing has stalled yet");
    swarm.run(Command::Leave { agent: next }).unwrap();
    lives_on(&mut swarm, ANN, limits::TASK_STALL);
    assert_eq!(swarm.body(stalled)["stalled"], true);
    assert_eq!(triages(&swarm), Vec::<String>::new(), "there is nobody to tell");
    swarm.run(leads(next, "next")).unwrap();
    assert_eq!(swarm.0.restored(), swarm.0.entity);
    let (task, ..) = swarm.poll(next);
    let triage = swarm.body(task.unwrap().id);
    assert_eq!(triage["taskType"], "heartbeat");
    let told = triage["task"].as_str().unwrap();
    assert!(told.contains(&stalled.to_string()) && told.contains("ann"), "{told}");
    // Also before a worker that takes the lead's place, unless the task is its own.
    swarm.run(Command::Leave { agent: next }).unwrap();
    swarm.run(leads(BOB, "bob")).unwrap();
    assert_eq!(triages(&swarm).iter().filter(|text| text.contains(&stalled.to_string())).count(), 2);
    swarm.run(Command::Leave { agent: BOB }).unwrap();
    swarm.run(leads(ANN, "ann")).unwrap();
    assert_eq!(triages(&swarm).len(), 2);
}

#[test]
fn what_the_lead_does_itself_and_what_sleeps_is_not_stalled() {
    let mut swarm = Swarm::new();
    let (own, slept) = (swarm.assigned(LEAD), swarm.assigned(ANN));
    swarm.poll(LEAD);
    swarm.poll(ANN);
    let until = swarm.0.now + 9 * limits::TASK_STALL;
    swarm.run(sleep(until, false)).unwrap();
    lives_on(&mut swarm, LEAD, 2 * limits::TASK_STALL);
    assert_eq!(triages(&swarm), Vec::<String>::new());
    assert_eq!((swarm.status(own), swarm.status(slept)), (Status::InProgress, Status::InProgress));
    // Who wakes before that has as long for a report as who starts.
    let woken = sleep(swarm.0.now, true);
    swarm.run(woken).unwrap();
    lives_on(&mut swarm, ANN, limits::TASK_STALL - STEP);
    assert_eq!(triages(&swarm), Vec::<String>::new());
    lives_on(&mut swarm, ANN, STEP);
    assert_eq!(triages(&swarm).len(), 1);
}

#[test]
fn who_wakes_when_little_of_the_wait_is_left_has_as_long_for_a_report_as_who_starts() {
    let mut swarm = Swarm::new();
    swarm.assigned(ANN);
    swarm.poll(ANN);
    let until = swarm.0.now + 2 * limits::TASK_STALL;
    swarm.run(sleep(until, false)).unwrap();
    lives_on(&mut swarm, ANN, 2 * limits::TASK_STALL - STEP);
    let woken = sleep(swarm.0.now, true);
    swarm.run(woken).unwrap();
    lives_on(&mut swarm, ANN, limits::TASK_STALL - STEP);
    assert_eq!(triages(&swarm), Vec::<String>::new());
    lives_on(&mut swarm, ANN, STEP);
    assert_eq!(triages(&swarm).len(), 1);
}

/// Nobody claims a task that can be claimed from now on: that is an alarm when it is time, and not a moment before.
fn is_left(swarm: &mut Swarm, task: Uuid) {
    swarm.0.advance(limits::TASK_UNCLAIMED - STEP);
    assert_eq!(swarm.0.entity.alarm(), None);
    swarm.0.advance(STEP);
    let alarm = swarm.0.entity.alarm().unwrap();
    assert!(alarm.contains(&task.to_string()) && alarm.contains("default"), "{alarm}");
}

#[test]
fn work_that_nobody_claims_is_an_alarm_until_somebody_does() {
    let mut swarm = Swarm::new();
    let task = swarm.task(Target::Pool);
    is_left(&mut swarm, task);
    assert!(swarm.0.restored().alarm().is_some(), "a new owner knows it");
    swarm.0.advance(3 * limits::TASK_UNCLAIMED);
    assert!(swarm.0.entity.alarm().is_some());
    swarm.run(claim(ANN, task)).unwrap();
    assert_eq!(swarm.0.entity.alarm(), None);
    // What cannot be claimed yet is nobody's neglect.
    let mut spec = TaskSpec::new("later");
    spec.depends_on = vec![task];
    swarm.create(spec, Target::Pool);
    lives_on(&mut swarm, ANN, 2 * limits::TASK_UNCLAIMED);
    assert_eq!(swarm.0.entity.alarm(), None);
}

#[test]
fn work_that_its_agent_does_not_begin_is_an_alarm_until_it_does() {
    let mut swarm = Swarm::new();
    let (first, _news) = (swarm.assigned(ANN), swarm.assigned(LEAD));
    is_left(&mut swarm, first);
    assert!(swarm.0.entity.alarm().unwrap().contains("agent ann"));
    swarm.0.advance(3 * limits::TASK_UNCLAIMED);
    assert!(swarm.0.entity.alarm().is_some());
    let wake = swarm.0.entity.next_wake().expect("the next owner finds the pool by its timer");
    assert!(wake > swarm.0.now && wake <= swarm.0.now + limits::TASK_UNCLAIMED);
    swarm.0.restart();
    is_left(&mut swarm, first);
    swarm.poll(ANN);
    assert_eq!(swarm.0.entity.alarm(), None);
    // What waits behind it has its time from when the agent could begin it.
    let second = swarm.assigned(ANN);
    lives_on(&mut swarm, ANN, 2 * limits::TASK_UNCLAIMED);
    assert_eq!(swarm.0.entity.alarm(), None);
    swarm.finish(first, ANN, completed("done")).unwrap();
    is_left(&mut swarm, second);
    swarm.run(Command::Leave { agent: ANN }).unwrap();
    assert_eq!(swarm.0.entity.alarm(), None, "the pool has it, and somebody else the time to claim it");
}

#[test]
fn what_waits_behind_work_that_goes_on_is_an_alarm_once_it_is_next() {
    let mut swarm = Swarm::new();
    let tags = vec!["docs".to_owned()];
    let last = swarm.create(TaskSpec { priority: 10, tags, ..TaskSpec::new("in time") }, Target::Pool);
    let mut urgent = swarm.task(Target::Pool);
    for _ in 0..4 {
        swarm.0.advance(limits::TASK_UNCLAIMED - STEP);
        assert_eq!(swarm.0.entity.alarm(), None);
        let next = swarm.task(Target::Pool);
        swarm.run(claim(ANN, urgent)).unwrap();
        swarm.finish(urgent, ANN, completed("done")).unwrap();
        urgent = next;
    }
    swarm.run(claim(ANN, urgent)).unwrap();
    swarm.0.advance(STEP);
    assert!(swarm.0.entity.alarm().unwrap().contains(&last.to_string()));
}

#[test]
fn work_that_waits_for_other_work_has_its_time_from_when_it_can_be_claimed() {
    let mut swarm = Swarm::new();
    let first = swarm.assigned(ANN);
    swarm.poll(ANN);
    let then = swarm.create(TaskSpec { depends_on: vec![first], ..TaskSpec::new("then") }, Target::Pool);
    lives_on(&mut swarm, ANN, 2 * limits::TASK_UNCLAIMED);
    swarm.finish(first, ANN, completed("done")).unwrap();
    assert_eq!(swarm.body(then)["lastUpdatedAt"], swarm.0.now.iso());
    is_left(&mut swarm, then);
}

#[test]
fn a_task_that_whoever_takes_it_dies_of_is_failed_in_the_end() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(ANN);
    for generation in 1..limits::TASK_GENERATIONS_MAX {
        let who = swarm.head(task).agent.unwrap();
        let mut polled = swarm.poll(who);
        while polled.0.as_ref().is_some_and(|got| got.id != task) {
            swarm.finish(polled.0.unwrap().id, who, completed("seen")).unwrap();
            polled = swarm.poll(who);
        }
        let end = Command::EndInstance { instance: instance(who), reason: "it crashed".to_owned() };
        swarm.run(end.clone()).unwrap();
        assert_eq!(swarm.head(task).generation, generation);
        // One recovery for each lease: the news of the same death changes nothing more.
        let events = swarm.0.events.len();
        swarm.run(end).unwrap();
        assert_eq!(swarm.0.events.len(), events);
    }
    assert_eq!(swarm.head(task).agent, Some(LEAD));
    swarm.poll(LEAD);
    swarm.run(Command::EndInstance { instance: instance(LEAD), reason: "it crashed".to_owned() }).unwrap();
    assert_eq!(swarm.status(task), Status::Failed);
    assert!(swarm.body(task)["failureReason"].as_str().unwrap().contains("10 times"));
}
