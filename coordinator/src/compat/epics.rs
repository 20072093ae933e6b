//! Epics.

use axum::extract::State;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::Compat;
use super::answer::{Answer, made, ok};
use super::door::{Asked, Path};

pub(super) async fn list(State(compat): State<Compat>, asked: Asked) -> Answer {
    let texts = ["status", "search", "leadAgentId", "createdByAgentId"].into_iter();
    let mut arguments: Map<String, Value> =
        texts.filter_map(|name| Some((name.to_owned(), json!(asked.query(name)?)))).collect();
    arguments.insert("limit".to_owned(), json!(asked.number("limit", 25)?));
    let listed = compat.tool(&asked, "list-epics", arguments).await?;
    ok(json!({ "epics": listed["epics"], "total": listed["total"] }))
}

pub(super) async fn create(State(compat): State<Compat>, asked: Asked) -> Answer {
    made(compat.tool(&asked, "create-epic", asked.given(&[])).await?["epic"].take())
}

/// An epic with its tasks.
pub(super) async fn one(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    let mut found = compat.tool(&asked, "get-epic-details", named(id)).await?;
    let mut epic = found["epic"].take();
    epic["tasks"] = found["tasks"].take();
    ok(epic)
}

pub(super) async fn update(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    let mut arguments = asked.given(&["leadAgentId"]);
    let name = arguments.remove("name");
    arguments.extend(name.map(|name| ("newName".to_owned(), name)));
    arguments.extend(named(id));
    ok(compat.tool(&asked, "update-epic", arguments).await?["epic"].take())
}

pub(super) async fn delete(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    compat.tool(&asked, "delete-epic", named(id)).await?;
    ok(json!({ "success": true }))
}

/// Puts a task that there is (`taskId`), or a new one (`task`), into the epic.
pub(super) async fn add_task(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    let mut arguments = asked.given(&[]);
    arguments.extend(named(id));
    if arguments.contains_key("taskId") {
        return made(compat.tool(&asked, "assign-task-to-epic", arguments).await?["task"].take());
    }
    // Only agents send a task twice by mistake: no route compares it with others.
    arguments.insert("allowDuplicate".to_owned(), json!(true));
    made(compat.tool(&asked, "send-task", arguments).await?["task"].take())
}

fn named(id: Uuid) -> Map<String, Value> {
    Map::from_iter([("epicId".to_owned(), json!(id))])
}
