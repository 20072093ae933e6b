//! Which documents each list shows.

use serde_json::{Value, json};
use skein_shared::id::{EntityKey, Kind, Name};
use skein_shared::{Code, Refusal};

use crate::entity::Entities;
use crate::projection::{FieldPath, Filter, Freshness, Order, ProjectionError, Query, Test};

/// Rows of a list that names no limit, and the most that one may ask for.
const USUAL: usize = 100;
const MOST: usize = 5000;

/// The read side may be this far behind before a list says so.
const CATCH_UP: std::time::Duration = std::time::Duration::from_secs(2);

pub(super) const VIEWS: &str = "agents, tasks, locks, calls, waits, instances, runners, swarms";

pub(super) struct Rows {
    pub(super) rows: Vec<Value>,
    pub(super) rebuilding: bool,
}

/// A list as people look at it: of tasks, calls and runs also what is over, of the rest what is live.
pub(super) async fn list(entities: &Entities, view: &str, swarm: &Name, limit: u32) -> Result<Rows, Refusal> {
    if view == "swarms" {
        let swarms = entities.swarms().await?;
        let rows = swarms.iter().map(|swarm| json!({"name": swarm})).collect();
        return Ok(Rows { rows, rebuilding: false });
    }
    let query = query(view, swarm, limit)?;
    let rebuilding = !caught_up(entities, &query).await;
    let rows = entities.shared().projection.list(query).await.map_err(unreadable)?;
    Ok(Rows { rows, rebuilding })
}

/// The agent that an instance is a run of.
///
/// # Errors
/// `not_found`.
pub(super) async fn agent_of(entities: &Entities, swarm: &Name, instance: &str) -> Result<Name, Refusal> {
    let mut query = Query::new(swarm, Kind::Agent, "instance");
    query.filters.push(Filter::new("instance", Test::Eq(instance.into()))?);
    caught_up(entities, &query).await;
    let rows = entities.shared().projection.list(query).await.map_err(unreadable)?;
    let agent = rows.first().and_then(|row| row["agent"].as_str());
    let unknown = || {
        let problem = format!(
            "there is no instance `{instance}` in swarm `{swarm}`; `skein instances list` names them"
        );
        Refusal::new(Code::NotFound, problem)
    };
    Name::parse(agent.ok_or_else(unknown)?)
}

fn unreadable(error: ProjectionError) -> Refusal {
    Refusal::new(Code::Unavailable, format!("{error}; try again in a moment")).retry_after(500)
}

fn query(view: &str, swarm: &Name, limit: u32) -> Result<Query, Refusal> {
    let live = |kind, document| {
        let mut query = Query::new(swarm, kind, document);
        query.live = Some(true);
        query
    };
    let mut query = match view {
        "agents" => live(Kind::Pool, "member"),
        "tasks" => {
            let mut query = Query::new(swarm, Kind::Pool, "task");
            query.order = vec![Order { path: FieldPath::parse("lastUpdatedAt")?, descending: true }];
            query
        }
        "locks" => live(Kind::Lockspace, "lock"),
        "calls" => Query::new(swarm, Kind::Agent, "call"),
        "waits" => live(Kind::Agent, "wait"),
        "instances" => {
            let mut query = Query::new(swarm, Kind::Agent, "instance");
            query.order = vec![Order { path: FieldPath::parse("startedAt")?, descending: true }];
            query
        }
        // Fleets stand beside the swarms, since a runner may serve several.
        "runners" => {
            let mut query = Query::new(&EntityKey::fleet(swarm).swarm, Kind::Fleet, "runner");
            query.live = Some(true);
            query
        }
        _ => {
            let problem = format!("there is no list `{view}`; use one of {VIEWS}");
            return Err(Refusal::new(Code::InvalidArgument, problem));
        }
    };
    query.limit = match usize::try_from(limit).unwrap_or(MOST) {
        0 => USUAL,
        limit => limit.min(MOST),
    };
    Ok(query)
}

/// Waits until the read side shows what was acknowledged before. An entity that several documents of a list
/// come from is asked for each of its owners in memory; others have not changed since this process began.
async fn caught_up(entities: &Entities, query: &Query) -> bool {
    if !entities.shared().projection.whole(CATCH_UP).await {
        return false;
    }
    let concerned = entities
        .in_memory()
        .into_iter()
        .map(|(key, _)| key)
        .filter(|key| key.kind == query.kind && key.swarm == query.swarm);
    for key in concerned {
        let Ok(version) = entities.version(&key).await else { return false };
        let projection = &entities.shared().projection;
        if projection.caught_up(&key, version, CATCH_UP).await != Freshness::Fresh {
            return false;
        }
    }
    true
}
