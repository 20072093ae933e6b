//! What stands in the log of a call.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use tracing_subscriber::fmt::MakeWriter;

use super::*;

/// Lines as they are written.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// The lines of the audit, each with all that stands in it.
    fn of_calls(&self) -> Vec<Value> {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        let lines = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap());
        lines.filter(|line| line["target"] == "skein::audit").collect()
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
async fn each_call_is_one_line_with_its_outcome_and_nothing_of_what_it_says() {
    let lines = Lines::default();
    // With one logger alone, what a test on another thread logs first would be taken for what nobody wants.
    let _another = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
    let logger = tracing_subscriber::fmt().json().flatten_event(true).with_writer(lines.clone());
    let _logging = tracing::subscriber::set_default(logger.finish());
    let (face, lead, worker) = swarm().await;
    let before = lines.of_calls().len();
    let task = json!({ "task": "hush hush", "agentId": worker.id });
    face.facts(&lead, "send-task", task).await;
    face.call(&lead, "get-task-details", json!({ "taskId": Uuid::from_u128(1) })).await;
    face.call(&lead, "hush hush", json!({})).await;
    face.facts(&worker, "my-agent-info", json!({})).await;
    face.facts(&lead, "get-config", json!({ "includeSecrets": true })).await;
    // Its client goes away before the answer.
    let key = json!({ "resource_key": "file:///a" });
    face.facts(&lead, "acquire_lock", key).await;
    let waiting = face.call(&worker, "wait", json!({ "for": ["tasks"], "timeout_s": 60 }));
    tokio::time::timeout(Duration::from_millis(50), waiting).await.unwrap_err();
    let calls = lines.of_calls().split_off(before);
    let facts: Vec<_> = calls
        .iter()
        .map(|line| ["level", "tool", "outcome"].map(|field| line[field].as_str().unwrap().to_owned()))
        .collect();
    let expected = [
        ["INFO", "send-task", "ok"],
        ["INFO", "get-task-details", "not_found"],
        ["INFO", "unknown", "unknown_tool"],
        ["INFO", "my-agent-info", "ok"],
        ["INFO", "get-config", "ok"],
        ["INFO", "acquire_lock", "ok"],
        ["INFO", "wait", "given_up"],
    ];
    assert_eq!(facts, expected.map(|line| line.map(str::to_owned)));
    for line in &calls {
        assert!(line["ms"].is_u64() && line["request"].is_string() && line["swarm"] == "default", "{line}");
        let text = line.to_string();
        assert!(!text.contains("hush") && !text.contains(&lead.token[..20]), "{text}");
    }
}
