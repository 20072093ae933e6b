//! What the store shows in the end: its tasks, as a node lists them, and the pool's log, as Redis has it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use skein_coordinator::store::redis::shard::Shard;
use skein_shared::id::{EntityKey, Kind, Name};

use crate::history::claims::{Fact, Logged, Task};
use crate::redis::Server;
use crate::up::Up;

/// The clients by their ids as agents.
pub type Agents = BTreeMap<String, usize>;

/// All tasks of the swarm.
///
/// # Errors
/// When the node does not list them.
pub async fn tasks(node: &Up, agents: &Agents) -> Result<BTreeMap<String, Task>> {
    let printed = node.skein(&["tasks", "list", "--json", "--limit", "5000"]).await?;
    let rows = printed.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    ensure!(rows.len() < 5000, "there are more tasks than a list shows");
    let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let task = |row: &Value| Task {
        text: unique(row["task"].as_str().unwrap_or_default()),
        status: text(row, "status"),
        holder: row["agentId"].as_str().and_then(|agent| agents.get(agent).copied()),
        output: row["output"].as_str().map(str::to_owned),
    };
    Ok(rows.iter().map(|row| (text(row, "id"), task(row))).collect())
}

/// The one word of a text that is this task's alone; around it stands who ordered it.
fn unique(text: &str) -> String {
    text.split_whitespace().next_back().unwrap_or_default().to_owned()
}

/// The pool's events, oldest first. Each commit has a version of its own, and none is missing.
///
/// # Errors
/// When Redis does not give them, or there is a gap.
pub async fn log(server: &Server, agents: &Agents) -> Result<Vec<Logged>> {
    let key = EntityKey::of(Kind::Pool, &Name::parse("default").context("a name")?);
    let stream = format!("skein:{{s{}}}:events", Shard::of(&key).number());
    let range = redis::cmd("XRANGE").arg(stream).arg("-").arg("+").to_owned();
    let entries: Vec<(String, BTreeMap<String, String>)> =
        range.query_async(&mut server.connection().await?).await?;
    let mut log = Vec::new();
    let mut last = None;
    for (position, fields) in entries {
        if fields.get("entity") != Some(&key.to_string()) {
            continue;
        }
        let version: u64 = fields.get("version").context("an event has no version")?.parse()?;
        ensure!(
            last.is_none_or(|last| version > last),
            "C3: version {version} at {position} follows {last:?}"
        );
        last = Some(version);
        let events: Vec<Value> = serde_json::from_str(fields.get("events").context("no events")?)?;
        log.extend(events.iter().filter_map(|event| logged(version, &event["body"], agents)));
    }
    Ok(log)
}

fn logged(version: u64, body: &Value, agents: &Agents) -> Option<Logged> {
    let (kind, facts) = body.as_object()?.iter().next()?;
    let fact = match kind.as_str() {
        "created" => Fact::Created,
        "started" => Fact::Started {
            client: *agents.get(facts["agent"].as_str()?)?,
            attempt: facts["attempt"].as_u64()?.try_into().ok()?,
        },
        "released" => Fact::Released,
        "lease_lost" => Fact::Lost,
        "finished" => Fact::Completed { output: facts["output"].as_str().map(str::to_owned) },
        _ => return None,
    };
    Some(Logged { version, task: facts["task"].as_str()?.to_owned(), fact })
}
