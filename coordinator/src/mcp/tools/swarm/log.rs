//! What happens, in the words of Agent Swarm's log.

use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::id::Kind;
use skein_shared::pool;
use uuid::Uuid;

use crate::service::Event;

/// A worker leads from now on.
const TOOK_LEAD: &str = "took_lead";

/// An event as an entry of the swarm's log, if it has a word for it.
pub fn of_swarm(event: &Event) -> Option<Value> {
    Some(entry(event, word(event)?))
}

/// An event as an entry of its task's log, which leaves none out.
pub fn of_task(event: &Event) -> Value {
    entry(event, word(event).unwrap_or("task_status_change"))
}

fn entry(event: &Event, kind: &str) -> Value {
    let facts = event.facts();
    let first = |fields: &[&str]| fields.iter().find_map(|field| facts.get(*field).filter(|v| !v.is_null()));
    let member = kind.starts_with("agent").then(|| json!(event.subject));
    let author = facts.pointer("/author/id").cloned();
    let leads = (event.kind == TOOK_LEAD).then(|| json!("lead"));
    let told = [
        ("taskId", facts.get("task").cloned()),
        ("agentId", member.or(author).or_else(|| first(&["agent", "by"]).cloned())),
        ("newValue", leads.or_else(|| first(&["text", "outcome", "status", "reason", "name"]).cloned())),
    ];
    let mut entry = json!({
        "id": Uuid::new_v5(&Uuid::NAMESPACE_OID, &event.position.to_be_bytes()), "eventType": kind,
        "createdAt": event.at.iso(), "metadata": json!({ "event": event.kind }).to_string(),
    });
    for (field, value) in told {
        if let Some(value) = value {
            entry[field] = value;
        }
    }
    entry
}

fn word(event: &Event) -> Option<&'static str> {
    Some(match (event.key.kind, event.kind.as_str()) {
        (Kind::Channels, "posted") | (Kind::Pool, "steered") => "channel_message",
        // It has joined anew, as the lead. How agents are is left out of the log of all.
        (Kind::Pool, "joined" | TOOK_LEAD) => "agent_joined",
        (Kind::Pool, "left") => "agent_left",
        (Kind::Pool, "went_offline" | "came_back") => "agent_status_change",
        (Kind::Pool, "created") if event.facts()["status"] == "offered" => "task_offered",
        (Kind::Pool, "created") => "task_created",
        (Kind::Pool, "progressed") => "task_progress",
        (Kind::Pool, "accepted") => "task_accepted",
        (Kind::Pool, "rejected") => "task_rejected",
        (Kind::Pool, "started") => "task_claimed",
        (Kind::Pool, "released") => "task_released",
        (Kind::Pool, _) if sets_status(event) => "task_status_change",
        _ => return None,
    })
}

fn sets_status(event: &Event) -> bool {
    pool::Event::deserialize(&event.body).is_ok_and(|event| event.status().is_some())
}
