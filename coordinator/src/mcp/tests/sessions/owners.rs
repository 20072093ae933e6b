//! Whose a session is.

use super::*;

/// What a session is told and asked is for its own agent.
#[tokio::test]
async fn another_agent_neither_hears_nor_asks_nor_ends_anything_in_a_session() {
    let (face, _, worker) = swarm().await;
    let session = open(&face.router, &worker).await;
    let other = face.agent("other", Role::Worker);
    let ping = json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" }).to_string();
    let mut answered = Vec::new();
    for agent in [&other, &worker] {
        for (method, body) in [("POST", ping.as_str()), ("GET", ""), ("DELETE", "")] {
            let request = in_session(method, agent, &session, "2025-11-25", Body::from(body.to_owned()));
            answered.push(face.router.clone().oneshot(request).await.unwrap().status());
        }
    }
    let (unknown, ok) = (StatusCode::NOT_FOUND, StatusCode::OK);
    assert_eq!(answered, [unknown, unknown, unknown, ok, ok, StatusCode::NO_CONTENT]);
}

#[tokio::test]
async fn another_agent_neither_wakes_a_session_nor_ends_it_while_it_sleeps() {
    let files = tempfile::tempdir().unwrap();
    let path = Some(files.path().join("sessions.jsonl"));
    let face = Face::with(Config { sessions: path.clone(), ..Config::default() });
    let (own, other) = (face.agent("worker", Role::Worker), face.agent("other", Role::Worker));
    let session = open(&face.router, &own).await;
    let later = Config { sessions: path, ..Config::default() };
    let later = router(face.service.clone(), face.access.clone(), Arc::new(catalogue().unwrap()), later);
    let ping = json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" }).to_string();
    let mut answered = Vec::new();
    for agent in [&other, &own] {
        for (method, body) in [("DELETE", ""), ("GET", ""), ("POST", ping.as_str())] {
            if (method, &agent.token) == ("DELETE", &own.token) {
                continue;
            }
            let request = in_session(method, agent, &session, "2025-11-25", Body::from(body.to_owned()));
            answered.push(later.clone().oneshot(request).await.unwrap().status());
        }
    }
    let (unknown, ok) = (StatusCode::NOT_FOUND, StatusCode::OK);
    assert_eq!(answered, [unknown, unknown, unknown, ok, ok]);
}

/// A node cannot know whose a session is that began on another one, so nobody takes it there from anybody.
#[tokio::test]
async fn a_session_of_another_node_is_taken_from_nobody() {
    let face = Face::with(Config { adopts_sessions: true, ..Config::default() });
    let (own, other) = (face.agent("worker", Role::Worker), face.agent("other", Role::Worker));
    let session = Uuid::new_v4().to_string();
    for agent in [&other, &own, &other] {
        let (status, _, answer) =
            send(&face.router, agent, Some(&session), call("get-swarm", json!({}))).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert!(answer["result"]["structuredContent"]["agents"].is_array(), "{answer}");
    }
}

/// It would describe its own client in the session of another.
#[tokio::test]
async fn who_begins_a_session_begins_its_own_whatever_other_it_names() {
    let (face, _, worker) = swarm().await;
    let session = open(&face.router, &worker).await;
    let other = face.agent("other", Role::Worker);
    let (status, begun, answer) = send(&face.router, &other, Some(&session), initialize(&json!({}))).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert!(!begun.is_empty() && begun != session, "{begun} in {session}: {answer}");
}
