//! Agents call one another.

use super::*;

#[tokio::test]
async fn a_call_wakes_the_agent_that_waits_for_it() {
    let (face, lead, worker) = swarm().await;
    let face = Arc::new(face);
    let (waiting, callee) = (Arc::clone(&face), worker.clone());
    let wait = tokio::spawn(async move {
        let filter = json!({ "type": "agent_trigger", "source_agent": "lead", "timeout": "1m" });
        waiting.call(&callee, "wait_for_trigger", filter).await
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let context = json!({ "target_agent": "worker", "context": "sum 1 and 2" });
    let called = face.facts(&lead, "call_agent", context).await;
    let woken = tokio::time::timeout(Duration::from_secs(10), wait).await.unwrap().unwrap();
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
    let woken = tokio::time::timeout(Duration::from_secs(10), waits).await.unwrap().unwrap();
    let states: Vec<&Value> = woken["calls"].as_array().unwrap().iter().map(|call| &call["status"]).collect();
    assert_eq!(states, ["completed", "pending"], "{woken}");
    assert_eq!(woken["calls"][0]["return_value"], "one");
    let all = json!({ "call_ids": ids, "all": true, "timeout_s": 0 });
    assert_eq!(face.facts(&lead, "wait_for_calls", all).await["timed_out"], true);
    let foreign = face.call(&worker, "wait_for_calls", json!({ "call_ids": ids })).await;
    assert_eq!(foreign["structuredContent"]["code"], "not_found");
}
