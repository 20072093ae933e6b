use std::time::Duration;

use super::*;
use crate::entity::Entity;
use crate::limits;

const STEP: Duration = Duration::from_secs(1);

fn alive(swarm: &mut Swarm, agent: Uuid) {
    let now = swarm.0.now;
    let instances = vec![instance(agent).to_string()];
    swarm.0.entity.observe(&Signal::RunnerAlive { runner: "r".to_owned(), instances }, now);
}

#[test]
fn a_silent_runner_loses_the_task_to_the_same_agent_then_to_the_pool() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(ANN);
    swarm.poll_managed(ANN);
    swarm.0.advance(limits::TASK_LEASE_RUNNER - STEP);
    assert_eq!(swarm.status(task), Status::InProgress);
    swarm.0.advance(STEP);
    let head = swarm.head(task);
    assert_eq!((head.status, head.agent, head.generation), (Status::Pending, Some(ANN), 1));
    assert_eq!(swarm.member(ANN)["status"], "idle");
    swarm.0.advance(limits::TASK_RETURN - STEP);
    assert_eq!(swarm.status(task), Status::Pending);
    swarm.0.advance(STEP);
    assert_eq!((swarm.status(task), swarm.head(task).generation), (Status::Unassigned, 1));
    swarm.run(claim(BOB, task)).unwrap();
    assert_eq!(swarm.head(task).attempt, 2);
}

#[test]
fn signs_of_life_renew_without_a_commit() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(ANN);
    swarm.poll_managed(ANN);
    let events = swarm.0.events.len();
    for _ in 0..10 {
        swarm.0.advance(limits::TASK_LEASE_RUNNER / 2);
        alive(&mut swarm, ANN);
    }
    assert_eq!((swarm.status(task), swarm.0.events.len()), (Status::InProgress, events));
    swarm.0.advance(limits::TASK_LEASE_RUNNER);
    assert_eq!(swarm.status(task), Status::Pending);
}

#[test]
fn an_agent_without_a_runner_lives_by_its_calls() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(ANN);
    swarm.poll(ANN);
    swarm.0.advance(limits::TASK_LEASE_AGENT / 2);
    let now = swarm.0.now;
    swarm.0.entity.observe(&Signal::AgentsAlive { agents: vec![(ANN, "other".into())] }, now);
    swarm.0.advance(limits::TASK_LEASE_AGENT - STEP);
    assert_eq!(swarm.status(task), Status::InProgress);
    swarm.0.advance(STEP);
    assert_eq!(swarm.status(task), Status::Pending);
}

#[test]
fn a_new_owner_waits_one_period() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(ANN);
    let offer = swarm.task(Target::Offer { agent: Some(BOB) });
    swarm.poll_managed(ANN);
    swarm.0.now = swarm.0.now + Duration::from_secs(86_400);
    swarm.0.restart();
    swarm.0.advance(limits::TASK_LEASE_RUNNER - STEP);
    assert_eq!((swarm.status(task), swarm.status(offer)), (Status::InProgress, Status::Offered));
    swarm.0.advance(STEP);
    assert_eq!((swarm.status(task), swarm.status(offer)), (Status::Pending, Status::Offered));
    swarm.0.advance(limits::OFFER);
    assert_eq!(swarm.status(offer), Status::Unassigned);
    assert!(!swarm.body(offer).contains_key("offeredTo"));
}

#[test]
fn a_task_that_keeps_losing_its_agent_goes_to_the_lead() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(ANN);
    for _ in 0..limits::TASK_GENERATIONS {
        swarm.poll_managed(ANN).unwrap();
        let reason = "exited".to_owned();
        swarm.run(Command::EndInstance { instance: instance(ANN), reason }).unwrap();
    }
    let head = swarm.head(task);
    assert_eq!((head.status, head.agent, head.until), (Status::Pending, Some(LEAD), None));
    assert_eq!(head.generation, limits::TASK_GENERATIONS);
    assert_eq!(swarm.body(task)["needsAttention"], true);
    assert_eq!(swarm.poll(LEAD).0.unwrap().id, task);
    swarm.finish(task, LEAD, completed("done")).unwrap();
    assert_eq!(swarm.body(task)["needsAttention"], false, "it has had it");
}

#[test]
fn a_sleeping_instance_keeps_its_tasks_and_is_told_so() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(ANN);
    swarm.poll_managed(ANN);
    let (wait, until) = (Uuid::from_u128(4), swarm.0.now + Duration::from_secs(86_400));
    let name = Name::parse("ann").unwrap();
    let reply_to = EntityKey::agent(&name, &name);
    let extend =
        |instance| Command::ExtendLease { instance, until, wait, reply_to: reply_to.clone(), over: false };
    swarm.run(extend(instance(ANN))).unwrap();
    swarm.run(extend(InstanceId("without-tasks".to_owned()))).unwrap();
    let told = swarm.sent(Kind::Agent);
    assert_eq!(told, vec![serde_json::json!({"leases_extended": {"wait": wait}}); 2]);
    swarm.0.restart();
    swarm.0.advance(Duration::from_secs(86_399));
    assert_eq!(swarm.status(task), Status::InProgress);
    swarm.0.advance(STEP);
    assert_eq!(swarm.status(task), Status::Pending);
}

#[test]
fn a_task_has_a_usual_lease_again_once_the_wait_is_over() {
    let (day, longest) = (Duration::from_secs(86_400), Duration::from_secs(14 * 86_400));
    // Also when little of the wait is left.
    for (managed, waited) in
        [(false, day), (true, day), (false, longest - STEP), (true, longest - 2 * limits::TASK_RETURN)]
    {
        let mut swarm = Swarm::new();
        let task = swarm.assigned(ANN);
        match managed {
            true => drop(swarm.poll_managed(ANN)),
            false => drop(swarm.poll(ANN)),
        }
        let name = Name::parse("ann").unwrap();
        let extend = |until, over| Command::ExtendLease {
            instance: instance(ANN),
            until,
            wait: Uuid::from_u128(4),
            reply_to: EntityKey::agent(&name, &name),
            over,
        };
        let until = swarm.0.now + longest;
        swarm.run(extend(until, false)).unwrap();
        swarm.0.advance(waited);
        let woken = extend(swarm.0.now, true);
        swarm.run(woken.clone()).unwrap();
        assert_eq!(swarm.sent(Kind::Agent).len(), 1, "nobody waits for the word");
        let events = swarm.0.events.len();
        swarm.run(woken).unwrap();
        assert_eq!(swarm.0.events.len(), events, "nothing lasts otherwise than by itself");
        swarm.0.restart();
        swarm.0.advance(limits::TASK_LEASE_AGENT - STEP);
        assert_eq!(swarm.status(task), Status::InProgress);
        swarm.0.advance(STEP);
        assert_eq!(swarm.status(task), Status::Pending);
    }
}

#[test]
fn a_paused_task_whose_agent_stays_away_is_returned() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(ANN);
    swarm.poll_managed(ANN);
    swarm.run(Command::Pause { task, by: Some(ANN) }).unwrap();
    swarm.0.advance(limits::TASK_LEASE_AGENT - STEP);
    assert_eq!(swarm.status(task), Status::Paused);
    swarm.0.advance(STEP);
    assert_eq!(swarm.status(task), Status::Pending);
}

#[test]
fn heads_are_small() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(ANN);
    swarm.poll_managed(ANN);
    swarm.0.advance(Duration::from_secs(599));
    let head = swarm.head(task);
    let text = serde_json::to_string(&head).unwrap();
    assert!(text.len() <= 192, "{} bytes: {text}", text.len());
}

/// Each answer is kept for its repeat.
#[test]
fn answers_about_tasks_are_small_and_those_of_before_can_be_read() {
    let mut swarm = Swarm::new();
    let task = swarm.task(Target::Pool);
    let view = swarm.head(task).view(task);
    let text = serde_json::to_string(&view).unwrap();
    assert!(
        !text.contains("null") && !text.contains("[]") && text.len() <= 192,
        "{} bytes: {text}",
        text.len()
    );
    let mut whole: Map<String, Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::from_str::<TaskView>(&text).unwrap(), view);
    for none in ["agent", "offered_to", "instance", "until", "epic", "schedule"] {
        assert_eq!(whole.insert(none.to_owned(), Value::Null), None);
    }
    for empty in ["depends_on", "unmet", "blocked_by"] {
        assert_eq!(whole.insert(empty.to_owned(), Value::Array(Vec::new())), None);
    }
    assert_eq!(whole.insert("generation".to_owned(), 0.into()), None);
    assert_eq!(serde_json::from_value::<TaskView>(Value::Object(whole)).unwrap(), view);
}

#[test]
fn without_a_lead_such_a_task_stays_in_the_pool_and_shows_it() {
    let mut swarm = Swarm::new();
    swarm.run(Command::Leave { agent: LEAD }).unwrap();
    let task = swarm.assigned(ANN);
    for _ in 0..limits::TASK_GENERATIONS {
        swarm.poll_managed(ANN).unwrap();
        let reason = "exited".to_owned();
        swarm.run(Command::EndInstance { instance: instance(ANN), reason }).unwrap();
    }
    let body = swarm.body(task);
    assert_eq!((&body["status"], &body["needsAttention"]), (&"unassigned".into(), &true.into()));
    assert_eq!(body["returnReason"], "exited");
}
