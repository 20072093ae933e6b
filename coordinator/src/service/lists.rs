//! Lists, from the read side. A list shows every write that was acknowledged before it was asked for, or says
//! that it may not.

use serde_json::{Value, json};
use skein_shared::id::{EntityKey, Kind};
use skein_shared::pool::{Command, Pool, Reply};
use skein_shared::{Code, Refusal, wire};
use uuid::Uuid;

use super::read::{id_of, task_shape};
use super::{Service, cursor, unexpected};
use crate::auth::{Principal, Right, policy};
use crate::projection::{
    Event, FieldPath, Filter, Freshness, LIMIT, Order, Projection, ProjectionError, Query, Search, Test,
};

/// Rows, and whether something may be missing among them.
#[derive(Clone, Debug)]
pub struct List<T = Value> {
    pub rows: Vec<T>,
    pub freshness: Freshness,
    /// Where more rows may be: the cursor of the next page.
    pub next: Option<String>,
}

/// A part of a list: so many rows, from behind a cursor of an earlier part on. Empty for the beginning.
#[derive(Clone, Debug, Default)]
pub struct Page {
    pub limit: Option<usize>,
    pub cursor: String,
}

impl<T> List<T> {
    /// Says in words that the list may be old, if it may.
    pub fn warning(&self) -> Option<&'static str> {
        warning(self.freshness)
    }

    /// The list, for whoever has no place to say that it may be old.
    ///
    /// # Errors
    /// `unavailable` unless it shows all that was acknowledged before.
    pub fn whole(self) -> Result<Self, Refusal> {
        let freshness = self.freshness;
        whole(self, freshness)
    }
}

/// Says in words that what was read may be old, if it may.
pub fn warning(freshness: Freshness) -> Option<&'static str> {
    match freshness {
        Freshness::Fresh => None,
        Freshness::Stale => Some("stale: the newest changes may be missing; ask again in a moment"),
        Freshness::Rebuilding => {
            Some("rebuilding: the lists are being built after a start and have gaps; ask again in a moment")
        }
    }
}

/// What was read, for whoever has no place to say that it may be old.
///
/// # Errors
/// `unavailable` unless it shows all that was acknowledged before.
pub fn whole<T>(read: T, freshness: Freshness) -> Result<T, Refusal> {
    if freshness == Freshness::Fresh { Ok(read) } else { Err(incomplete()) }
}

/// To those who would take what is missing for what there is not.
pub fn incomplete() -> Refusal {
    let problem = "the lists are being built after a start, or do not have the newest changes yet; ask again in a \
                   moment";
    Refusal::new(Code::Unavailable, problem).retry_after(1000)
}

/// Which tasks a list shows. All conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    pub status: Option<String>,
    pub mine: bool,
    /// Tasks that wait in the pool.
    pub unassigned: bool,
    /// Open offers to the caller.
    pub offered_to_me: bool,
    /// Tasks whose dependencies are all completed.
    pub ready: bool,
    pub task_type: Option<String>,
    /// Any of these.
    pub tags: Vec<String>,
    /// Part of the task's text.
    pub search: Option<String>,
    pub schedule: Option<Uuid>,
    pub epic: Option<Uuid>,
    /// The swarm's own routine tasks as well.
    pub heartbeat: bool,
    pub limit: usize,
    /// Only what comes behind this place; empty for all.
    pub cursor: String,
}

/// Which epics a list shows.
#[derive(Clone, Debug, Default)]
pub struct Epics {
    pub status: Option<String>,
    pub search: Option<String>,
    pub lead: Option<Uuid>,
    pub creator: Option<Uuid>,
    pub limit: usize,
    /// Only what comes behind this place; empty for all.
    pub cursor: String,
}

impl Service {
    /// Tasks, the most urgent first, then the latest changed.
    pub async fn list_tasks(&self, who: &Principal, wanted: Tasks) -> Result<List, Refusal> {
        policy::require(who, Right::Read)?;
        let mut list = self.find_tasks(who, wanted).await?;
        self.leave_out_lost_epics(who, &mut list.rows).await;
        Ok(list)
    }

    async fn find_tasks(&self, who: &Principal, wanted: Tasks) -> Result<List, Refusal> {
        let mut query = task_query(who, &wanted)?;
        query.after = cursor::read(&query, &wanted.cursor)?;
        let mut list = List { rows: Vec::new(), freshness: Freshness::Fresh, next: None };
        // One more tells whether there is another page.
        query.limit = if wanted.ready { PAGE } else { (wanted.limit + 1).min(LIMIT) };
        // Readiness is judged here, before the limit, so a page is never short for it.
        for _ in 0..PAGES {
            let (found, how) = self.entities.list(&who.entity(Kind::Pool), query.clone()).await?;
            list.freshness = list.freshness.and(how);
            let last = found.len() < query.limit;
            query.offset += found.len();
            let mut found = found.into_iter().peekable();
            while let Some(task) = found.next() {
                let shown = !wanted.ready || self.is_ready(who, &task).await?;
                let rows = list.rows.len() + usize::from(shown);
                if rows > wanted.limit {
                    return Ok(list);
                }
                if rows == wanted.limit || found.peek().is_none() {
                    list.next = Some(cursor::write(&query, &task));
                }
                if shown {
                    list.rows.push(task_shape(task));
                }
            }
            if last {
                list.next = None;
            }
            if last || list.rows.len() >= wanted.limit {
                break;
            }
        }
        Ok(list)
    }

    /// The members of the swarm by name, those who went offline too, with the texts of their profiles.
    pub async fn list_profiles(&self, who: &Principal, page: Page) -> Result<List, Refusal> {
        let mut list = self.list_some_members(who, page).await?;
        for member in &mut list.rows {
            let Some(id) = member["id"].as_str().and_then(|id| Uuid::try_parse(id).ok()) else { continue };
            if let Some(whole) = self.member_with_profile(who, id).await? {
                *member = whole;
            }
        }
        Ok(list)
    }

    /// The members of the swarm by name, those who went offline too.
    pub async fn list_members(&self, who: &Principal) -> Result<List, Refusal> {
        self.list_some_members(who, Page::default()).await
    }

    /// A page of them.
    pub async fn list_some_members(&self, who: &Principal, page: Page) -> Result<List, Refusal> {
        policy::require(who, Right::Read)?;
        let mut query = Query::new(&who.swarm, Kind::Pool, "member");
        query.live = Some(true);
        query.order = vec![Order::ascending("name")?, Order::ascending("id")?];
        self.list_page(&who.entity(Kind::Pool), query, page).await
    }

    /// Epics, the most urgent first, then the newest.
    pub async fn list_epics(&self, who: &Principal, wanted: Epics) -> Result<List, Refusal> {
        policy::require(who, Right::Read)?;
        let mut query = Query::new(&who.swarm, Kind::Epics, "epic");
        query.live = Some(true);
        let equal = [
            ("status", wanted.status.map(|status| json!(status))),
            ("leadAgentId", wanted.lead.map(|lead| json!(lead))),
            ("createdByAgentId", wanted.creator.map(|creator| json!(creator))),
        ];
        for (path, value) in equal {
            if let Some(value) = value {
                query.filters.push(Filter::new(path, Test::Eq(value))?);
            }
        }
        query.search = search(wanted.search, &["name", "description", "goal"])?;
        query.order =
            vec![Order::descending("priority")?, Order::descending("createdAt")?, Order::ascending("id")?];
        let page = Page { limit: Some(wanted.limit), cursor: wanted.cursor };
        self.list_page(&who.entity(Kind::Epics), query, page).await
    }

    /// The tasks of an epic, the most urgent first, then the oldest.
    pub async fn epic_tasks(&self, who: &Principal, epic: Uuid, page: Page) -> Result<List, Refusal> {
        policy::require(who, Right::Read)?;
        let mut query = Query::new(&who.swarm, Kind::Pool, "task");
        query.filters = vec![Filter::new("epicId", Test::Eq(json!(epic)))?];
        query.order =
            vec![Order::descending("priority")?, Order::ascending("createdAt")?, Order::ascending("id")?];
        let mut tasks = self.list_page(&who.entity(Kind::Pool), query, page).await?;
        tasks.rows = tasks.rows.into_iter().map(task_shape).collect();
        Ok(tasks)
    }

    /// What happened to a task, lock, call, …: the newest events, oldest first.
    pub async fn history(
        &self,
        who: &Principal,
        kind: Kind,
        subject: &str,
        limit: usize,
    ) -> Result<List<Event>, Refusal> {
        policy::require(who, Right::Read)?;
        let key = who.entity(kind);
        let (rows, freshness) = self.entities.history(&key, subject, limit).await?;
        Ok(List { rows, freshness, next: None })
    }

    pub(super) fn projection(&self) -> &Projection {
        &self.entities.shared().projection
    }

    pub(super) async fn list(&self, key: &EntityKey, query: Query) -> Result<List, Refusal> {
        let asked = query.clone();
        let (rows, freshness) = self.entities.list(key, query).await?;
        let next = rows.last().filter(|_| rows.len() == asked.limit).map(|row| cursor::write(&asked, row));
        Ok(List { rows: rows.into_iter().map(|row| wire::shown(row, &[])).collect(), freshness, next })
    }

    /// A part of a list whose order tells each document from each.
    pub(super) async fn list_page(
        &self,
        key: &EntityKey,
        mut query: Query,
        page: Page,
    ) -> Result<List, Refusal> {
        query.limit = page.limit.unwrap_or(query.limit).min(LIMIT);
        query.after = cursor::read(&query, &page.cursor)?;
        self.list(key, query).await
    }

    /// Whether every dependency of a task is completed.
    async fn is_ready(&self, who: &Principal, task: &Value) -> Result<bool, Refusal> {
        let mut forgotten = false;
        let ids = task["dependsOn"].as_array().into_iter().flatten();
        for id in ids.filter_map(|id| Uuid::try_parse(id.as_str()?).ok()) {
            match self.body(&who.entity(Kind::Pool), &format!("task/{id}")).await? {
                Some(dependency) if dependency["status"] == "completed" => {}
                Some(_) => return Ok(false),
                None => forgotten = true,
            }
        }
        match id_of(task, "id") {
            Some(id) if forgotten => self.could_start(who, id, task["status"] == "completed").await,
            _ => Ok(true),
        }
    }

    /// The same by the word of the pool, which knows how a dependency has ended whose document is no longer kept. A
    /// task that it does not know has ended itself, and could start if it is completed.
    async fn could_start(&self, who: &Principal, task: Uuid, completed: bool) -> Result<bool, Refusal> {
        match self.ask::<Pool>(&who.entity(Kind::Pool), Command::Inspect { task }).await {
            Ok(Reply::Task { task, .. }) => Ok(task.unmet.is_empty()),
            Ok(_) => Err(unexpected("the pool")),
            Err(refusal) if refusal.code == Code::NotFound => Ok(completed),
            // A pool of an earlier release does not know the question.
            Err(refusal) if refusal.code == Code::InvalidArgument => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }
}

/// Tasks looked at in one step, and the most steps: a list that looks further would hold the reader up.
const PAGE: usize = 200;
const PAGES: usize = 25;
/// The type of the swarm's own routine tasks, and a tag for others that are to count as such.
const ROUTINE: &str = "heartbeat";

/// The tasks that are wanted, the most urgent first, then the latest changed. What is asked of readiness is not in it.
pub(super) fn task_query(who: &Principal, wanted: &Tasks) -> Result<Query, Refusal> {
    let mut query = Query::new(&who.swarm, Kind::Pool, "task");
    query.filters = task_filters(who, wanted)?;
    query.tags.clone_from(&wanted.tags);
    if !wanted.heartbeat {
        query.untagged = vec![ROUTINE.to_owned()];
    }
    query.search = search(wanted.search.clone(), &["task"])?;
    query.order =
        vec![Order::descending("priority")?, Order::descending("lastUpdatedAt")?, Order::ascending("id")?];
    query.limit = wanted.limit;
    Ok(query)
}

fn task_filters(who: &Principal, wanted: &Tasks) -> Result<Vec<Filter>, Refusal> {
    let mut filters = Vec::new();
    let mut add = |path: &str, test: Test| -> Result<(), Refusal> {
        filters.push(Filter::new(path, test)?);
        Ok(())
    };
    if let Some(status) = &wanted.status {
        add("status", Test::Eq(json!(status)))?;
    }
    if wanted.mine {
        add("agentId", Test::Eq(json!(who.agent)))?;
    }
    if wanted.unassigned {
        add("status", Test::Eq(json!("unassigned")))?;
    }
    if wanted.offered_to_me {
        add("offeredTo", Test::Eq(json!(who.agent)))?;
        add("status", Test::In(vec![json!("offered"), json!("reviewing")]))?;
    }
    if let Some(task_type) = &wanted.task_type {
        add("taskType", Test::Eq(json!(task_type)))?;
    }
    if let Some(schedule) = wanted.schedule {
        add("scheduleId", Test::Eq(json!(schedule)))?;
    }
    if let Some(epic) = wanted.epic {
        add("epicId", Test::Eq(json!(epic)))?;
    }
    if !wanted.heartbeat {
        add("taskType", Test::Not(json!(ROUTINE)))?;
    }
    Ok(filters)
}

fn search(text: Option<String>, paths: &[&str]) -> Result<Option<Search>, Refusal> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let paths = paths.iter().map(|path| FieldPath::parse(path)).collect::<Result<_, _>>()?;
    Ok(Some(Search { paths, text }))
}

pub(super) fn unreadable(error: ProjectionError) -> Refusal {
    Refusal::new(Code::Unavailable, format!("{error}; try again in a moment")).retry_after(500)
}
