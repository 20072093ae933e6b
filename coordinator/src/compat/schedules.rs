//! Schedules.

use axum::extract::{Path, State};
use serde_json::{Map, Value, json};
use skein_shared::Code;
use uuid::Uuid;

use super::Compat;
use super::answer::{Answer, Problem, made, ok};
use super::door::Asked;
use crate::service::schedules::Wanted;

/// All of them: Agent Swarm's programs know no pages, and make what they do not find.
pub(super) async fn list(State(compat): State<Compat>, asked: Asked) -> Answer {
    let one_time = match asked.query("scheduleType") {
        None => None,
        Some("recurring") => Some(false),
        Some("one_time") => Some(true),
        Some(_) => return Err(Problem::bad_request("scheduleType must be recurring or one_time")),
    };
    let wanted = Wanted {
        enabled: asked.flag("enabled"),
        name: asked.query("name").map(str::to_owned),
        one_time,
        hide_completed: asked.flag("hideCompleted").unwrap_or(true),
        ..Wanted::default()
    };
    let listing = asked.service.all_schedules(&asked.who, wanted);
    let schedules = compat.like(&asked, "list-schedules", listing).await?;
    ok(json!({ "scheduledTasks": schedules }))
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
