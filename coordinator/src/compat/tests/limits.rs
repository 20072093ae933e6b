//! What a route does counts and is written down as what its tool does.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use tracing_subscriber::fmt::MakeWriter;

use super::*;
use crate::mcp::quota::Limits;

/// Lines as they are written.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Of each line of the audit the tool, the agent and the outcome.
    fn of_calls(&self) -> Vec<[String; 3]> {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        let lines = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap());
        let calls = lines.filter(|line| line["target"] == "skein::audit");
        calls
            .map(|line| ["tool", "agent", "outcome"].map(|field| line[field].as_str().unwrap().to_owned()))
            .collect()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn what_a_route_does_is_one_line_of_the_audit() {
    let lines = Lines::default();
    // With one logger alone, what a test on another thread logs first would be taken for what nobody wants.
    let _another = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
    let logger = tracing_subscriber::fmt().json().flatten_event(true).with_writer(lines.clone());
    let _logging = tracing::subscriber::set_default(logger.with_max_level(tracing::Level::DEBUG).finish());
    let bed = Bed::swarm().await;
    let before = lines.of_calls().len();
    let (worker, none) = (Some(WORKER), Value::Null);
    let task = bed.task(json!({ "task": "write it down", "agentId": WORKER })).await;
    bed.poll(WORKER).await;
    bed.is(200, "GET", "/me", worker, none.clone()).await;
    bed.is(200, "POST", "/api/memory/search", worker, json!({ "query": "it" })).await;
    bed.is(
        403,
        "POST",
        &format!("/api/tasks/{task}/finish"),
        Some(LEAD_TO_BE),
        json!({ "status": "failed" }),
    )
    .await;
    bed.is(200, "POST", &format!("/api/tasks/{task}/finish"), worker, json!({ "status": "completed" })).await;
    bed.is(200, "GET", "/api/config", worker, none.clone()).await;
    // Signs of life are none.
    bed.is(204, "POST", "/ping", worker, none).await;
    let expected = [
        ("send-task", LEAD, "ok"),
        ("poll-task", WORKER, "ok"),
        ("my-agent-info", WORKER, "ok"),
        ("memory-search", WORKER, "ok"),
        ("store-progress", LEAD_TO_BE, "forbidden"),
        ("store-progress", WORKER, "ok"),
        ("list-config", WORKER, "ok"),
    ];
    let expected =
        expected.map(|(tool, agent, outcome)| [tool.to_owned(), agent.to_string(), outcome.to_owned()]);
    assert_eq!(lines.of_calls().split_off(before), expected);
}

/// Somebody who has not joined.
const LEAD_TO_BE: Uuid = Uuid::from_u128(9);

#[tokio::test]
async fn whoever_asks_too_often_is_told_when_to_come_again() {
    let limits = Limits { writes_per_second: 3, reads_per_second: 2, ..Limits::default() };
    let bed = Bed::behind(Gate::new(limits)).joined().await;
    let post = async |agent: Uuid| {
        bed.ask("POST", "/api/tasks", KEY, Some(agent), json!({ "task": Uuid::now_v7().to_string() })).await
    };
    let mut refused = None;
    for _ in 0..20 {
        let (status, answer) = post(LEAD).await;
        if status != StatusCode::CREATED {
            refused = Some((status.as_u16(), answer));
            break;
        }
    }
    let (status, answer) = refused.unwrap();
    assert_eq!((status, &answer["code"]), (429, &json!("rate_limited")));
    assert!(answer["retryAfterMs"].as_u64().unwrap() > 0, "{answer}");
    assert_eq!(post(WORKER).await.0, StatusCode::CREATED, "each has its own");
    for path in ["/me", "/api/repos"] {
        let mut refused = false;
        for _ in 0..20 {
            refused |=
                bed.ask("GET", path, KEY, Some(WORKER), Value::Null).await.0 == StatusCode::TOO_MANY_REQUESTS;
        }
        assert!(refused, "{path}");
    }
}
