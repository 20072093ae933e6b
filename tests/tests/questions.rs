//! Questions to people on a real node: asked by an agent, answered on the command line.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use skein_tests::mcp::Client;
use skein_tests::up::Up;

async fn asked(worker: &Client, question: &str, choices: &[&str]) -> Result<(String, Value)> {
    let asked = worker.call("ask_human", json!({ "question": question, "choices": choices })).await?;
    ensure!(asked["outcome"] == "asked", "{asked}");
    let id = asked["question_id"].as_str().context("a question has an id")?.to_owned();
    Ok((id, asked["cursor"].clone()))
}

#[tokio::test]
async fn a_question_and_its_answer_outlive_the_coordinator() -> Result<()> {
    let up = Up::start().await?;
    let worker = Client::new(&up.mcp, &up.token("worker", "worker").await?);
    worker.call("join-swarm", json!({ "name": "worker" })).await?;
    let (id, cursor) = asked(&worker, "Shall I go on?", &["yes", "no"]).await?;

    let up = Up::start_in(up.kill().await?, &["--no-runner"]).await?;
    let open = up.skein(&["questions", "list"]).await?;
    ensure!(open.contains(&id) && open.contains("Shall I go on?") && open.contains("yes, no"), "{open}");
    let wrong = up.run(&["questions", "answer", &id, "perhaps"]).await?;
    let said = String::from_utf8_lossy(&wrong.stderr);
    ensure!(wrong.status.code() == Some(2) && said.contains("yes | no"), "{said}");
    up.skein(&["questions", "answer", &id, "yes"]).await?;

    let up = Up::start_in(up.kill().await?, &["--no-runner"]).await?;
    let wait = json!({ "for": ["questions"], "ids": [id], "cursor": cursor, "format": "rows" });
    let told = worker.at(&up.mcp).call("wait", wait).await?;
    let change = &told["changed"][0];
    ensure!(change["event"] == "answered" && change["answer"] == "yes", "{told}");
    let again = up.run(&["questions", "decline", &id]).await?;
    let said = String::from_utf8_lossy(&again.stderr);
    ensure!(again.status.code() == Some(5) && said.contains("has answered"), "{said}");
    let over = up.skein(&["questions", "list", "--answered", "--json"]).await?;
    let over: Value = serde_json::from_str(&over)?;
    ensure!(over["id"] == id.as_str() && over["answer"] == "yes", "{over}");
    ensure!(!up.skein(&["questions", "list"]).await?.contains(&id));
    Ok(())
}

#[tokio::test]
async fn a_task_shows_the_question_that_it_waits_for() -> Result<()> {
    let up = Up::start().await?;
    let worker = Client::new(&up.mcp, &up.token("worker", "worker").await?);
    worker.call("join-swarm", json!({ "name": "worker" })).await?;
    up.skein(&["task", "create", "Paint the fence"]).await?;
    let task = worker.call("task_claim_next", json!({})).await?["task"]["id"].clone();
    let task = task.as_str().context("there is a task")?;
    let (id, _) = asked(&worker, "In which colour?", &[]).await?;
    let shown: Value = serde_json::from_str(&up.skein(&["task", "show", task, "--json"]).await?)?;
    ensure!(shown["status"] == "in_progress" && shown["waitsForInput"][0]["id"] == id.as_str(), "{shown}");
    up.skein(&["questions", "decline", &id, "--reason", "whichever you like"]).await?;
    let shown: Value = serde_json::from_str(&up.skein(&["task", "show", task, "--json"]).await?)?;
    ensure!(shown.get("waitsForInput").is_none(), "{shown}");
    Ok(())
}
