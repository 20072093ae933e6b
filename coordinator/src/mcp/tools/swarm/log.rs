//! What happens, in the words of Agent Swarm's log.

use serde_json::{Value, json};
use skein_shared::id::Kind;
use uuid::Uuid;

use crate::service::Event;

/// An event as an entry of that log, if it has a word for it.
pub fn entry(event: &Event) -> Option<Value> {
    let facts = event.body.get(&event.kind).unwrap_or(&event.body);
    let kind = word(event, facts)?;
    let first = |fields: &[&str]| fields.iter().find_map(|field| facts.get(*field).filter(|v| !v.is_null()));
    let member = kind.starts_with("agent").then(|| json!(event.subject));
    let author = facts.pointer("/author/id").cloned();
    let told = [
        ("taskId", facts.get("task").cloned()),
        ("agentId", member.or(author).or_else(|| first(&["agent", "by"]).cloned())),
        ("newValue", first(&["text", "outcome", "status", "reason", "name"]).cloned()),
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
    Some(entry)
}

fn word(event: &Event, facts: &Value) -> Option<&'static str> {
    Some(match (event.key.kind, event.kind.as_str()) {
        (Kind::Channels, "posted") | (Kind::Pool, "steered") => "channel_message",
        (Kind::Pool, "joined") => "agent_joined",
        (Kind::Pool, "left") => "agent_left",
        (Kind::Pool, "went_offline" | "came_back") => "agent_status_change",
        (Kind::Pool, "created") if facts["status"] == "offered" => "task_offered",
        (Kind::Pool, "created") => "task_created",
        (Kind::Pool, "progressed") => "task_progress",
        (Kind::Pool, "accepted") => "task_accepted",
        (Kind::Pool, "rejected") => "task_rejected",
        (Kind::Pool, "started") => "task_claimed",
        (Kind::Pool, "released") => "task_released",
        (Kind::Pool, _) if facts.get("task").is_some() => "task_status_change",
        _ => return None,
    })
}
