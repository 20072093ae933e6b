//! Ordinary calls are answered without rmcp's transport, and nobody can tell.

use super::*;

/// The whole answer: its status, its kind and its bytes.
async fn answer(
    face: &Face,
    agent: &Agent,
    call: &Value,
    more: &[(&str, &str)],
) -> (StatusCode, String, String) {
    let mut request = Request::post("/mcp")
        .header("host", "127.0.0.1:7700")
        .header("authorization", format!("Bearer {}", agent.token))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", call["params"]["name"].as_str().unwrap());
    for (name, value) in more {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(call.to_string())).unwrap();
    let response = face.router.clone().oneshot(request).await.unwrap();
    let (status, kind) = (response.status(), response.headers()["content-type"].to_str().unwrap().to_owned());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, kind, String::from_utf8(body.to_vec()).unwrap())
}

fn call(tool: &str, arguments: Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
    json!({ "jsonrpc": "2.0", "id": "a \"quoted\" id", "method": "tools/call", "params": params })
}

#[tokio::test]
async fn an_answer_is_the_same_by_both_ways() {
    let (face, lead, _) = swarm().await;
    let made = json!({ "task": "once \"only\"", "idempotency_key": "k" });
    for (tool, arguments) in [
        ("my-agent-info", json!({})),
        ("get-tasks", json!({ "limit": 5 })),
        ("send-task", made),
        ("send-task", json!({ "task": 7 })),
        ("acquire_lock", json!({ "resource_key": "" })),
        ("no-such-tool", json!({})),
    ] {
        let call = call(tool, arguments);
        let direct = answer(&face, &lead, &call, &[]).await;
        assert_eq!((direct.0, direct.1.as_str()), (StatusCode::OK, "application/json"), "{}", direct.2);
        // A browser's request is none of the ordinary ones.
        let through_rmcp = answer(&face, &lead, &call, &[("origin", "http://localhost:5173")]).await;
        assert_eq!(direct, through_rmcp, "{tool}");
    }
}

#[tokio::test]
async fn who_asks_for_progress_is_told() {
    let (face, lead, _) = swarm().await;
    let mut call = call("my-agent-info", json!({}));
    call["params"]["_meta"]["progressToken"] = json!("p");
    let (status, _, body) = answer(&face, &lead, &call, &[]).await;
    assert_eq!(status, StatusCode::OK);
    assert!(body.contains("\"yourAgentInfo\""), "{body}");
}
