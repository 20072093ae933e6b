//! Somebody holds a lock and somebody else waits for it, through a coordinator over Redis.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use skein_tests::cluster::Cluster;
use skein_tests::mcp::Client;
use skein_tests::up::Up;
use tokio::time::Instant;

use crate::harness::load::{histogram, nanoseconds};

const LOCK: &str = "bench://lock/1";
/// How long the one who waits is given to get there: that it waits is announced to nobody.
const SETTLE: Duration = Duration::from_millis(30);
/// What is measured is over long before.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long it takes from asking for the release of a lock until the one who waits for it has been told.
///
/// # Errors
/// When the node does not do what it is asked.
pub(crate) async fn told(times: usize) -> Result<Histogram<u64>> {
    let (_cluster, up) = Cluster::start("").await?;
    let (holder, waiter) = (agent(&up, "holder").await?, agent(&up, "waiter").await?);
    let mut latency = histogram();
    let mut cursor = ask(&waiter, "wait", json!({"for": ["locks"], "timeout_s": 0})).await?["cursor"].clone();
    for _ in 0..times {
        let taken = ask(&holder, "acquire_lock", json!({"resource_key": LOCK})).await?;
        ensure!(taken["ok"] == json!(true), "{taken}");
        // That it was taken is a change too.
        cursor = ask(&waiter, "wait", awaited(&cursor)).await?["cursor"].clone();
        let waiting = {
            let (waiter, cursor) = (waiter.clone(), cursor.clone());
            tokio::spawn(async move {
                let changes = ask(&waiter, "wait", awaited(&cursor)).await?;
                anyhow::Ok((changes, Instant::now()))
            })
        };
        tokio::time::sleep(SETTLE).await;
        let asked = Instant::now();
        ask(&holder, "release_lock", json!({"resource_key": LOCK})).await?;
        let (changes, at) = tokio::time::timeout(PATIENCE, waiting).await.context("nobody was told")???;
        ensure!(changes["timed_out"] == json!(false), "{changes}");
        latency.saturating_record(nanoseconds(at.duration_since(asked)));
        cursor = changes["cursor"].clone();
    }
    Ok(latency)
}

fn awaited(cursor: &Value) -> Value {
    json!({"for": ["locks"], "ids": [LOCK], "cursor": cursor, "timeout_s": PATIENCE.as_secs()})
}

async fn agent(up: &Up, name: &str) -> Result<Client> {
    let client = Client::new(&up.mcp, &up.token("worker", name).await?);
    ask(&client, "join-swarm", json!({"name": name})).await?;
    Ok(client)
}

async fn ask(client: &Client, tool: &str, arguments: Value) -> Result<Value> {
    client.call(tool, arguments).await
}
