//! What people who run the swarm ask for.

use skein_shared::agent::{Agent, Command, Definition, Overview, Reply};
use skein_shared::id::{EntityKey, InstanceId, Kind, Name};
use skein_shared::triggers::{self, Triggers, WaitView};
use skein_shared::{Refusal, fleet};
use uuid::Uuid;

use super::lists::List;
use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};
use crate::projection::Query;

impl Service {
    /// Everything live of one agent: its instances, queue and waits.
    pub async fn agent_overview(&self, who: &Principal, agent: &Name) -> Result<Overview, Refusal> {
        policy::require(who, Right::Read)?;
        match self.ask::<Agent>(&EntityKey::agent(&who.swarm, agent), Command::List).await? {
            Reply::Overview(overview) => Ok(*overview),
            _ => Err(unexpected("the agent")),
        }
    }

    /// Sets what an agent is, and which runner group gives its slots.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers.
    pub async fn define_agent(
        &self,
        who: &Principal,
        request: Uuid,
        agent: &Name,
        definition: Definition,
        group: Name,
    ) -> Result<(), Refusal> {
        policy::require(who, Right::Administer)?;
        let command = Command::Define { definition, group };
        self.change::<Agent>(&EntityKey::agent(&who.swarm, agent), request, command).await.map(|_| ())
    }

    /// Lets an agent take work, or no more.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers.
    pub async fn set_enabled(
        &self,
        who: &Principal,
        request: Uuid,
        agent: &Name,
        enabled: bool,
    ) -> Result<(), Refusal> {
        policy::require(who, Right::Administer)?;
        let command = Command::SetEnabled { enabled };
        self.change::<Agent>(&EntityKey::agent(&who.swarm, agent), request, command).await.map(|_| ())
    }

    /// Ends an instance.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers; `not_found`.
    pub async fn kill(
        &self,
        who: &Principal,
        request: Uuid,
        agent: &Name,
        instance: InstanceId,
        reason: String,
    ) -> Result<(), Refusal> {
        policy::require(who, Right::Administer)?;
        let command = Command::Kill { instance, reason };
        self.change::<Agent>(&EntityKey::agent(&who.swarm, agent), request, command).await.map(|_| ())
    }

    /// Every open wait for a webhook.
    pub async fn list_waits(&self, who: &Principal) -> Result<Vec<WaitView>, Refusal> {
        policy::require(who, Right::Read)?;
        let key = who.entity(Kind::Triggers);
        match self.ask::<Triggers>(&key, triggers::Command::ListWaits).await? {
            triggers::Reply::Waits(waits) => Ok(waits),
            _ => Err(unexpected("the triggers")),
        }
    }

    /// Documents of a type, for tables: `instance`, `call`, `receipt`, ….
    pub async fn documents(
        &self,
        who: &Principal,
        kind: Kind,
        document_type: &str,
        limit: usize,
    ) -> Result<List, Refusal> {
        policy::require(who, Right::Read)?;
        let mut query = Query::new(&who.swarm, kind, document_type);
        query.limit = limit;
        if kind.is_singleton() {
            return self.list(&who.entity(kind), query).await;
        }
        let (rows, freshness) = self.entities.list_everywhere(query).await?;
        Ok(List { rows, freshness })
    }

    /// The runners of a group.
    pub async fn fleet(&self, who: &Principal, group: &Name) -> Result<fleet::Reply, Refusal> {
        policy::require(who, Right::Administer)?;
        self.ask::<fleet::Fleet>(&EntityKey::fleet(group), fleet::Command::List).await
    }
}
