//! Schedules.

use axum::extract::State;
use serde_json::{Map, Value, json};
use skein_shared::Code;
use skein_shared::caller::Caller;
use skein_shared::id::derived;
use skein_shared::schedules::Update;
use skein_shared::time::Timestamp;
use skein_shared::which::Which;
use uuid::Uuid;

use super::Compat;
use super::answer::{Answer, Problem, made, ok};
use super::door::{Asked, Path};
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
    made(compat.tool(&asked, "create-schedule", asked.given(&[])).await?["schedule"].take())
}

pub(super) async fn one(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    let looking = asked.service.schedule(&asked.who, id);
    let found = compat.like(&asked, "list-schedules", looking).await?;
    ok(found.ok_or_else(unknown)?)
}

pub(super) async fn update(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    let mut arguments = asked.given(&["targetAgentId", "model"]);
    let name = arguments.remove("name");
    arguments.extend(name.map(|name| ("newName".to_owned(), name)));
    arguments.insert("scheduleId".to_owned(), json!(id));
    let moved = put_off(&compat, &asked, id).await?;
    let changes = arguments.keys().any(|name| !["scheduleId", "nextRunAt"].contains(&name.as_str()));
    if let Some(moved) = moved.filter(|_| !changes) {
        return ok(moved);
    }
    ok(compat.tool(&asked, "update-schedule", arguments).await?["schedule"].take())
}

/// Gives a schedule that runs once another moment, `nextRunAt`; the schedule then. Those that recur have theirs by
/// their rule alone.
async fn put_off(compat: &Compat, asked: &Asked, id: Uuid) -> Result<Option<Value>, Problem> {
    let Some(text) = asked.text("nextRunAt") else { return Ok(None) };
    let wrong = || Problem::bad_request("nextRunAt must be a time such as 2026-03-01T12:00:00.000Z");
    let at = Timestamp::parse_iso(text).ok_or_else(wrong)?;
    let known = compat.like(asked, "list-schedules", asked.service.schedule(&asked.who, id)).await?;
    let known = known.ok_or_else(unknown)?;
    if known["scheduleType"] != "one_time" || known["nextRunAt"] == json!(at.iso()) {
        return Ok(None);
    }
    let later = Update { run_at: Some(at), ..Update::new(Which::Id(id), Caller::default()) };
    let updating = asked.service.update_schedule(&asked.who, derived(asked.request, "moment"), later);
    Ok(Some(compat.like(asked, "update-schedule", updating).await?))
}

fn unknown() -> Problem {
    Problem::of(Code::NotFound, "Schedule not found; GET /api/scheduled-tasks lists them")
}

pub(super) async fn delete(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    compat.tool(&asked, "delete-schedule", named(id)).await?;
    ok(json!({ "success": true }))
}

pub(super) async fn run(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    let mut ran = compat.tool(&asked, "run-schedule-now", named(id)).await?;
    // It has run, whether the whole of it can be looked at or not.
    let schedule = asked.service.schedule(&asked.who, id).await.ok().flatten();
    let task = match ran["taskId"].as_str().and_then(|task| Uuid::try_parse(task).ok()) {
        Some(task) => {
            asked.service.get_task(&asked.who, task).await.unwrap_or_else(|_| json!({ "id": task }))
        }
        None => Value::Null,
    };
    ok(json!({ "schedule": schedule.unwrap_or_else(|| ran["schedule"].take()), "task": task }))
}

fn named(id: Uuid) -> Map<String, Value> {
    Map::from_iter([("scheduleId".to_owned(), json!(id))])
}
