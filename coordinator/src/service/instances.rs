//! The runs of agents: which there are, and whether the one that a token was made for still runs.

use serde_json::Value;
use skein_shared::agent::{Agent, Command};
use skein_shared::id::{Kind, Name};
use skein_shared::{Code, Refusal};

use super::Service;
use crate::auth::{Principal, Right, policy};
use crate::entity::{Entities, Request};
use crate::projection::{Filter, LIMIT, Order, Query, Test};

/// Most runs that are listed.
pub const MOST: usize = LIMIT;

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
    /// The latest runs of the swarm or of one agent, also those that have ended, the latest first.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers.
    pub async fn instances(
        &self,
        who: &Principal,
        agent: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<Value>, Refusal> {
        policy::require(who, Right::Administer)?;
        let mut query = Query::new(&who.swarm, Kind::Agent, "instance");
        if let Some(agent) = agent {
            query.filters.push(Filter::new("agent", Test::Eq(agent.as_str().into()))?);
        }
        query.order = vec![Order::descending("createdAt")?, Order::descending("instance")?];
        query.limit = limit.min(MOST);
        Ok(self.entities.list_everywhere(query).await?.0)
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
    /// `not_found`.
    pub async fn agent_of(&self, swarm: &Name, instance: &str) -> Result<Name, Refusal> {
        let mut query = Query::new(swarm, Kind::Agent, "instance");
        query.filters.push(Filter::new("instance", Test::Eq(instance.into()))?);
        let (rows, _) = self.entities.list_everywhere(query).await?;
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
