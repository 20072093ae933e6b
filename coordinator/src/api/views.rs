//! Which documents each list shows.

use serde_json::{Value, json};
use skein_proto::v1::ListRequest;
use skein_shared::id::{EntityKey, Kind, Name};
use skein_shared::{Code, Refusal};

use crate::entity::Entities;
use crate::projection::{FieldPath, Filter, Freshness, LIMIT, Order, Query, Test};

/// Rows of a list that names no limit.
const USUAL: usize = 100;
/// Most bytes of rows in one answer, of which the first is there however long it is. Clients take 4 MiB.
const BYTES: usize = 1 << 20;

pub(super) const VIEWS: &str = "agents, tasks, locks, calls, waits, instances, dead-letters, webhooks, runners, swarms, clients, revocations";

pub(super) struct Rows {
    /// As JSON.
    pub(super) rows: Vec<String>,
    pub(super) rebuilding: bool,
    /// Where more rows may be; empty after the last.
    pub(super) next: String,
}

/// A list as people look at it: of tasks, calls and runs also what is over, of the rest what is live. It begins behind
/// what an earlier one gave as `next`.
///
/// # Errors
/// `invalid_argument` for a view or a place that there is not, or an agent where there is none.
pub(super) async fn list(entities: &Entities, swarm: &Name, asked: &ListRequest) -> Result<Rows, Refusal> {
    let view = asked.view.as_str();
    if view == "swarms" {
        let swarms = entities.swarms().await?;
        let rows = swarms.iter().map(|swarm| json!({"name": swarm}).to_string()).collect();
        return Ok(Rows { rows, rebuilding: false, next: String::new() });
    }
    let mut query = query(view, swarm, asked.limit)?;
    query.after = place(&query, &asked.after)?;
    query.filters.extend(of_agent(view, &asked.agent)?);
    let asked = query.clone();
    // What one entity has is its owner's to show; what many have lies on all nodes.
    let (rows, freshness) = match query.kind.is_singleton() {
        true => entities.list(&EntityKey::of(query.kind, swarm), query).await?,
        false => entities.list_everywhere(query).await?,
    };
    let (rows, next) = page(&asked, &rows);
    Ok(Rows { rows, rebuilding: freshness != Freshness::Fresh, next })
}

/// Leaves out what is not of the agent, if one is named.
fn of_agent(view: &str, agent: &str) -> Result<Option<Filter>, Refusal> {
    if agent.is_empty() {
        return Ok(None);
    }
    if !["instances", "dead-letters"].contains(&view) {
        let problem = format!("`{view}` cannot be listed by agent; leave the agent out");
        return Err(Refusal::new(Code::InvalidArgument, problem));
    }
    let agent = Name::parse(agent)?;
    Ok(Some(Filter::new("agent", Test::Eq(agent.as_str().into()))?))
}

/// Reads where an earlier page ended.
fn place(query: &Query, after: &str) -> Result<Vec<Value>, Refusal> {
    if after.is_empty() {
        return Ok(Vec::new());
    }
    let place: Option<Vec<Value>> = serde_json::from_str(after).ok();
    let of_this_list = |place: &Vec<Value>| place.len() == query.order.len();
    place.filter(of_this_list).ok_or_else(|| {
        let problem =
            format!("`{after}` is no place in this list; give what an earlier answer named as `next`");
        Refusal::new(Code::InvalidArgument, problem)
    })
}

/// As many of the rows as one answer holds, and where it ends unless nothing comes behind.
fn page(query: &Query, found: &[Value]) -> (Vec<String>, String) {
    let (mut rows, mut bytes) = (Vec::new(), 0);
    for row in found {
        let text = row.to_string();
        bytes += text.len();
        if bytes > BYTES && !rows.is_empty() {
            break;
        }
        rows.push(text);
    }
    let is_all = rows.len() == found.len() && found.len() < query.limit;
    let next = match rows.len().checked_sub(1) {
        Some(last) if !is_all => Value::Array(query.place(&found[last])).to_string(),
        _ => String::new(),
    };
    (rows, next)
}

/// What a row is shown without: an event may be megabytes long. Whoever asks for the one document has all of it.
fn long_fields(view: &str) -> &'static [&'static str] {
    match view {
        "dead-letters" => &["input"],
        "webhooks" => &["incoming", "body"],
        _ => &[],
    }
}

/// Each order ends with a field that tells each document from each, so that a list can go on where another ended.
fn query(view: &str, swarm: &Name, limit: u32) -> Result<Query, Refusal> {
    let order = |path: &str, descending| Ok(Order { path: FieldPath::parse(path)?, descending });
    let newest = |field, id| Ok::<_, Refusal>(vec![order(field, true)?, order(id, false)?]);
    let live = |kind, document| {
        let mut query = Query::new(swarm, kind, document);
        query.live = Some(true);
        query
    };
    let (mut query, order) = match view {
        "agents" => (live(Kind::Pool, "member"), vec![order("id", false)?]),
        "tasks" => (Query::new(swarm, Kind::Pool, "task"), newest("lastUpdatedAt", "id")?),
        "locks" => (live(Kind::Lockspace, "lock"), vec![order("resourceKey", false)?]),
        "calls" => (Query::new(swarm, Kind::Agent, "call"), vec![order("callId", false)?]),
        "waits" => (live(Kind::Agent, "wait"), vec![order("waitId", false)?]),
        "instances" => (Query::new(swarm, Kind::Agent, "instance"), newest("startedAt", "instance")?),
        "dead-letters" => (Query::new(swarm, Kind::Agent, "dead"), newest("at", "id")?),
        "webhooks" => (live(Kind::Triggers, "receipt"), newest("receivedAt", "receiptId")?),
        "clients" => (live(Kind::Access, "client"), vec![order("client", false)?]),
        "revocations" => (live(Kind::Access, "revocation"), newest("at", "of")?),
        // Fleets stand beside the swarms, since a runner may serve several.
        "runners" => {
            let mut query = Query::new(&EntityKey::fleet(swarm).swarm, Kind::Fleet, "runner");
            query.live = Some(true);
            (query, vec![order("runner", false)?])
        }
        _ => {
            let problem = format!("there is no list `{view}`; use one of {VIEWS}");
            return Err(Refusal::new(Code::InvalidArgument, problem));
        }
    };
    query.order = order;
    query.without =
        long_fields(view).iter().map(|field| FieldPath::parse(field)).collect::<Result<_, _>>()?;
    query.limit = match usize::try_from(limit).unwrap_or(LIMIT) {
        0 => USUAL,
        limit => limit.min(LIMIT),
    };
    Ok(query)
}
