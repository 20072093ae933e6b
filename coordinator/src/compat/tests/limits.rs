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

#[tokio::test]
async fn what_a_tool_would_not_take_a_route_does_not_either() {
    let bed = Bed::new();
    let worker = Some(WORKER);
    for (field, value, status) in [
        ("name", json!("x".repeat(201)), 413),
        ("description", json!("x".repeat(4001)), 413),
        ("capabilities", json!(["x".repeat(101)]), 413),
        ("capabilities", json!(vec!["x"; 101]), 413),
        ("maxTasks", json!(4_294_967_297_u64), 400),
    ] {
        let mut agent = json!({ "name": "worker-22222222" });
        agent[field] = value;
        bed.refuses("POST", "/api/agents", worker, agent, status).await;
    }
    let bed = bed.joined().await;
    bed.refuses("POST", "/api/agents", worker, json!({ "maxTasks": 4_294_967_297_u64 }), 400).await;
    let cancel = format!("/api/tasks/{}/cancel", bed.task(json!({ "task": "write it down" })).await);
    bed.refuses("POST", &cancel, Some(LEAD), json!({ "reason": "x".repeat(4001) }), 413).await;
    bed.is(200, "POST", &cancel, Some(LEAD), json!({ "reason": "x".repeat(4000) })).await;
}

#[tokio::test]
async fn a_request_with_a_key_is_done_once() {
    let bed = Bed::swarm().await;
    let send = async |path: &str, agent: Option<Uuid>, key: &str, body: Value| {
        let mut request = Request::post(path)
            .header("authorization", format!("Bearer {KEY}"))
            .header("idempotency-key", key);
        if let Some(agent) = agent {
            request = request.header("X-Agent-ID", agent.to_string());
        }
        let response = bed.router.clone().oneshot(request.body(Body::from(body.to_string())).unwrap()).await;
        let response = response.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice::<Value>(&body).unwrap())
    };
    let post = async |key: &str, body: Value| send("/api/tasks", Some(LEAD), key, body).await;
    let (status, first) = post("k1", json!({ "task": "count the geese" })).await;
    assert_eq!(status, 201, "{first}");
    assert_eq!(post("k1", json!({ "task": "count the geese" })).await.1["id"], first["id"]);
    let (status, other) = post("k1", json!({ "task": "count the ducks" })).await;
    assert_eq!((status, &other["code"]), (409, &json!("idempotency_key_reused")), "{other}");
    assert_ne!(post("k2", json!({ "task": "count the geese" })).await.1["id"], first["id"]);
    assert_eq!(post(&"k".repeat(201), json!({ "task": "x" })).await.0, 400);
    for agent in [None, Some(Uuid::from_u128(5))] {
        let join = async || send("/api/agents", agent, "k3", json!({ "name": format!("{agent:?}") })).await;
        let (first, again) = (join().await, join().await);
        assert_eq!((first.0, again.0), (201, 200), "{} {}", first.1, again.1);
        assert_eq!(first.1["id"], again.1["id"]);
    }
    let cost = json!({ "sessionId": "s-1", "totalCostUsd": 0.5 });
    for _ in 0..2 {
        assert_eq!(send("/api/session-costs", Some(LEAD), "k4", cost.clone()).await.0, 201);
    }
    let costs = bed.is(200, "GET", "/api/session-costs", None, Value::Null).await;
    assert_eq!(costs["costs"].as_array().unwrap().len(), 1);
}
