//! `kill -9` in the middle of 32 concurrent clients: after a restart everything that was acknowledged is there,
//! and nothing was claimed twice. In the embedded store, and in Redis.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use skein_tests::history::{Acknowledged, check};
use skein_tests::mcp::Client;
use skein_tests::redis::Server;
use skein_tests::up::{Folder, Up};
use tokio::sync::Notify;

const CLIENTS: usize = 32;
/// Acknowledged operations before each kill: enough that every client is in the middle of something.
const BEFORE_KILL: usize = 400;
const ROUNDS: usize = 3;

#[derive(Default)]
struct Record {
    entries: Mutex<Vec<Acknowledged>>,
    count: AtomicUsize,
    enough: Notify,
}

impl Record {
    fn add(&self, entry: Acknowledged) {
        self.entries.lock().unwrap().push(entry);
        if self.count.fetch_add(1, Ordering::Relaxed) + 1 == BEFORE_KILL {
            self.enough.notify_one();
        }
    }
}

/// Creates, claims and completes until the node dies.
async fn work(client: Client, agent: String, record: Arc<Record>) -> Result<()> {
    for number in 0.. {
        let text = format!("task {number} of {agent}");
        let created = client.call("task-action", json!({"action": "create", "task": text})).await?;
        let task = created["task"]["id"].as_str().unwrap_or_default().to_owned();
        record.add(Acknowledged::Created { task: task.clone() });
        let claimed = client.call("task-action", json!({"action": "claim", "taskId": task})).await?;
        if claimed["success"] != json!(true) {
            continue;
        }
        record.add(Acknowledged::Claimed { task: task.clone(), agent: agent.clone() });
        let output = format!("done by {agent}");
        let report = json!({"taskId": task, "status": "completed", "output": output});
        client.call("store-progress", report).await?;
        record.add(Acknowledged::Completed { task, agent: agent.clone(), output });
    }
    Ok(())
}

async fn read_back(client: &Client, history: &[Acknowledged]) -> Result<BTreeMap<String, Value>> {
    let mut tasks = BTreeMap::new();
    for entry in history {
        if let Acknowledged::Created { task } = entry {
            let details = client.call("get-task-details", json!({"taskId": task})).await?;
            if details["success"] == json!(true) {
                tasks.insert(task.clone(), details["task"].clone());
            }
        }
    }
    Ok(tasks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_work_survives_kill_9() -> Result<()> {
    survives(async |folder| Up::start_in(folder, &["--no-runner"]).await).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_work_in_redis_survives_kill_9() -> Result<()> {
    let server = Server::start().await?;
    let url = server.url();
    survives(async |folder| Up::serve_in(folder, &["--redis", &url]).await).await
}

async fn survives(start: impl AsyncFn(Folder) -> Result<Up>) -> Result<()> {
    let mut up = start(Folder::new()?).await?;
    let mut tokens = Vec::new();
    for number in 0..CLIENTS {
        tokens.push(up.token("worker", &format!("worker-{number}")).await?);
    }
    let mut history: Vec<Acknowledged> = Vec::new();
    for round in 0..ROUNDS {
        let record = Arc::new(Record::default());
        let mut clients = Vec::new();
        for (number, token) in tokens.iter().enumerate() {
            let client = Client::new(&up.mcp, token);
            let joined = client.call("join-swarm", json!({"name": format!("worker-{number}")})).await?;
            let agent = joined["yourAgentId"].as_str().unwrap_or_default().to_owned();
            ensure!(joined["success"] == json!(true), "{joined}");
            clients.push(tokio::spawn(work(client, agent, Arc::clone(&record))));
        }
        record.enough.notified().await;
        let folder = up.kill().await?;
        for client in clients {
            let _ = client.await?;
        }
        history.extend(record.entries.lock().unwrap().drain(..));
        up = start(folder).await?;

        let reader = Client::new(&up.mcp, &tokens[0]);
        let broken = check(&history, &read_back(&reader, &history).await?);
        ensure!(broken.is_empty(), "after kill {round}: {broken:#?}");
        finish_claims(&up, &tokens, &mut history).await?;
    }
    up.terminate().await?;
    Ok(())
}

/// Each worker ends what it still has, so that the next round begins with free hands.
async fn finish_claims(up: &Up, tokens: &[String], history: &mut Vec<Acknowledged>) -> Result<()> {
    for token in tokens {
        let client = Client::new(&up.mcp, token);
        let mine = client.call("get-tasks", json!({"mineOnly": true, "status": "in_progress"})).await?;
        for task in mine["tasks"].as_array().into_iter().flatten() {
            let id = task["id"].as_str().unwrap_or_default().to_owned();
            let agent = task["agentId"].as_str().unwrap_or_default().to_owned();
            let output = "finished after the crash".to_owned();
            let report = json!({"taskId": id, "status": "completed", "output": output});
            let done = client.call("store-progress", report).await?;
            ensure!(done["success"] == json!(true), "{done}");
            history.push(Acknowledged::Completed { task: id, agent, output });
        }
    }
    Ok(())
}
