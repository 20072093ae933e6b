//! Who is let in, with what.

use super::*;

fn request(agent: &Agent, headers: &[(&str, &str)], body: impl Into<Body>) -> Request<Body> {
    let mut request = Request::post("/mcp")
        .header("authorization", format!("Bearer {}", agent.token))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/list");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body.into()).unwrap()
}

fn list() -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": meta } }).to_string()
}

#[tokio::test]
async fn foreign_pages_and_foreign_names_stay_outside() {
    let face = Face::new();
    let agent = face.agent("worker", Role::Worker);
    for (host, origin, wanted) in [
        ("127.0.0.1:7700", None, StatusCode::OK),
        ("localhost:7700", Some("http://localhost:5173"), StatusCode::OK),
        ("127.0.0.1:7700", Some("http://127.0.0.1:7700"), StatusCode::OK),
        ("127.0.0.1:7700", Some("https://evil.example"), StatusCode::FORBIDDEN),
        ("127.0.0.1:7700", Some("http://localhost.evil.example"), StatusCode::FORBIDDEN),
        ("127.0.0.1:7700", Some("null"), StatusCode::FORBIDDEN),
        ("evil.example", None, StatusCode::FORBIDDEN),
        ("evil.example", Some("http://localhost:5173"), StatusCode::FORBIDDEN),
    ] {
        let mut headers = vec![("host", host)];
        headers.extend(origin.map(|origin| ("origin", origin)));
        let (status, answer) = face.raw(request(&agent, &headers, list())).await;
        assert_eq!(status, wanted, "{host} {origin:?}: {answer}");
    }
}

#[tokio::test]
async fn nesting_is_bounded_and_brackets_in_texts_do_not_count() {
    let face = Face::new();
    let agent = face.agent("worker", Role::Worker);
    let deep = |levels: usize| {
        let text = "[".repeat(500);
        format!("{{\"t\":\"{text}\",\"n\":{}{}}}", "[".repeat(levels), "]".repeat(levels))
    };
    let (status, answer) = face.raw(request(&agent, &[("host", "localhost")], deep(64))).await;
    assert_eq!((status, &answer["error"]["code"]), (StatusCode::BAD_REQUEST, &json!(-32600)));
    let (_, answer) = face.raw(request(&agent, &[("host", "localhost")], deep(63))).await;
    assert!(!answer["error"]["message"].as_str().unwrap_or_default().contains("nested"), "{answer}");
}

#[tokio::test]
async fn the_token_of_an_ended_run_opens_nothing() {
    let face = Face::new();
    let (instance, agent) = face.run("worker").await;
    let (status, answer) = face.send("/mcp", &agent.token, "tools/list", json!({})).await;
    assert_eq!(status, StatusCode::OK, "{answer}");

    let reason = "no longer needed".to_owned();
    face.tell("worker", agent::Command::Kill { instance: instance.clone(), reason }).await;
    let (status, answer) = face.send("/mcp", &agent.token, "tools/list", json!({})).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED, "{answer}");
    assert_eq!(answer["code"], "unauthenticated");

    // One that was let in before the end and arrives after it.
    let who = face.keys.verify(&agent.token, face.clock.wall()).unwrap();
    let late = face.service.acquire(&who, Uuid::now_v7(), "file:///other".to_owned(), None).await;
    assert_eq!(late.unwrap_err().code, skein_shared::Code::Unauthenticated);
    let next = face.agent("next", Role::Worker);
    let free = face.call(&next, "acquire_lock", json!({ "resource_key": "file:///other" })).await;
    assert_eq!(free["structuredContent"]["ok"], true, "{free}");
}

#[tokio::test]
async fn a_view_shows_its_toolset_and_readonly_only_reads() {
    let face = Face::new();
    let lead = face.agent("lead", Role::Lead);
    let names = async |path: &str| -> Vec<String> {
        let (status, answer) = face.send(path, &lead.token, "tools/list", json!({})).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        let tools = answer["result"]["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let scheduler = names("/mcp/x/scheduler").await;
    assert!(scheduler.contains(&"set_status".to_owned()) && !scheduler.contains(&"send-task".to_owned()));
    let reading = names("/mcp/readonly").await;
    assert!(reading.contains(&"get-tasks".to_owned()) && !reading.contains(&"poll-task".to_owned()));
    assert_eq!(reading, names("/mcp/core/readonly").await);
    let (status, answer) = face.send("/mcp/x/nothing", &lead.token, "tools/list", json!({})).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(answer["message"].as_str().unwrap().contains("scheduler"), "{answer}");

    let refused = face.call_at("/mcp/full/readonly", &lead, "send-task", json!({ "task": "x" })).await;
    assert_eq!(refused["structuredContent"]["code"], "forbidden");
    let hidden = json!({ "name": "send-task", "arguments": { "task": "x" } });
    let refused = face.call_at("/mcp/full/readonly", &lead, "tools_call", hidden).await;
    assert_eq!(refused["structuredContent"]["code"], "forbidden");
}
