//! Agents call one another.

use super::*;
use crate::service::views;

fn call_of(target: &str) -> Value {
    json!({ "target_agent": target, "context": "go on" })
}

/// The run that this call asks for. No runner is there to start it, and it speaks all the same.
async fn called(face: &Face, caller: &Agent, target: &str) -> Agent {
    face.define(target, agent::Definition::default()).await;
    let call = face.facts(caller, "call_agent", call_of(target)).await;
    assert_eq!(call["ok"], true, "{call}");
    let agent::Reply::Overview(all) = face.tell(target, agent::Command::List).await else {
        panic!("no list")
    };
    let run = all.instances.iter().find(|run| json!(run.call) == call["call_id"]).unwrap();
    face.running(target, run.id.clone())
}

/// What a call is told that is refused, which is no error.
async fn rejected(face: &Face, caller: &Agent, target: &str) -> Value {
    let answer = face.call(caller, "call_agent", call_of(target)).await;
    assert_eq!(answer["isError"], false, "{answer}");
    assert!(answer["content"][0]["text"].as_str().unwrap().starts_with("Call rejected: "), "{answer}");
    answer["structuredContent"].clone()
}

#[tokio::test]
async fn an_agent_that_was_called_calls_none_of_its_callers() {
    let face = Face::new();
    let (_, planner) = face.run("planner").await;
    let coder = called(&face, &planner, "coder").await;
    let tester = called(&face, &coder, "tester").await;
    for (caller, target) in [(&coder, "planner"), (&tester, "coder"), (&tester, "planner")] {
        let told = rejected(&face, caller, target).await;
        assert_eq!(told["code"], "cycle", "{target}: {told}");
        assert!(told["reason"].as_str().unwrap().contains("return a value to it instead"), "{told}");
    }
}

#[tokio::test]
async fn an_agent_that_took_a_call_by_waiting_does_not_call_its_caller() {
    let (face, lead, worker) = swarm().await;
    for agent in [&lead, &worker] {
        face.facts(agent, "set_status", json!({ "text": "here" })).await;
    }
    face.facts(&lead, "call_agent", call_of("worker")).await;
    face.facts(&worker, "wait_for_trigger", json!({ "type": "agent_trigger" })).await;
    assert_eq!(rejected(&face, &worker, "lead").await["code"], "cycle");
    // With the value it is done with that call.
    face.facts(&worker, "return_value", json!({ "value": "done" })).await;
    assert_eq!(face.facts(&worker, "call_agent", call_of("lead")).await["ok"], true);
}

#[tokio::test]
async fn a_chain_of_calls_goes_no_deeper_than_its_limit() {
    let face = Face::new();
    let (_, mut last) = face.run("agent-0").await;
    for depth in 1..=limits::CALL_DEPTH {
        last = called(&face, &last, &format!("agent-{depth}")).await;
    }
    // It would take the call of anyone else: nothing but the depth is in the way.
    face.define("next", agent::Definition::default()).await;
    let told = rejected(&face, &last, "next").await;
    assert_eq!(told["code"], "depth_exceeded", "{told}");
    assert!(told["reason"].as_str().unwrap().contains("do the work in this run"), "{told}");
}

#[tokio::test]
async fn a_full_queue_refuses_a_call_and_says_what_to_do() {
    let face = Face::new();
    let lead = face.agent("lead", Role::Lead);
    face.define("busy", agent::Definition { work_queue: 1, ..agent::Definition::default() }).await;
    // The first looks for a runner, so the second is all that waits in the queue.
    for _ in 0..2 {
        let taken = face.facts(&lead, "call_agent", call_of("busy")).await;
        assert_eq!(taken["ok"], true, "{taken}");
    }
    let told = rejected(&face, &lead, "busy").await;
    assert_eq!(told["code"], "queue_full", "{told}");
    assert!(told["reason"].as_str().unwrap().contains("try again later"), "{told}");
}

#[tokio::test]
async fn calls_that_are_refused_are_listed_with_the_reason() {
    let (face, lead, _) = swarm().await;
    face.define("off", agent::Definition { enabled: false, ..agent::Definition::default() }).await;
    for (target, code) in [("off", "disabled"), ("lead", "self_call"), ("nobody", "not_found")] {
        assert_eq!(rejected(&face, &lead, target).await["code"], code);
    }
    // A question that was wrong is no call.
    face.call(&lead, "call_agent", call_of("no name")).await;
    let listed = listed_for(&face, &face.agent("operator", Role::Operator)).await;
    let said = |row: &Value| row["errorMessage"].as_str().unwrap().split(':').next().unwrap().to_owned();
    let mut told: Vec<_> = listed.iter().map(|row| (row["targetAgent"].clone(), said(row))).collect();
    told.sort_by_key(|(target, _)| target.to_string());
    let expected = [("lead", "self_call"), ("nobody", "not_found"), ("off", "disabled")];
    assert_eq!(told, expected.map(|(target, code)| (json!(target), code.to_owned())));
    assert!(listed.iter().all(|row| row["status"] == "error" && row["callerAgent"] == "lead"), "{listed:?}");
}

/// The calls of the swarm, as they are listed for somebody.
async fn listed_for(face: &Face, agent: &Agent) -> Vec<Value> {
    let who = face.access.identify(&agent.token).await.unwrap();
    let calls = views::Wanted { view: "calls", ..views::Wanted::default() };
    face.service.rows(&who, calls).await.unwrap().rows
}

#[tokio::test]
async fn what_calls_brought_is_listed_for_operators_alone() {
    let (face, lead, worker) = swarm().await;
    face.facts(&worker, "set_status", json!({ "text": "here" })).await;
    face.facts(&lead, "call_agent", call_of("worker")).await;
    face.facts(&worker, "wait_for_trigger", json!({ "type": "agent_trigger" })).await;
    face.facts(&worker, "return_value", json!({ "value": "secret plan" })).await;
    rejected(&face, &lead, "nobody").await;

    let operator = listed_for(&face, &face.agent("operator", Role::Operator)).await;
    let mut fields: Vec<_> = operator.iter().map(|row| (&row["status"], &row["returnValue"])).collect();
    fields.sort_by_key(|(status, _)| status.to_string());
    assert_eq!(fields, [(&json!("completed"), &json!("secret plan")), (&json!("error"), &Value::Null)]);
    assert!(operator.iter().any(|row| row["errorMessage"].is_string()), "{operator:?}");
    for reader in [&lead, &worker, &face.agent("observer", Role::Observer)] {
        let rows = listed_for(&face, reader).await;
        assert_eq!(rows.len(), 2, "{rows:?}");
        for row in rows {
            let row = row.as_object().unwrap();
            assert!(!row.contains_key("returnValue") && !row.contains_key("errorMessage"), "{row:?}");
        }
    }
}

#[tokio::test]
async fn a_call_wakes_the_agent_that_waits_for_it() {
    let (face, lead, worker) = swarm().await;
    let face = Arc::new(face);
    let (waiting, callee) = (Arc::clone(&face), worker.clone());
    let before = face.awaited();
    let wait = tokio::spawn(async move {
        let filter = json!({ "type": "agent_trigger", "source_agent": "lead", "timeout": "1m" });
        waiting.call(&callee, "wait_for_trigger", filter).await
    });
    face.until_awaited(|topics| topics > before).await;
    let context = json!({ "target_agent": "worker", "context": "sum 1 and 2" });
    let called = face.facts(&lead, "call_agent", context).await;
    let woken = tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap().unwrap();
    assert!(
        woken["content"][0]["text"].as_str().unwrap().starts_with("Trigger received. Payload:"),
        "{woken}"
    );
    let call = json!({ "call_id": called["call_id"] });
    let running = face.call(&lead, "check_call", call).await;
    assert!(running["content"][0]["text"].as_str().unwrap().starts_with("Call status: "), "{running}");
    let unknown = face.call(&worker, "check_call", json!({ "call_id": called["call_id"] })).await;
    assert_eq!(unknown["structuredContent"]["code"], "not_found");
}

#[tokio::test]
async fn of_several_calls_the_first_that_is_over_wakes_the_caller() {
    let (face, lead, worker) = swarm().await;
    let face = Arc::new(face);
    // A worker that nobody runs takes calls one after the other, by waiting for them.
    face.facts(&worker, "set_status", json!({ "text": "here" })).await;
    let mut ids = Vec::new();
    for context in ["first", "second"] {
        let call = json!({ "target_agent": "worker", "context": context });
        ids.push(face.facts(&lead, "call_agent", call).await["call_id"].clone());
    }
    let none = face.facts(&lead, "wait_for_calls", json!({ "call_ids": ids, "timeout_s": 0 })).await;
    assert_eq!(none["timed_out"], true);
    let (waiting, caller, asked) = (Arc::clone(&face), lead.clone(), ids.clone());
    let waits = tokio::spawn(async move {
        waiting.facts(&caller, "wait_for_calls", json!({ "call_ids": asked, "timeout_s": 60 })).await
    });
    face.until_awaited(|topics| topics > 0).await;
    face.facts(&worker, "wait_for_trigger", json!({ "type": "agent_trigger" })).await;
    face.facts(&worker, "return_value", json!({ "value": "one" })).await;
    let woken = tokio::time::timeout(Duration::from_secs(60), waits).await.unwrap().unwrap();
    let states: Vec<&Value> = woken["calls"].as_array().unwrap().iter().map(|call| &call["status"]).collect();
    assert_eq!(states, ["completed", "pending"], "{woken}");
    assert_eq!(woken["calls"][0]["return_value"], "one");
    let all = json!({ "call_ids": ids, "all": true, "timeout_s": 0 });
    assert_eq!(face.facts(&lead, "wait_for_calls", all).await["timed_out"], true);
    let foreign = face.call(&worker, "wait_for_calls", json!({ "call_ids": ids })).await;
    assert_eq!(foreign["structuredContent"]["code"], "not_found");
}
