//! Tasks.

use std::time::Duration;

use axum::extract::State;
use serde_json::{Map, Value, json};
use skein_shared::pool::{Finish, Rules, Source, Target, TaskSpec};
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::Compat;
use super::answer::{Answer, Problem, made, ok};
use super::door::{Asked, Path};
use crate::auth::{Principal, Role};
use crate::service::tasks::{Action, Wanted};
use crate::service::{Service, lists};

/// Tasks in one answer at most.
const MOST: usize = 1000;
/// How long a runner is told of a cancelled task.
const NEWS: Duration = Duration::from_secs(300);

pub(super) async fn list(State(compat): State<Compat>, asked: Asked) -> Answer {
    let (limit, offset) = (asked.number("limit", 50)?.min(MOST), asked.number("offset", 0)?);
    let agent = asked.id("agentId")?;
    let wanted = lists::Tasks {
        status: asked.query("status").map(str::to_owned),
        mine: agent.is_some(),
        search: asked.query("search").map(str::to_owned),
        schedule: asked.id("scheduleId")?,
        epic: asked.id("epicId")?,
        heartbeat: asked.flag("includeHeartbeat") == Some(true),
        limit,
        ..lists::Tasks::default()
    };
    let who = of(&asked.who, agent);
    let listing = asked.service.tasks_from(&who, wanted, offset);
    let (tasks, total) = compat.like(&asked, "get-tasks", listing).await?;
    ok(json!({ "tasks": tasks, "total": total }))
}

/// The same caller, looking for another agent.
pub(super) fn of(who: &Principal, agent: Option<Uuid>) -> Principal {
    Principal { agent: agent.unwrap_or(who.agent), ..who.clone() }
}

pub(super) async fn create(State(compat): State<Compat>, asked: Asked) -> Answer {
    let read = |field: &str| asked.fields.get(field).filter(|value| !value.is_null()).cloned();
    let texts = |field: &str| read(field).map(serde_json::from_value::<Vec<String>>).transpose();
    let wrong = |error: serde_json::Error| Problem::bad_request(error.to_string());
    let usual = TaskSpec::new(asked.need("task")?);
    let source = read("source").map(serde_json::from_value::<Source>).transpose().map_err(wrong)?;
    let priority = read("priority").map(serde_json::from_value::<u8>).transpose().map_err(wrong)?;
    let depends = read("dependsOn").map(serde_json::from_value::<Vec<Uuid>>).transpose().map_err(wrong)?;
    let spec = TaskSpec {
        task_type: asked.text("taskType").map(str::to_owned),
        tags: texts("tags").map_err(wrong)?.unwrap_or_default(),
        priority: priority.unwrap_or(usual.priority),
        depends_on: depends.unwrap_or_default(),
        parent: asked.field_id("parentTaskId")?,
        epic: asked.field_id("epicId")?,
        model: asked.text("model").map(str::to_owned),
        source: source.unwrap_or(Source::Api),
        ..usual
    };
    let target = match (asked.field_id("offeredTo")?, asked.field_id("agentId")?, spec.parent) {
        (agent @ Some(_), ..) => Target::Offer { agent },
        (None, None, None) => Target::Pool,
        (None, agent, _) => Target::Assign { agent },
    };
    let wanted = Wanted { spec, target, rules: Rules::Plain };
    let sending = asked.service.send_task(&asked.who, asked.request, wanted);
    made(compat.like(&asked, "send-task", sending).await?.task)
}

/// A task with its log, the newest entries first.
pub(super) async fn one(State(compat): State<Compat>, Path(task): Path<Uuid>, asked: Asked) -> Answer {
    let arguments = Map::from_iter([("taskId".to_owned(), json!(task))]);
    let mut found = compat.tool(&asked, "get-task-details", arguments).await?;
    let mut shown = found["task"].take();
    let mut logs = found["logs"].as_array().cloned().unwrap_or_default();
    logs.reverse();
    shown["logs"] = Value::Array(logs);
    ok(shown)
}

pub(super) async fn session(State(compat): State<Compat>, Path(task): Path<Uuid>, asked: Asked) -> Answer {
    let session = asked.need("claudeSessionId")?.to_owned();
    let noting = asked.service.note_session(&asked.who, asked.request, task, session);
    ok(compat.like(&asked, "store-progress", noting).await?.task)
}

pub(super) async fn act(
    State(compat): State<Compat>,
    Path((task, action)): Path<(Uuid, String)>,
    asked: Asked,
) -> Answer {
    let reason = asked.text("reason").map(str::to_owned);
    let (tool, action) = match action.as_str() {
        "finish" => return finish(&compat, task, &asked).await,
        "cancel" => ("cancel-task", Action::Cancel { reason }),
        "pause" => ("task-action", Action::Pause),
        "resume" => ("task-action", Action::Resume),
        _ => return Err(Problem::of(Code::NotFound, "there is no such route")),
    };
    let acting = asked.service.act(&asked.who, asked.request, task, action);
    let changed = compat.like(&asked, tool, acting).await?;
    ok(json!({ "success": true, "task": changed.task }))
}

/// The first end stays; whoever comes later is told so, and that is no error: the session may have said it already.
async fn finish(compat: &Compat, task: Uuid, asked: &Asked) -> Answer {
    let end = match asked.need("status")? {
        "completed" => Finish::Completed { output: asked.text("output").map(str::to_owned) },
        "failed" => Finish::Failed { reason: asked.text("failureReason").map(str::to_owned) },
        _ => return Err(Problem::bad_request("status must be completed or failed")),
    };
    let who = asked.agent()?;
    let reporting = async {
        match asked.service.report(who, asked.request, task, None, Some((end, None))).await {
            Ok(changed) => Ok((changed.task, changed.repeated)),
            Err(Refusal { code: Code::WrongState, .. }) => {
                Ok((asked.service.get_task(who, task).await?, true))
            }
            Err(refusal) => Err(refusal),
        }
    };
    let (task, already) = compat.like(asked, "store-progress", reporting).await?;
    let mut body = json!({ "success": true, "task": task });
    if already {
        body["alreadyFinished"] = json!(true);
    }
    ok(body)
}

pub(super) async fn paused(State(compat): State<Compat>, asked: Asked) -> Answer {
    let listing = mine(&asked.service, asked.agent()?, "paused");
    ok(json!({ "tasks": compat.like(&asked, "get-tasks", listing).await? }))
}

/// Of one task, or of the last five minutes: `{id, task, failureReason}`.
pub(super) async fn cancelled(State(compat): State<Compat>, asked: Asked) -> Answer {
    let who = asked.agent()?;
    let task = asked.id("taskId")?;
    let listing = async {
        let Some(task) = task else {
            let now = asked.service.clock().now();
            let recent = |task: &Value| {
                let ended = task["finishedAt"].as_str().and_then(skein_shared::time::Timestamp::parse_iso);
                ended.is_some_and(|ended| now.since(ended) < NEWS)
            };
            return Ok(mine(&asked.service, who, "cancelled").await?.into_iter().filter(recent).collect());
        };
        Ok(vec![asked.service.get_task(who, task).await?])
    };
    let tasks: Vec<Value> = compat.like(&asked, "get-tasks", listing).await?;
    let cancelled = tasks.iter().filter(|task| task["status"] == "cancelled");
    let told = cancelled.map(
        |task| json!({ "id": task["id"], "task": task["task"], "failureReason": task["failureReason"] }),
    );
    ok(json!({ "cancelled": told.collect::<Vec<_>>() }))
}

/// The caller's tasks of a status.
async fn mine(service: &Service, who: &Principal, status: &str) -> Result<Vec<Value>, Refusal> {
    let wanted = lists::Tasks {
        status: Some(status.to_owned()),
        mine: true,
        heartbeat: true,
        limit: 100,
        ..lists::Tasks::default()
    };
    debug_assert!(who.role != Role::Operator);
    Ok(service.list_tasks(who, wanted).await?.whole()?.rows)
}
