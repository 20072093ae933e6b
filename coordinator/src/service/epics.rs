//! Epics: goals that gather tasks.

use serde_json::{Value, json};
use skein_shared::epics::{Command, Create, Epics, Reply, Status, Update};
use skein_shared::id::Kind;
use skein_shared::which::Which;
use skein_shared::{Code, Refusal, wire};
use tokio::time::Instant;
use uuid::Uuid;

use super::{ARRIVAL, Service, unexpected};
use crate::auth::{Principal, Right, policy};

impl Service {
    /// Makes an epic and its channel, and gives both.
    ///
    /// # Errors
    /// `forbidden` unless the caller leads; `already_exists` for a taken name; `not_found` for its lead.
    pub async fn create_epic(
        &self,
        who: &Principal,
        request: Uuid,
        create: Create,
    ) -> Result<(Value, Value), Refusal> {
        self.require_lead(who).await?;
        self.must_be_member(who, create.lead).await?;
        let create = Create { creator: Some(who.agent), ..create };
        match self
            .change::<Epics>(&who.entity(Kind::Epics), request, Command::Create(Box::new(create)))
            .await?
        {
            Reply::Created(epic) => {
                let channel = self.channel_of(who, &epic).await?;
                Ok((epic, channel))
            }
            _ => Err(unexpected("the epics")),
        }
    }

    /// The channel of a new epic, which an effect makes; its id alone where it cannot be looked at yet.
    async fn channel_of(&self, who: &Principal, epic: &Value) -> Result<Value, Refusal> {
        let id = epic["channelId"].as_str().and_then(|id| Uuid::try_parse(id).ok());
        let id = id.ok_or_else(|| unexpected("the epics"))?;
        let (key, document) = (who.entity(Kind::Channels), format!("channel/{id}"));
        let found = self.arrival(&[id], Instant::now() + ARRIVAL, || self.body(&key, &document)).await;
        Ok(found.ok().flatten().map_or_else(|| json!({ "id": id }), |body| wire::shown(body, &[])))
    }

    /// Changes what is given.
    ///
    /// # Errors
    /// `forbidden` unless the caller made it, leads it or leads the swarm; `not_found`; `already_exists`.
    pub async fn update_epic(
        &self,
        who: &Principal,
        request: Uuid,
        update: Update,
    ) -> Result<Value, Refusal> {
        policy::require(who, Right::Work)?;
        self.must_be_member(who, update.lead.flatten()).await?;
        let update = Update { by: self.caller(who).await?, ..update };
        let key = who.entity(Kind::Epics);
        match self.change::<Epics>(&key, request, Command::Update(Box::new(update))).await? {
            // It is changed, whether it can be looked at or not.
            Reply::Epic { id, name, status } => {
                let found = self.find_epic(who, Which::Id(id)).await;
                Ok(found.map_or_else(|_| brief(id, &name, status), |(_, epic)| epic))
            }
            _ => Err(unexpected("the epics")),
        }
    }

    /// Deletes an epic. Its tasks and its channel stay.
    ///
    /// # Errors
    /// `forbidden` unless the caller made it or leads the swarm; `not_found`.
    pub async fn delete_epic(
        &self,
        who: &Principal,
        request: Uuid,
        which: Which,
    ) -> Result<(Uuid, String), Refusal> {
        policy::require(who, Right::Work)?;
        let by = self.caller(who).await?;
        match self.change::<Epics>(&who.entity(Kind::Epics), request, Command::Delete { which, by }).await? {
            Reply::Deleted { id, name } => Ok((id, name)),
            _ => Err(unexpected("the epics")),
        }
    }

    /// An epic by name or id, with its progress.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn find_epic(&self, who: &Principal, which: Which) -> Result<(Uuid, Value), Refusal> {
        policy::require(who, Right::Read)?;
        let key = who.entity(Kind::Epics);
        let Reply::Epic { id, name, status } = self.ask::<Epics>(&key, Command::Get { which }).await? else {
            return Err(unexpected("the epics"));
        };
        let body = self.body(&key, &format!("epic/{id}")).await?;
        let shown = body.map(|body| wire::shown(body, &[]));
        Ok((id, shown.unwrap_or_else(|| brief(id, &name, status))))
    }

    /// A named agent must be a member of the swarm.
    pub(super) async fn must_be_member(&self, who: &Principal, agent: Option<Uuid>) -> Result<(), Refusal> {
        let Some(agent) = agent else { return Ok(()) };
        match self.member(who, agent).await? {
            Some(_) => Ok(()),
            None => Err(Refusal::new(
                Code::NotFound,
                format!("there is no agent {agent} in this swarm; get-swarm lists its members"),
            )),
        }
    }
}

/// What the entity itself says of an epic.
fn brief(id: Uuid, name: &str, status: Status) -> Value {
    json!({ "id": id, "name": name, "status": status })
}
