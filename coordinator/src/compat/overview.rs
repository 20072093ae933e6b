//! What happens in the swarm, at a glance: its log, its numbers, and what its lead has under way.

use std::time::Duration;

use axum::extract::State;
use serde_json::{Map, Value, json};
use skein_shared::pool::Status;
use uuid::Uuid;

use super::Compat;
use super::answer::{Answer, ok};
use super::door::Asked;
use crate::mcp::tools::swarm::log as log_words;
use crate::service::lists;

/// What is shown of each kind at most.
const SHOWN: usize = 100;
/// How long a task counts as one that the lead has just handed out.
const RECENT: Duration = Duration::from_secs(300);

/// That it is there, which nobody needs the key to ask.
pub(super) async fn health() -> Answer {
    ok(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}

/// The newest entries of the log, the newest first. Without an agent those on how agents are stay out, as Agent Swarm
/// has it.
pub(super) async fn log(State(compat): State<Compat>, asked: Asked) -> Answer {
    let (limit, agent) = (asked.number("limit", SHOWN)?, asked.id("agentId")?);
    let reading = asked.service.newest_events(&asked.who);
    let events = compat.like(&asked, "get-swarm", reading).await?;
    let shown = |entry: &Value| match agent {
        Some(agent) => entry["agentId"] == json!(agent),
        None => entry["eventType"] != "agent_status_change",
    };
    let logs: Vec<Value> = events.iter().filter_map(log_words::of_swarm).filter(shown).take(limit).collect();
    ok(json!({ "logs": logs }))
}

/// How many agents and tasks are in which state.
pub(super) async fn stats(State(compat): State<Compat>, asked: Asked) -> Answer {
    let counting = async {
        let agents = asked.service.list_members(&asked.who).await?.whole()?.rows;
        let (tasks, freshness) = asked.service.count_tasks(&asked.who, None).await?;
        Ok((agents, lists::whole(tasks, freshness)?))
    };
    let (agents, tasks) = compat.like(&asked, "get-swarm", counting).await?;
    let are = |status: &str| agents.iter().filter(|agent| agent["status"] == status).count();
    let mut by_status: Map<String, Value> = Status::ALL
        .iter()
        .map(|status| json!(status))
        .filter_map(|status| status.as_str().map(str::to_owned))
        .map(|status| (status.clone(), json!(tasks.get(&status).copied().unwrap_or_default())))
        .collect();
    by_status.insert("total".to_owned(), json!(tasks.values().sum::<u64>()));
    ok(json!({
        "agents": { "total": agents.len(), "idle": are("idle"), "busy": are("busy"), "offline": are("offline") },
        "tasks": by_status,
    }))
}

/// What other sessions of a lead ought to know of each other: what it was written, what it has just handed out, and
/// what is being worked on.
pub(super) async fn context(State(compat): State<Compat>, asked: Asked) -> Answer {
    let reading = async {
        let (service, who) = (&asked.service, &asked.who);
        let agents = service.list_members(who).await?.whole()?.rows;
        let messages = service.messages_in_work(who, SHOWN).await?;
        let lead = agents.iter().find(|agent| agent["isLead"] == true);
        let lead = lead.and_then(|lead| Uuid::try_parse(lead["id"].as_str()?).ok());
        let handed_out = match lead {
            Some(lead) => service.tasks_made_by(who, lead, RECENT, SHOWN).await?,
            None => Vec::new(),
        };
        let wanted =
            lists::Tasks { status: Some("in_progress".to_owned()), limit: SHOWN, ..lists::Tasks::default() };
        Ok((agents, messages, handed_out, service.list_tasks(who, wanted).await?.whole()?.rows))
    };
    let (agents, messages, handed_out, active) = compat.like(&asked, "get-swarm", reading).await?;
    let named = |task: Value| {
        let owner = agents.iter().find(|agent| agent["id"] == task["agentId"]);
        let mut told =
            of(&task, &["id", "task", "agentId", "creatorAgentId", "status", "createdAt", "progress"]);
        told["agentName"] = owner.map_or(Value::Null, |agent| agent["name"].clone());
        told
    };
    let message = |message: &Value| {
        of(message, &["id", "content", "source", "slackChannelId", "slackThreadTs", "createdAt"])
    };
    ok(json!({
        "processingInboxMessages": messages.iter().map(message).collect::<Vec<_>>(),
        "recentTaskDelegations": handed_out.into_iter().map(named).collect::<Vec<_>>(),
        "activeSwarmTasks": active.into_iter().map(named).collect::<Vec<_>>(),
    }))
}

/// These fields, null where there is nothing.
fn of(row: &Value, fields: &[&str]) -> Value {
    fields.iter().map(|field| ((*field).to_owned(), row[*field].clone())).collect::<Map<_, _>>().into()
}
