//! The runs of agents: which there are, and whether the one that a token was made for still runs.

use skein_shared::agent::{Agent, Command};
use skein_shared::id::{Kind, Name};
use skein_shared::{Code, Refusal};

use super::Service;
use super::views::Rows;
use crate::auth::{Principal, Right, policy};
use crate::entity::{Entities, Request};
use crate::projection::{Filter, Freshness, LIMIT, Order, Query, Test};

/// Most runs that are listed.
pub const MOST: usize = LIMIT;

/// Which runs are listed.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a> {
    /// Of this agent alone.
    pub agent: Option<&'a Name>,
    /// Without those that have ended.
    pub live: bool,
    pub limit: usize,
}

/// As [`Service::require_live`].
pub(super) async fn require_live(entities: &Entities, who: &Principal) -> Result<(), Refusal> {
    if !who.managed {
        return Ok(());
    }
    let inspect = Command::Inspect { instance: who.instance.clone() };
    match entities.ask::<Agent>(&who.own_agent(), Request::read(), inspect).await {
        Ok(_) => Ok(()),
        Err(refusal) if refusal.code == Code::NotFound => Err(Refusal::new(
            Code::Unauthenticated,
            format!("the run {} has ended, and its token with it; a new run gets its own", who.instance),
        )),
        Err(refusal) => Err(refusal),
    }
}

impl Service {
    /// The runs of the swarm or of one agent, the latest first.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers.
    pub async fn instances(&self, who: &Principal, wanted: Runs<'_>) -> Result<Rows, Refusal> {
        policy::require(who, Right::Administer)?;
        let mut query = Query::new(&who.swarm, Kind::Agent, "instance");
        if let Some(agent) = wanted.agent {
            query.filters.push(Filter::new("agent", Test::Eq(agent.as_str().into()))?);
        }
        query.live = wanted.live.then_some(true);
        query.order = vec![Order::descending("createdAt")?, Order::descending("instance")?];
        query.limit = wanted.limit.min(MOST);
        let (rows, freshness) = self.entities.list_everywhere(query).await?;
        Ok(Rows { rows, rebuilding: freshness != Freshness::Fresh, ..Rows::default() })
    }

    /// Lets a run of a runner pass while it lives. A hand-made token is its own instance and has no end.
    ///
    /// # Errors
    /// `unauthenticated` once the run has ended: what it asks for then would be held by nobody.
    pub async fn require_live(&self, who: &Principal) -> Result<(), Refusal> {
        require_live(&self.entities, who).await
    }

    /// The agent that an instance is a run of, also of one that has ended.
    ///
    /// # Errors
    /// `not_found`; `unavailable` while not all nodes can be asked for it.
    pub async fn agent_of(&self, swarm: &Name, instance: &str) -> Result<Name, Refusal> {
        let mut query = Query::new(swarm, Kind::Agent, "instance");
        query.filters.push(Filter::new("instance", Test::Eq(instance.into()))?);
        let rows = self.entities.look_up(query).await?;
        let agent = rows.first().and_then(|row| row["agent"].as_str());
        let unknown = || {
            let problem = format!(
                "there is no instance `{instance}` in swarm `{swarm}`; `skein instances list` names them"
            );
            Refusal::new(Code::NotFound, problem)
        };
        Name::parse(agent.ok_or_else(unknown)?)
    }
}

#[cfg(test)]
mod tests {

    use uuid::Uuid;

    use super::*;
    use crate::auth::Role;
    use crate::entity::tests::{lists, node, swarm};

    #[tokio::test]
    async fn what_cannot_be_looked_for_everywhere_is_not_said_to_be_unknown() {
        let node = node();
        let service = Service::new(node.entities.clone());
        let operator = Principal::named("boss", Role::Operator);
        let letter = Uuid::from_u128(1);
        let looked_for = async |instance: &str| {
            [
                service.agent_of(&swarm(), instance).await.map(drop).map_err(|refusal| refusal.code),
                service.runs(&operator, instance, None).await.map(drop).map_err(|refusal| refusal.code),
                service.runs(&operator, "worker", None).await.map(drop).map_err(|refusal| refusal.code),
                service.dead_letter(&operator, letter).await.map(drop).map_err(|refusal| refusal.code),
            ]
        };
        let hold = lists::arriving(&node, "worker-1").await;
        tokio::time::pause();
        assert_eq!(looked_for("worker-1").await, [Err(Code::Unavailable); 4]);
        tokio::time::resume();
        drop(hold);
        assert_eq!(looked_for("worker-1").await, [Ok(()), Ok(()), Ok(()), Err(Code::NotFound)]);
        let (unknown, known) = (Err(Code::NotFound), Ok(()));
        assert_eq!(looked_for("worker-2").await, [unknown, unknown, known, unknown]);
    }
}
