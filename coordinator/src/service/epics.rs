//! Epics: goals that gather tasks.

use serde_json::{Value, json};
use skein_shared::epics::{Command, Create, Epics, Reply, Status, Update};
use skein_shared::id::Kind;
use skein_shared::which::Which;
use skein_shared::{Refusal, wire};
use tokio::time::Instant;
use uuid::Uuid;

use super::read::id_of;
use super::{ARRIVAL, Service, unexpected};
use crate::auth::{Principal, Right, policy};

impl Service {
    /// Makes an epic and its channel, and gives both; null for a channel that the channels did not take.
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
        let (agent, create) = (create.lead, Create { creator: who.as_agent(), ..create });
        let command = Command::Create(Box::new(create));
        let command = self.naming(who, agent, command, Command::Denied).await?;
        match self.change::<Epics>(&who.entity(Kind::Epics), request, command).await? {
            Reply::Created(epic) => self.with_channel(who, epic).await,
            _ => Err(unexpected("the epics")),
        }
    }

    /// A new epic with its channel, which an effect makes: with its id alone where it cannot be looked at yet.
    async fn with_channel(&self, who: &Principal, epic: Value) -> Result<(Value, Value), Refusal> {
        let (Some(id), Some(channel)) = (id_of(&epic, "id"), id_of(&epic, "channelId")) else {
            return Err(unexpected("the epics"));
        };
        let look = || self.channel_or_refusal(who, id, channel);
        let found = self.arrival(&[id, channel], Instant::now() + ARRIVAL, look).await.ok().flatten();
        Ok(match found {
            Some(Ok(made)) => (epic, wire::shown(made, &[])),
            Some(Err(without)) => (wire::shown(without, &[]), Value::Null),
            None => (epic, json!({ "id": channel })),
        })
    }

    /// The channel of an epic, or else the epic that has none; nothing as long as the channels have not answered.
    async fn channel_or_refusal(
        &self,
        who: &Principal,
        epic: Uuid,
        channel: Uuid,
    ) -> Result<Option<Result<Value, Value>>, Refusal> {
        let made = self.body(&who.entity(Kind::Channels), &format!("channel/{channel}")).await?;
        if let Some(made) = made {
            return Ok(Some(Ok(made)));
        }
        let epic = self.body(&who.entity(Kind::Epics), &format!("epic/{epic}")).await?;
        Ok(epic.filter(|epic| epic["channelProblem"].is_string()).map(Err))
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
        policy::require_arranging(who)?;
        let (agent, update) = (update.lead.flatten(), Update { by: self.caller(who).await?, ..update });
        let command = Command::Update(Box::new(update));
        let command = self.naming(who, agent, command, Command::Denied).await?;
        match self.change::<Epics>(&who.entity(Kind::Epics), request, command).await? {
            // It is changed, whether it can be looked at or not.
            Reply::Epic { id, name, status } => {
                let found = self.find_epic(who, Which::Id(id)).await;
                Ok(found.map_or_else(|_| brief(id, &name, status), |(_, epic)| epic))
            }
            _ => Err(unexpected("the epics")),
        }
    }

    /// Deletes an epic. Its tasks stay, and so does its channel, whose id comes with the epic's name.
    ///
    /// # Errors
    /// `forbidden` unless the caller made it or leads the swarm; `not_found`.
    pub async fn delete_epic(
        &self,
        who: &Principal,
        request: Uuid,
        which: Which,
    ) -> Result<(String, Option<Uuid>), Refusal> {
        policy::require_arranging(who)?;
        let by = self.caller(who).await?;
        match self.change::<Epics>(&who.entity(Kind::Epics), request, Command::Delete { which, by }).await? {
            Reply::Deleted { name, channel, .. } => Ok((name, channel)),
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
}

/// What the entity itself says of an epic.
fn brief(id: Uuid, name: &str, status: Status) -> Value {
    json!({ "id": id, "name": name, "status": status })
}

#[cfg(test)]
mod tests {
    use skein_shared::epics::Texts;

    use super::*;
    use crate::auth::Role;
    use crate::entity::tests::node;

    #[tokio::test]
    async fn a_new_epic_whose_channel_is_refused_is_given_without_one() {
        let node = node();
        let (service, who) = (Service::new(node.entities.clone()), Principal::named("lead", Role::Lead));
        let key = who.entity(Kind::Epics);
        let texts = Texts { goal: Some("ship it".to_owned()), ..Texts::default() };
        let create = Create { name: "Launch".to_owned(), creator: None, lead: None, priority: 50, texts };
        let create = Command::Create(Box::new(create));
        let Ok(Reply::Created(epic)) = service.change::<Epics>(&key, Uuid::now_v7(), create).await else {
            panic!("no epic")
        };
        let channel = id_of(&epic, "channelId").unwrap();
        let refused = Command::ChannelRefused { channel, problem: "there are too many".to_owned() };
        let refusing = service.change::<Epics>(&key, Uuid::now_v7(), refused);
        let (given, refused) = tokio::join!(service.with_channel(&who, epic), refusing);
        let (epic, channel) = given.unwrap();
        assert_eq!(refused, Ok(Reply::Done));
        assert_eq!((&channel, &epic["channelId"]), (&Value::Null, &Value::Null));
        assert_eq!(
            (&epic["name"], &epic["channelProblem"]),
            (&json!("Launch"), &json!("there are too many"))
        );
    }
}
