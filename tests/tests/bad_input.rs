//! Whatever comes in, the answer says what was wrong, and the node lives on.

use std::io::Write as _;
use std::net::TcpStream;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use skein_shared::limits;
use skein_tests::mcp::Client;
use skein_tests::up::Up;

async fn post(up: &Up, token: &str, body: impl Into<reqwest::Body>) -> Result<(u16, String)> {
    let response = reqwest::Client::new()
        .post(&up.mcp)
        .bearer_auth(token)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(body)
        .send()
        .await?;
    Ok((response.status().as_u16(), response.text().await?))
}

/// A refusal in any of its forms has a code and a sentence.
fn refused(answer: &Value) -> bool {
    let result = &answer["result"];
    let said = |value: &Value| value["message"].as_str().is_some_and(|text| text.len() > 10);
    answer["error"]["message"].is_string()
        || result["isError"] == json!(true)
        || (result["structuredContent"]["success"] == json!(false) && said(&result["structuredContent"]))
        || (result["structuredContent"]["ok"] == json!(false)
            && result["structuredContent"]["code"].is_string())
}

#[tokio::test]
async fn bad_calls_are_refused_with_a_reason() -> Result<()> {
    let up = Up::start().await?;
    let token = up.token("worker", "worker").await?;
    let client = Client::new(&up.mcp, &token);
    let joined = client.call("join-swarm", json!({"name": "worker"})).await?;
    ensure!(joined["success"] == json!(true), "{joined}");
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let calls = [
        ("no-such-tool", json!({})),
        ("send-task", json!({})),
        ("send-task", json!({"task": 7})),
        ("send-task", json!({"task": "x", "priority": 101})),
        ("send-task", json!({"task": "x", "agentId": "not-a-uuid"})),
        ("send-task", json!({"task": "x", "dependsOn": ["zzz"]})),
        ("send-task", json!({"task": "x", "tags": deep})),
        ("get-task-details", json!({"taskId": "1"})),
        ("get-task-details", json!({"taskId": "00000000-0000-4000-8000-00000000dead"})),
        ("store-progress", json!({"taskId": "00000000-0000-4000-8000-00000000dead", "progress": "x"})),
        ("task-action", json!({"action": "explode"})),
        ("acquire_lock", json!({"resource_key": "not a uri"})),
        ("acquire_lock", json!({"resource_key": "file:///x", "ttl_seconds": -1})),
        ("acquire_lock", json!({"resource_key": "file:///x", "ttl_seconds": "soon"})),
        ("release_lock", json!({"resource_key": "file:///never-held"})),
        ("call_agent", json!({"target_agent": "nobody", "context": ""})),
        ("check_call", json!({"call_id": "x"})),
        ("wait_for_trigger", json!({"type": "sunrise"})),
        ("wait_for_trigger", json!({"type": "webhook", "timeout": "1.5h"})),
        ("create-schedule", json!({"name": "s", "taskTemplate": "t", "cronExpression": "61 * * * *"})),
    ];
    for (tool, arguments) in calls {
        let answer =
            client.request("tools/call", json!({"name": tool, "arguments": arguments.clone()})).await;
        let answer = answer.map_err(|error| error.context(format!("{tool} {arguments}")))?;
        ensure!(refused(&answer), "{tool} {arguments} was taken: {answer}");
    }
    let after = client.call("my-agent-info", json!({})).await?;
    ensure!(after["success"] == json!(true), "{after}");
    Ok(())
}

#[tokio::test]
async fn bad_bodies_and_tokens_are_refused() -> Result<()> {
    let up = Up::start().await?;
    let token = up.token("worker", "worker").await?;
    for body in ["{", "[]", "null", "\"x\"", "{\"jsonrpc\":\"1.0\"}", ""] {
        let (status, text) = post(&up, &token, body).await?;
        ensure!((400..500).contains(&status), "{body:?} gave {status}: {text}");
    }
    let (status, _) = post(&up, &token, vec![b' '; limits::REQUEST + 1]).await?;
    ensure!(status == 413, "an oversized body gave {status}");
    let mut nested = "[".repeat(100_000);
    nested.push_str(&"]".repeat(100_000));
    let (status, _) = post(&up, &token, nested).await?;
    ensure!((400..500).contains(&status), "a deeply nested body gave {status}");
    for bad in ["", "x", "a.b.c", &format!("{token}x")] {
        let (status, text) = post(&up, bad, "{}").await?;
        ensure!(status == 401, "a bad token gave {status}");
        ensure!(bad.is_empty() || bad == "x" || !text.contains(bad), "the token came back in {text}");
    }
    let foreign = reqwest::Client::new()
        .post(&up.mcp)
        .bearer_auth(&token)
        .header("origin", "https://evil.example")
        .header("accept", "application/json, text/event-stream")
        .json(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
        .send()
        .await?;
    ensure!(foreign.status() == 403, "a foreign origin gave {}", foreign.status());
    Ok(())
}

/// As from one who has waited for a node that stands still, and asks another one now.
#[tokio::test]
async fn what_its_client_has_given_up_before_it_is_read_does_not_happen() -> Result<()> {
    let up = Up::start().await?;
    let token = up.token("worker", "worker").await?;
    let client = Client::new(&up.mcp, &token);
    client.call("join-swarm", json!({"name": "worker"})).await?;
    up.freeze().await?;
    for number in 0..20 {
        give_up(&client, &format!("given up {number}"))?;
    }
    up.thaw()?;
    client.call("send-task", json!({"task": "wanted"})).await?;
    let listed = client.call("get-tasks", json!({"limit": 100})).await?;
    let tasks = listed["tasks"].as_array().into_iter().flatten();
    let made: Vec<_> = tasks.filter_map(|task| task["task"].as_str()).collect();
    ensure!(made == ["wanted"], "{made:?}");
    Ok(())
}

/// Sends the whole of a call and hangs up: both lie with the node before it reads any of it.
fn give_up(client: &Client, task: &str) -> Result<()> {
    let call = json!({"name": "send-task", "arguments": {"task": task}});
    let request = client.written("tools/call", call).build()?;
    let body = request.body().and_then(reqwest::Body::as_bytes).unwrap_or_default();
    let mut connection = TcpStream::connect(request.url().socket_addrs(|| None)?.as_slice())?;
    write!(connection, "POST {} HTTP/1.1\r\nhost: {}\r\n", request.url().path(), request.url().authority())?;
    for (name, value) in request.headers() {
        write!(connection, "{name}: {}\r\n", value.to_str()?)?;
    }
    write!(connection, "content-length: {}\r\n\r\n", body.len())?;
    Ok(connection.write_all(body)?)
}
