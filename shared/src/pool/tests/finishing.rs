use serde_json::json;

use super::*;
use crate::costs::Cost;
use crate::limits;
use crate::memory::Memory;

#[test]
fn a_result_ends_the_task_and_tells_the_lead() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(ANN);
    swarm.poll(ANN);
    let context = serde_json::json!({"slackThreadTs": "1.2"}).as_object().cloned().unwrap();
    let about = About { text: "write the docs of the pool".into(), context, ..About::default() };
    let report = Progress { finish: Some(completed("all written")), about: Some(about), ..report(task, ANN) };
    swarm.run(Command::Progress(Box::new(report))).unwrap();
    let body = swarm.body(task);
    assert_eq!((&body["status"], &body["output"]), (&"completed".into(), &"all written".into()));
    assert!(body.contains_key("finishedAt") && body["agentId"] == ANN.to_string());
    assert!(swarm.0.entity.task(task).is_none());
    assert_eq!(swarm.member(ANN)["status"], "idle");

    let (follow_up, _, _) = swarm.poll(LEAD);
    let body = swarm.body(follow_up.unwrap().id);
    assert_eq!(body["taskType"], "follow-up");
    assert_eq!(body["source"], "system");
    assert_eq!(body["parentTaskId"], task.to_string());
    assert_eq!(body["slackThreadTs"], "1.2");
    let text = body["task"].as_str().unwrap();
    for part in ["ann", "write the docs of the pool", "all written", &task.to_string()] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    let memories = swarm.sent(Kind::Memory);
    assert_eq!(memories.len(), 1);
    let memory = &memories[0]["remember"];
    assert_eq!((&memory["scope"], &memory["agent"]), (&"agent".into(), &ANN.to_string().into()));
    assert_eq!(memory["source"], "task_completion");
}

#[test]
fn shared_knowledge_is_remembered_by_the_swarm() {
    let mut swarm = Swarm::new();
    for (kind, tag, want) in [("research", "x", 2), ("code", "shared", 2), ("code", "x", 1)] {
        let before = swarm.sent(Kind::Memory).len();
        let task = swarm.task(Target::Pool);
        swarm.run(claim(ANN, task)).unwrap();
        let about = About {
            text: "find out how geese fly".into(),
            task_type: Some(kind.into()),
            tags: vec![tag.into()],
            ..About::default()
        };
        let report = Progress { finish: Some(completed("in a v")), about: Some(about), ..report(task, ANN) };
        swarm.run(Command::Progress(Box::new(report))).unwrap();
        assert_eq!(swarm.sent(Kind::Memory).len() - before, want, "{kind} {tag}");
    }
}

#[test]
fn the_memory_takes_what_is_learnt_whatever_is_long_in_it() {
    let mut swarm = Swarm::new();
    let mut memory: Bench<Memory> = Bench::new(EntityKey::of(Kind::Memory, &swarm.0.key.swarm));
    let long = "ö".repeat(limits::TEXT / 2);
    let tags: Vec<String> = (0..limits::TAGS).map(|n| format!("t{n}")).collect();
    let failed = Finish::Failed { reason: Some(format!("why {long}")[..limits::TEXT].to_owned()) };
    let reasons = [
        (&tags[..], "short", completed(&long)),
        (&tags[..1], &long, completed("not to be lost")),
        (&[String::new()], &long, failed),
    ];
    for (tags, text, finish) in reasons {
        let mut spec = TaskSpec::new(text);
        spec.tags = tags.to_vec();
        spec.epic_name = Some("e".repeat(200));
        let task = swarm.create(spec, Target::Assign { agent: Some(ANN) });
        let about = About::of_body(&Json::of(&swarm.body(task)));
        let report = Progress { finish: Some(finish), about, ..report(task, ANN) };
        swarm.run(Command::Progress(Box::new(report))).unwrap();
        let told = swarm.sent(Kind::Memory).pop().unwrap();
        let result = told["remember"]["content"].as_str().unwrap().split("\n\n").nth(1).unwrap().to_owned();
        assert!(
            ["Output: ö", "Output: not to be lost", "Failed: why ö"].iter().any(|t| result.starts_with(t))
        );
        let reply = memory.run(serde_json::from_value(told).unwrap()).unwrap();
        assert!(matches!(reply, crate::memory::Reply::Remembered(_)), "{reply:?}");
    }
}

#[test]
fn the_lead_gets_no_follow_up_to_its_own_task() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(LEAD);
    swarm.poll(LEAD);
    swarm.finish(task, LEAD, completed("done")).unwrap();
    assert!(swarm.poll(LEAD).0.is_none());
}

#[test]
fn only_the_assignee_reports_and_only_on_what_it_was_given() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(ANN);
    assert_eq!(swarm.say(task, BOB, "me too").unwrap_err().code, Code::Forbidden);
    let free = swarm.task(Target::Pool);
    assert_eq!(swarm.say(free, ANN, "mine").unwrap_err().code, Code::Forbidden);
    let admin = Progress { by: None, finish: Some(completed("")), ..report(free, ANN) };
    assert_eq!(swarm.refused(Command::Progress(Box::new(admin))), Code::WrongState);
    swarm.say(task, ANN, "started").unwrap();
    assert_eq!((swarm.status(task), swarm.head(task).reported), (Status::InProgress, true));
    let second = swarm.assigned(ANN);
    assert_eq!(swarm.say(second, ANN, "and this").unwrap_err().code, Code::NoCapacity);
}

#[test]
fn the_same_news_within_minutes_is_no_event() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(ANN);
    swarm.say(task, ANN, "half").unwrap();
    let events = swarm.0.events.len();
    swarm.say(task, ANN, "half").unwrap();
    assert_eq!(swarm.0.events.len(), events);
    swarm.0.advance(std::time::Duration::from_secs(301));
    swarm.say(task, ANN, "half").unwrap();
    assert_eq!(swarm.0.events.len(), events + 1);
}

#[test]
fn what_it_cost_is_kept_with_the_result() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(ANN);
    let cost = |usd, turns| {
        let cost = serde_json::json!({"totalCostUsd": usd, "inputTokens": 1200, "numTurns": turns});
        serde_json::from_value::<Cost>(cost).unwrap()
    };
    let mut report = |cost| {
        let report = Progress { finish: Some(completed("done")), cost: Some(cost), ..report(task, ANN) };
        swarm.run(Command::Progress(Box::new(report)))
    };
    for wrong in [cost(-0.1, 1), cost(0.1, 0)] {
        assert_eq!(report(wrong).unwrap_err().code, Code::InvalidArgument);
    }
    report(cost(0.25, 3)).unwrap();
    let kept = serde_json::json!({"totalCostUsd": 0.25, "inputTokens": 1200, "numTurns": 3});
    assert_eq!(swarm.body(task)["costData"], kept);
    let told = swarm.sent(Kind::Costs);
    assert_eq!(told.len(), 1, "the swarm adds it up: {told:?}");
    let told = &told[0]["report"];
    assert_eq!((&told["task"], &told["agent"], &told["failed"]), (&json!(task), &json!(ANN), &json!(false)));
    assert_eq!(told["cost"], kept);
}

#[test]
fn who_ends_the_task_of_another_speaks_for_itself() {
    let mut swarm = Swarm::new();
    for by in [LEAD, BOB] {
        let (spec, target) = (TaskSpec::new("do it"), Target::Assign { agent: Some(ANN) });
        let create = Create { by: Some(BOB), spec, target, rules: Rules::Plain, facts: Vec::new() };
        let task = created(swarm.run(Command::Create(Box::new(create))));
        let cost = json!({"totalCostUsd": 0.25, "inputTokens": 1200, "numTurns": 3});
        let about = About { text: "write the docs of the pool".into(), ..About::default() };
        let report = Progress {
            finish: Some(completed("nobody needs them any more")),
            cost: serde_json::from_value(cost).unwrap(),
            about: Some(about),
            ..report(task, by)
        };
        swarm.run(Command::Progress(Box::new(report))).unwrap();
        let (costs, memory) = (swarm.sent(Kind::Costs).pop(), swarm.sent(Kind::Memory).pop());
        assert_eq!(costs.unwrap()["report"]["agent"], json!(by));
        assert_eq!(memory.unwrap()["remember"]["agent"], json!(by));
    }
    let follow_up = swarm.poll(LEAD).0.unwrap();
    let text = swarm.body(follow_up.id)["task"].as_str().unwrap().to_owned();
    assert!(text.starts_with("bob has completed a task of ann."), "{text}");
}

#[test]
fn the_first_result_stays() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(ANN);
    swarm.finish(task, ANN, completed("one")).unwrap();
    let again = swarm.finish(task, ANN, completed("one")).unwrap_err();
    assert_eq!(again.code, Code::NotFound, "an ended task is answered from its body");
    let body = swarm.body(task);
    let finish = |by, finish| answer_for_ended(&body, &Attempted::Finish { by: Some(by), finish });
    assert!(finish(ANN, completed("one")).is_ok());
    for other in [completed("two"), Finish::Failed { reason: None }] {
        let refusal = finish(ANN, other).unwrap_err();
        assert_eq!(refusal.code, Code::WrongState);
        assert!(refusal.message.contains("completed"));
    }
    assert!(finish(LEAD, completed("one")).is_ok(), "its creator may have ended it");
    assert_eq!(finish(LEAD, completed("two")).unwrap_err().code, Code::WrongState);
    assert_eq!(finish(BOB, completed("one")).unwrap_err().code, Code::Forbidden);
    assert!(answer_for_ended(&body, &Attempted::Progress { by: Some(ANN) }).is_ok());
    let cancel = answer_for_ended(&body, &Attempted::Cancel).unwrap_err();
    assert!(cancel.message.contains("completed"));

    let failed = swarm.assigned(ANN);
    swarm.finish(failed, ANN, Finish::Failed { reason: None }).unwrap();
    let attempt = Attempted::Finish { by: Some(ANN), finish: Finish::Failed { reason: None } };
    assert!(answer_for_ended(&swarm.body(failed), &attempt).is_ok());
}

#[test]
fn lead_or_creator_cancels() {
    let mut swarm = Swarm::new();
    let task = swarm.assigned(ANN);
    let cancel = |by, reason: Option<&str>| Command::Cancel { task, by, reason: reason.map(str::to_owned) };
    assert_eq!(swarm.refused(cancel(Some(ANN), None)), Code::Forbidden);
    swarm.poll(ANN);
    swarm.run(cancel(Some(LEAD), Some("changed our mind"))).unwrap();
    let body = swarm.body(task);
    assert_eq!((&body["status"], &body["failureReason"]), (&"cancelled".into(), &"changed our mind".into()));
    assert_eq!(swarm.member(ANN)["status"], "idle");
    assert_eq!(swarm.refused(cancel(Some(LEAD), None)), Code::NotFound);
    // Whoever worked on it learns why.
    let finish = Attempted::Finish { by: Some(ANN), finish: completed("done") };
    for attempted in [finish, Attempted::Other("paused")] {
        let refusal = answer_for_ended(&body, &attempted).unwrap_err();
        assert!(refusal.message.contains("cancelled") && refusal.message.contains("changed our mind"));
    }
}

#[test]
fn the_reason_of_a_cancellation_or_a_rejection_is_bounded() {
    let mut swarm = Swarm::new();
    let task = swarm.task(Target::Offer { agent: Some(ANN) });
    let reason = |length: usize| Some("ö".repeat(length));
    let reject = |length| Command::Reject { agent: ANN, task, reason: reason(length) };
    assert_eq!(swarm.refused(reject(limits::REASON + 1)), Code::TooLarge);
    swarm.run(reject(limits::REASON)).unwrap();
    let cancel = |length| Command::Cancel { task, by: Some(LEAD), reason: reason(length) };
    assert_eq!(swarm.refused(cancel(limits::REASON + 1)), Code::TooLarge);
    swarm.run(cancel(limits::REASON)).unwrap();
}

#[test]
fn about_is_read_from_a_body() {
    let mut swarm = Swarm::new();
    let mut spec = TaskSpec::new("look around");
    spec.tags = vec!["shared".to_owned()];
    spec.context.insert("slackThreadTs".to_owned(), "1.2".into());
    spec.context.insert("githubRepo".to_owned(), "a/b".into());
    let task = swarm.create(spec, Target::Pool);
    let ends =
        || Command::Progress(Box::new(Progress { finish: Some(completed("seen")), ..report(task, ANN) }));
    let mut command = ends();
    Pool::consulted(&mut command, &Json::of(&swarm.body(task)));
    let Command::Progress(told) = &command else { panic!("{command:?}") };
    let read = told.about.clone().unwrap();
    assert_eq!((read.text.as_str(), read.tags.as_slice()), ("look around", &["shared".to_owned()][..]));
    assert_eq!(read.context.len(), 1);

    // It is looked up once and only for what ends a task, and makes no other request of it.
    let document = Some(format!("task/{task}"));
    assert_eq!((Pool::consults(&ends()), Pool::consults(&command)), (document, None));
    assert_eq!(Pool::consults(&Command::Progress(Box::new(report(task, ANN)))), None);
    assert_eq!(Pool::asked(&command), Some(ends()));
    assert_eq!(Pool::asked(&ends()), None);
}
