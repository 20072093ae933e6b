//! The face as clients meet it: HTTP requests to the router, entities on a store in memory behind it.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use skein_shared::agent;
use skein_shared::blobs::Bounds;
use skein_shared::id::{EntityKey, Kind, Name};
use skein_shared::limits;
use tower::ServiceExt;
use uuid::Uuid;

use super::door::{Config, SharedKey};
use super::server::router;
use super::tools::catalogue;
use crate::auth::Role;
use crate::entity;
use crate::store::memory::{Fault, Gate};
use face::{Agent, Face, swarm};

pub(crate) use face::{NoRunners, message};
pub(crate) use log::Lines;

mod audit;
mod calls;
mod columns;
mod direct;
mod doors;
mod face;
mod hostile;
mod lists;
mod log;
mod made;
mod mail;
mod members;
mod messages;
mod offers;
mod permissions;
mod repeats;
mod resources;
mod sessions;
mod settings;
mod tasks;
mod unread;
mod values;
mod waits;

#[tokio::test]
async fn a_task_goes_from_lead_to_worker_and_back() {
    let (face, lead, worker) = swarm().await;
    let sent = face
        .facts(
            &lead,
            "send-task",
            json!({ "task": "write the report", "agentId": worker.id, "tags": ["doc"] }),
        )
        .await;
    let id = sent["task"]["id"].clone();
    assert_eq!(sent["task"]["status"], "pending");
    assert_eq!(sent["yourAgentId"], json!(lead.id));

    let polled = face.facts(&worker, "poll-task", json!({})).await;
    assert_eq!(polled["task"]["id"], id);
    assert_eq!(polled["task"]["status"], "in_progress");
    face.facts(&worker, "store-progress", json!({ "taskId": id, "progress": "half" })).await;
    let report = json!({ "taskId": id, "status": "completed", "output": "done" });
    let ended = face.facts(&worker, "store-progress", report.clone()).await;
    assert_eq!(ended["task"]["status"], "completed");
    let again = face.facts(&worker, "store-progress", report).await;
    assert_eq!(again["repeated"], true);
    let other = face.call(&worker, "store-progress", json!({ "taskId": id, "status": "failed" })).await;
    assert_eq!(other["structuredContent"]["success"], false);
    assert_eq!(other["structuredContent"]["code"], "wrong_state");
    assert_eq!(other["isError"], false);

    let found = face.facts(&lead, "get-tasks", json!({ "status": "completed", "tags": ["doc"] })).await;
    assert_eq!(found["tasks"][0]["id"], id);
    let details = face.facts(&lead, "get-task-details", json!({ "taskId": id })).await;
    assert_eq!(details["task"]["output"], "done");
    assert!(details["logs"].as_array().unwrap().iter().any(|entry| entry["eventType"] == "task_progress"));
}

#[tokio::test]
async fn a_waiting_worker_is_woken_by_its_task() {
    let (face, lead, worker) = swarm().await;
    let face = Arc::new(face);
    let (waiting, poller) = (Arc::clone(&face), worker.clone());
    let before = face.awaited();
    let poll = tokio::spawn(async move { waiting.facts(&poller, "poll-task", json!({})).await });
    face.until_awaited(|topics| topics > before).await;
    let limit = Duration::from_secs(60);
    face.facts(&lead, "send-task", json!({ "task": "now", "agentId": worker.id })).await;
    let polled = tokio::time::timeout(limit, poll).await.unwrap().unwrap();
    assert_eq!(polled["task"]["task"], "now");
}

#[tokio::test]
async fn a_repeat_with_the_same_key_makes_no_second_task() {
    let (face, lead, _) = swarm().await;
    let arguments = json!({ "task": "once only", "idempotency_key": "k1" });
    let first = face.facts(&lead, "send-task", arguments.clone()).await;
    let second = face.facts(&lead, "send-task", arguments).await;
    assert_eq!(first["task"]["id"], second["task"]["id"]);
    let other = face.call(&lead, "send-task", json!({ "task": "different", "idempotency_key": "k1" })).await;
    assert_eq!(other["structuredContent"]["code"], "idempotency_key_reused");
}

#[tokio::test]
async fn locks_answer_with_their_leading_words() {
    let (face, lead, worker) = swarm().await;
    let key = json!({ "resource_key": "github://acme/app/issues/7" });
    let held = face.call(&lead, "acquire_lock", key.clone()).await;
    assert!(held["content"][0]["text"].as_str().unwrap().starts_with("Lock acquired on github://acme/app"));
    assert!(held["structuredContent"]["fencing_token"].is_string());
    let refused = face.call(&worker, "acquire_lock", key.clone()).await;
    assert_eq!(refused["isError"], false);
    assert!(refused["content"][0]["text"].as_str().unwrap().starts_with("Lock not acquired: "));
    assert_eq!(refused["structuredContent"]["code"], "lock_held");
    let released = face.call(&lead, "release_lock", key.clone()).await;
    assert!(released["content"][0]["text"].as_str().unwrap().starts_with("Lock released on "));
    let nothing = face.call(&lead, "release_lock", key).await;
    assert!(nothing["content"][0]["text"].as_str().unwrap().starts_with("Could not release lock: "));
}

#[tokio::test]
async fn messages_are_read_once() {
    let (face, lead, worker) = swarm().await;
    face.facts(&lead, "post-message", json!({ "content": "hello", "mentions": [worker.id] })).await;
    let read = face.facts(&worker, "read-messages", json!({})).await;
    assert_eq!(read["messages"][0]["content"], "hello");
    let again = face.facts(&worker, "read-messages", json!({})).await;
    assert_eq!(again["messages"], json!([]));
}

#[tokio::test]
async fn every_deferred_tool_can_be_found_and_called() {
    let (face, lead, worker) = swarm().await;
    let areas = face.facts(&worker, "tools_find", json!({})).await;
    assert_eq!(areas["areas"].as_array().unwrap().len(), 3);
    let found = face
        .facts(&lead, "tools_find", json!({ "query": "create-epic", "detail": "full", "format": "rows" }))
        .await;
    assert_eq!(found["tools"][0]["name"], "create-epic");
    let epic = json!({ "name": "create-epic", "arguments": { "name": "Launch", "goal": "ship it" } });
    let made = face.facts(&lead, "tools_call", epic).await;
    assert_eq!(made["epic"]["name"], "Launch");
    let listed = face.facts(&lead, "tools_read", json!({ "name": "list-epics" })).await;
    assert_eq!(listed["epics"][0]["name"], "Launch");
    let refused =
        face.call(&lead, "tools_read", json!({ "name": "send-task", "arguments": { "task": "x" } })).await;
    assert_eq!(refused["structuredContent"]["code"], "forbidden");
    let denied = face.call(&worker, "tools_call", json!({ "name": "create-epic", "arguments": {} })).await;
    assert_eq!(denied["structuredContent"]["code"], "forbidden");
    let schedule = json!({ "name": "nightly", "taskTemplate": "sweep", "cronExpression": "0 3 * * *" });
    let made =
        face.facts(&lead, "tools_call", json!({ "name": "create-schedule", "arguments": schedule })).await;
    assert!(made["schedule"]["nextRunAt"].is_string());
}

/// Whoever knows a tool by a name that it has elsewhere finds and calls it by that, and is told the true one.
#[tokio::test]
async fn a_tool_is_found_and_called_by_what_it_is_called_elsewhere() {
    let (face, lead, _) = swarm().await;
    for (find, detail) in [
        (json!({ "query": "rlock" }), "full"),
        (json!({ "query": "RLOCK" }), "name"),
        (json!({ "names": ["rlock"] }), "brief"),
        (json!({ "names": ["Acquire-Lock"] }), "name"),
    ] {
        let mut find = find;
        (find["detail"], find["format"]) = (json!(detail), json!("rows"));
        let found = face.facts(&lead, "tools_find", find.clone()).await;
        assert_eq!(
            (&found["tools"][0]["name"], found.get("unknown")),
            (&json!("acquire_lock"), None),
            "{find}"
        );
    }
    let key = json!({ "resource_key": "file:///a" });
    let held = face.facts(&lead, "tools_call", json!({ "name": "rlock", "arguments": key })).await;
    assert_eq!(held["ok"], true, "{held}");
    let wrong = face.call(&lead, "tools_call", json!({ "name": "rlock", "arguments": {} })).await;
    let told = wrong["structuredContent"]["message"].as_str().unwrap();
    assert!(told.contains("tool acquire_lock") && !told.contains("rlock"), "{told}");
}

#[tokio::test]
async fn wrong_calls_say_how_to_call_right() {
    let (face, lead, _) = swarm().await;
    let unknown = face.call(&lead, "send_tsk", json!({})).await;
    assert_eq!(unknown["isError"], true);
    assert!(
        unknown["structuredContent"]["detail"]["nearest"].as_array().unwrap().contains(&json!("send-task"))
    );
    let bad = face.call(&lead, "send-task", json!({ "task": "x", "priority": "high" })).await;
    assert_eq!(bad["isError"], true);
    assert_eq!(bad["structuredContent"]["problems"][0]["path"], "/priority");
    assert!(bad["structuredContent"]["schema"]["properties"]["priority"].is_object());
    assert!(bad["content"][0]["text"].as_str().unwrap().contains("-32602"));
    let dropped = face.facts(&lead, "get-swarm", json!({ "whatever": 1 })).await;
    assert_eq!(dropped["agents"].as_array().unwrap().len(), 2);
    let slack = face.call(&lead, "slack-reply", json!({ "message": "hi" })).await;
    assert_eq!(slack["structuredContent"]["code"], "invalid_argument");
}

#[tokio::test]
async fn a_wait_misses_nothing_between_two_calls() {
    let (face, lead, _) = swarm().await;
    let first = face.facts(&lead, "wait", json!({ "for": ["tasks"], "timeout_s": 0 })).await;
    let sent = face.facts(&lead, "send-task", json!({ "task": "seen later" })).await;
    let wait = json!({ "for": ["tasks"], "cursor": first["cursor"], "timeout_s": 5, "format": "rows" });
    let next = face.facts(&lead, "wait", wait).await;
    assert_eq!(next["timed_out"], false);
    let ids: Vec<_> = next["changed"].as_array().unwrap().iter().map(|change| change["id"].clone()).collect();
    assert!(ids.contains(&sent["task"]["id"]), "{next}");
}

#[tokio::test]
async fn a_long_wait_tells_the_client_that_it_lives() {
    let (face, lead, _) = swarm().await;
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {
            "name": "wait", "arguments": { "for": ["locks"], "timeout_s": 1 },
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {}, "progressToken": "p",
            },
        },
    });
    let request = Request::post("/mcp")
        .header("host", "127.0.0.1")
        .header("authorization", format!("Bearer {}", lead.token))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "wait");
    let request = request.body(Body::from(body.to_string())).unwrap();
    let response = face.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    let (progress, result) = (text.find("notifications/progress"), text.find("timed_out"));
    assert!(progress.is_some() && progress < result, "{text}");
}

#[tokio::test]
async fn older_clients_keep_a_session() {
    let (face, lead, _) = swarm().await;
    let send = async |session: Option<&str>, body: Value| {
        let mut request = Request::post("/mcp")
            .header("host", "127.0.0.1")
            .header("authorization", format!("Bearer {}", lead.token))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if let Some(session) = session {
            request = request.header("mcp-session-id", session).header("mcp-protocol-version", "2025-11-25");
        }
        let request = request.body(Body::from(body.to_string())).unwrap();
        face.router.clone().oneshot(request).await.unwrap()
    };
    let initialize = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "old", "version": "1" },
        },
    });
    let opened = send(None, initialize).await;
    let session = opened.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let text = String::from_utf8(opened.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    assert!(text.contains("You lead"), "{text}");
    send(Some(&session), json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    let listed = send(Some(&session), list.clone()).await;
    assert_eq!(listed.status(), StatusCode::OK);
    let text = String::from_utf8(listed.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    assert!(text.contains("join-swarm"), "{text}");
    let unknown = send(Some(&Uuid::nil().to_string()), list).await;
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_the_lead_teaches_is_found() {
    let (face, lead, worker) = swarm().await;
    let learning =
        json!({ "agentId": worker.id, "learning": "pin the compiler version", "category": "best-practice" });
    let taught = face.facts(&lead, "inject-learning", learning).await;
    let found = face.facts(&worker, "memory-search", json!({ "query": "compiler" })).await;
    assert_eq!(found["results"][0]["id"], taught["memoryId"]);
    let read = face.facts(&worker, "memory-get", json!({ "memoryId": taught["memoryId"] })).await;
    assert!(read["memory"]["content"].as_str().unwrap().contains("pin the compiler"));
    let profile = json!({ "role": "builder", "capabilities": ["rust"] });
    let described = face.facts(&worker, "update-profile", profile).await;
    assert_eq!(described["agent"]["role"], "builder");
}

#[tokio::test]
async fn a_wait_does_not_hold_the_node_up() {
    let (face, lead, _) = swarm().await;
    let stop = face.stop.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        stop.cancel();
    });
    let wait = face.call(&lead, "wait", json!({ "for": ["locks"], "timeout_s": 40 }));
    let answer = tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap();
    assert_eq!(answer["isError"], true);
    assert_eq!(answer["structuredContent"]["code"], "unavailable");
}

/// It may happen after the answer, and the same key finds out.
#[tokio::test]
async fn a_change_that_a_stop_cuts_off_is_not_said_to_have_failed() {
    let (face, lead, _) = swarm().await;
    let gate = Gate::default();
    // Others may commit something meanwhile.
    for _ in 0..8 {
        face.faults.push(Fault::Slow(gate.clone()));
    }
    let stop = face.stop.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        stop.cancel();
    });
    let send = json!({ "task": "write the report", "idempotency_key": "once" });
    let cut = face.call(&lead, "send-task", send.clone());
    let answer = tokio::time::timeout(Duration::from_secs(60), cut).await.unwrap();
    assert_eq!(answer["isError"], true);
    assert_eq!(answer["structuredContent"]["code"], "outcome_unknown", "{answer}");

    gate.open();
    let sent = face.facts(&lead, "send-task", send).await;
    let tasks = face.facts(&lead, "get-tasks", json!({})).await;
    assert_eq!(tasks["tasks"].as_array().unwrap().len(), 1, "{tasks}");
    assert_eq!(tasks["tasks"][0]["id"], sent["task"]["id"]);
}

#[tokio::test]
async fn epics_schedules_and_channels_are_kept() {
    let (face, lead, worker) = swarm().await;
    let epic = face.facts(&lead, "create-epic", json!({ "name": "Launch", "goal": "ship it" })).await;
    let id = epic["epic"]["id"].clone();
    let task = face.facts(&worker, "task-action", json!({ "action": "create", "task": "part one" })).await;
    let task = task["task"]["id"].clone();
    face.facts(&lead, "assign-task-to-epic", json!({ "taskId": task, "epicName": "Launch" })).await;
    let details = face.facts(&worker, "get-epic-details", json!({ "epicId": id })).await;
    assert_eq!(details["tasks"][0]["id"], task);
    let status = json!({ "epicId": id, "status": "active", "leadAgentId": null });
    assert_eq!(face.facts(&lead, "update-epic", status).await["epic"]["status"], "active");
    let refused = face.call(&worker, "delete-epic", json!({ "name": "Launch" })).await;
    assert_eq!(refused["structuredContent"]["code"], "forbidden");

    // Whoever works on it is told of no epic that is gone.
    let other = face.facts(&lead, "create-epic", json!({ "name": "Retreat", "goal": "none" })).await;
    let other = other["epic"]["id"].clone();
    let part = json!({ "task": "part two", "agentId": worker.id, "epicId": other });
    assert_eq!(face.facts(&lead, "send-task", part).await["task"]["epicId"], other);
    face.facts(&lead, "delete-epic", json!({ "epicId": other })).await;
    let polled = face.facts(&worker, "poll-task", json!({})).await;
    assert_eq!((&polled["task"]["task"], polled["task"].get("epicId")), (&json!("part two"), None));

    let cancelled = face.facts(&worker, "cancel-task", json!({ "taskId": task, "reason": "not now" })).await;
    assert_eq!(cancelled["task"]["failureReason"], "not now");

    let schedule = json!({ "name": "sweep", "taskTemplate": "sweep up", "intervalMs": 3_600_000 });
    face.facts(&worker, "create-schedule", schedule).await;
    let ran = face.facts(&lead, "run-schedule-now", json!({ "name": "sweep" })).await;
    assert!(ran["taskId"].is_string());
    let listed = face.facts(&lead, "list-schedules", json!({ "name": "swe" })).await;
    assert_eq!(listed["count"], 1);
    let changed = json!({ "name": "sweep", "enabled": false, "targetAgentId": worker.id });
    assert_eq!(face.facts(&lead, "update-schedule", changed).await["schedule"]["enabled"], false);
    face.facts(&worker, "delete-schedule", json!({ "name": "sweep" })).await;

    face.facts(&worker, "create-channel", json!({ "name": "builds" })).await;
    let channels = face.facts(&lead, "list-channels", json!({})).await;
    let named = |name: &str| channels["channels"].as_array().unwrap().iter().any(|c| c["name"] == name);
    assert!(named("builds") && named("general") && named("epic-launch"), "{channels}");
    face.facts(&lead, "delete-channel", json!({ "name": "builds" })).await;
}
