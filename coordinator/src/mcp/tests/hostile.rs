//! Every tool is called with whatever a broken or hostile client may send: arguments that are missing, too many, of
//! another type, too large, or meant to do harm. There is always an answer of its schema, and nothing else is harmed.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config as Runs, TestRunner};

use super::waits::calling;
use super::*;
use crate::mcp::Gate;
use crate::mcp::quota::Limits;

/// Calls of each tool by each of two agents.
const CALLS: usize = 24;
/// A tool that waits is left alone after this long: it has taken what it was given.
const WAITS: Duration = Duration::from_millis(20);

/// Texts that programs stumble over.
const TEXTS: [&str; 18] = [
    "",
    " ",
    "\u{0}",
    "\u{202e}\u{feff}",
    "🪿🪿🪿",
    "../../../etc/passwd",
    "'; DROP TABLE tasks; --",
    "<script>alert(1)</script>",
    "$(reboot)`reboot`",
    "%s%n%x",
    "-1",
    "NaN",
    "null",
    "{\"a\":",
    "00000000-0000-0000-0000-000000000000",
    "2026-02-30T25:61:61Z",
    "* * * * * * *",
    "general",
];

/// Any value at all.
fn anything(known: &[String]) -> BoxedStrategy<Value> {
    let known = select(known.to_vec()).prop_map(Value::from);
    let leaf = prop_oneof![
        4 => select(TEXTS.to_vec()).prop_map(Value::from),
        4 => known,
        1 => Just(Value::from("a".repeat(300_000))),
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        2 => any::<i64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        2 => (0..200i64).prop_map(Value::from),
    ];
    let nested = leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{0,12}", inner, 0..6).prop_map(|fields| json!(fields)),
        ]
    });
    prop_oneof![12 => nested, 1 => Just(json!(vec![0; 2000]))].boxed()
}

/// A value that the schema may well allow.
fn fitting(schema: &Value, known: &[String]) -> BoxedStrategy<Value> {
    if let Some(values) = schema["enum"].as_array() {
        return select(values.clone()).boxed();
    }
    let kind = schema["type"].as_str().or(schema["type"][0].as_str()).unwrap_or_default();
    match kind {
        "string" => {
            prop_oneof![2 => select(known.to_vec()), 1 => select(TEXTS.map(str::to_owned).to_vec()), 1 => "[a-z ]{1,20}"]
                .prop_map(Value::from)
                .boxed()
        }
        "integer" | "number" => (-2..200i64).prop_map(Value::from).boxed(),
        "boolean" => any::<bool>().prop_map(Value::from).boxed(),
        "array" => prop::collection::vec(fitting(&schema["items"], known), 0..4).prop_map(Value::from).boxed(),
        _ => anything(known),
    }
}

/// Arguments for a tool: some of its own, most of them of the right kind, and some that it does not know.
fn arguments(schema: &Value, known: &[String]) -> BoxedStrategy<Value> {
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut fields: Vec<BoxedStrategy<Option<(String, Value)>>> = Vec::new();
    for (name, argument) in properties.iter().filter(|(name, _)| *name != "idempotency_key") {
        let value = prop_oneof![5 => fitting(argument, known), 1 => anything(known)];
        let given = if required.contains(&name.as_str()) { 0.95 } else { 0.4 };
        let name = name.clone();
        fields
            .push(prop::option::weighted(given, value.prop_map(move |value| (name.clone(), value))).boxed());
    }
    let more = ("[a-zA-Z_$.]{1,20}", anything(known));
    fields.push(prop::option::weighted(0.1, more).boxed());
    fields.prop_map(|fields| Value::Object(fields.into_iter().flatten().collect())).boxed()
}

/// Says what is wrong with an answer, if anything is.
fn fault(status: StatusCode, answer: &Value) -> Option<&'static str> {
    let result = &answer["result"];
    let facts = &result["structuredContent"];
    let refused = result["isError"] == true || facts["success"] == false;
    if status.is_server_error() {
        return Some("a 5xx");
    }
    if !result.is_object() && !answer["error"]["message"].is_string() {
        return Some("no answer");
    }
    if facts["code"] == "internal" {
        return Some("a fault of the program");
    }
    let says =
        facts["message"].as_str().or(facts["reason"].as_str()).or(result["content"][0]["text"].as_str());
    (refused && says.is_none_or(|sentence| sentence.len() < 8)).then_some("a refusal without a reason")
}

#[tokio::test]
async fn whatever_a_tool_is_called_with_it_answers() {
    let limits = Limits { writes_per_second: 1_000_000, reads_per_second: 1_000_000, ..Limits::default() };
    let limits = Limits { searches_per_second: 1_000_000, ..limits };
    let face = Face::with(Config { gate: Gate::new(limits), ..Config::default() });
    let (lead, worker) = (face.agent("lead", Role::Lead), face.agent("worker", Role::Worker));
    face.facts(&lead, "join-swarm", json!({ "name": "Lead", "lead": true })).await;
    face.facts(&worker, "join-swarm", json!({ "name": "Worker", "maxTasks": 20 })).await;
    let sent =
        face.facts(&lead, "send-task", json!({ "task": "Count the geese", "agentId": worker.id })).await;
    let epic = face.facts(&lead, "create-epic", json!({ "name": "Geese", "goal": "All counted" })).await;
    let known: Vec<String> =
        [&sent["task"]["id"], &epic["epic"]["id"], &json!(worker.id), &json!("Geese"), &json!("Worker")]
            .into_iter()
            .filter_map(|value| value.as_str().map(str::to_owned))
            .collect();
    let mut runner = TestRunner::new_with_rng(
        Runs::default(),
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let declared = catalogue().unwrap();
    for tool in declared.tools() {
        let strategy = arguments(&Value::Object(tool.input()), &known);
        for call in 0..CALLS {
            let arguments = strategy.new_tree(&mut runner).unwrap().current();
            let agent = if call % 2 == 0 { &lead } else { &worker };
            let params = json!({ "name": tool.name, "arguments": arguments });
            let answer = face.send("/mcp/full", &agent.token, "tools/call", params);
            let patience = if tool.waits { WAITS } else { Duration::from_secs(30) };
            let Ok((status, answer)) = tokio::time::timeout(patience, answer).await else {
                assert!(tool.waits, "{} does not answer {arguments}", tool.name);
                continue;
            };
            if let Some(fault) = fault(status, &answer) {
                panic!("{} gave {fault} for {arguments}: {status} {answer}", tool.name);
            }
            if answer["result"]["isError"] == false && !tool.output.is_null() {
                jsonschema::validate(&tool.output, &answer["result"]["structuredContent"]).unwrap_or_else(
                    |error| panic!("{} breaks its schema for {arguments}: {error}", tool.name),
                );
            }
        }
    }
    let after = face.facts(&worker, "my-agent-info", json!({})).await;
    assert_eq!(after["yourAgentId"], json!(worker.id));
    face.facts(&lead, "send-task", json!({ "task": "Count them once more", "agentId": worker.id })).await;
}

/// To rmcp they are requests of methods that it does not know.
#[tokio::test]
async fn parameters_that_do_not_fit_are_said_to_be_wrong_and_not_their_methods() {
    let face = Face::new();
    let worker = face.agent("worker", Role::Worker);
    let session = sessions::open(&face.router, &worker).await;
    let in_session = async |method: &str, params: &Value| {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        let request = calling(&worker, Some(&session), "", json!({}));
        face.raw(request.map(|_| Body::from(body.to_string()))).await
    };
    let with = |arguments: Value| json!({ "name": "get-swarm", "arguments": arguments });
    let reference = json!({ "type": "ref/prompt", "name": "lead" });
    for (method, params, says) in [
        ("tools/call", with(json!([])), "arguments must be an object"),
        ("tools/call", with(json!("{}")), "arguments must be an object"),
        ("tools/call", with(json!(5)), "arguments must be an object"),
        ("tools/call", json!({ "arguments": {} }), "name is missing"),
        ("tools/call", json!({ "name": 5 }), "name must be a text"),
        ("prompts/get", json!({}), "name is missing"),
        ("prompts/get", json!({ "name": "worker", "arguments": [] }), "arguments must be an object"),
        ("resources/read", json!({}), "uri is missing"),
        ("completion/complete", json!({ "ref": reference }), "argument is missing"),
        ("completion/complete", json!({ "ref": reference, "argument": {} }), "form of its schema"),
        ("tasks/get", json!({}), "taskId is missing"),
        ("tasks/cancel", json!({ "taskId": [] }), "taskId must be a text"),
        ("tasks/update", json!({ "taskId": "question:1" }), "inputResponses is missing"),
    ] {
        let alone = face.send("/mcp", &worker.token, method, params.clone()).await;
        for (status, answer) in [alone, in_session(method, &params).await] {
            let told = (status, &answer["error"]["code"]);
            assert_eq!(told, (StatusCode::OK, &json!(-32602)), "{method} {params}: {answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains(says), "{params}: {answer}");
        }
    }
    for (method, params) in
        [("resources/subscribe", json!({})), ("resources/unsubscribe", json!({ "uri": 5 }))]
    {
        let (_, answer) = in_session(method, &params).await;
        assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
    }
    let (status, answer) = face.send("/mcp", &worker.token, "subscriptions/listen", json!({})).await;
    assert_eq!((status, &answer["error"]["code"]), (StatusCode::OK, &json!(-32602)), "{answer}");
    let (status, answer) = face.send("/mcp", &worker.token, "tools/sell", json!({})).await;
    assert_eq!((status, &answer["error"]["code"]), (StatusCode::NOT_FOUND, &json!(-32601)), "{answer}");
}

/// What rmcp would say of these is that their body has the wrong media type, or that they name no session.
#[tokio::test]
async fn parameters_that_no_method_has_are_refused_as_such() {
    let face = Face::new();
    let worker = face.agent("worker", Role::Worker);
    let session = sessions::open(&face.router, &worker).await;
    let beginning = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
    for (method, params, says) in [
        ("tools/list", json!([]), "params must be an object"),
        ("tools/call", json!("get-swarm"), "params must be an object"),
        ("initialize", Value::Null, "protocolVersion is missing"),
        ("initialize", beginning, "clientInfo is missing"),
    ] {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        // The stateless revision has no beginning.
        let stateless = (method != "initialize").then_some(None);
        for session in stateless.into_iter().chain([Some(session.as_str())]) {
            let request = calling(&worker, session, "", json!({}));
            let (status, answer) = face.raw(request.map(|_| Body::from(body.to_string()))).await;
            let told = (status, &answer["id"], &answer["error"]["code"]);
            assert_eq!(told, (StatusCode::BAD_REQUEST, &json!(7), &json!(-32602)), "{method}: {answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains(says), "{method}: {answer}");
        }
    }
}

/// Revisions before 2025-06-18 had batches. What rmcp would say of all these is that they have the wrong media type.
#[tokio::test]
async fn json_that_is_no_message_is_refused_as_such() {
    let face = Face::new();
    let worker = face.agent("worker", Role::Worker);
    let session = sessions::open(&face.router, &worker).await;
    let ping = json!({ "jsonrpc": "2.0", "id": 7, "method": "ping" });
    let of_another_version = json!({ "jsonrpc": "1.0", "id": 7, "method": "ping" });
    for (body, id) in [
        (json!([ping, ping]), Value::Null),
        (json!([]), Value::Null),
        (json!({}), Value::Null),
        (json!("ping"), Value::Null),
        (json!({ "jsonrpc": "2.0", "id": 1.5, "method": "ping" }), Value::Null),
        (of_another_version, json!(7)),
    ] {
        for session in [None, Some(session.as_str())] {
            let request = calling(&worker, session, "", json!({}));
            let (status, answer) = face.raw(request.map(|_| Body::from(body.to_string()))).await;
            let told = (status, &answer["id"], &answer["error"]["code"]);
            assert_eq!(told, (StatusCode::BAD_REQUEST, &id, &json!(-32600)), "{body}: {answer}");
        }
    }
    // Of another media type it is said that it is one.
    let mut other = calling(&worker, None, "get-swarm", json!({}));
    other.headers_mut().insert("content-type", "text/plain".parse().unwrap());
    assert_eq!(face.raw(other).await.0, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}
