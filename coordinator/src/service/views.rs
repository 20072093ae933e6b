//! Which documents each list shows.

use serde_json::{Value, json};
use skein_shared::id::{EntityKey, Kind};
use skein_shared::{Code, Refusal};

use super::lists::incomplete;
use super::{Service, costs, cursor, questions};
use crate::auth::{Principal, Right, policy};
use crate::projection::{FieldPath, Filter, Freshness, LIMIT, Order, Query, Test};

/// Rows of a list that names no limit.
const USUAL: usize = 100;
/// Most bytes of rows in one answer, of which the first is there however long it is. Clients take 4 MiB.
const BYTES: usize = 1 << 20;

const VIEWS: &str = "agents, tasks, tasks-by-priority, epics, locks, calls, waits, schedules, messages, inbox, \
                     questions, answers, runs, instances, dead-letters, webhooks, costs, costs-by-day, runners, \
                     swarms, clients, revocations";

/// What somebody wants to see.
#[derive(Clone, Debug, Default)]
pub struct Wanted<'a> {
    pub view: &'a str,
    /// Only rows with this value in a field by which the list can be narrowed.
    pub only: Option<(&'a str, &'a str)>,
    /// The place that an earlier answer gave as `next`.
    pub after: &'a str,
    /// None for the usual number.
    pub limit: Option<usize>,
}

/// A part of a list.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    pub rows: Vec<Value>,
    pub rebuilding: bool,
    /// Where more rows may be; empty after the last.
    pub next: String,
}

impl Rows {
    /// The rows, for whoever has no place to say that some may be missing.
    ///
    /// # Errors
    /// `unavailable` if some may be.
    pub(super) fn whole(self) -> Result<Vec<Value>, Refusal> {
        if self.rebuilding { Err(incomplete()) } else { Ok(self.rows) }
    }
}

impl Service {
    /// A list as people look at it: of tasks, calls and runs also what is over, of the rest what is live. It begins
    /// behind what an earlier one gave as `next`.
    ///
    /// # Errors
    /// `forbidden` for lists that take an operator; `invalid_argument` for a view or a place that there is not, or a
    /// field by which the list cannot be narrowed.
    pub async fn rows(&self, who: &Principal, wanted: Wanted<'_>) -> Result<Rows, Refusal> {
        let Wanted { view, only, after, limit } = wanted;
        policy::require(who, right(view))?;
        if view == "swarms" {
            let swarms = self.entities.swarms().await?;
            let rows = swarms.iter().map(|swarm| json!({ "name": swarm })).collect();
            return Ok(Rows { rows, ..Rows::default() });
        }
        let mut query = query(view, who)?;
        query.limit = limit.unwrap_or(USUAL).clamp(1, LIMIT);
        query.after = cursor::read(&query, after)?;
        if let Some((field, is)) = only {
            query.filters.push(narrowed(view, field, is)?);
        }
        let asked = query.clone();
        // What one entity has is its owner's to show; what many have lies on all nodes.
        let (rows, freshness) = match query.kind.is_singleton() {
            true => self.entities.list(&EntityKey::of(query.kind, &who.swarm), query).await?,
            false => self.entities.list_everywhere(query).await?,
        };
        let (mut rows, next) = page(&asked, rows);
        match view {
            "locks" => self.add_holders(who, &mut rows).await?,
            "tasks" | "tasks-by-priority" => self.leave_out_lost_epics(who, &mut rows).await,
            _ => {}
        }
        Ok(Rows { rows, rebuilding: freshness != Freshness::Fresh, next })
    }
}

/// What runs do, what came from outside, and what is in the letters of each is the operators' to see.
fn right(view: &str) -> Right {
    match view {
        "runs" | "instances" | "dead-letters" | "webhooks" | "runners" | "swarms" | "inbox" => {
            Right::Administer
        }
        _ => Right::Read,
    }
}

/// The fields by which a list can be narrowed.
fn fields(view: &str) -> &'static [&'static str] {
    match view {
        "tasks" | "tasks-by-priority" => &["status", "agentId", "epicId", "scheduleId"],
        "runs" | "instances" => &["agent", "instance"],
        "dead-letters" => &["agent"],
        "calls" => &["callerInstanceId", "targetInstanceId"],
        "messages" => &["channelId"],
        "inbox" => &["agentId", "status"],
        _ => &[],
    }
}

fn narrowed(view: &str, field: &str, is: &str) -> Result<Filter, Refusal> {
    let fields = fields(view);
    if !fields.contains(&field) {
        let problem = match fields {
            [] => format!("`{view}` cannot be listed by {field}; leave the {field} out"),
            fields => format!("`{view}` cannot be listed by {field}, only by {}", fields.join(" or ")),
        };
        return Err(Refusal::new(Code::InvalidArgument, problem));
    }
    Filter::new(field, Test::Eq(is.into()))
}

/// As many of the rows as one answer holds, and where it ends unless nothing comes behind.
fn page(query: &Query, mut found: Vec<Value>) -> (Vec<Value>, String) {
    let mut bytes = 0;
    let fits = found.iter().take_while(|row| {
        bytes += row.to_string().len();
        bytes <= BYTES
    });
    let shown = fits.count().max(1);
    let is_all = found.len() <= shown && found.len() < query.limit;
    found.truncate(shown);
    let next = match found.last() {
        Some(last) if !is_all => cursor::write(query, last),
        _ => String::new(),
    };
    (found, next)
}

/// What a row is shown without: an event may be megabytes long. Whoever asks for the one document has all of it.
fn long_fields(view: &str) -> &'static [&'static str] {
    match view {
        "tasks-by-priority" => &["output", "costData"],
        "dead-letters" => &["input"],
        "webhooks" => &["incoming", "body"],
        _ => &[],
    }
}

/// What the caller is not shown of a row: what calls brought is their own agents' to see, by `check_call`, and the
/// operators'.
fn private_fields(view: &str, who: &Principal) -> &'static [&'static str] {
    match view {
        "calls" if !policy::may(who, Right::Administer) => &["returnValue", "errorMessage"],
        _ => &[],
    }
}

/// Each order ends with a field that tells each document from each, so that a list can go on where another ended.
fn query(view: &str, who: &Principal) -> Result<Query, Refusal> {
    let newest = |field, id| Ok::<_, Refusal>(vec![Order::descending(field)?, Order::ascending(id)?]);
    let of = |kind, document: &str| Query::new(&who.swarm, kind, document);
    let live = |kind, document: &str| Query { live: Some(true), ..of(kind, document) };
    let (mut query, order) = match view {
        "agents" => (live(Kind::Pool, "member"), vec![Order::ascending("id")?]),
        "tasks" => (of(Kind::Pool, "task"), newest("lastUpdatedAt", "id")?),
        // The first two come from an index, also of the tasks of one status.
        "tasks-by-priority" => {
            let order = vec![
                Order::descending("priority")?,
                Order::descending("lastUpdatedAt")?,
                Order::ascending("id")?,
            ];
            (of(Kind::Pool, "task"), order)
        }
        "epics" => {
            let order = vec![
                Order::descending("priority")?,
                Order::descending("createdAt")?,
                Order::ascending("id")?,
            ];
            (live(Kind::Epics, "epic"), order)
        }
        "locks" => (live(Kind::Lockspace, "lock"), vec![Order::ascending("resourceKey")?]),
        "calls" => (of(Kind::Agent, "call"), newest("createdAt", "callId")?),
        // The document of one that is over lives until its instance waits again or ends.
        "waits" => {
            let mut query = live(Kind::Agent, "wait");
            query.filters.push(Filter::new("state", Test::Eq("waiting".into()))?);
            (query, vec![Order::ascending("waitId")?])
        }
        "schedules" => {
            (live(Kind::Schedules, "schedule"), vec![Order::ascending("name")?, Order::ascending("id")?])
        }
        // Those of one moment stand in the order of their channel.
        "messages" => {
            let order =
                vec![Order::descending("createdAt")?, Order::descending("number")?, Order::ascending("id")?];
            (of(Kind::Channels, "message"), order)
        }
        "inbox" => (of(Kind::Inboxes, "message"), newest("createdAt", "id")?),
        "costs" => return costs::reports(who),
        "costs-by-day" => return costs::by_day(who),
        "questions" => return questions::open(who),
        "answers" => return questions::over(who),
        // By when they were asked for: those that failed before they could start have no other time.
        "runs" | "instances" => (of(Kind::Agent, "instance"), newest("createdAt", "instance")?),
        "dead-letters" => (of(Kind::Agent, "dead"), newest("at", "id")?),
        "webhooks" => (live(Kind::Triggers, "receipt"), newest("receivedAt", "receiptId")?),
        "clients" => (live(Kind::Access, "client"), vec![Order::ascending("client")?]),
        "revocations" => (live(Kind::Access, "revocation"), newest("at", "of")?),
        // Fleets stand beside the swarms, since a runner may serve several.
        "runners" => {
            let mut query = Query::new(&EntityKey::fleet(&who.swarm).swarm, Kind::Fleet, "runner");
            query.live = Some(true);
            (query, vec![Order::ascending("runner")?])
        }
        _ => {
            let problem = format!("there is no list `{view}`; use one of {VIEWS}");
            return Err(Refusal::new(Code::InvalidArgument, problem));
        }
    };
    query.order = order;
    let without = long_fields(view).iter().chain(private_fields(view, who));
    query.without = without.map(|field| FieldPath::parse(field)).collect::<Result<_, _>>()?;
    Ok(query)
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use skein_shared::agent::{Agent, Class, Command, Definition, Reply, Report};
    use skein_shared::channels;
    use skein_shared::id::{InstanceId, Name};
    use uuid::Uuid;

    use super::*;
    use crate::auth::Role;
    use crate::entity::Request;
    use crate::entity::tests::{Node, node, swarm};
    use crate::service::messages::Draft;
    use crate::service::programs::Messages;
    use crate::service::swarm::Introduction;

    #[tokio::test]
    async fn messages_of_one_moment_stand_in_the_order_in_which_they_were_posted() {
        const MESSAGES: u64 = 60;
        let node = node();
        let (service, who) = (Service::new(node.entities.clone()), Principal::named("ann", Role::Worker));
        let introduction = Introduction { name: "ann".to_owned(), ..Introduction::default() };
        service.join(&who, Uuid::now_v7(), introduction).await.unwrap();
        let posted = (0..MESSAGES).map(|_| {
            let draft = Draft { content: "hello".to_owned(), ..Draft::default() };
            service.post_message(&who, Uuid::now_v7(), draft)
        });
        for posted in join_all(posted).await {
            posted.unwrap();
        }
        let numbers = |rows: &[Value]| {
            rows.iter().map(|message| message["number"].as_u64().unwrap()).collect::<Vec<u64>>()
        };
        let wanted = Messages { channel: channels::GENERAL, limit: 100, ..Messages::default() };
        let read = service.list_messages(&who, wanted).await.unwrap();
        assert_eq!(numbers(&read), (1..=MESSAGES).collect::<Vec<u64>>());

        let (mut listed, mut after) = (Vec::new(), String::new());
        loop {
            let wanted = Wanted { view: "messages", after: &after, limit: Some(7), ..Wanted::default() };
            let page = service.rows(&who, wanted).await.unwrap();
            listed.extend(page.rows);
            if page.next.is_empty() {
                break;
            }
            after = page.next;
        }
        assert_eq!(numbers(&listed), (1..=MESSAGES).rev().collect::<Vec<u64>>());
    }

    async fn tell(node: &Node, command: Command) -> Reply {
        let key = EntityKey::agent(&swarm(), &Name::parse("worker").unwrap());
        node.entities.ask::<Agent>(&key, Request::once(Uuid::now_v7()), command).await.unwrap()
    }

    #[tokio::test]
    async fn a_run_that_never_started_is_among_the_newest() {
        let node = node();
        let (definition, group) = (Definition::default(), Name::parse("default").unwrap());
        tell(&node, Command::Define { definition, group }).await;
        let queued = async || {
            let (class, source) = (Class::Manual, "test".to_owned());
            let wish = Command::Enqueue { class, source, receipt: None, input: json!({}) };
            let Reply::Queued { instance } = tell(&node, wish).await else { panic!("no run") };
            instance
        };
        let seen = async |instance: InstanceId| {
            let Reply::Instance(seen) = tell(&node, Command::Inspect { instance }).await else {
                panic!("no run")
            };
            seen
        };
        let (started, runner) = (queued().await, "r1".to_owned());
        let bid = seen(started.clone()).await.bid.unwrap();
        tell(&node, Command::Granted { bid, runner: runner.clone() }).await;
        let token = seen(started.clone()).await.token.unwrap();
        let (instance, what) = (started.clone(), Report::Started { pid: None });
        tell(&node, Command::Report { instance, token, runner, what }).await;
        // Times are told in milliseconds.
        let before = node.entities.clock().now();
        while node.entities.clock().now() <= before {
            tokio::task::yield_now().await;
        }
        let failed = queued().await;
        tell(&node, Command::Kill { instance: failed.clone(), reason: "no slot".to_owned() }).await;

        let (service, operator) =
            (Service::new(node.entities.clone()), Principal::named("boss", Role::Operator));
        for view in ["runs", "instances"] {
            let page = async |after: &str| {
                let wanted = Wanted { view, after, limit: Some(1), ..Wanted::default() };
                service.rows(&operator, wanted).await.unwrap()
            };
            let first = page("").await;
            assert_eq!(first.rows[0]["instance"], json!(failed), "{view}");
            assert!(first.rows[0]["startedAt"].is_null(), "{view}");
            let second = page(&first.next).await;
            assert_eq!(second.rows[0]["instance"], json!(started), "{view}");
            assert!(second.rows[0]["startedAt"].is_string(), "{view}");
        }
    }
}
