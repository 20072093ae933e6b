//! What a runner of Agent Swarm asks again and again, and tells of its sessions. Sessions are signs of life here; what
//! they say is not kept, for nobody can tell what secrets are in it, and so there is nothing to show of it.

use axum::extract::State;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Compat;
use super::answer::{Answer, made, ok};
use super::door::{Asked, Path};
use super::tasks::of;
use crate::service::lists;
use crate::service::summons::Summons;

/// Tasks that count as sessions at most.
const SESSIONS: usize = 100;

/// What there is to do, one thing at a time. The pool is claimed for the worker: of all who poll one gets the task.
pub(super) async fn poll(State(compat): State<Compat>, asked: Asked) -> Answer {
    let looking = asked.service.next_summons(asked.agent()?, asked.request);
    let summons = compat.like(&asked, "poll-task", looking).await?;
    let trigger = match summons {
        None => Value::Null,
        Some(Summons::Offered(task)) => json!({ "type": "task_offered", "taskId": task["id"], "task": task }),
        Some(Summons::Assigned(task)) => {
            json!({ "type": "task_assigned", "taskId": task["id"], "task": task })
        }
        Some(Summons::Mentioned { mentions, channels }) => {
            json!({ "type": "unread_mentions", "mentionsCount": mentions, "claimedChannels": channels })
        }
        Some(Summons::Wrote(messages)) => {
            json!({ "type": "slack_inbox_message", "count": messages.len(), "messages": messages })
        }
        Some(Summons::Progressed(epics)) => {
            json!({ "type": "epic_progress_changed", "count": epics.len(), "epics": epics })
        }
    };
    ok(json!({ "trigger": trigger }))
}

/// A session began: the task that it was begun for has arrived.
pub(super) async fn begin(State(compat): State<Compat>, mut asked: Asked) -> Answer {
    let named = asked.field_id("agentId")?;
    compat.believe(&mut asked, named)?;
    let who = asked.agent()?;
    let task = asked.field_id("taskId")?;
    match task {
        Some(task) => {
            let reporting = asked.service.report(who, asked.request, task, None, None);
            compat.like(&asked, "store-progress", reporting).await?;
        }
        None => compat.look(&asked)?,
    }
    let id = task.unwrap_or(asked.request);
    made(json!({ "session": session(id, who.agent, task, asked.service.clock().now().iso()) }))
}

/// The tasks that are being worked on, by anybody or by one agent.
pub(super) async fn sessions(State(compat): State<Compat>, asked: Asked) -> Answer {
    let agent = asked.id("agentId")?;
    let wanted = lists::Tasks {
        status: Some("in_progress".to_owned()),
        mine: agent.is_some(),
        heartbeat: true,
        limit: SESSIONS,
        ..lists::Tasks::default()
    };
    let who = of(&asked.who, agent);
    let listing = async { asked.service.list_tasks(&who, wanted).await?.whole() };
    let tasks = compat.like(&asked, "get-tasks", listing).await?;
    let id = |task: &Value, field: &str| task[field].as_str().and_then(|id| Uuid::try_parse(id).ok());
    let sessions = tasks.rows.iter().filter_map(|task| {
        let (task_id, owner) = (id(task, "id")?, id(task, "agentId")?);
        let since = task["lastUpdatedAt"].as_str().unwrap_or_default().to_owned();
        Some(session(task_id, owner, Some(task_id), since))
    });
    ok(json!({ "sessions": sessions.collect::<Vec<_>>() }))
}

fn session(id: Uuid, agent: Uuid, task: Option<Uuid>, since: String) -> Value {
    json!({ "id": id, "agentId": agent, "taskId": task, "startedAt": since, "lastHeartbeatAt": since })
}

pub(super) async fn beat(State(compat): State<Compat>, asked: Asked) -> Answer {
    compat.look(&asked)?;
    asked.agent()?;
    ok(json!({ "updated": true }))
}

pub(super) async fn end(State(compat): State<Compat>, asked: Asked) -> Answer {
    compat.look(&asked)?;
    ok(json!({ "deleted": true }))
}

/// Nothing is left over: a task whose agent is gone goes back by its lease.
pub(super) async fn clean_up(State(compat): State<Compat>, asked: Asked) -> Answer {
    compat.look(&asked)?;
    ok(json!({ "cleaned": 0 }))
}

pub(super) async fn log(State(compat): State<Compat>, asked: Asked) -> Answer {
    compat.look(&asked)?;
    asked.need("sessionId")?;
    let lines = asked.fields.get("lines").and_then(Value::as_array).map_or(0, Vec::len);
    made(json!({ "success": true, "count": lines, "kept": false }))
}

pub(super) async fn logs(State(compat): State<Compat>, Path(task): Path<Uuid>, asked: Asked) -> Answer {
    compat.like(&asked, "get-task-details", asked.service.get_task(&asked.who, task)).await?;
    ok(json!({ "logs": [] }))
}
