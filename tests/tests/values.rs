//! What calls give back when it is too long for a document, with real coordinators.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use skein_tests::cluster::Cluster;
use skein_tests::mcp::Client;
use skein_tests::up::Up;

/// So many that each of two coordinators has some of them.
const AGENTS: usize = 6;

/// Three chunks, with letters of several bytes.
fn report(agent: &str) -> String {
    format!("{agent}: 😀 done\n").repeat(1_200_000 / 16)
}

/// An agent that nobody runs takes a call, and gives a long value back. Gives the call.
async fn served(lead: &Client, worker: &Client, name: &str) -> Result<Value> {
    worker.call("set_status", json!({"text": "here"})).await?;
    let called = lead.call("call_agent", json!({"target_agent": name, "context": "report"})).await?;
    worker.call("wait_for_trigger", json!({"type": "agent_trigger"})).await?;
    let given = worker.call("return_value", json!({"value": report(name)})).await?;
    ensure!(given["ok"] == true, "{name}: {given}");
    Ok(called["call_id"].clone())
}

async fn read(lead: &Client, call: &Value) -> Result<String> {
    let (mut text, mut cursor) = (String::new(), json!(""));
    loop {
        let ask = json!({"call_id": call, "cursor": cursor, "limit": 262_144});
        let part = lead.call("read_call_value", ask).await?;
        text += part["text"].as_str().with_context(|| format!("{part}"))?;
        match part.get("cursor") {
            Some(next) => cursor = next.clone(),
            None => return Ok(text),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_went_in_at_one_coordinator_comes_out_at_the_other_also_when_the_first_has_died()
-> Result<()> {
    let (cluster, first) = Cluster::start("lease = \"2s\"\nsettle = \"1s\"").await?;
    let second = cluster.join().await?;
    let lead = Client::new(&first.mcp, &first.token("lead", "lead").await?);
    let mut calls = Vec::new();
    for number in 0..AGENTS {
        let name = format!("worker-{number}");
        let node = [&first, &second][number % 2];
        let worker = Client::new(&node.mcp, &first.token("worker", &name).await?);
        calls.push((served(&lead, &worker, &name).await?, name));
    }
    let elsewhere = lead.at(&second.mcp);
    for (call, name) in &calls {
        let facts = elsewhere.call("check_call", json!({"call_id": call})).await?;
        ensure!(facts["value_bytes"] == report(name).len(), "{facts}");
        ensure!(read(&elsewhere, call).await? == report(name), "{name}: it is another value");
    }
    first.kill().await?;
    for (call, name) in &calls {
        let found =
            second.until("its agent has an owner again", async || Ok(read(&elsewhere, call).await.ok()));
        ensure!(found.await? == report(name), "{name}: it is another value");
    }
    Ok(())
}

#[tokio::test]
async fn an_acknowledged_value_survives_kill_9_and_a_copy_has_it() -> Result<()> {
    let up = Up::start().await?;
    let token = up.token("lead", "lead").await?;
    let lead = Client::new(&up.mcp, &token);
    let worker = Client::new(&up.mcp, &up.token("worker", "worker").await?);
    let call = served(&lead, &worker, "worker").await?;
    let up = Up::start_in(up.kill().await?, &["--no-runner"]).await?;
    let lead = lead.at(&up.mcp);
    ensure!(read(&lead, &call).await? == report("worker"));

    let copy = up.folder.path().join("copy.db").to_string_lossy().into_owned();
    up.skein(&["backup", &copy]).await?;
    let store = skein_coordinator::store::sqlite::Sqlite::open(
        std::path::Path::new(&copy),
        skein_shared::time::Timestamp(1),
    )?;
    let kept = skein_coordinator::store::Store::blobs(&store, None, 10).await?;
    ensure!(kept.len() == 1 && kept[0].bytes == report("worker").len() as u64, "{kept:?}");
    Ok(())
}
