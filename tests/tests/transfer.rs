//! `skein export` and `skein import`: a swarm moves to Redis and back, and goes on with its work.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::process::Output;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use skein_tests::mcp::Client;
use skein_tests::redis::Server;
use skein_tests::up::{Folder, Up, binary};
use tokio::process::Command;

async fn ask(client: &Client, tool: &str, arguments: Value) -> Result<Value> {
    let answer = client.call(tool, arguments).await?;
    ensure!(answer["success"] == json!(true), "{tool}: {answer}");
    Ok(answer)
}

/// Runs a command on the data of a node that does not run.
async fn skein(folder: &Folder, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(binary("skein"));
    command.args(arguments).arg("--json").arg("--data").arg(folder.data()).current_dir(folder.path());
    Ok(command.output().await?)
}

/// The checksum of the state that a command printed.
fn state(output: &Output) -> Result<String> {
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(printed["lines"].as_u64() > Some(0), "{printed}");
    Ok(printed["state"].as_str().unwrap_or_default().to_owned())
}

/// A node's data folder without its store: its keys, so that its tokens stay good.
fn keys_of(old: &Folder) -> Result<Folder> {
    let folder = Folder::new()?;
    std::fs::create_dir(folder.data())?;
    for entry in std::fs::read_dir(old.data())? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().contains("key") {
            std::fs::copy(entry.path(), folder.data().join(entry.file_name()))?;
        }
    }
    Ok(folder)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swarm_moves_to_redis_and_back() -> Result<()> {
    let up = Up::start().await?;
    let token = up.token("worker", "lena").await?;
    let client = Client::new(&up.mcp, &token);
    ask(&client, "join-swarm", json!({"name": "lena"})).await?;
    let made = ask(&client, "task-action", json!({"action": "create", "task": "count the geese"})).await?;
    let task = made["task"]["id"].as_str().unwrap_or_default().to_owned();
    ask(&client, "task-action", json!({"action": "claim", "taskId": task})).await?;
    ask(&client, "post-message", json!({"content": "seven of them"})).await?;

    // It takes calls once it was heard of.
    client.call("set_status", json!({"text": "here"})).await?;
    let lead = Client::new(&up.mcp, &up.token("lead", "lead").await?);
    let called = lead.call("call_agent", json!({"target_agent": "lena", "context": "report"})).await?;
    client.call("wait_for_trigger", json!({"type": "agent_trigger"})).await?;
    let report = "seven geese, é\n".repeat(60_000);
    ensure!(client.call("return_value", json!({"value": report})).await?["ok"] == true);

    let file = up.folder.path().join("state.jsonl").to_string_lossy().into_owned();
    let busy = up.run(&["export", &file]).await?;
    ensure!(busy.status.code() == Some(5), "a node has the store: {busy:?}");
    let home = up.terminate().await?;
    let exported = state(&skein(&home, &["export", &file]).await?)?;

    let server = Server::start().await?;
    let away = keys_of(&home)?;
    let nothing = away.path().join("nothing.jsonl").to_string_lossy().into_owned();
    let empty = skein(&away, &["export", &nothing, "--redis", &server.url()]).await?;
    let said = String::from_utf8_lossy(&empty.stderr).into_owned();
    ensure!(!empty.status.success() && said.contains("restore Redis from a copy"), "{said}");
    let mut redis = server.connection().await?;
    let left: usize = redis::cmd("DBSIZE").query_async(&mut redis).await?;
    ensure!(left == 0 && !std::fs::exists(&nothing)?, "an export has made a store of an empty Redis");
    let imported = state(&skein(&away, &["import", &file, "--redis", &server.url()]).await?)?;
    ensure!(imported == exported, "{imported} is not {exported}");
    let again = skein(&away, &["import", &file, "--redis", &server.url()]).await?;
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    ensure!(again.status.code() == Some(5) && said.contains("not empty"), "{said}");

    let up = Up::serve_in(away, &["--redis", &server.url()]).await?;
    let client = Client::new(&up.mcp, &token);
    let progress = json!({"taskId": task, "status": "completed", "output": "seven"});
    ask(&client, "store-progress", progress).await?;
    // Behind the first chunk.
    let far = json!({"call_id": called["call_id"], "cursor": "540000", "limit": 16});
    let part = lead.at(&up.mcp).call("read_call_value", far).await?;
    ensure!(part["text"].as_str().is_some_and(|text| report.contains(text)), "{part}");
    ensure!(part["value_bytes"] == report.len(), "{part}");
    let events = up.skein(&["events", "--json"]).await?;
    ensure!(events.contains("seven of them"), "{events}");
    let away = up.terminate().await?;

    let back = away.path().join("back.jsonl").to_string_lossy().into_owned();
    let exported = state(&skein(&away, &["export", &back, "--redis", &server.url()]).await?)?;
    let home = keys_of(&home)?;
    let imported = state(&skein(&home, &["import", &back]).await?)?;
    ensure!(imported == exported, "{imported} is not {exported}");
    let up = Up::start_in(home, &["--no-runner"]).await?;
    let client = Client::new(&up.mcp, &token);
    let details = ask(&client, "get-task-details", json!({"taskId": task})).await?;
    ensure!(details["task"]["status"] == json!("completed"), "{details}");
    ensure!(details["task"]["output"] == json!("seven"), "{details}");
    up.terminate().await?;
    Ok(())
}

/// A copy of another store would pass for one of the node's own.
#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_of_the_store_that_the_node_belongs_to() -> Result<()> {
    let (ours, other) = (Server::start().await?, Server::start().await?);
    let home = Up::serve_in(Folder::new()?, &["--redis", &ours.url()]).await?.terminate().await?;
    Up::serve_in(Folder::new()?, &["--redis", &other.url()]).await?.terminate().await?;
    let file = home.path().join("state.jsonl").to_string_lossy().into_owned();
    let mistaken = skein(&home, &["export", &file, "--redis", &other.url()]).await?;
    let said = String::from_utf8_lossy(&mistaken.stderr).into_owned();
    ensure!(!mistaken.status.success() && said.contains("this node belongs to the store"), "{said}");
    ensure!(!std::fs::exists(&file)?, "an export of another store is there");
    let right = skein(&home, &["export", &file, "--redis", &ours.url()]).await?;
    ensure!(right.status.success(), "{}", String::from_utf8_lossy(&right.stderr));
    Ok(())
}
