//! `kill -9` in the middle of 32 concurrent clients: after a restart everything that was acknowledged is there,
//! and nothing was claimed twice. In the embedded store, and in Redis.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use skein_tests::history::claims::{Answer, Call, Evidence, Task, check};
use skein_tests::history::{Operation, Outcome, Recorder};
use skein_tests::mcp::Client;
use skein_tests::redis::Server;
use skein_tests::up::{Folder, Up};
use tokio::sync::Notify;
use tokio::time::Instant;

const CLIENTS: usize = 32;
/// Acknowledged operations before each kill: enough that every client is in the middle of something.
const BEFORE_KILL: usize = 400;
const ROUNDS: usize = 3;

/// Answers so far, and a bell when there are enough.
#[derive(Default)]
struct Progress {
    count: AtomicUsize,
    enough: Notify,
}

impl Progress {
    fn step(&self) {
        if self.count.fetch_add(1, Ordering::Relaxed) + 1 == BEFORE_KILL {
            self.enough.notify_one();
        }
    }
}

type Told = Recorder<Call, Answer>;

/// One of the clients, with what it is told.
#[derive(Clone)]
struct Worker {
    number: usize,
    client: Client,
    told: Told,
    progress: Arc<Progress>,
}

impl Worker {
    /// An operation, unknown if the node dies over it.
    async fn ask(&self, call: Call, tool: &str, arguments: Value) -> Result<Option<Answer>> {
        let mut broke = None;
        let work = async {
            match self.client.call(tool, arguments).await {
                Ok(answer) if answer["success"] == json!(true) => Outcome::Ok(of_task(&answer)),
                Ok(refusal) => Outcome::Fail(refusal["code"].to_string()),
                Err(problem) => {
                    broke = Some(problem);
                    Outcome::Unknown
                }
            }
        };
        let outcome = self.told.run(self.number, call, work).await;
        match (broke, outcome) {
            (Some(problem), _) => Err(problem),
            (None, Outcome::Ok(answer)) => {
                self.progress.step();
                Ok(Some(answer))
            }
            _ => Ok(None),
        }
    }

    async fn complete(&self, task: String, output: String) -> Result<Option<Answer>> {
        let report = json!({"taskId": task, "status": "completed", "output": output});
        self.ask(Call::Complete { task, output }, "store-progress", report).await
    }

    /// Creates, claims and completes until the node dies.
    async fn work(self, round: usize) -> Result<()> {
        for number in 0.. {
            let text = format!("task {number} of {} in round {round}", self.number);
            let create = json!({"action": "create", "task": text, "priority": 50});
            let call = Call::Create { text, priority: 50, needs: Vec::new() };
            let Some(Answer::Task(task)) = self.ask(call, "task-action", create).await? else { continue };
            let claim = json!({"action": "claim", "taskId": task});
            let claimed = self.ask(Call::Claim { task: task.clone() }, "task-action", claim).await?;
            if claimed.is_some() {
                self.complete(task, format!("done by {}", self.number)).await?;
            }
        }
        Ok(())
    }
}

fn of_task(answer: &Value) -> Answer {
    match answer["task"]["status"].as_str() {
        Some("completed") => Answer::Done,
        _ => Answer::Task(answer["task"]["id"].as_str().unwrap_or_default().to_owned()),
    }
}

/// The tasks that were acknowledged, as they are now.
async fn read_back(
    client: &Client,
    history: &[Operation<Call, Answer>],
    agents: &BTreeMap<String, usize>,
) -> Result<BTreeMap<String, Task>> {
    let mut tasks = BTreeMap::new();
    for operation in history {
        let (Call::Create { .. }, Some(Answer::Task(id))) = (&operation.call, operation.answer()) else {
            continue;
        };
        let details = client.call("get-task-details", json!({"taskId": id})).await?;
        if details["success"] == json!(true) {
            let found = &details["task"];
            let text = |field: &str| found[field].as_str().map(str::to_owned);
            let task = Task {
                text: text("task").unwrap_or_default(),
                status: text("status").unwrap_or_default(),
                holder: text("agentId").and_then(|agent| agents.get(&agent).copied()),
                output: text("output"),
            };
            tasks.insert(id.clone(), task);
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
    let told = Told::new(Instant::now());
    for round in 0..ROUNDS {
        let progress = Arc::new(Progress::default());
        let (mut agents, mut working) = (BTreeMap::new(), Vec::new());
        for (number, token) in tokens.iter().enumerate() {
            let client = Client::new(&up.mcp, token);
            let joined = client.call("join-swarm", json!({"name": format!("worker-{number}")})).await?;
            ensure!(joined["success"] == json!(true), "{joined}");
            agents.insert(joined["yourAgentId"].as_str().unwrap_or_default().to_owned(), number);
            let (told, progress) = (told.clone(), Arc::clone(&progress));
            working.push(tokio::spawn(Worker { number, client, told, progress }.work(round)));
        }
        progress.enough.notified().await;
        let folder = up.kill().await?;
        for worker in working {
            let _ = worker.await?;
        }
        up = start(folder).await?;

        let (history, reader) = (told.history(), Client::new(&up.mcp, &tokens[0]));
        let tasks = read_back(&reader, &history, &agents).await?;
        let broken = check(&Evidence { history: &history, tasks: &tasks, log: None, capacity: 1 });
        ensure!(broken.is_empty(), "after kill {round}: {broken:#?}");
        finish_claims(&up, &tokens, &told).await?;
    }
    up.terminate().await?;
    Ok(())
}

/// Each worker ends what it still has, so that the next round begins with free hands.
async fn finish_claims(up: &Up, tokens: &[String], told: &Told) -> Result<()> {
    for (number, token) in tokens.iter().enumerate() {
        let client = Client::new(&up.mcp, token);
        let mine = client.call("get-tasks", json!({"mineOnly": true, "status": "in_progress"})).await?;
        let worker = Worker { number, client, told: told.clone(), progress: Arc::default() };
        for task in mine["tasks"].as_array().into_iter().flatten() {
            let id = task["id"].as_str().unwrap_or_default().to_owned();
            let done = worker.complete(id, "finished after the crash".to_owned()).await?;
            ensure!(done.is_some(), "what was claimed cannot be completed: {task}");
        }
    }
    Ok(())
}
