//! What has an address in a swarm: its tasks, agents, epics and runs, and the lists of them.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use skein_shared::id::{InstanceId, Kind, Name};
use skein_shared::which::Which;
use skein_shared::{Code, Refusal, uri};
use uuid::Uuid;

use super::instances::Runs;
use super::lists::{Epics, List, Page, whole};
use super::{Service, excerpts};
use crate::auth::{Principal, Right, policy};
use crate::entity::hub::commits_of;
use crate::projection::{FieldPath, LIMIT, Order, Query, Tally};

/// The scheme of the addresses.
const SCHEME: &str = "skein";
/// Most rows of a list that is shown whole.
const SHOWN: usize = 100;
const RUNS: Runs<'static> = Runs { agent: None, live: false, limit: SHOWN };

/// Something with an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    All(Sort),
    Task(Uuid),
    /// By its name, or by its id: members may have names that no address has.
    Agent(Which),
    Epic(Uuid),
    Run(InstanceId),
}

/// A sort of things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Tasks,
    Agents,
    Epics,
    Runs,
}

impl Sort {
    pub const ALL: [Sort; 4] = [Sort::Tasks, Sort::Agents, Sort::Epics, Sort::Runs];

    pub fn as_str(self) -> &'static str {
        match self {
            Sort::Tasks => "tasks",
            Sort::Agents => "agents",
            Sort::Epics => "epics",
            Sort::Runs => "runs",
        }
    }

    /// What a resource of this sort is told from the others by.
    pub fn by(self) -> &'static str {
        match self {
            Sort::Tasks | Sort::Epics => "id",
            Sort::Agents => "name",
            Sort::Runs => "instance",
        }
    }

    /// The address of one of them.
    pub fn address(self, of: &str) -> String {
        format!("{SCHEME}://{}/{of}", self.as_str())
    }

    /// The address of the list.
    pub fn list_address(self) -> String {
        format!("{SCHEME}://{}", self.as_str())
    }
}

impl Resource {
    /// Reads an address.
    ///
    /// # Errors
    /// `not_found` when nothing can lie there.
    pub fn parse(address: &str) -> Result<Self, Refusal> {
        let unknown = || {
            let shown: String = address.chars().take(80).collect();
            let sorts = Sort::ALL.map(|sort| format!("{}[/{}]", sort.list_address(), sort.by()));
            let problem = format!("there is nothing at `{shown}`; addresses are {}", sorts.join(", "));
            Refusal::new(Code::NotFound, problem)
        };
        let form = uri::canonical(address).map_err(|_| unknown())?;
        let path = form.strip_prefix(SCHEME).and_then(|rest| rest.strip_prefix("://")).ok_or_else(unknown)?;
        let (sort, of) = path.split_once('/').unwrap_or((path, ""));
        let sort = Sort::ALL.into_iter().find(|known| known.as_str() == sort).ok_or_else(unknown)?;
        let id = || Uuid::try_parse(of).map_err(|_| unknown());
        Ok(match sort {
            sort if of.is_empty() => Self::All(sort),
            Sort::Tasks => Self::Task(id()?),
            Sort::Epics => Self::Epic(id()?),
            Sort::Agents => Self::Agent(match id() {
                Ok(id) => Which::Id(id),
                Err(_) => Which::Name(Name::parse(of).map_err(|_| unknown())?.to_string()),
            }),
            // Instances are named after their agents.
            Sort::Runs => Self::Run(InstanceId(Name::parse(of).map_err(|_| unknown())?.to_string())),
        })
    }

    pub fn address(&self) -> String {
        match self {
            Self::All(sort) => sort.list_address(),
            Self::Task(id) => Sort::Tasks.address(&id.to_string()),
            Self::Agent(which) => Sort::Agents.address(&which.to_string()),
            Self::Epic(id) => Sort::Epics.address(&id.to_string()),
            Self::Run(instance) => Sort::Runs.address(instance.as_str()),
        }
    }

    /// What changes when it does. An epic counts the tasks in it, and an agent's runs are its own entity's.
    fn topics(&self, who: &Principal) -> BTreeSet<String> {
        let all = |kinds: &[Kind]| kinds.iter().map(|kind| commits_of(*kind, &who.swarm)).collect();
        match self {
            Self::Task(id) => BTreeSet::from([id.to_string()]),
            Self::All(Sort::Tasks) => all(&[Kind::Pool]),
            Self::All(Sort::Agents) => all(&[Kind::Pool, Kind::Agent]),
            Self::Epic(_) | Self::All(Sort::Epics) => all(&[Kind::Epics, Kind::Pool]),
            Self::Agent(_) => all(&[Kind::Pool, Kind::Agent]),
            Self::Run(_) | Self::All(Sort::Runs) => all(&[Kind::Agent]),
        }
    }
}

/// One line of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub address: String,
    pub name: String,
    pub about: String,
}

/// What tells the lists of all things from what they were: the first addresses of each sort, and how many there are,
/// for one that comes or goes behind those changes the count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    first: Vec<String>,
    counts: Vec<u64>,
}

impl Service {
    /// Shows what lies at an address.
    ///
    /// # Errors
    /// `not_found`; `forbidden` when the caller may not see it; `unavailable` while a list of it may be old.
    pub async fn show(&self, who: &Principal, resource: &Resource) -> Result<Value, Refusal> {
        policy::require(who, Right::Read)?;
        Ok(match resource {
            Resource::Task(id) => {
                let (task, freshness) = self.task_with_questions(who, *id).await?;
                json!({ "task": whole(task, freshness)? })
            }
            Resource::Epic(id) => {
                let (_, epic) = self.find_epic(who, Which::Id(*id)).await?;
                let tasks = self.epic_tasks(who, *id, Page::default()).await?.whole()?;
                first(json!({ "epic": epic }), "tasks", tasks.rows, LIMIT, "get-epic-details")
            }
            Resource::Agent(which) => self.show_agent(who, which).await?,
            Resource::Run(instance) => json!({ "run": self.own_run(who, instance).await? }),
            Resource::All(sort) => {
                let (mut rows, most, by) = match sort {
                    Sort::Tasks => {
                        let mut tasks = self.live_tasks(who, Vec::new()).await?;
                        self.leave_out_lost_epics(who, &mut tasks).await;
                        (tasks, SHOWN, "get-tasks")
                    }
                    Sort::Epics => (self.some_epics(who, "").await?.rows, SHOWN, "list-epics"),
                    Sort::Agents => (self.list_members(who).await?.whole()?.rows, LIMIT, "get-swarm"),
                    Sort::Runs => (self.instances(who, RUNS).await?.whole()?, SHOWN, "skein list runs"),
                };
                let cut = if *sort == Sort::Tasks { excerpts::shorten(&mut rows) } else { None };
                let shown = cut.map_or_else(|| json!({}), |warning| json!({ "warning": warning }));
                first(shown, sort.as_str(), rows, most, by)
            }
        })
    }

    /// Waits until what lies at an address is shown differently, at most for `patience`.
    ///
    /// # Errors
    /// As [`Self::show`]: also when it is gone by then.
    pub async fn shown_anew(
        &self,
        who: &Principal,
        resource: &Resource,
        differs: impl Fn(&Value) -> bool,
        patience: Duration,
    ) -> Result<Option<Value>, Refusal> {
        let look = || async {
            let now = self.show(who, resource).await?;
            Ok(differs(&now).then_some(now))
        };
        self.until_shown(who, resource.topics(who), patience, look).await
    }

    /// A page of what has an address, and where the next one begins: the members come first, then the epics, the most
    /// urgent before the others, then the tasks that are not over, the latest first. A page may have the end of one
    /// sort and the beginning of the next.
    ///
    /// # Errors
    /// `invalid_argument` for a cursor that is none; `unavailable` while some may be missing.
    pub async fn lines(
        &self,
        who: &Principal,
        cursor: Option<&str>,
    ) -> Result<(Vec<Line>, Option<String>), Refusal> {
        policy::require(who, Right::Read)?;
        let (mut lines, mut place) = (Vec::new(), Place::read(cursor)?);
        if let Place::Behind(Sort::Agents, cursor) = &place {
            let page = Page { limit: Some(SHOWN), cursor: cursor.clone() };
            let members = self.list_some_members(who, page).await?.whole()?;
            let named = members.rows.into_iter().map(addressable);
            lines.extend(named.filter_map(|row| line(Sort::Agents, &row, "title", "status")));
            if let Some(next) = members.next {
                return Ok((lines, Some(Place::Behind(Sort::Agents, next).to_string())));
            }
            place = Place::Behind(Sort::Epics, String::new());
        }
        if let Place::Behind(Sort::Epics, cursor) = &place {
            let epics = self.some_epics(who, cursor).await?;
            lines.extend(epics.rows.iter().filter_map(|row| line(Sort::Epics, row, "name", "status")));
            if let Some(next) = epics.next {
                return Ok((lines, Some(Place::Behind(Sort::Epics, next).to_string())));
            }
        }
        let after = if let Place::Task(after) = place { after } else { Vec::new() };
        let tasks = self.live_tasks(who, after).await?;
        let next = tasks
            .last()
            .filter(|_| tasks.len() == SHOWN)
            .map(|last| Place::Task(vec![last["createdAt"].clone(), last["id"].clone()]).to_string());
        lines.extend(tasks.iter().filter_map(|task| line(Sort::Tasks, task, "task", "status")));
        Ok((lines, next))
    }

    /// Which lines there are, in short.
    ///
    /// # Errors
    /// As the lists.
    pub async fn outline(&self, who: &Principal) -> Result<Outline, Refusal> {
        policy::require(who, Right::Read)?;
        let page = Page { limit: Some(SHOWN), cursor: String::new() };
        let members = self.list_some_members(who, page).await?.whole()?.rows;
        let members: Vec<Value> = members.into_iter().map(addressable).collect();
        let epics = self.some_epics(who, "").await?.rows;
        let tasks = self.live_tasks(who, Vec::new()).await?;
        let mut outline = Outline { first: Vec::new(), counts: Vec::new() };
        for (sort, kind, of, rows) in [
            (Sort::Agents, Kind::Pool, "member", members),
            (Sort::Epics, Kind::Epics, "epic", epics),
            (Sort::Tasks, Kind::Pool, "task", tasks),
        ] {
            let addresses = rows.iter().filter_map(|row| Some(sort.address(row[sort.by()].as_str()?)));
            outline.first.extend(addresses);
            outline.counts.push(self.count_live(who, kind, of).await?);
        }
        Ok(outline)
    }

    /// How many documents there are of a sort that are not over.
    async fn count_live(&self, who: &Principal, kind: Kind, of: &str) -> Result<u64, Refusal> {
        let query = Query { live: Some(true), ..Query::new(&who.swarm, kind, of) };
        let by = Tally { by: FieldPath::parse("status")?, letters: None };
        let (counted, freshness) = self.entities.tally(&who.entity(kind), query, by).await?;
        Ok(whole(counted, freshness)?.values().sum())
    }

    /// Waits until there are other lines, at most for `patience`.
    ///
    /// # Errors
    /// As the lists.
    pub async fn lines_anew(
        &self,
        who: &Principal,
        seen: &Outline,
        patience: Duration,
    ) -> Result<Option<Outline>, Refusal> {
        let topics = [Sort::Agents, Sort::Epics].into_iter().flat_map(|sort| Resource::All(sort).topics(who));
        let look = || async {
            let now = self.outline(who).await?;
            Ok((now != *seen).then_some(now))
        };
        self.until_shown(who, topics.collect(), patience, look).await
    }

    /// What the things of a sort are called that begin so, at most a hundred.
    ///
    /// # Errors
    /// As the lists.
    pub async fn called(&self, who: &Principal, sort: Sort, begun: &str) -> Result<Vec<String>, Refusal> {
        policy::require(who, Right::Read)?;
        let rows = match sort {
            Sort::Tasks => self.live_tasks(who, Vec::new()).await?,
            Sort::Epics => self.some_epics(who, "").await?.rows,
            Sort::Agents => {
                self.list_members(who).await?.whole()?.rows.into_iter().map(addressable).collect()
            }
            Sort::Runs if policy::may(who, Right::Administer) => self.instances(who, RUNS).await?.whole()?,
            Sort::Runs => vec![json!({ "instance": who.instance })],
        };
        let names = rows.iter().filter_map(|row| row[sort.by()].as_str());
        Ok(names.filter(|name| name.starts_with(begun)).take(SHOWN).map(str::to_owned).collect())
    }

    async fn some_epics(&self, who: &Principal, cursor: &str) -> Result<List, Refusal> {
        let wanted = Epics { limit: SHOWN, cursor: cursor.to_owned(), ..Epics::default() };
        self.list_epics(who, wanted).await?.whole()
    }

    /// Tasks that are not over, the latest first, from behind a place on.
    async fn live_tasks(&self, who: &Principal, after: Vec<Value>) -> Result<Vec<Value>, Refusal> {
        let mut query = Query::new(&who.swarm, Kind::Pool, "task");
        query.live = Some(true);
        query.order = vec![Order::descending("createdAt")?, Order::descending("id")?];
        (query.after, query.limit) = (after, SHOWN);
        let tasks = self.list(&who.entity(Kind::Pool), query).await?.whole()?.rows;
        Ok(tasks.into_iter().map(super::read::task_shape).collect())
    }

    /// A member, an agent that runners have defined, or both.
    async fn show_agent(&self, who: &Principal, which: &Which) -> Result<Value, Refusal> {
        let id = match which {
            Which::Id(id) => Some(*id),
            Which::Name(name) => match self.agent_named(who, name).await {
                Err(refusal) if refusal.code == Code::NotFound => None,
                found => Some(found?),
            },
        };
        let member = match id {
            Some(id) => self.member(who, id).await?,
            None => None,
        };
        let name = match (&member, which) {
            (Some(member), _) => member["name"].as_str().unwrap_or_default().to_owned(),
            (None, which) => which.to_string(),
        };
        // Runners define agents by names alone.
        let runs = match Name::parse(&name) {
            Ok(name) => self.agent(who, &name).await,
            Err(_) => Err(Refusal::new(Code::NotFound, format!("no runner has an agent `{name}`"))),
        };
        match (member, runs) {
            (Some(member), Ok(runs)) => Ok(json!({ "agent": member, "runs": runs })),
            (Some(member), Err(refusal)) if refusal.code == Code::NotFound => Ok(json!({ "agent": member })),
            (None, Ok(runs)) => Ok(json!({ "runs": runs })),
            (_, Err(refusal)) => Err(refusal),
        }
    }

    /// A run, for those who administer and for the agent whose run it is.
    async fn own_run(&self, who: &Principal, instance: &InstanceId) -> Result<Value, Refusal> {
        let rows = self.instances_with(who, "instance", instance.as_str()).await?;
        let theirs =
            |row: &Value| policy::may(who, Right::Administer) || row["agent"] == who.agent_name.as_str();
        rows.into_iter().find(theirs).ok_or_else(|| {
            let problem = format!("there is no run {instance} of yours; its agent and operators may see it");
            Refusal::new(Code::NotFound, problem)
        })
    }
}

/// A member's row whose `name` can stand in an address: its id, if its own name cannot. The latter is its `title`.
fn addressable(mut member: Value) -> Value {
    member["title"] = member["name"].clone();
    if member["name"].as_str().is_none_or(|name| Name::parse(name).is_err()) {
        member["name"] = member["id"].clone();
    }
    member
}

fn line(sort: Sort, row: &Value, name: &str, about: &str) -> Option<Line> {
    const LONGEST: usize = 80;
    let text = |field: &str| row[field].as_str().unwrap_or_default();
    Some(Line {
        address: sort.address(row[sort.by()].as_str()?),
        name: text(name).chars().take(LONGEST).collect(),
        about: text(about).to_owned(),
    })
}

/// A list with the rest of what is shown. One that ends before its end says so, and what has all of it.
fn first(mut shown: Value, name: &str, rows: Vec<Value>, most: usize, by: &str) -> Value {
    if rows.len() >= most {
        shown["more"] = json!(format!("these are the first {most}; `{by}` has all, page by page"));
    }
    shown[name] = Value::Array(rows);
    shown
}

/// Where a page begins.
enum Place {
    /// Behind a place of this sort's list, as its own cursor says it.
    Behind(Sort, String),
    /// Behind a task.
    Task(Vec<Value>),
}

impl Place {
    fn read(cursor: Option<&str>) -> Result<Self, Refusal> {
        let none = || {
            Refusal::new(
                Code::InvalidArgument,
                "cursor: this is none; give the one of the last page, or leave it out",
            )
        };
        let Some(cursor) = cursor else { return Ok(Self::Behind(Sort::Agents, String::new())) };
        let (first, rest) = cursor.split_once(' ').ok_or_else(none)?;
        for sort in [Sort::Agents, Sort::Epics] {
            if first == sort.as_str() {
                return Ok(Self::Behind(sort, rest.to_owned()));
            }
        }
        let id = Uuid::try_parse(rest).map_err(|_| none())?;
        Ok(Self::Task(vec![json!(first), json!(id)]))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Behind(sort, cursor) => write!(f, "{} {cursor}", sort.as_str()),
            Self::Task(after) => {
                let text = |part: &Value| part.as_str().unwrap_or_default().to_owned();
                f.write_str(&after.iter().map(text).collect::<Vec<_>>().join(" "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for address in [
            "skein://tasks",
            "skein://tasks/0199aaaa-0000-7000-8000-000000000001",
            "skein://agents/coder",
            "skein://epics/0199aaaa-0000-7000-8000-000000000001",
            "skein://runs/coder-00000001",
        ] {
            assert_eq!(Resource::parse(address).unwrap().address(), address);
        }
        assert_eq!(Resource::parse("SKEIN://tasks/").unwrap(), Resource::All(Sort::Tasks));
        for nothing in [
            "",
            "skein://",
            "skein://locks",
            "skein://tasks/7",
            "skein://agents/../tasks/x y",
            "file:///tasks",
        ] {
            assert_eq!(Resource::parse(nothing).unwrap_err().code, Code::NotFound, "{nothing}");
        }
    }
}
