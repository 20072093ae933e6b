//! What coding agents are told at their hooks.

use skein_shared::pool::{Rules, Target, TaskSpec};

use super::*;
use crate::auth::Principal;
use crate::service::swarm::Introduction;
use crate::service::tasks::{Action, Wanted};

impl Bed {
    fn service(&self) -> Service {
        Service::new(self.node.entities.clone())
    }

    async fn joins(&self, of: &str, role: Role) -> (Principal, String) {
        let (who, lead) = (Principal::named(of, role), role == Role::Lead);
        let introduction = Introduction { name: of.to_owned(), lead, ..Introduction::default() };
        self.service().join(&who, Uuid::now_v7(), introduction).await.unwrap();
        (who, self.token(of, role, None))
    }

    /// A task of the pool.
    async fn task(&self, text: &str) -> Uuid {
        self.task_by(&Principal::named("boss", Role::Operator), text).await
    }

    async fn task_by(&self, who: &Principal, text: &str) -> Uuid {
        let wanted = Wanted { spec: TaskSpec::new(text), target: Target::Pool, rules: Rules::Plain };
        let made = Box::pin(self.service().send_task(who, Uuid::now_v7(), wanted)).await.unwrap().task;
        Uuid::try_parse(made["id"].as_str().unwrap()).unwrap()
    }

    async fn act(&self, who: &Principal, task: Uuid, action: Action) {
        Box::pin(self.service().act(who, Uuid::now_v7(), task, action)).await.unwrap();
    }

    async fn cancel(&self, task: Uuid) {
        let operator = Principal::named("boss", Role::Operator);
        self.act(&operator, task, Action::Cancel { reason: Some("it rains".to_owned()) }).await;
    }

    /// What is said to an event; nothing but that it was heard is null.
    async fn hears(&self, token: &str, event: Value) -> Value {
        let (status, mut told) = self.post("/hook", token, event.clone()).await;
        assert_eq!((status, &told["ok"]), (200, &json!(true)), "{event}: {told}");
        told.as_object_mut().unwrap().remove("ok");
        if told == json!({}) { Value::Null } else { told }
    }
}

#[tokio::test]
async fn a_worker_is_stopped_whose_task_was_cancelled_until_it_has_another() {
    let bed = Bed::new();
    let (ann, token) = bed.joins("ann", Role::Worker).await;
    let (before, prompt) = (json!({ "event": "PreToolUse" }), json!({ "event": "UserPromptSubmit" }));
    let task = bed.task("dig a hole").await;
    bed.act(&ann, task, Action::Claim).await;
    assert_eq!(bed.hears(&token, before.clone()).await, Value::Null);

    bed.cancel(task).await;
    for event in [&before, &prompt] {
        let told = bed.hears(&token, event.clone()).await;
        let reason = told["block"].as_str().unwrap_or_default();
        let is_told = ["dig a hole", "it rains", &task.to_string()].iter().all(|part| reason.contains(part));
        assert!(is_told && reason.contains("Stop working"), "{event}: {told}");
    }
    assert_eq!(bed.hears(&token, json!({ "event": "PostToolUse" })).await, Value::Null);
    // A session that began since then had no part in it.
    assert_eq!(bed.hears(&token, json!({ "event": "PreToolUse", "sessionAgeMs": 0 })).await, Value::Null);
    let (_, other) = bed.joins("bob", Role::Worker).await;
    assert_eq!(bed.hears(&other, before.clone()).await, Value::Null, "it was never its own");

    let next = bed.task("fill it in").await;
    bed.act(&ann, next, Action::Claim).await;
    assert_eq!(bed.hears(&token, before).await, Value::Null);
}

#[tokio::test]
async fn what_a_worker_had_not_begun_and_what_a_lead_does_goes_on() {
    let bed = Bed::new();
    let ((lead, led), (ann, token)) =
        (bed.joins("lead", Role::Lead).await, bed.joins("ann", Role::Worker).await);
    let wanted = Wanted {
        spec: TaskSpec::new("dig"),
        target: Target::Assign { agent: Some(ann.agent) },
        rules: Rules::Plain,
    };
    let sent = Box::pin(bed.service().send_task(&lead, Uuid::now_v7(), wanted)).await.unwrap().task;
    bed.cancel(Uuid::try_parse(sent["id"].as_str().unwrap()).unwrap()).await;
    let own = bed.task("plan").await;
    bed.act(&lead, own, Action::Claim).await;
    bed.cancel(own).await;
    // One that it has made and cancels itself.
    let whim = bed.task_by(&ann, "paint it").await;
    bed.act(&ann, whim, Action::Claim).await;
    bed.act(&ann, whim, Action::Cancel { reason: None }).await;
    for token in [token, led] {
        assert_eq!(bed.hears(&token, json!({ "event": "PreToolUse" })).await, Value::Null);
    }
}

#[tokio::test]
async fn who_has_polled_in_vain_polls_no_more_until_it_joins_again() {
    let bed = Bed::new();
    let (ann, token) = bed.joins("ann", Role::Worker).await;
    let (poll, other) =
        (json!({ "event": "PreToolUse", "tool": "poll-task" }), json!({ "event": "PreToolUse" }));
    for _ in 0..2 {
        assert_eq!(bed.hears(&token, poll.clone()).await, Value::Null);
        Box::pin(bed.service().poll_task(&ann, Uuid::now_v7(), Duration::ZERO)).await.unwrap();
    }
    let told = bed.hears(&token, poll.clone()).await;
    assert!(told["block"].as_str().is_some_and(|said| said.contains("2 polls in a row")), "{told}");
    assert_eq!(bed.hears(&token, other).await, Value::Null);
    bed.joins("ann", Role::Worker).await;
    assert_eq!(bed.hears(&token, poll).await, Value::Null);
}

#[tokio::test]
async fn a_session_is_told_who_it_is_and_what_it_is_at() {
    let bed = Bed::new();
    let (start, compact) = (json!({ "event": "SessionStart" }), json!({ "event": "PreCompact" }));
    let says = async |token: &str, event: &Value| {
        let told = bed.hears(token, event.clone()).await;
        told["say"].as_str().unwrap_or_default().to_owned()
    };
    assert!(says(&bed.worker("ann"), &start).await.contains("call join-swarm first"));
    let (ann, token) = bed.joins("ann", Role::Worker).await;
    assert_eq!(says(&token, &compact).await, "", "it is at nothing");
    let (task, _) = (bed.task("dig a hole").await, bed.task("fill it in").await);
    bed.act(&ann, task, Action::Claim).await;
    let said = says(&token, &start).await;
    for part in ["You are ann (", "a worker.", "in the pool: 1,", "with you: 1.", "dig a hole"] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    let said = says(&token, &compact).await;
    assert!(said.contains(&task.to_string()) && said.contains("dig a hole"), "{said}");
    let (_, lead) = bed.joins("lead", Role::Lead).await;
    let said = says(&lead, &start).await;
    assert!(said.contains("its lead.") && said.contains("Tasks in progress in the swarm:"), "{said}");
}

#[tokio::test]
async fn who_may_not_work_is_told_nothing_and_too_many_questions_are_refused() {
    let bed = Bed::with(Gate::new(Limits { reads_per_second: 1, ..Limits::default() }));
    let readonly = View::parse("full/readonly").unwrap();
    let claims = Claims { view: Some(readonly), ..bed.claims("ann", Role::Worker) };
    let readonly = bed.keys.issue(claims, bed.clock.wall()).unwrap().text().to_owned();
    for token in [readonly, bed.token("eve", Role::Observer, None)] {
        assert_eq!(bed.post("/hook", &token, json!({ "event": "SessionStart" })).await.0, 403);
    }
    let (_, token) = bed.joins("bob", Role::Worker).await;
    let mut answers = Vec::new();
    for _ in 0..9 {
        answers.push(bed.post("/hook", &token, json!({ "event": "PostToolUse" })).await.0);
    }
    assert!(answers[0] == 200 && answers.contains(&429), "{answers:?}");
}
