//! What each page shows: one file for each group of pages. Each asks the services, and gets so much at most.

mod agents;
mod costs;
mod locks;
mod messages;
mod node;
mod overview;
mod questions;
mod runs;
mod tasks;

use std::collections::BTreeMap;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use skein_shared::Refusal;
use skein_shared::id::Kind;

use super::Console;
use super::door::Visitor;
use super::fields::Fields;
use crate::auth::Principal;
use crate::service::Service;
use crate::service::views::{Rows, Wanted};

/// Rows of a list on one page.
const PAGE: usize = 50;
/// Work under way that is looked at, to say who does what.
const UNDER_WAY: usize = 500;

/// Which page, and what was asked of it.
pub(super) struct Look {
    pub(super) subject: Option<String>,
    pub(super) query: Fields,
}

impl Look {
    fn subject(&self) -> &str {
        self.subject.as_deref().unwrap_or_default()
    }
}

type Gather = for<'a> fn(&'a Console, &'a Principal, &'a Look) -> BoxFuture<'a, Result<Value, Refusal>>;

/// A page.
pub(super) struct Section {
    /// As its address names it; the first page has none.
    pub(super) name: &'static str,
    /// It is of one thing that the address names.
    pub(super) of_one: bool,
    title: &'static str,
    /// The key that leads there behind `g`, of those that stand in the menu.
    key: &'static str,
    pub(super) template: &'static str,
    /// The entities whose commits change it.
    pub(super) kinds: &'static [Kind],
    gather: Gather,
}

const fn page(
    name: &'static str,
    title: &'static str,
    key: &'static str,
    template: &'static str,
    kinds: &'static [Kind],
    gather: Gather,
) -> Section {
    Section { name, of_one: false, title, key, template, kinds, gather }
}

const fn of_one(
    name: &'static str,
    title: &'static str,
    template: &'static str,
    kinds: &'static [Kind],
    gather: Gather,
) -> Section {
    Section { name, of_one: true, title, key: "", template, kinds, gather }
}

use Kind::{Agent, Channels, Costs, Epics, Inboxes, Lockspace, Pool, Questions, Schedules, Triggers};

pub(super) const SECTIONS: &[Section] = &[
    page("", "Overview", "o", "overview.html", &[Pool, Agent, Lockspace, Schedules, Questions], |c, w, l| {
        overview::overview(c, w, l).boxed()
    }),
    page("board", "Board", "b", "board.html", &[Pool], |c, w, l| tasks::board(c, w, l).boxed()),
    page("tasks", "Tasks", "t", "tasks.html", &[Pool], |c, w, l| tasks::list(c, w, l).boxed()),
    of_one("tasks", "Task", "task.html", &[Pool, Questions], |c, w, l| tasks::one(c, w, l).boxed()),
    page("graph", "Graph", "d", "graph.html", &[Pool], |c, w, l| tasks::graph(c, w, l).boxed()),
    page("epics", "Epics", "e", "epics.html", &[Epics], |c, w, l| tasks::epics(c, w, l).boxed()),
    of_one("epics", "Epic", "epic.html", &[Epics, Pool], |c, w, l| tasks::epic(c, w, l).boxed()),
    page("schedules", "Schedules", "s", "schedules.html", &[Schedules], |c, w, l| {
        overview::schedules(c, w, l).boxed()
    }),
    page("agents", "Agents", "a", "agents.html", &[Pool, Agent], |c, w, l| agents::list(c, w, l).boxed()),
    of_one("agents", "Agent", "agent.html", &[Agent], |c, w, l| agents::one(c, w, l).boxed()),
    of_one("members", "Member", "member.html", &[Pool], |c, w, l| agents::member(c, w, l).boxed()),
    page("runs", "Runs", "r", "runs.html", &[Agent], |c, w, l| runs::list(c, w, l).boxed()),
    of_one("runs", "Run", "run.html", &[Agent], |c, w, l| runs::one(c, w, l).boxed()),
    page("calls", "Calls", "c", "calls.html", &[Agent], |c, w, l| runs::calls(c, w, l).boxed()),
    page("costs", "Costs", "u", "costs.html", &[Costs], |c, w, l| costs::costs(c, w, l).boxed()),
    page("locks", "Locks", "l", "locks.html", &[Lockspace], |c, w, l| locks::locks(c, w, l).boxed()),
    page("waits", "Waits", "w", "waits.html", &[Agent], |c, w, l| locks::waits(c, w, l).boxed()),
    page("questions", "Questions", "q", "questions.html", &[Questions], |c, w, l| {
        questions::list(c, w, l).boxed()
    }),
    of_one("questions", "Question", "question.html", &[Questions], |c, w, l| questions::one(c, w, l).boxed()),
    page("messages", "Messages", "m", "messages.html", &[Channels, Inboxes], |c, w, l| {
        messages::messages(c, w, l).boxed()
    }),
    page("deliveries", "Deliveries", "v", "deliveries.html", &[Triggers, Agent], |c, w, l| {
        messages::deliveries(c, w, l).boxed()
    }),
    page("cluster", "Cluster", "n", "cluster.html", &[], |c, w, l| node::cluster(c, w, l).boxed()),
    page("trends", "Trends", "h", "trends.html", &[Pool], |c, w, l| node::trends(c, w, l).boxed()),
];

/// Which pages stand together in the menu.
pub(super) const GROUPS: [(&str, &[&str]); 4] = [
    ("Work", &["", "board", "tasks", "graph", "epics", "schedules"]),
    ("Agents", &["agents", "runs", "calls", "costs"]),
    ("Between them", &["questions", "locks", "waits", "messages", "deliveries"]),
    ("Node", &["cluster", "trends"]),
];

pub(super) fn find(name: &str, of_one: bool) -> Option<&'static Section> {
    SECTIONS.iter().find(|section| section.name == name && section.of_one == of_one)
}

/// The menu.
pub(super) fn menu() -> Value {
    let groups = GROUPS.iter().map(|(title, names)| {
        let pages = names.iter().filter_map(|name| find(name, false));
        let pages = pages.map(|page| json!({ "name": page.name, "title": page.title, "key": page.key }));
        json!({ "title": title, "pages": pages.collect::<Vec<_>>() })
    });
    groups.collect()
}

impl Console {
    /// All that a page shows, apart from what is around it.
    pub(super) async fn gather(
        &self,
        visitor: &Visitor,
        section: &Section,
        look: &Look,
    ) -> Result<Value, Refusal> {
        let who = &visitor.who;
        let mut shown = (section.gather)(self, who, look).await?;
        let base = format!("/console/{}", who.swarm);
        let path = [section.name, look.subject()].iter().filter(|part| !part.is_empty()).fold(
            base.clone(),
            |path, part| {
                let part: String = url::form_urlencoded::byte_serialize(part.as_bytes()).collect();
                format!("{path}/{part}")
            },
        );
        if shown["title"].is_null() {
            shown["title"] = json!(section.title);
        }
        let query = look.query.with("", "");
        for (name, value) in [
            ("section", json!(section.name)),
            ("back", json!(format!("{path}{}", query.trim_end_matches('?')))),
            ("path", json!(path)),
            ("base", json!(base)),
            ("swarm", json!(who.swarm)),
            ("who", json!({ "name": who.agent_name, "role": who.role })),
            ("may_act", json!(visitor.may_act())),
            ("ticket", json!(visitor.ticket)),
            ("now", json!(self.service.clock().wall().iso())),
        ] {
            shown[name] = value;
        }
        Ok(shown)
    }
}

/// A page of a list, and where the next one is.
async fn rows(
    service: &Service,
    who: &Principal,
    view: &str,
    only: Option<(&str, &str)>,
    look: &Look,
) -> Result<(Rows, Value), Refusal> {
    let wanted = Wanted { view, only, limit: Some(PAGE), ..Wanted::default() };
    rows_behind(service, who, wanted, look, "after").await
}

/// The same of a list that has a length of its own, or a cursor: of two on one page each is turned by itself.
async fn rows_behind(
    service: &Service,
    who: &Principal,
    wanted: Wanted<'_>,
    look: &Look,
    cursor: &str,
) -> Result<(Rows, Value), Refusal> {
    let after = look.query.get(cursor).unwrap_or_default();
    let rows = service.rows(who, Wanted { after, ..wanted }).await?;
    let pager = pager(look, cursor, &rows.next);
    Ok((rows, pager))
}

/// The links to the next page of a list and to its beginning, where there is more.
fn pager(look: &Look, cursor: &str, next: &str) -> Value {
    let more = (!next.is_empty()).then(|| look.query.with(cursor, next));
    let newest = look.query.get(cursor).map(|_| look.query.with(cursor, ""));
    json!({ "more": more, "newest": newest })
}

/// The members' names by their ids, which is how tasks name them.
async fn names(service: &Service, who: &Principal) -> Result<BTreeMap<String, Value>, Refusal> {
    let members = service.list_members(who).await?.rows;
    let named = members.into_iter().filter_map(|mut member| {
        let name = member["name"].take();
        Some((member["id"].as_str()?.to_owned(), name))
    });
    Ok(named.collect())
}

/// The tasks under way, by whose they are.
async fn at_work(service: &Service, who: &Principal) -> Result<BTreeMap<String, Vec<Value>>, Refusal> {
    let only = Some(("status", "in_progress"));
    let under_way = Wanted { view: "tasks-by-priority", only, limit: Some(UNDER_WAY), ..Wanted::default() };
    let mut at_work: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for task in service.rows(who, under_way).await?.rows {
        at_work.entry(task["agentId"].as_str().unwrap_or_default().to_owned()).or_default().push(task);
    }
    Ok(at_work)
}
