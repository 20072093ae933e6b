//! Open waits: woken by what happens, bounded, and gone with their client.

use axum::response::Response;
use tokio::time::Instant;

use super::*;
use crate::mcp::Gate;
use crate::mcp::quota::Limits;

pub(super) fn calling(agent: &Agent, session: Option<&str>, tool: &str, arguments: Value) -> Request<Body> {
    let mut params = json!({ "name": tool, "arguments": arguments });
    let mut request = Request::post("/mcp")
        .header("host", "127.0.0.1")
        .header("authorization", format!("Bearer {}", agent.token))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    match session {
        Some(session) => {
            request = request.header("mcp-session-id", session).header("mcp-protocol-version", "2025-11-25");
        }
        None => {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            });
            request = request
                .header("mcp-protocol-version", "2026-07-28")
                .header("mcp-method", "tools/call")
                .header("mcp-name", tool);
        }
    }
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    request.body(Body::from(body.to_string())).unwrap()
}

#[tokio::test]
async fn a_cursor_ahead_of_the_store_is_refused() {
    let (face, lead, _) = swarm().await;
    let begun = face.facts(&lead, "wait", json!({ "timeout_s": 0 })).await;
    let cursor: u64 = begun["cursor"].as_str().unwrap().parse().unwrap();
    face.facts(&lead, "wait", json!({ "cursor": cursor.to_string(), "timeout_s": 0 })).await;
    let ahead = json!({ "cursor": (cursor + (1 << 30)).to_string(), "timeout_s": 0 });
    let refused = face.call(&lead, "wait", ahead).await;
    assert_eq!(refused["structuredContent"]["code"], "invalid_argument", "{refused}");
    assert!(refused.to_string().contains("look at the lists"), "{refused}");
}

#[tokio::test]
async fn a_wait_ends_with_its_client() {
    let (face, _, worker) = swarm().await;
    for tool in ["poll-task", "wait", "wait_for_trigger"] {
        let arguments = if tool == "wait_for_trigger" { json!({ "type": "webhook" }) } else { json!({}) };
        let waiting = face.router.clone().oneshot(calling(&worker, None, tool, arguments)).await.unwrap();
        face.until_awaited(|topics| topics > 0).await;
        drop(waiting);
        face.until_awaited(|topics| topics == 0).await;
    }
}

/// The same call of a client that listens to progress.
fn listening(agent: &Agent, tool: &str, arguments: Value) -> Request<Body> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "progressToken": "mine",
    });
    let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
    let message = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    calling(agent, None, tool, json!({})).map(|_| Body::from(message.to_string()))
}

async fn frame(body: &mut Body) -> String {
    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
    String::from_utf8(frame.to_vec()).unwrap()
}

async fn event(body: &mut Body) -> Value {
    let text = frame(body).await;
    let message = text.strip_prefix("data: ").and_then(|text| text.strip_suffix("\n\n"));
    serde_json::from_str(message.unwrap()).unwrap()
}

/// Each tool that waits, with arguments with which it does.
async fn waiting(face: &Face, lead: &Agent, worker: &Agent) -> Vec<(&'static str, Value)> {
    face.facts(worker, "set_status", json!({ "text": "here" })).await;
    let call = json!({ "target_agent": "worker", "context": "report" });
    let call = face.facts(lead, "call_agent", call).await["call_id"].clone();
    let waits = vec![
        ("poll-task", json!({})),
        ("wait", json!({ "for": ["locks"] })),
        ("wait_for_trigger", json!({ "type": "webhook" })),
        ("wait_for_calls", json!({ "call_ids": [call] })),
        ("task_claim_next", json!({ "wait_seconds": 60 })),
    ];
    let declared = catalogue().unwrap();
    let known = declared.tools().filter(|tool| tool.waits).map(|tool| tool.name);
    let named: std::collections::BTreeSet<_> = waits.iter().map(|(tool, _)| *tool).collect();
    assert_eq!(known.collect::<std::collections::BTreeSet<_>>(), named);
    waits
}

#[tokio::test(start_paused = true)]
async fn every_wait_is_heard_of_from_the_first_instant() {
    let (face, lead, worker) = swarm().await;
    for (tool, arguments) in waiting(&face, &lead, &worker).await {
        let by_name = json!({ "name": tool, "arguments": arguments });
        for (called, arguments) in [(tool, arguments), ("tools_call", by_name)] {
            // With a token it hears progress.
            let begun = Instant::now();
            let request = listening(&lead, called, arguments.clone());
            let answer = face.router.clone().oneshot(request).await.unwrap();
            assert_eq!(answer.headers()["content-type"], "text/event-stream", "{tool}");
            let first = event(&mut answer.into_body()).await;
            assert_eq!(first["method"], "notifications/progress", "{tool}: {first}");
            assert_ne!(
                first["params"]["message"],
                format!("{called} is running"),
                "it does not say for what"
            );
            // Without one there is a comment, which every reader of events passes over.
            let request = calling(&lead, None, called, arguments);
            let answer = face.router.clone().oneshot(request).await.unwrap();
            assert_eq!(answer.headers()["content-type"], "text/event-stream", "{tool}");
            assert_eq!(frame(&mut answer.into_body()).await, ":\n\n", "{tool}");
            assert!(begun.elapsed() < Duration::from_secs(1), "{tool}: {:?}", begun.elapsed());
        }
    }
}

#[tokio::test]
async fn a_wait_that_ends_soon_is_answered_alone() {
    let (face, lead, worker) = swarm().await;
    face.facts(&lead, "send-task", json!({ "task": "there already", "agentId": worker.id })).await;
    for (tool, arguments) in [("poll-task", json!({})), ("wait", json!({ "timeout_s": 0 }))] {
        let request = calling(&worker, None, tool, arguments);
        let answer = face.router.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.headers()["content-type"], "application/json", "{tool}");
    }
}

#[tokio::test]
async fn a_wait_without_progress_ends_with_its_answer_as_the_only_message() {
    let (face, lead, worker) = swarm().await;
    let poll = face.router.clone().oneshot(calling(&worker, None, "poll-task", json!({}))).await.unwrap();
    face.facts(&lead, "send-task", json!({ "task": "given", "agentId": worker.id })).await;
    let body = String::from_utf8(poll.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    assert_eq!(body.matches("data:").count(), 1, "{body}");
    assert_eq!(message(body.as_bytes())["result"]["structuredContent"]["task"]["task"], "given", "{body}");
}

#[tokio::test]
async fn a_cancelled_wait_is_freed_at_once() {
    let (face, _, worker) = swarm().await;
    let session = sessions::open(&face.router, &worker).await;
    let request = calling(&worker, Some(&session), "poll-task", json!({}));
    let answer = face.router.clone().oneshot(request).await.unwrap();
    face.until_awaited(|topics| topics > 0).await;
    let params = json!({ "requestId": 7, "reason": "no longer needed" });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
    let cancel = calling(&worker, Some(&session), "", json!({})).map(|_| Body::from(cancel.to_string()));
    assert_eq!(face.raw(cancel).await.0, StatusCode::ACCEPTED);
    // Its connection is still there.
    face.until_awaited(|topics| topics == 0).await;
    drop(answer);
}

#[tokio::test]
async fn a_client_that_listens_hears_progress_and_then_the_result() {
    let (face, lead, worker) = swarm().await;
    let quick = face.router.clone().oneshot(listening(&worker, "my-agent-info", json!({}))).await.unwrap();
    assert_eq!(quick.headers()["content-type"], "application/json");

    let poll = face.router.clone().oneshot(listening(&worker, "poll-task", json!({}))).await.unwrap();
    assert_eq!(poll.headers()["content-type"], "text/event-stream");
    let mut events = poll.into_body();
    let progress = event(&mut events).await;
    assert_eq!(
        (&progress["method"], &progress["params"]["progressToken"]),
        (&json!("notifications/progress"), &json!("mine"))
    );
    assert_eq!(progress["params"]["message"], "waiting for a task");
    face.facts(&lead, "send-task", json!({ "task": "given", "agentId": worker.id })).await;
    let result = event(&mut events).await;
    assert_eq!(
        (&result["id"], &result["result"]["structuredContent"]["task"]["task"]),
        (&json!(7), &json!("given"))
    );
    assert!(events.frame().await.is_none());
}

#[tokio::test]
async fn a_wait_of_a_client_that_listens_ends_with_its_connection() {
    let (face, _, worker) = swarm().await;
    let wait = face.router.clone().oneshot(listening(&worker, "wait", json!({}))).await.unwrap();
    face.until_awaited(|topics| topics > 0).await;
    drop(wait);
    face.until_awaited(|topics| topics == 0).await;
}

#[tokio::test]
async fn a_wait_in_a_session_ends_with_its_connection() {
    let (face, _, worker) = swarm().await;
    let session = sessions::open(&face.router, &worker).await;
    let send = async || -> Response {
        let request = calling(&worker, Some(&session), "poll-task", json!({}));
        face.router.clone().oneshot(request).await.unwrap()
    };
    let answer = send().await;
    face.until_awaited(|topics| topics > 0).await;
    drop(answer);
    face.until_awaited(|topics| topics == 0).await;
}

/// What a client gets that takes a stream of its session up again after an event.
async fn resumed(face: &Face, agent: &Agent, session: &str, after: &str) -> Value {
    let (mut parts, _) = calling(agent, Some(session), "", json!({})).into_parts();
    parts.method = http::Method::GET;
    parts.headers.insert("last-event-id", after.parse().unwrap());
    face.raw(Request::from_parts(parts, Body::empty())).await.1
}

/// The ids of the events in a stream's text.
fn event_ids(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("id: ")).collect()
}

/// A call ends with its connection, and its client asks for the answer all the same.
#[tokio::test]
async fn who_takes_up_a_call_whose_connection_broke_is_told_that_it_has_no_answer() {
    let (face, _, worker) = swarm().await;
    let session = sessions::open(&face.router, &worker).await;
    let send = async |tool: &str| {
        let request = calling(&worker, Some(&session), tool, json!({}));
        face.router.clone().oneshot(request).await.unwrap().into_body()
    };
    let mut answer = send("wait").await;
    let begun = frame(&mut answer).await;
    face.until_awaited(|topics| topics > 0).await;
    drop(answer);
    face.until_awaited(|topics| topics == 0).await;
    let told = resumed(&face, &worker, &session, event_ids(&begun)[0]).await;
    assert_eq!((&told["id"], &told["error"]["code"]), (&json!(7), &json!(-32603)), "{told}");
    let says = told["error"]["message"].as_str().unwrap();
    assert!(says.contains("before `wait` had answered") && says.contains("idempotency_key"), "{says}");

    // An answer may be lost on its way as well; who has it is told nothing more.
    let whole = send("get-swarm").await.collect().await.unwrap().to_bytes();
    let whole = String::from_utf8(whole.to_vec()).unwrap();
    let ids = event_ids(&whole);
    let lost = resumed(&face, &worker, &session, ids[0]).await;
    assert_eq!((&lost["id"], &lost["error"]["code"]), (&json!(7), &json!(-32603)), "{lost}");
    assert_eq!(resumed(&face, &worker, &session, ids[1]).await, Value::Null);
}

#[tokio::test]
async fn waits_are_bounded_for_each_instance() {
    let limits = Limits { waits_per_instance: 1, ..Limits::default() };
    let face = Face::with(Config { gate: Gate::new(limits), ..Config::default() });
    let worker = face.agent("worker", Role::Worker);
    face.facts(&worker, "join-swarm", json!({ "name": "Worker" })).await;
    let first = face.router.clone().oneshot(calling(&worker, None, "poll-task", json!({}))).await.unwrap();
    face.until_awaited(|topics| topics > 0).await;
    let refused = face.call(&worker, "wait", json!({})).await;
    assert_eq!(refused["isError"], true);
    assert_eq!(refused["structuredContent"]["code"], "rate_limited");
    assert!(refused["structuredContent"]["retry_after_ms"].is_number());
    drop(first);
    face.until_awaited(|topics| topics == 0).await;
    face.facts(&worker, "wait", json!({ "timeout_s": 0 })).await;
}

/// The call that a finder makes has a place of its own, or that of a wait.
#[tokio::test]
async fn a_finder_takes_no_place_of_the_tool_that_it_calls() {
    let limits = Limits { calls_per_agent: 1, ..Limits::default() };
    let face = Face::with(Config { gate: Gate::new(limits), ..Config::default() });
    let worker = face.agent("worker", Role::Worker);
    face.facts(&worker, "join-swarm", json!({ "name": "Worker" })).await;
    for finder in ["tools_call", "tools_read"] {
        let listed = face.facts(&worker, finder, json!({ "name": "list-channels" })).await;
        assert!(listed["channels"].is_array(), "{finder}: {listed}");
    }
    let claim = json!({ "name": "task_claim_next", "arguments": { "wait_seconds": 60 } });
    let request = calling(&worker, None, "tools_call", claim);
    let waiting = face.router.clone().oneshot(request).await.unwrap();
    face.until_awaited(|topics| topics > 0).await;
    face.facts(&worker, "get-swarm", json!({})).await;
    drop(waiting);
}

#[tokio::test]
async fn calls_are_bounded_for_each_agent() {
    let limits = Limits { reads_per_second: 1, ..Limits::default() };
    let face = Face::with(Config { gate: Gate::new(limits), ..Config::default() });
    let (noisy, quiet) = (face.agent("noisy", Role::Worker), face.agent("quiet", Role::Worker));
    let mut refused = Value::Null;
    for _ in 0..50 {
        let answer = face.call(&noisy, "get-swarm", json!({})).await;
        if answer["isError"] == true {
            refused = answer["structuredContent"].clone();
            break;
        }
    }
    assert_eq!(refused["code"], "rate_limited", "{refused}");
    assert!(refused["retry_after_ms"].as_u64().unwrap() > 0);
    face.facts(&quiet, "get-swarm", json!({})).await;
}

/// Its swarm has calls under way beside another one that is at work.
#[tokio::test(start_paused = true)]
async fn a_tool_waits_for_a_turn_of_its_swarm_unless_it_waits_for_something_else() {
    let gate = Gate::default();
    let face = Face::with(Config { gate: gate.clone(), ..Config::default() });
    let worker = face.agent("worker", Role::Worker);
    face.facts(&worker, "join-swarm", json!({ "name": "Worker" })).await;
    let (own, other) = (Name::parse("default").unwrap(), Name::parse("other").unwrap());
    for (tool, arguments, takes_turns) in [
        ("get-swarm", json!({}), true),
        ("send-task", json!({ "task": "anything" }), true),
        ("tools_call", json!({ "name": "get-swarm" }), true),
        ("wait", json!({ "timeout_s": 0 }), false),
        ("tools_call", json!({ "name": "wait", "arguments": { "timeout_s": 0 } }), false),
    ] {
        gate.turns.run(&other, async {}).await;
        let under_way: Vec<_> = (0..20)
            .map(|_| {
                let (turns, own) = (gate.turns.clone(), own.clone());
                tokio::spawn(async move { turns.run(&own, std::future::pending::<()>()).await })
            })
            .collect();
        tokio::task::yield_now().await;
        let before = Instant::now();
        face.facts(&worker, tool, arguments).await;
        assert_eq!(before.elapsed() > Duration::ZERO, takes_turns, "{tool}: {:?}", before.elapsed());
        under_way.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// The service looks by itself only once an hour here, so that an answer shows that the waiter was woken.
async fn woken(face: &Arc<Face>, worker: &Agent, cause: impl Future<Output = ()>) -> Value {
    let (waiting, poller) = (Arc::clone(face), worker.clone());
    let poll = tokio::spawn(async move { waiting.facts(&poller, "poll-task", json!({})).await });
    face.until_awaited(|topics| topics > 0).await;
    cause.await;
    poll.await.unwrap()
}

#[tokio::test]
async fn a_poller_is_woken_by_whatever_gives_it_work() {
    let (face, lead, worker) = swarm().await;
    let face = Arc::new(face);
    let send = async |arguments: Value| face.facts(&lead, "send-task", arguments).await["task"]["id"].clone();
    let polled = woken(&face, &worker, async {
        send(json!({ "task": "given", "agentId": worker.id })).await;
    })
    .await;
    assert_eq!(polled["task"]["task"], "given");
    let end = json!({ "taskId": polled["task"]["id"], "status": "completed" });
    face.facts(&worker, "store-progress", end).await;

    let polled = woken(&face, &worker, async {
        send(json!({ "task": "on offer", "agentId": worker.id, "offerMode": true })).await;
    })
    .await;
    assert_eq!(polled["offeredTasks"][0]["task"], "on offer");
    let reject = json!({ "action": "reject", "taskId": polled["offeredTasks"][0]["id"], "reason": "busy" });
    face.facts(&worker, "task-action", reject).await;

    let other = face.agent("other", Role::Worker);
    face.facts(&other, "join-swarm", json!({ "name": "Other" })).await;
    let first = send(json!({ "task": "the foundation", "agentId": other.id })).await;
    send(json!({ "task": "the walls", "agentId": worker.id, "dependsOn": [first] })).await;
    face.facts(&other, "poll-task", json!({})).await;
    let polled = woken(&face, &worker, async {
        face.facts(&other, "store-progress", json!({ "taskId": first, "status": "completed" })).await;
    })
    .await;
    assert_eq!(polled["task"]["task"], "the walls");
}

#[tokio::test]
async fn who_had_stopped_is_back_by_asking_and_hears_of_what_comes() {
    let (face, lead, worker) = swarm().await;
    let who = face.access.identify(&worker.token).await.unwrap();
    let face = Arc::new(face);
    for (tool, arguments, task) in [
        ("poll-task", json!({}), json!({ "task": "dig", "agentId": worker.id })),
        ("task_claim_next", json!({ "wait_seconds": 60 }), json!({ "task": "dig on" })),
    ] {
        face.service.go_offline(&who, Uuid::now_v7()).await.unwrap();
        let mut back = face.service.entities().hub().subscribe(worker.id.to_string());
        let (waiting, asking) = (Arc::clone(&face), worker.clone());
        let asked = tokio::spawn(async move { waiting.facts(&asking, tool, arguments).await });
        back.changed().await;
        face.facts(&lead, "send-task", task.clone()).await;
        let found = tokio::time::timeout(Duration::from_secs(30), asked).await.unwrap().unwrap();
        assert_eq!(found["task"]["task"], task["task"], "{found}");
        let end = json!({ "taskId": found["task"]["id"], "status": "completed" });
        face.facts(&worker, "store-progress", end).await;
    }
}

#[tokio::test]
async fn who_stops_while_its_question_stands_open_has_stopped() {
    let (face, _, worker) = swarm().await;
    let who = face.access.identify(&worker.token).await.unwrap();
    let stop = async || face.service.go_offline(&who, Uuid::now_v7()).await.unwrap();
    stop().await;
    let mut back = face.service.entities().hub().subscribe(worker.id.to_string());
    let asks = face.service.poll_task(&who, Uuid::now_v7(), Duration::from_millis(300));
    let stops = async {
        back.changed().await;
        stop().await
    };
    let (polled, _) = tokio::join!(asks, stops);
    assert!(polled.unwrap().task.is_none());
    assert_eq!(face.service.me(&who).await.unwrap().unwrap()["status"], "offline");
}
