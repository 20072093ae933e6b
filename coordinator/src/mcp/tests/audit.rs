//! What stands in the log of a call.

use super::*;

#[tokio::test]
async fn each_call_is_one_line_with_its_outcome_and_nothing_of_what_it_says() {
    let (lines, _logging) = Lines::written();
    let (face, lead, worker) = swarm().await;
    let before = lines.of_calls().len();
    let task = json!({ "task": "hush hush", "agentId": worker.id });
    face.facts(&lead, "send-task", task).await;
    face.call(&lead, "get-task-details", json!({ "taskId": Uuid::from_u128(1) })).await;
    face.call(&lead, "hush hush", json!({})).await;
    face.facts(&worker, "my-agent-info", json!({})).await;
    face.facts(&lead, "get-config", json!({ "includeSecrets": true })).await;
    // Its client goes away before the answer.
    let key = json!({ "resource_key": "file:///a" });
    face.facts(&lead, "acquire_lock", key).await;
    let (awaited, wait) = (face.awaited(), json!({ "for": ["tasks"], "timeout_s": 60 }));
    tokio::select! {
        answer = face.call(&worker, "wait", wait) => panic!("nothing has happened: {answer}"),
        () = face.until_awaited(|topics| topics > awaited) => {}
    }
    let calls = lines.of_calls().split_off(before);
    let facts: Vec<_> = calls
        .iter()
        .map(|line| ["level", "tool", "outcome"].map(|field| line[field].as_str().unwrap().to_owned()))
        .collect();
    let expected = [
        ["INFO", "send-task", "ok"],
        ["INFO", "get-task-details", "not_found"],
        ["INFO", "unknown", "unknown_tool"],
        ["INFO", "my-agent-info", "ok"],
        ["INFO", "get-config", "ok"],
        ["INFO", "acquire_lock", "ok"],
        ["INFO", "wait", "given_up"],
    ];
    assert_eq!(facts, expected.map(|line| line.map(str::to_owned)));
    for line in &calls {
        assert!(line["ms"].is_u64() && line["request"].is_string() && line["swarm"] == "default", "{line}");
        let text = line.to_string();
        assert!(!text.contains("hush") && !text.contains(&lead.token[..20]), "{text}");
    }
}
