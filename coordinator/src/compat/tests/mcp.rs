//! MCP with the shared key, by a client of an older revision.

use super::*;
use crate::auth::token::Keys;
use crate::mcp::Config;
use crate::mcp::tests::message;
use crate::service::access::Access;

/// A client that has the key, and a session of its own.
struct Client {
    router: Router,
    session: Option<String>,
}

impl Client {
    fn of(bed: &Bed) -> Self {
        let access = Access::new(Keys::ephemeral().unwrap(), bed.node.entities.clone());
        let config = Config { shared_key: Some(shared()), ..Config::default() };
        let face = crate::mcp::router(bed.service.clone(), access, Arc::new(catalogue().unwrap()), config);
        Self { router: let_in(face, shared()), session: None }
    }

    async fn send(&mut self, key: &str, agent: Option<&str>, body: Value) -> (StatusCode, Value) {
        let mut request = Request::post("/mcp")
            .header("host", "127.0.0.1")
            .header("authorization", format!("Bearer {key}"))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session).header("mcp-protocol-version", "2025-06-18");
        }
        if let Some(agent) = agent {
            request = request.header("X-Agent-ID", agent);
        }
        let response =
            self.router.clone().oneshot(request.body(Body::from(body.to_string())).unwrap()).await.unwrap();
        let status = response.status();
        if let Some(session) = response.headers().get("mcp-session-id") {
            self.session = Some(session.to_str().unwrap().to_owned());
        }
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, message(&body))
    }

    async fn open(&mut self, agent: Option<&str>) {
        let info = json!({ "name": "old", "version": "1" });
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info });
        let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        let (status, answer) = self.send(KEY, agent, initialize).await;
        assert_eq!(
            (status, &answer["result"]["protocolVersion"]),
            (StatusCode::OK, &json!("2025-06-18")),
            "{answer}"
        );
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(self.send(KEY, agent, initialized).await.0, StatusCode::ACCEPTED);
    }

    async fn call(&mut self, agent: Option<&str>, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
        let (status, mut answer) = self.send(KEY, agent, call).await;
        assert_eq!((status, &answer["id"]), (StatusCode::OK, &json!(7)), "{answer}");
        answer["result"]["structuredContent"].take()
    }
}

#[tokio::test]
async fn a_session_with_the_key_begins_joins_by_the_id_it_asks_for_and_calls() {
    let bed = Bed::new();
    let mut client = Client::of(&bed);
    client.open(None).await;
    let (_, listed) =
        client.send(KEY, None, json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" })).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "join-swarm"), "{listed}");

    // Who does not say who it is may look, and is told what else it may not do.
    assert_eq!(client.call(None, "get-swarm", json!({})).await["agents"], json!([]));
    for (tool, arguments) in [
        ("join-swarm", json!({ "name": "nobody" })),
        ("send-task", json!({ "task": "x" })),
        ("my-agent-info", json!({})),
        ("tools_call", json!({ "name": "send-task", "arguments": { "task": "x" } })),
    ] {
        let refused = client.call(None, tool, arguments).await;
        assert_eq!(
            (&refused["success"], &refused["code"]),
            (&json!(false), &json!("unauthenticated")),
            "{tool}"
        );
        assert!(refused["message"].as_str().unwrap().contains("X-Agent-ID"), "{refused}");
    }
    let lead = LEAD.to_string();
    let joined =
        client.call(None, "join-swarm", json!({ "name": "boss", "lead": true, "requestedId": lead })).await;
    assert_eq!((&joined["success"], &joined["agent"]["id"]), (&json!(true), &json!(LEAD)), "{joined}");

    // The header wins, and is read with each request: one session may speak for another agent.
    let worker = WORKER.to_string();
    let both = json!({ "name": "hand", "requestedId": lead });
    let joined = client.call(Some(&worker), "join-swarm", both).await;
    assert_eq!(joined["agent"]["id"], json!(WORKER), "{joined}");
    let sent = client.call(Some(&lead), "send-task", json!({ "task": "dig", "agentId": WORKER })).await;
    assert_eq!((&sent["success"], &sent["task"]["creatorAgentId"]), (&json!(true), &json!(LEAD)), "{sent}");
    let polled = client.call(Some(&worker), "poll-task", json!({})).await;
    assert_eq!(polled["task"]["task"], "dig", "{polled}");
    let details = client.call(None, "get-task-details", json!({ "taskId": sent["task"]["id"] })).await;
    assert_eq!(details["task"]["status"], "in_progress", "{details}");
    assert_eq!(client.call(None, "get-swarm", json!({})).await["agents"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn the_key_alone_lets_nobody_in_without_a_name_that_is_one() {
    let bed = Bed::new();
    let mut client = Client::of(&bed);
    let call = |arguments: Value| {
        let params = json!({ "name": "join-swarm", "arguments": arguments });
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
    };
    let asked = call(json!({ "name": "x", "requestedId": LEAD }));
    assert_eq!(client.send("other", None, asked).await.0, StatusCode::UNAUTHORIZED);
    let asked = call(json!({ "name": "x", "requestedId": "the boss" }));
    let (status, answer) = client.send(KEY, None, asked).await;
    assert_eq!((status, &answer["code"]), (StatusCode::BAD_REQUEST, &json!("invalid_argument")), "{answer}");
    let asked = call(json!({ "name": "x", "requestedId": "a\nb" }));
    assert_eq!(client.send(KEY, None, asked).await.0, StatusCode::BAD_REQUEST);
}
