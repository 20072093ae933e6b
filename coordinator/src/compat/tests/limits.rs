//! What a route does counts and is written down as what its tool does.

use super::*;
use crate::mcp::quota::Limits;
use crate::mcp::tests::Lines;

#[tokio::test]
async fn what_a_route_does_is_one_line_of_the_audit() {
    let (lines, _logging) = Lines::written();
    let bed = Bed::swarm().await;
    let before = lines.of_calls().len();
    let (worker, none) = (Some(WORKER), Value::Null);
    let task = bed.task(json!({ "task": "write it down", "agentId": WORKER })).await;
    bed.poll(WORKER).await;
    bed.is(200, "GET", "/me", worker, none.clone()).await;
    bed.is(200, "POST", "/api/memory/search", worker, json!({ "query": "it" })).await;
    bed.is(
        403,
        "POST",
        &format!("/api/tasks/{task}/finish"),
        Some(LEAD_TO_BE),
        json!({ "status": "failed" }),
    )
    .await;
    bed.is(200, "POST", &format!("/api/tasks/{task}/finish"), worker, json!({ "status": "completed" })).await;
    bed.is(200, "GET", "/api/config", worker, none.clone()).await;
    // Signs of life are none.
    bed.is(204, "POST", "/ping", worker, none).await;
    let expected = [
        ("send-task", LEAD, "ok"),
        ("poll-task", WORKER, "ok"),
        ("my-agent-info", WORKER, "ok"),
        ("memory-search", WORKER, "ok"),
        ("store-progress", LEAD_TO_BE, "forbidden"),
        ("store-progress", WORKER, "ok"),
        ("list-config", WORKER, "ok"),
    ];
    let told = |line: &Value| ["tool", "agent", "outcome"].map(|field| line[field].clone());
    let told: Vec<_> = lines.of_calls()[before..].iter().map(told).collect();
    assert_eq!(told, expected.map(|(tool, agent, outcome)| [json!(tool), json!(agent), json!(outcome)]));
}

/// Somebody who has not joined.
const LEAD_TO_BE: Uuid = Uuid::from_u128(9);

#[tokio::test]
async fn whoever_asks_too_often_is_told_when_to_come_again() {
    let limits = Limits { writes_per_second: 3, reads_per_second: 2, ..Limits::default() };
    let bed = Bed::behind(Gate::new(limits)).joined().await;
    let post = async |agent: Uuid| {
        bed.ask("POST", "/api/tasks", KEY, Some(agent), json!({ "task": Uuid::now_v7().to_string() })).await
    };
    let mut refused = None;
    for _ in 0..20 {
        let (status, answer) = post(LEAD).await;
        if status != StatusCode::CREATED {
            refused = Some((status.as_u16(), answer));
            break;
        }
    }
    let (status, answer) = refused.unwrap();
    assert_eq!((status, &answer["code"]), (429, &json!("rate_limited")));
    assert!(answer["retryAfterMs"].as_u64().unwrap() > 0, "{answer}");
    assert_eq!(post(WORKER).await.0, StatusCode::CREATED, "each has its own");
    for path in ["/me", "/api/repos"] {
        let mut refused = false;
        for _ in 0..20 {
            refused |=
                bed.ask("GET", path, KEY, Some(WORKER), Value::Null).await.0 == StatusCode::TOO_MANY_REQUESTS;
        }
        assert!(refused, "{path}");
    }
}
