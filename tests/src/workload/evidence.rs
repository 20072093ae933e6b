//! What the store shows in the end: tasks, as a node lists them, and the entities' logs, as Redis has them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use skein_coordinator::store::redis::shard::Shard;
use skein_shared::id::{EntityKey, Kind, Name};

use crate::history::claims::{Fact, Logged, Task};
use crate::history::{calls, events, schedules};
use crate::redis::Server;
use crate::up::Up;

/// The clients by their ids as agents.
pub type Clients = BTreeMap<String, usize>;

/// All tasks of the usual swarm.
///
/// # Errors
/// When the node does not list them.
pub async fn tasks(node: &Up, clients: &Clients) -> Result<BTreeMap<String, Task>> {
    let whole = async || {
        let output = node.run(&["tasks", "list", "--json", "--limit", "20000"]).await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the tasks are not listed: {said}");
        // It says there when rows may be missing.
        Ok(said.is_empty().then_some(output.stdout))
    };
    let printed = String::from_utf8(node.until("a list without gaps", whole).await?)?;
    let rows = printed.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    ensure!(rows.len() < 20_000, "there are more tasks than a list shows");
    let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let task = |row: &Value| Task {
        text: unique(row["task"].as_str().unwrap_or_default()),
        status: text(row, "status"),
        holder: row["agentId"].as_str().and_then(|agent| clients.get(agent).copied()),
        output: row["output"].as_str().map(str::to_owned),
    };
    Ok(rows.iter().map(|row| (text(row, "id"), task(row))).collect())
}

/// The one word of a text that is this task's alone; around it stands who ordered it.
fn unique(text: &str) -> String {
    text.split_whitespace().next_back().unwrap_or_default().to_owned()
}

/// A commit of an entity that is in the log.
struct Commit {
    version: u64,
    events: Vec<Value>,
}

/// The log of a shard: the fields of its entries, oldest first.
async fn log(server: &Server, shard: Shard) -> Result<Vec<BTreeMap<String, String>>> {
    let stream = shard.key("events");
    let range = redis::cmd("XRANGE").arg(stream).arg("-").arg("+").to_owned();
    let entries: Vec<(String, BTreeMap<String, String>)> =
        range.query_async(&mut server.connection().await?).await?;
    Ok(entries.into_iter().map(|(_, fields)| fields).collect())
}

/// All events of all entities as text, a commit a line.
///
/// # Errors
/// When Redis does not give them.
pub async fn everything(server: &Server) -> Result<String> {
    let mut text = String::new();
    for shard in Shard::all() {
        for entry in log(server, shard).await? {
            text.push_str(&format!("{entry:?}\n"));
        }
    }
    Ok(text)
}

/// The commits of an entity with their events, oldest first.
///
/// # Errors
/// When Redis does not give them.
async fn commits(server: &Server, key: &EntityKey) -> Result<Vec<Commit>> {
    let mut commits = Vec::new();
    for fields in log(server, Shard::of(key)).await? {
        if fields.get("entity") != Some(&key.to_string()) {
            continue;
        }
        let version: u64 = fields.get("version").context("an event has no version")?.parse()?;
        let events: Vec<Value> = serde_json::from_str(fields.get("events").context("no events")?)?;
        let events = events.into_iter().map(|mut event| event["body"].take()).collect();
        commits.push(Commit { version, events });
    }
    Ok(commits)
}

/// What happened to an entity, oldest first.
async fn events(server: &Server, key: &EntityKey) -> Result<Vec<Value>> {
    Ok(commits(server, key).await?.into_iter().flat_map(|commit| commit.events).collect())
}

/// The kind of an event and what it says.
fn fact(body: &Value) -> Option<(&str, &Value)> {
    let (kind, facts) = body.as_object()?.iter().next()?;
    Some((kind, facts))
}

fn text(facts: &Value, field: &str) -> Option<String> {
    Some(facts[field].as_str()?.to_owned())
}

/// What happened to the tasks of the usual swarm.
///
/// # Errors
/// When Redis does not give it.
pub async fn claims(server: &Server, clients: &Clients) -> Result<Vec<Logged>> {
    let key = EntityKey::of(Kind::Pool, &swarm("default")?);
    let logged = |commit: usize, version: u64, body: &Value| {
        let (kind, facts) = fact(body)?;
        let fact = match kind {
            "created" => Fact::Created,
            "started" => Fact::Started {
                client: *clients.get(facts["agent"].as_str()?)?,
                attempt: facts["attempt"].as_u64()?.try_into().ok()?,
            },
            "released" => Fact::Released,
            "lease_lost" => Fact::Lost,
            "finished" => Fact::Completed { output: text(facts, "output") },
            _ => return None,
        };
        Some(Logged { commit, version, task: text(facts, "task")?, fact })
    };
    let commits = commits(server, &key).await?;
    let events = commits
        .iter()
        .enumerate()
        .flat_map(|(number, commit)| commit.events.iter().map(move |body| (number, commit.version, body)));
    Ok(events.filter_map(|(number, version, body)| logged(number, version, body)).collect())
}

/// What the schedules of a swarm did, and the tasks that its pool made.
///
/// # Errors
/// When Redis does not give it.
pub async fn schedules(server: &Server, of: &str) -> Result<(Vec<schedules::Logged>, Vec<String>)> {
    let logged = |body: &Value| {
        let (kind, facts) = fact(body)?;
        match kind {
            "created" | "updated" => {
                let schedule = &facts["schedule"];
                let next = schedule["next_run"].as_u64();
                Some(schedules::Logged::Planned { schedule: text(schedule, "id")?, next })
            }
            "fired" => Some(schedules::Logged::Fired {
                schedule: text(facts, "schedule")?,
                nominal: facts["nominal"].as_u64()?,
                task: text(facts, "task")?,
                next: facts["next"].as_u64(),
            }),
            "failed" => Some(schedules::Logged::Refused {
                schedule: text(facts, "schedule")?,
                why: text(facts, "message")?,
            }),
            _ => None,
        }
    };
    let swarm = swarm(of)?;
    // In this order: what is made while they are read is in the log of what fired.
    let made = events(server, &EntityKey::of(Kind::Pool, &swarm)).await?;
    let log = events(server, &EntityKey::of(Kind::Schedules, &swarm)).await?;
    let made = made.iter().filter_map(|body| fact(body).filter(|(kind, _)| *kind == "created"));
    Ok((log.iter().filter_map(logged).collect(), made.filter_map(|(_, facts)| text(facts, "task")).collect()))
}

/// The waits of an agent that ended.
///
/// # Errors
/// When Redis does not give them.
pub async fn waits(server: &Server, agent: &str) -> Result<Vec<events::Ended>> {
    let log = events(server, &EntityKey::agent(&swarm("default")?, &swarm(agent)?)).await?;
    let ended = log.iter().filter_map(|body| fact(body).filter(|(kind, _)| *kind == "wait_ended"));
    Ok(ended.filter_map(|(_, facts)| Some(events::Ended { wait: text(facts, "wait")? })).collect())
}

/// The calls to an agent.
///
/// # Errors
/// When Redis does not give them.
pub async fn calls(server: &Server, agent: &str) -> Result<Vec<calls::Logged>> {
    let logged = |body: &Value| {
        let (kind, facts) = fact(body)?;
        let (call, fact) = match kind {
            "called" => {
                let callee = text(&facts["call"], "callee")?;
                (text(&facts["call"], "id")?, calls::Fact::Called { callee })
            }
            "call_runs" => (text(facts, "call")?, calls::Fact::Served { instance: text(facts, "instance")? }),
            "call_ended" => (text(facts, "call")?, calls::Fact::Ended { value: text(facts, "value") }),
            _ => return None,
        };
        Some(calls::Logged { call, fact })
    };
    let log = events(server, &EntityKey::agent(&swarm("default")?, &swarm(agent)?)).await?;
    Ok(log.iter().filter_map(logged).collect())
}

fn swarm(name: &str) -> Result<Name> {
    Name::parse(name).context("not a name")
}
