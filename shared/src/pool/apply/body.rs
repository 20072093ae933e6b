//! A task's body: the fields that clients read, each event adding its own.

use serde_json::{Map, Value, json};

use super::merge;
use crate::limits;
use crate::pool::event::{Created, Event};
use crate::pool::state::Task;

/// All of a new task.
pub(super) fn of(created: &Created) -> Value {
    let Created { task: id, by, spec, at, .. } = created;
    let broken: Vec<_> = created.dependencies.iter().filter(|d| d.is_broken()).map(|d| d.task).collect();
    let mut body = spec.context.clone();
    let fields = json!({
        "id": id, "agentId": created.agent, "creatorAgentId": by, "task": spec.task,
        "status": created.status, "source": spec.source, "taskType": spec.task_type, "tags": spec.tags,
        "priority": spec.priority, "dependsOn": spec.depends_on, "offeredTo": created.offered_to,
        "offeredAt": created.offered_to.map(|_| at.iso()), "createdAt": at.iso(),
        "lastUpdatedAt": at.iso(), "epicId": spec.epic, "parentTaskId": spec.parent,
        "model": spec.model, "scheduleId": spec.schedule,
        "blockedBy": if broken.is_empty() { Value::Null } else { json!(broken) },
    });
    merge(&mut body, fields);
    body.retain(|_, value| !value.is_null());
    Value::Object(body)
}

/// What an event changes: its own fields, and those that every write of a task says anew. A null removes
/// a field: the task has no agent, the offer is over.
pub(super) fn after(task: &Task, event: &Event) -> Value {
    let own = match event {
        Event::Progressed { text, .. } => json!({ "progress": text, "stalled": null }),
        Event::Started { .. } => json!({ "stalled": null }),
        Event::SessionNoted { session, .. } => json!({ "claudeSessionId": session }),
        Event::EpicSet { epic, .. } => json!({ "epicId": epic }),
        Event::Stalled { .. } => json!({ "stalled": true }),
        Event::Accepted { at, .. } => json!({ "acceptedAt": at.iso() }),
        Event::Rejected { reason, .. } => {
            json!({ "offeredTo": null, "offeredAt": null, "rejectionReason": reason })
        }
        Event::OfferExpired { .. } | Event::Withdrawn { .. } => {
            json!({ "offeredTo": null, "offeredAt": null })
        }
        Event::LeaseLost { generation, reason, .. } => {
            let flagged = *generation >= limits::TASK_GENERATIONS;
            json!({ "generation": generation, "returnReason": reason, "needsAttention": flagged })
        }
        Event::Finished { output, reason, cost, at, .. } => {
            let mut own = json!({ "finishedAt": at.iso() });
            if let Some(output) = output {
                own["output"] = json!(output);
            }
            if let Some(reason) = reason {
                own["failureReason"] = json!(reason);
            }
            if let Some(cost) = cost {
                own["costData"] = json!(cost);
            }
            own
        }
        _ => json!({}),
    };
    let mut body = Map::new();
    merge(&mut body, own);
    let standing =
        json!({ "status": task.status, "agentId": task.agent, "lastUpdatedAt": task.updated.iso() });
    merge(&mut body, standing);
    Value::Object(body)
}
