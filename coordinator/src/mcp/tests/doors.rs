//! Who is let in, with what.

use futures::FutureExt;
use skein_shared::access::Of;
use skein_shared::limits;

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
async fn values_are_counted_before_a_parser_has_them_and_commas_in_texts_do_not_count() {
    let face = Face::new();
    let agent = face.agent("worker", Role::Worker);
    let told = |answer: &Value| answer["error"]["message"].as_str().unwrap_or_default().to_owned();
    // It has no end, of which a parser would complain.
    let many = format!("{{\"t\":[{}", "0,".repeat(300_000));
    let (status, answer) = face.raw(request(&agent, &[("host", "localhost")], many)).await;
    assert_eq!((status, &answer["error"]["code"]), (StatusCode::BAD_REQUEST, &json!(-32600)));
    assert!(told(&answer).contains("200000 values"), "{answer}");
    let text = format!("{{\"t\":\"{}\"}}", ",".repeat(300_000));
    let (_, answer) = face.raw(request(&agent, &[("host", "localhost")], text)).await;
    assert!(!told(&answer).contains("values"), "{answer}");
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

#[tokio::test]
async fn what_is_read_at_an_address_that_only_reads_is_not_noted() {
    let (face, lead, worker) = swarm().await;
    let learning = json!({ "agentId": worker.id, "learning": "so it is", "category": "best-practice" });
    let memory = face.facts(&lead, "inject-learning", learning).await["memoryId"].clone();
    let mut noted = face.service.entities().hub().subscribe(memory.as_str().unwrap());
    let get = json!({ "memoryId": memory });
    let read = face.call_at("/mcp/full/readonly", &worker, "memory-get", get.clone()).await;
    assert_eq!(read["structuredContent"]["memory"]["id"], memory, "{read}");
    assert!(noted.changed().now_or_never().is_none(), "the read was noted");
    face.facts(&worker, "memory-get", get).await;
    tokio::time::timeout(Duration::from_secs(60), noted.changed()).await.expect("the read is not noted");

    // An agent hears of a hand-made instance when that does something, and not when it looks.
    let live = async || match face.tell("worker", agent::Command::List).await {
        agent::Reply::Overview(overview) => overview.instances.len(),
        other => panic!("no overview: {other:?}"),
    };
    let call = json!({ "call_id": Uuid::now_v7() });
    let calls = json!({ "call_ids": [Uuid::now_v7()], "timeout_s": 0 });
    let ask = async |path: &str, tool: &str, arguments: &Value| {
        face.call_at(path, &worker, tool, arguments.clone()).await["structuredContent"]["code"].clone()
    };
    for (tool, arguments) in [("check_call", &call), ("wait_for_calls", &calls)] {
        assert_eq!(ask("/mcp/full/readonly", tool, arguments).await, "not_found", "{tool}");
    }
    assert_eq!(live().await, 0);
    assert_eq!(ask("/mcp", "check_call", &call).await, "not_found");
    assert_eq!(live().await, 1);
}

#[tokio::test]
async fn without_a_token_the_way_to_one_is_shown() {
    let face = Face::new();
    for token in [None, Some("Bearer x.y.z"), Some("Basic Zm9vOmJhcg==")] {
        let mut request = Request::post("/mcp").header("host", "127.0.0.1:80");
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let response = face.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        let challenge = response.headers()["www-authenticate"].to_str().unwrap().to_owned();
        assert!(challenge.contains("resource_metadata=\"http://127.0.0.1:80/.well-known/"), "{challenge}");
        assert_eq!(challenge.contains("invalid_token"), token.is_some());
    }
    let request = Request::get("/.well-known/oauth-protected-resource/mcp").header("host", "127.0.0.1");
    let (status, metadata) = face.raw(request.body(Body::empty()).unwrap()).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(metadata["resource"], "http://127.0.0.1/mcp");
}

#[tokio::test]
async fn bad_requests_are_refused_before_they_are_parsed() {
    let face = Face::new();
    let agent = face.agent("worker", Role::Worker);
    let send = async |host: &str, body: Vec<u8>| {
        let request = Request::post("/mcp")
            .header("host", host)
            .header("authorization", format!("Bearer {}", agent.token))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        face.raw(request.body(Body::from(body)).unwrap()).await
    };
    let (status, answer) = send("127.0.0.1", b"{not json".to_vec()).await;
    assert_eq!((status, &answer["error"]["code"]), (StatusCode::BAD_REQUEST, &json!(-32700)));
    let (status, answer) = send("127.0.0.1", "[".repeat(100_000).into_bytes()).await;
    assert_eq!((status, &answer["error"]["code"]), (StatusCode::BAD_REQUEST, &json!(-32600)));
    let (status, answer) = send("127.0.0.1", vec![b' '; limits::REQUEST + 1]).await;
    let told = answer["message"].as_str().unwrap_or_default();
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(told.contains("20 MiB as JSON") && told.contains("into a file"), "{answer}");
    let (status, _) =
        send("evil.example", b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}".to_vec()).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn views_are_chosen_by_address_and_token() {
    let face = Face::new();
    let worker = face.agent("worker", Role::Worker);
    let list = async |path: &str, agent: &Agent| {
        let (status, answer) = face.send(path, &agent.token, "tools/list", json!({})).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer["result"]["tools"].as_array().unwrap().clone()
    };
    let core = list("/mcp", &worker).await;
    assert_eq!(core.len(), 25);
    assert!(core[0].get("outputSchema").is_none());
    let full = list("/mcp/full", &worker).await;
    assert!(full.len() > core.len());
    let meta = |name: &str| full.iter().find(|tool| tool["name"] == name).unwrap()["_meta"].clone();
    assert_eq!(meta("poll-task"), json!({ "anthropic/alwaysLoad": true }));
    assert!(meta("cancel-task")["anthropic/searchHint"].is_string());
    let claimed = face.agent_with("other", Role::Worker, Some("full/readonly"));
    let narrowed = list("/mcp", &claimed).await;
    assert!(narrowed.len() < full.len() && narrowed.iter().all(|tool| tool["name"] != "send-task"));
    let (status, _) = face.send("/mcp/nowhere", &worker.token, "tools/list", json!({})).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_seed_s_shared_key_works_where_it_is_turned_on() {
    let face = Face::new();
    let config = Config {
        shared_key: Some(SharedKey { key: "hush".into(), swarm: Name::parse("default").unwrap() }),
        ..Config::default()
    };
    let router = router(face.service.clone(), face.access.clone(), Arc::new(catalogue().unwrap()), config);
    let ask = async |method: &str, key: &str, agent: Option<&str>| {
        let mut request = Request::post("/mcp")
            .header("host", "127.0.0.1")
            .header("authorization", format!("Bearer {key}"))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method);
        if let Some(agent) = agent {
            request = request.header("x-agent-id", agent);
        }
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": { "_meta": meta } });
        let response =
            router.clone().oneshot(request.body(Body::from(body.to_string())).unwrap()).await.unwrap();
        let status = response.status();
        (status, message(&response.into_body().collect().await.unwrap().to_bytes()))
    };
    let send = async |key: &str, agent: Option<&str>| ask("tools/list", key, agent).await.0;
    let id = Uuid::from_u128(5).to_string();
    assert_eq!(send("hush", Some(&id)).await, StatusCode::OK);
    assert_eq!(send("hush", None).await, StatusCode::UNAUTHORIZED);
    assert_eq!(send("hushed", Some(&id)).await, StatusCode::UNAUTHORIZED);
    let token = face.agent("worker", Role::Worker).token;
    assert_eq!(send(&token, None).await, StatusCode::OK);
    // The key is everybody's: that the agent leads, or works, would be made up.
    let told = async |key: &str, agent: Option<&str>| {
        let (_, answer) = ask("server/discover", key, agent).await;
        answer["result"]["instructions"].as_str().unwrap().to_owned()
    };
    let instructions = told("hush", Some(&id)).await;
    assert!(instructions.contains("join-swarm"), "{instructions}");
    assert!(!instructions.contains("You lead") && !instructions.contains("You work"), "{instructions}");
    assert!(told(&token, None).await.contains("You work"));
}

#[tokio::test]
async fn a_token_with_too_few_scopes_is_told_which_it_takes() {
    let face = Face::new();
    let reader = face.narrowed("reader", Role::Worker, "swarm:read");
    face.facts(&reader, "get-tasks", json!({})).await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": "send-task", "arguments": { "task": "x" }, "_meta": meta });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let asked = request(&reader, &[("host", "127.0.0.1")], call.to_string());
    let response = face.router.clone().oneshot(asked).await.unwrap();
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    let challenge = response.headers()["www-authenticate"].to_str().unwrap();
    assert!(challenge.contains("error=\"insufficient_scope\""), "{challenge}");
    assert!(challenge.contains("scope=\"swarm:work\""), "{challenge}");
    // By way of another tool it is refused as well.
    let inner = json!({ "name": "send-task", "arguments": { "task": "x" } });
    let refused = face.call(&reader, "tools_call", inner).await;
    assert_eq!(refused["structuredContent"]["code"], "forbidden", "{refused}");
}

#[tokio::test]
async fn a_call_that_outlives_its_token_is_told_nothing() {
    let (face, lead, worker) = swarm().await;
    let face = Arc::new(face);
    let (waiting, poller) = (Arc::clone(&face), worker.clone());
    let before = face.awaited();
    let poll = tokio::spawn(async move { waiting.call(&poller, "poll-task", json!({})).await });
    face.until_awaited(|now| now > before).await;
    let operator = face.agent("operator", Role::Operator);
    let operator = face.access.identify(&operator.token).await.unwrap();
    face.access.revoke(&operator, Of::Agent(worker.id), Duration::from_secs(60)).await.unwrap();
    face.facts(&lead, "send-task", json!({ "task": "secret plan", "agentId": worker.id })).await;
    let answer = tokio::time::timeout(Duration::from_secs(30), poll).await.unwrap().unwrap();
    assert_eq!(answer["structuredContent"]["code"], "unauthenticated", "{answer}");
    assert!(!answer.to_string().contains("secret plan"));
}

#[tokio::test]
async fn an_event_that_a_revoked_token_is_not_told_is_given_to_who_asks_again() {
    let (face, lead, _) = swarm().await;
    let family = Uuid::now_v7();
    let (before, id) = face.of_family("worker", Role::Worker, family);
    let (after, _) = face.of_family("worker", Role::Worker, family);
    let face = Arc::new(face);
    let filter = || json!({ "type": "agent_trigger", "source_agent": "lead", "timeout": "1m" });
    let waiting = Arc::clone(&face);
    let wait = tokio::spawn(async move { waiting.call(&before, "wait_for_trigger", filter()).await });
    face.until_awaited(|topics| topics > 0).await;
    let operator = face.agent("operator", Role::Operator);
    let operator = face.access.identify(&operator.token).await.unwrap();
    face.access.revoke(&operator, Of::Token(id), Duration::from_secs(60)).await.unwrap();
    let called = json!({ "target_agent": "worker", "context": "secret plan" });
    face.facts(&lead, "call_agent", called).await;
    let answer = tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap().unwrap();
    assert_eq!(answer["structuredContent"]["code"], "unauthenticated", "{answer}");
    let again = face.facts(&after, "wait_for_trigger", filter());
    let again = tokio::time::timeout(Duration::from_secs(60), again).await.expect("the event is lost");
    assert_eq!(
        (&again["payload"]["context"], &again["redelivered"]),
        (&json!("secret plan"), &json!(false)),
        "{again}"
    );
}

#[tokio::test]
async fn an_operators_token_with_few_scopes_works_in_no_instance() {
    let face = Face::new();
    let (instance, _) = face.run("worker").await;
    let operator = face.narrowed("operator", Role::Operator, "swarm:read swarm:lead");
    for (tool, mut arguments) in [
        ("bash", json!({ "command": "id" })),
        ("read", json!({ "path": "/etc/passwd" })),
        ("write", json!({ "path": "a", "content": "b" })),
        ("set_env", json!({ "name": "A", "value": "b" })),
    ] {
        arguments["instance"] = json!(instance);
        let refused = face.call(&operator, tool, arguments).await;
        assert_eq!(refused["structuredContent"]["code"], "forbidden", "{tool}: {refused}");
        assert!(refused.to_string().contains("swarm:admin"), "{tool}: {refused}");
    }
}
