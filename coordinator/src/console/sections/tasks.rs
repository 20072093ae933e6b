//! Tasks: as a board, a list, a graph, one by one, and gathered in epics.

use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Value, json};
use skein_shared::id::{Kind, parse_uuid};
use skein_shared::pool::Status;
use skein_shared::which::Which;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::super::{Console, graph as picture};
use super::{Look, PAGE, names, pager, rows};
use crate::auth::Principal;
use crate::service::lists::{List, Tasks, warning};
use crate::service::tasks::is_over;
use crate::service::views::Wanted;
use crate::service::{Freshness, Service};

/// The columns of the board, each with the statuses that stand in it.
const COLUMNS: [(&str, &[&str]); 6] = [
    ("Waiting", &["unassigned", "backlog"]),
    ("Offered", &["offered", "reviewing"]),
    ("Assigned", &["pending"]),
    ("At work", &["in_progress", "paused"]),
    ("Done", &["completed"]),
    ("Failed", &["failed", "cancelled"]),
];
/// Cards of a column.
const CARDS: usize = 20;
/// Tasks that are drawn, beside those that they wait for.
const DRAWN: usize = 60;
/// Tasks that one waits for, of which more is said than their ids.
const NEEDS: usize = 30;
const EVENTS: usize = 50;
const AT_ONCE: usize = 8;

pub(super) async fn board(console: &Console, who: &Principal, _: &Look) -> Result<Value, Refusal> {
    let service = &console.service;
    let cards = async |status: &str| {
        let only = Some(("status", status));
        service.rows(who, Wanted { view: "tasks-by-priority", only, after: "", limit: Some(CARDS) }).await
    };
    let ((counts, freshness), names) = tokio::try_join!(service.count_tasks(who, None), names(service, who))?;
    let (mut columns, mut rebuilding) = (Vec::new(), freshness != Freshness::Fresh);
    for (title, statuses) in COLUMNS {
        let count = |status: &&str| counts.get(*status).copied().unwrap_or_default();
        let all: u64 = statuses.iter().map(count).sum();
        let mut found = Vec::new();
        let counted: Vec<(&str, u64)> =
            statuses.iter().map(|status| (*status, count(status))).filter(|(_, count)| *count > 0).collect();
        for (status, _) in &counted {
            let part = cards(status).await?;
            rebuilding |= part.rebuilding;
            found.extend(part.rows);
        }
        found.truncate(CARDS);
        columns.push(json!({ "title": title, "count": all, "status": statuses[0], "statuses": counted, "cards": found }));
    }
    Ok(json!({ "columns": columns, "names": names, "rebuilding": rebuilding }))
}

pub(super) async fn list(console: &Console, who: &Principal, look: &Look) -> Result<Value, Refusal> {
    let service = &console.service;
    let narrowed = ["status", "agentId", "epicId", "scheduleId"];
    let only = narrowed.iter().find_map(|field| Some((*field, look.query.get(field)?)));
    // Without a status the latest come first: by priority what is over would stand among what is open.
    let view = if matches!(only, Some(("status", _))) { "tasks-by-priority" } else { "tasks" };
    let ((counts, freshness), names) = tokio::try_join!(service.count_tasks(who, None), names(service, who))?;
    if let Some(text) = look.query.get("search") {
        let (found, all) = Box::pin(search(service, who, look, text)).await?;
        let pager = pager(look, "after", found.next.as_deref().unwrap_or_default());
        return Ok(json!({
            "tasks": found.rows, "names": names, "counts": counts, "statuses": Status::ALL, "search": text,
            "status": look.query.get("status"), "pager": pager, "all": all,
            "warning": warning(found.freshness.and(freshness)),
        }));
    }
    let (found, pager) = rows(service, who, view, only, look).await?;
    Ok(json!({
        "tasks": found.rows, "names": names, "counts": counts, "statuses": Status::ALL, "pager": pager,
        "status": look.query.get("status"), "rebuilding": found.rebuilding, "warning": warning(freshness),
    }))
}

/// A page of the tasks with a text in them, and how many there are in all unless nobody can say that just now.
async fn search(
    service: &Service,
    who: &Principal,
    look: &Look,
    text: &str,
) -> Result<(List, Option<u64>), Refusal> {
    let wanted = Tasks {
        status: look.query.get("status").map(str::to_owned),
        search: Some(text.to_owned()),
        heartbeat: true,
        limit: PAGE,
        cursor: look.query.get("after").unwrap_or_default().to_owned(),
        ..Tasks::default()
    };
    let count = Tasks { limit: 0, cursor: String::new(), ..wanted.clone() };
    let (found, counted) = tokio::join!(service.list_tasks(who, wanted), service.tasks_from(who, count, 0));
    Ok((found?, counted.ok().map(|(_, all)| all)))
}

pub(super) async fn one(console: &Console, who: &Principal, look: &Look) -> Result<Value, Refusal> {
    let service = &console.service;
    let id = parse_uuid("task", look.subject())?;
    let (task, freshness) = service.task_with_questions(who, id).await?;
    let text = id.to_string();
    let (history, names) =
        tokio::try_join!(service.history(who, Kind::Pool, &text, EVENTS), names(service, who))?;
    let needs = task["dependsOn"].as_array().into_iter().flatten();
    let needs: Vec<Uuid> = needs.filter_map(|id| Uuid::try_parse(id.as_str()?).ok()).take(NEEDS).collect();
    let needs: Vec<Option<Value>> = stream::iter(needs)
        .map(async |need| match service.get_task(who, need).await {
            Err(refusal) if refusal.code == Code::NotFound => Ok(None),
            found => found.map(Some),
        })
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    let events = history
        .rows
        .iter()
        .rev()
        .map(|event| json!({ "kind": event.kind, "at": event.at.iso(), "body": said(event.facts()) }));
    Ok(json!({
        "title": "Task", "task": task, "names": names, "needs": needs, "events": events.collect::<Vec<_>>(),
        "is_over": is_over(&task), "warning": warning(history.freshness.and(freshness)),
    }))
}

/// What an event says in words, if it does.
fn said(facts: &Value) -> Value {
    let fields = ["text", "reason", "output"].iter().map(|field| &facts[*field]);
    fields.into_iter().find(|value| value.is_string()).cloned().unwrap_or_default()
}

pub(super) async fn graph(console: &Console, who: &Principal, look: &Look) -> Result<Value, Refusal> {
    let epic = look.query.id("epic")?;
    let tasks = console.service.dependencies(who, epic, DRAWN).await?;
    let named = match epic {
        Some(epic) => console.service.find_epic(who, Which::Id(epic)).await?.1,
        None => Value::Null,
    };
    Ok(json!({
        "graph": picture::draw(&tasks.rows), "count": tasks.rows.len(), "most": DRAWN, "epic": named,
        "warning": tasks.warning(),
    }))
}

pub(super) async fn epics(console: &Console, who: &Principal, look: &Look) -> Result<Value, Refusal> {
    let (found, pager) = rows(&console.service, who, "epics", None, look).await?;
    let names = names(&console.service, who).await?;
    Ok(json!({ "epics": found.rows, "names": names, "pager": pager, "rebuilding": found.rebuilding }))
}

pub(super) async fn epic(console: &Console, who: &Principal, look: &Look) -> Result<Value, Refusal> {
    let service = &console.service;
    let (id, epic) = service.find_epic(who, Which::Id(parse_uuid("epic", look.subject())?)).await?;
    let text = id.to_string();
    let ((counts, freshness), names, (tasks, pager)) = tokio::try_join!(
        service.count_tasks(who, Some(id)),
        names(service, who),
        rows(service, who, "tasks-by-priority", Some(("epicId", &text)), look),
    )?;
    Ok(json!({
        "title": epic["name"], "epic": epic, "counts": counts, "names": names, "tasks": tasks.rows,
        "pager": pager, "rebuilding": tasks.rebuilding || freshness != Freshness::Fresh,
    }))
}
