//! Clients of the revisions with sessions.

use skein_shared::access::Of;

use super::waits::calling;
use super::*;

mod owners;

async fn send(
    router: &Router,
    agent: &Agent,
    session: Option<&str>,
    body: Value,
) -> (StatusCode, String, Value) {
    let mut request = Request::post("/mcp/full")
        .header("host", "127.0.0.1")
        .header("authorization", format!("Bearer {}", agent.token))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    if let Some(session) = session {
        request = request.header("mcp-session-id", session).header("mcp-protocol-version", "2025-11-25");
    }
    let response = router.clone().oneshot(request.body(Body::from(body.to_string())).unwrap()).await.unwrap();
    let status = response.status();
    let id = response.headers().get("mcp-session-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
    let id = id.to_owned();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, id, message(&body))
}

fn initialize(abilities: &Value) -> Value {
    json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25", "capabilities": abilities,
            "clientInfo": { "name": "old", "version": "1" },
        },
    })
}

/// Begins a session and gives its id.
pub(super) async fn open(router: &Router, agent: &Agent) -> String {
    open_able(router, agent, json!({})).await
}

/// The same of a client that says what it can do.
async fn open_able(router: &Router, agent: &Agent, abilities: Value) -> String {
    let (status, session, answer) = send(router, agent, None, initialize(&abilities)).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    send(router, agent, Some(&session), json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
        .await;
    session
}

fn call(tool: &str, arguments: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": tool, "arguments": arguments } })
}

#[tokio::test]
async fn a_session_outlives_the_process() {
    let files = tempfile::tempdir().unwrap();
    let path = Some(files.path().join("sessions.jsonl"));
    let face = Face::with(Config { sessions: path.clone(), ..Config::default() });
    let agent = face.agent("worker", Role::Worker);
    let session = open(&face.router, &agent).await;

    let later = Config { sessions: path, ..Config::default() };
    let later = router(face.service.clone(), face.access.clone(), Arc::new(catalogue().unwrap()), later);
    let (status, _, answer) = send(&later, &agent, Some(&session), call("get-swarm", json!({}))).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert!(answer["result"]["structuredContent"]["agents"].is_array(), "{answer}");
    let forgotten = Config::default();
    let forgotten =
        router(face.service.clone(), face.access.clone(), Arc::new(catalogue().unwrap()), forgotten);
    let (status, ..) = send(&forgotten, &agent, Some(&session), call("get-swarm", json!({}))).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn results_keep_their_schemas_in_sessions_too() {
    let face = Face::new();
    let lead = face.agent("lead", Role::Lead);
    let session = open(&face.router, &lead).await;
    let list = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/list" });
    let (_, _, listed) = send(&face.router, &lead, Some(&session), list).await;
    let tools = listed["result"]["tools"].as_array().unwrap().clone();
    for (tool, arguments) in [
        ("my-agent-info", json!({})),
        ("join-swarm", json!({ "name": "Lead", "lead": true })),
        ("join-swarm", json!({ "name": "Lead", "lead": true })),
        ("my-agent-info", json!({})),
        ("get-swarm", json!({})),
        ("send-task", json!({ "task": "count" })),
        ("send-task", json!({ "task": "count" })),
        ("get-tasks", json!({ "unassigned": true })),
        ("get-task-details", json!({ "taskId": Uuid::nil() })),
        ("task-action", json!({ "action": "create", "task": "more" })),
        ("task-action", json!({ "action": "claim" })),
        ("store-progress", json!({ "taskId": Uuid::nil(), "progress": "x" })),
        ("cancel-task", json!({ "taskId": Uuid::nil() })),
        ("post-message", json!({ "content": "hello" })),
        ("read-messages", json!({ "channel": "general" })),
        ("read-messages", json!({})),
        ("memory-search", json!({ "query": "x" })),
        ("memory-get", json!({ "memoryId": Uuid::nil() })),
        ("slack-read", json!({})),
        ("slack-reply", json!({ "message": "x" })),
        ("acquire_lock", json!({ "resource_key": "file:///a" })),
        ("acquire_lock", json!({ "resource_key": "file:///b" })),
        ("release_lock", json!({ "resource_key": "file:///a" })),
        ("release_lock", json!({ "resource_key": "file:///a" })),
        ("call_agent", json!({ "target_agent": "nobody", "context": "" })),
        ("check_call", json!({ "call_id": "x" })),
        ("set_status", json!({ "text": "busy" })),
        ("return_value", json!({ "value": "1" })),
        ("wait_for_trigger", json!({ "type": "webhook", "timeout": "20ms" })),
        ("wait_for_trigger", json!({ "type": "webhook", "timeout": "soon" })),
        ("wait", json!({ "timeout_s": 0 })),
    ] {
        let (status, _, answer) = send(&face.router, &lead, Some(&session), call(tool, arguments)).await;
        assert_eq!(status, StatusCode::OK, "{tool}: {answer}");
        let result = &answer["result"];
        let declared = tools.iter().find(|declared| declared["name"] == tool).unwrap();
        jsonschema::validate(&declared["outputSchema"], &result["structuredContent"])
            .unwrap_or_else(|error| panic!("{tool} breaks its schema: {error}: {result}"));
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text.len() > 3, "{tool} says nothing: {result}");
        let refused =
            result["structuredContent"]["success"] == false || result["structuredContent"]["ok"] == false;
        if refused || result["isError"] == true {
            assert!(result["structuredContent"]["code"].is_string(), "{tool} gives no code: {result}");
        }
    }
}

fn in_session(method: &str, agent: &Agent, session: &str, revision: &str, body: Body) -> Request<Body> {
    let request = Request::builder()
        .method(method)
        .uri("/mcp/full")
        .header("host", "127.0.0.1")
        .header("authorization", format!("Bearer {}", agent.token))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-session-id", session)
        .header("mcp-protocol-version", revision);
    request.body(body).unwrap()
}

/// The first frame of what a client is sent that speaks a revision: of the answer to a ping, and of its standing
/// stream.
async fn heads(face: &Face, agent: &Agent, session: &str, revision: &str) -> [String; 2] {
    let ping = json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" }).to_string();
    let mut heads = Vec::new();
    for (method, body) in [("POST", Body::from(ping)), ("GET", Body::empty())] {
        let request = in_session(method, agent, session, revision, body);
        let response = face.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{method} of {revision}");
        let frame = response.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
        heads.push(String::from_utf8(frame.to_vec()).unwrap());
    }
    heads.try_into().unwrap()
}

/// Clients of older revisions take it for a message, and one without JSON for an error.
#[tokio::test]
async fn only_those_get_an_event_without_data_whose_revision_has_it() {
    let face = Face::new();
    let agent = face.agent("worker", Role::Worker);
    let session = open(&face.router, &agent).await;
    for head in heads(&face, &agent, &session, "2025-11-25").await {
        assert!(head.starts_with("data: \nid: "), "{head}");
    }
    let session = open(&face.router, &agent).await;
    for head in heads(&face, &agent, &session, "2025-06-18").await {
        assert_eq!(head, ":\n\n");
    }
}

/// The next message of a stream.
pub(super) async fn next(stream: &mut Body) -> Value {
    loop {
        let frame = stream.frame().await.expect("the stream has ended").unwrap();
        let told = frame.into_data().map(|data| message(&data)).unwrap_or_default();
        if !told.is_null() {
            return told;
        }
    }
}

/// A person may take a while, and a command an hour; meanwhile nobody says anything.
#[tokio::test(start_paused = true)]
async fn a_call_that_says_nothing_for_long_is_not_cut_off() {
    let face = Face::with(Config { fixture: true, ..Config::default() });
    let agent = face.agent("worker", Role::Worker);
    let session = open_able(&face.router, &agent, json!({ "elicitation": {} })).await;
    let asked = call("test_elicitation", json!({ "message": "Who are you?" }));
    let asked = in_session("POST", &agent, &session, "2025-11-25", Body::from(asked.to_string()));
    let answer = face.router.clone().oneshot(asked).await.unwrap();
    let standing = in_session("GET", &agent, &session, "2025-11-25", Body::empty());
    let mut standing = face.router.clone().oneshot(standing).await.unwrap();
    let mut answer = answer.into_body();
    let question = tokio::select! {
        question = next(&mut answer) => question,
        question = next(standing.body_mut()) => question,
    };
    assert_eq!(question["method"], "elicitation/create", "{question}");
    tokio::time::sleep(Duration::from_secs(9 * 60)).await;
    let form = json!({ "action": "accept", "content": { "username": "anna", "email": "a@b.c" } });
    let said = json!({ "jsonrpc": "2.0", "id": question["id"], "result": form });
    send(&face.router, &agent, Some(&session), said).await;
    let result = next(&mut answer).await;
    assert!(result["result"]["content"][0]["text"].as_str().unwrap().contains("anna"), "{result}");
}

/// Longer than a person has for an answer.
const LONG: Duration = Duration::from_secs(11 * 60);

/// A question to the person in front of a session's client: the session, the stream of the answer, and the question's
/// id. `meta` says whether the client listens to progress.
async fn asking(face: &Face, agent: &Agent, meta: Value) -> (String, Body, Value) {
    let session = open_able(&face.router, agent, json!({ "elicitation": {} })).await;
    let mut asked = call("ask_human", json!({ "question": "Where to?", "open_s": 3600 }));
    asked["params"]["_meta"] = meta;
    let asked = in_session("POST", agent, &session, "2025-11-25", Body::from(asked.to_string()));
    let mut answer = face.router.clone().oneshot(asked).await.unwrap().into_body();
    loop {
        let told = next(&mut answer).await;
        if told["method"] == "elicitation/create" {
            return (session, answer, told["id"].clone());
        }
    }
}

/// What is heard of a call until its result, and that.
async fn heard(answer: &mut Body) -> (Vec<Value>, Value) {
    let mut told = Vec::new();
    loop {
        let message = next(answer).await;
        if message["id"] == 2 {
            return (told, message);
        }
        assert_eq!(message["method"], "notifications/progress", "{message}");
        told.push(message["params"].clone());
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_hears_that_its_person_is_waited_for() {
    let (face, _, worker) = swarm().await;
    let (session, mut answer, question) = asking(&face, &worker, json!({ "progressToken": "mine" })).await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    let form = json!({ "action": "accept", "content": { "answer": "home" } });
    let said = json!({ "jsonrpc": "2.0", "id": question, "result": form });
    send(&face.router, &worker, Some(&session), said).await;
    let (told, result) = heard(&mut answer).await;
    assert_eq!(result["result"]["structuredContent"]["answer"], "home", "{result}");
    let waits = told.iter().filter(|told| told["message"] == "waiting for the person");
    assert!(waits.count() >= 2, "{told:?}");
    let done = told.iter().map(|told| told["progress"].as_f64().unwrap()).collect::<Vec<_>>();
    assert!(done.is_sorted_by(|one, next| one < next), "{done:?}");
}

/// The newest too: the read side goes by the time of its thread, which no test holds.
async fn open_questions(face: &Face, agent: &Agent) -> Value {
    tokio::time::resume();
    let open = face.facts(agent, "list_questions", json!({ "format": "rows" })).await;
    assert!(open["warning"].is_null(), "{open}");
    open["questions"].clone()
}

/// As the question of a client that cannot ask is.
#[tokio::test(start_paused = true)]
async fn what_the_person_does_not_answer_in_time_is_filed() {
    let (face, lead, worker) = swarm().await;
    let (_session, mut answer, _) = asking(&face, &worker, json!({})).await;
    // Nobody reads meanwhile: the comments of an empty stream go by another clock, and would keep this one from going
    // on.
    tokio::time::sleep(LONG).await;
    let (_, result) = heard(&mut answer).await;
    let asked = &result["result"]["structuredContent"];
    assert_eq!(asked["outcome"], "asked", "{result}");
    assert_eq!(open_questions(&face, &lead).await[0]["id"], asked["question_id"]);
}

/// Else the person would be shown still what is asked elsewhere by then.
#[tokio::test(start_paused = true)]
async fn a_client_is_told_that_its_person_is_waited_for_no_more() {
    let (face, _, worker) = swarm().await;
    let (session, mut answer, question) = asking(&face, &worker, json!({})).await;
    tokio::time::sleep(LONG).await;
    heard(&mut answer).await;
    tokio::time::resume();
    let standing = in_session("GET", &worker, &session, "2025-11-25", Body::empty());
    let mut standing = face.router.clone().oneshot(standing).await.unwrap().into_body();
    let told = tokio::time::timeout(Duration::from_secs(60), next(&mut standing)).await;
    let told = told.expect("nothing is said of the question");
    assert_eq!(told["method"], "notifications/cancelled", "{told}");
    assert_eq!(told["params"]["requestId"], question, "{told}");
}

/// It has said at its beginning that it can, and knows no such method when it is asked.
#[tokio::test(start_paused = true)]
async fn what_a_client_fails_to_ask_is_filed() {
    let (face, lead, worker) = swarm().await;
    let (session, mut answer, question) = asking(&face, &worker, json!({})).await;
    let error = json!({ "code": -32601, "message": "Method not found" });
    let said = json!({ "jsonrpc": "2.0", "id": question, "error": error });
    send(&face.router, &worker, Some(&session), said).await;
    let (_, result) = heard(&mut answer).await;
    let asked = &result["result"]["structuredContent"];
    assert_eq!(asked["outcome"], "asked", "{result}");
    assert_eq!(open_questions(&face, &lead).await[0]["id"], asked["question_id"]);
}

/// Nobody would know which one it is.
#[tokio::test(start_paused = true)]
async fn a_question_of_a_client_that_has_gone_is_not_filed() {
    let (face, lead, worker) = swarm().await;
    let (_session, answer, _) = asking(&face, &worker, json!({})).await;
    drop(answer);
    tokio::time::sleep(LONG).await;
    assert_eq!(open_questions(&face, &lead).await, json!([]));
}

#[tokio::test]
async fn nobody_is_asked_in_the_name_of_a_task_of_another() {
    let (face, lead, worker) = swarm().await;
    let others = face.facts(&lead, "send-task", json!({ "task": "fly" })).await["task"]["id"].clone();
    for (task, code) in [(others, "forbidden"), (json!(Uuid::nil()), "not_found")] {
        let mut refused = Vec::new();
        for abilities in [json!({}), json!({ "elicitation": {} })] {
            let session = open_able(&face.router, &worker, abilities).await;
            let ask = call("ask_human", json!({ "question": "Where to?", "task_id": task }));
            let answer = send(&face.router, &worker, Some(&session), ask);
            let answer = tokio::time::timeout(Duration::from_secs(30), answer).await.expect("it is asked");
            let refusal = answer.2["result"]["structuredContent"].clone();
            assert_eq!(refusal["code"], code, "{refusal}");
            refused.push(refusal["message"].clone());
        }
        assert_eq!(refused[0], refused[1]);
    }
}

/// In a session nobody is told of the list of resources, and it is not said that they would be.
#[tokio::test]
async fn what_is_not_told_in_sessions_is_not_promised_there() {
    let face = Face::new();
    let agent = face.agent("worker", Role::Worker);
    let begun = send(&face.router, &agent, None, initialize(&json!({}))).await.2;
    let promised = &begun["result"]["capabilities"]["resources"];
    assert_eq!(promised, &json!({ "subscribe": true }), "{begun}");
    let found = face.send("/mcp", &agent.token, "server/discover", json!({})).await.1;
    assert_eq!(found["result"]["capabilities"]["resources"]["listChanged"], true, "{found}");
}

async fn subscribe(face: &Face, agent: &Agent, session: &str, uri: &str) -> Value {
    let params = json!({ "uri": uri });
    let subscribe = json!({ "jsonrpc": "2.0", "id": 4, "method": "resources/subscribe", "params": params });
    send(&face.router, agent, Some(session), subscribe).await.2
}

/// Whatever a session watches, its agent has all its waits.
#[tokio::test]
async fn what_a_session_watches_takes_no_place_of_a_wait() {
    let (face, lead, worker) = swarm().await;
    let session = open(&face.router, &worker).await;
    for number in 0..10 {
        let task = json!({ "task": format!("part {number} of the work"), "allowDuplicate": true });
        let task = face.facts(&lead, "send-task", task).await;
        let uri = format!("skein://tasks/{}", task["task"]["id"].as_str().unwrap());
        let answer = subscribe(&face, &worker, &session, &uri).await;
        assert!(answer["error"].is_null(), "{answer}");
    }
    face.facts(&worker, "wait", json!({ "timeout_s": 0 })).await;
}

#[tokio::test]
async fn what_an_agent_watches_is_bounded_over_all_its_sessions() {
    let limits = crate::mcp::quota::Limits { watches_per_agent: 2, ..Default::default() };
    let face = Face::with(Config { gate: crate::mcp::Gate::new(limits), ..Config::default() });
    let (one, other) = (face.agent("one", Role::Lead), face.agent("other", Role::Worker));
    face.facts(&one, "join-swarm", json!({ "name": "One", "lead": true })).await;
    face.facts(&other, "join-swarm", json!({ "name": "Other" })).await;
    let mut uris = Vec::new();
    for text in ["quarry the stones", "mix mortar", "build"] {
        let task = face.facts(&one, "send-task", json!({ "task": text })).await["task"]["id"].clone();
        uris.push(format!("skein://tasks/{}", task.as_str().unwrap()));
    }
    let (first, second) = (open(&face.router, &one).await, open(&face.router, &one).await);
    for (session, uri) in [(&first, &uris[0]), (&second, &uris[1]), (&second, &uris[1])] {
        let answer = subscribe(&face, &one, session, uri).await;
        assert!(answer["error"].is_null(), "{answer}");
    }
    let refused = subscribe(&face, &one, &second, &uris[2]).await;
    assert_eq!(refused["error"]["data"]["code"], "rate_limited", "{refused}");
    let theirs = open(&face.router, &other).await;
    let answer = subscribe(&face, &other, &theirs, &uris[2]).await;
    assert!(answer["error"].is_null(), "{answer}");
    // What is watched no more makes room.
    let params = json!({ "uri": uris[0] });
    let end = json!({ "jsonrpc": "2.0", "id": 5, "method": "resources/unsubscribe", "params": params });
    send(&face.router, &one, Some(&first), end).await;
    let answer = subscribe(&face, &one, &second, &uris[2]).await;
    assert!(answer["error"].is_null(), "{answer}");
}

/// A task that a session of the worker watches, and how many topics were awaited before.
async fn watched(face: &Face, lead: &Agent, worker: &Agent) -> (Value, usize) {
    let task = face.facts(lead, "send-task", json!({ "task": "long work" })).await["task"]["id"].clone();
    let session = open(&face.router, worker).await;
    let uri = format!("skein://tasks/{}", task.as_str().unwrap());
    let before = face.awaited();
    let answer = subscribe(face, worker, &session, &uri).await;
    assert!(answer["error"].is_null(), "{answer}");
    face.until_awaited(|topics| topics > before).await;
    (task, before)
}

/// A message is a sign of life to rmcp, so a session that is told things would not end by itself.
#[tokio::test]
async fn a_session_that_nobody_has_been_there_for_is_told_nothing_more() {
    let (face, lead, worker) = swarm().await;
    let (task, before) = watched(&face, &lead, &worker).await;
    // Not before: the read side has a thread of its own, which a clock that runs ahead does not wait for.
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(3601)).await;
    face.facts(&lead, "cancel-task", json!({ "taskId": task })).await;
    // Long enough for it to have told that, and to look again.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(face.awaited(), before);
}

/// A token that was revoked is told of no change.
#[tokio::test]
async fn a_session_whose_token_was_revoked_is_told_nothing_more() {
    let (face, lead, worker) = swarm().await;
    let (task, before) = watched(&face, &lead, &worker).await;
    // Not before: the read side has a thread of its own, which a clock that runs ahead does not wait for.
    tokio::time::pause();
    let operator = face.agent("operator", Role::Operator);
    let operator = face.access.identify(&operator.token).await.unwrap();
    face.access.revoke(&operator, Of::Agent(worker.id), Duration::from_secs(60)).await.unwrap();
    face.facts(&lead, "cancel-task", json!({ "taskId": task })).await;
    // Long enough for it to have told that, and to look again.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(face.awaited(), before);
}

/// The official client for Python takes any other status than these for a failure, and says so.
#[tokio::test]
async fn a_session_that_is_ended_is_gone_with_a_status_that_clients_know() {
    let (face, _, worker) = swarm().await;
    let session = open(&face.router, &worker).await;
    let end = calling(&worker, Some(&session), "", json!({})).map(|_| Body::empty());
    let (mut parts, body) = end.into_parts();
    parts.method = http::Method::DELETE;
    let (status, _) = face.raw(Request::from_parts(parts, body)).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
}
