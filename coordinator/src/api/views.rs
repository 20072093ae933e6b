//! Which documents each list shows.

use serde_json::{Value, json};
use skein_shared::id::{EntityKey, Kind, Name};
use skein_shared::{Code, Refusal};

use crate::entity::Entities;
use crate::projection::{FieldPath, Filter, Freshness, Order, Query, Test};

/// Rows of a list that names no limit, and the most that one may ask for.
const USUAL: usize = 100;
const MOST: usize = 5000;

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
    // What one entity has is its owner's to show; what many have lies on all nodes.
    let (rows, freshness) = match query.kind.is_singleton() {
        true => entities.list(&EntityKey::of(query.kind, swarm), query).await?,
        false => entities.list_everywhere(query).await?,
    };
    Ok(Rows { rows, rebuilding: freshness != Freshness::Fresh })
}

/// The agent that an instance is a run of.
///
/// # Errors
/// `not_found`.
pub(super) async fn agent_of(entities: &Entities, swarm: &Name, instance: &str) -> Result<Name, Refusal> {
    let mut query = Query::new(swarm, Kind::Agent, "instance");
    query.filters.push(Filter::new("instance", Test::Eq(instance.into()))?);
    let (rows, _) = entities.list_everywhere(query).await?;
    let agent = rows.first().and_then(|row| row["agent"].as_str());
    let unknown = || {
        let problem = format!(
            "there is no instance `{instance}` in swarm `{swarm}`; `skein instances list` names them"
        );
        Refusal::new(Code::NotFound, problem)
    };
    Name::parse(agent.ok_or_else(unknown)?)
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
