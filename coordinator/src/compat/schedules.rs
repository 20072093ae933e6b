//! Schedules.

use axum::extract::{Path, State};
use serde_json::{Map, Value, json};
use skein_shared::Code;
use uuid::Uuid;

use super::Compat;
use super::answer::{Answer, Problem, made, ok};
use super::door::Asked;

pub(super) async fn list(State(compat): State<Compat>, asked: Asked) -> Answer {
    let texts = ["name", "scheduleType"].into_iter();
    let mut arguments: Map<String, Value> =
        texts.filter_map(|name| Some((name.to_owned(), json!(asked.query(name)?)))).collect();
    for flag in ["enabled", "hideCompleted"] {
        arguments.extend(asked.flag(flag).map(|value| (flag.to_owned(), json!(value))));
    }
    let listed = compat.tool(&asked, "list-schedules", arguments).await?;
    ok(json!({ "scheduledTasks": listed["schedules"] }))
}

pub(super) async fn create(State(compat): State<Compat>, asked: Asked) -> Answer {
    made(compat.tool(&asked, "create-schedule", asked.fields.clone()).await?["schedule"].take())
}

pub(super) async fn one(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    let looking = asked.service.schedule(&asked.who, id);
    let found = compat.like(&asked, "list-schedules", looking).await?;
    ok(found.ok_or_else(|| {
        Problem::of(Code::NotFound, "Schedule not found; GET /api/scheduled-tasks lists them")
    })?)
}

pub(super) async fn update(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    let mut arguments = asked.fields.clone();
    let name = arguments.remove("name");
    arguments.extend(name.map(|name| ("newName".to_owned(), name)));
    arguments.insert("scheduleId".to_owned(), json!(id));
    ok(compat.tool(&asked, "update-schedule", arguments).await?["schedule"].take())
}

pub(super) async fn delete(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    compat.tool(&asked, "delete-schedule", named(id)).await?;
    ok(json!({ "success": true }))
}

pub(super) async fn run(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    let ran = compat.tool(&asked, "run-schedule-now", named(id)).await?;
    let task = ran.get("taskId").map(|id| json!({ "id": id }));
    ok(json!({ "schedule": ran["schedule"], "task": task }))
}

fn named(id: Uuid) -> Map<String, Value> {
    Map::from_iter([("scheduleId".to_owned(), json!(id))])
}
