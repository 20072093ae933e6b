//! Whether the instance that a token was made for still runs.

use skein_shared::agent::{Agent, Command};
use skein_shared::id::{Kind, Name};
use skein_shared::{Code, Refusal};

use super::Service;
use crate::auth::Principal;
use crate::projection::{Filter, Query, Test};

impl Service {
    /// Lets a run of a runner pass while it lives. A hand-made token is its own instance and has no end.
    ///
    /// # Errors
    /// `unauthenticated` once the run has ended: what it asks for then would be held by nobody.
    pub async fn require_live(&self, who: &Principal) -> Result<(), Refusal> {
        if !who.managed {
            return Ok(());
        }
        let inspect = Command::Inspect { instance: who.instance.clone() };
        match self.ask::<Agent>(&who.own_agent(), inspect).await {
            Ok(_) => Ok(()),
            Err(refusal) if refusal.code == Code::NotFound => Err(Refusal::new(
                Code::Unauthenticated,
                format!("the run {} has ended, and its token with it; a new run gets its own", who.instance),
            )),
            Err(refusal) => Err(refusal),
        }
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
