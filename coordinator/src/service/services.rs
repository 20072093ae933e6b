//! Services: programs that agents keep running for others.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use skein_shared::Refusal;
use skein_shared::id::Kind;
use skein_shared::services::{Command, Health, Register, Reply, Services, Wanted};
use skein_shared::which::Which;
use uuid::Uuid;

use super::read::id_of;
use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};

impl Service {
    /// Where others reach the service of an agent that does not say it.
    pub fn service_url(&self, agent: Uuid) -> String {
        format!("https://{agent}.{}", self.services_domain)
    }

    /// Makes the caller's service known, or changes it. Says whether it is new.
    ///
    /// # Errors
    /// `too_large` and `invalid_argument` for what cannot be kept; `not_found` for a caller that has not joined.
    pub async fn register_service(
        &self,
        who: &Principal,
        request: Uuid,
        register: Register,
    ) -> Result<(Value, bool), Refusal> {
        policy::require(who, Right::Work)?;
        self.own_member(who).await?;
        let register = Command::Register(Box::new(Register { agent: who.agent, ..register }));
        match self.change::<Services>(&who.entity(Kind::Services), request, register).await? {
            Reply::Registered { service, new } => Ok((service, new)),
            _ => Err(unexpected("the services")),
        }
    }

    /// Takes a service out of the list: the caller's own, or any if it leads or administers.
    ///
    /// # Errors
    /// `not_found`; `forbidden` for another agent's.
    pub async fn unregister_service(
        &self,
        who: &Principal,
        request: Uuid,
        which: Which,
    ) -> Result<Value, Refusal> {
        policy::require_arranging(who)?;
        let lead = self.caller(who).await?.lead;
        self.on_service(who, request, Command::Unregister { by: who.agent, which, lead }).await
    }

    /// Says how the caller's service fares.
    ///
    /// # Errors
    /// `not_found`; `forbidden` for another agent's.
    pub async fn set_service_health(
        &self,
        who: &Principal,
        request: Uuid,
        which: Which,
        health: Health,
    ) -> Result<Value, Refusal> {
        policy::require(who, Right::Work)?;
        self.on_service(who, request, Command::SetHealth { by: who.agent, which, health }).await
    }

    /// Services with the names of their agents, the healthiest first, and how many more there are than a list shows.
    pub async fn list_services(
        &self,
        who: &Principal,
        wanted: Wanted,
    ) -> Result<(Vec<Value>, usize), Refusal> {
        policy::require(who, Right::Read)?;
        let list = Command::List(wanted);
        let found = self.ask::<Services>(&who.entity(Kind::Services), list).await?;
        let Reply::List { mut services, left_out } = found else { return Err(unexpected("the services")) };
        if services.is_empty() {
            return Ok((services, left_out));
        }
        let members = self.survey(who).await?.members;
        let names: BTreeMap<Uuid, String> =
            members.into_iter().map(|member| (member.id, member.name)).collect();
        for service in &mut services {
            if let Some(name) = id_of(service, "agentId").and_then(|agent| names.get(&agent)) {
                service["agentName"] = json!(name);
            }
        }
        Ok((services, left_out))
    }

    async fn on_service(&self, who: &Principal, request: Uuid, command: Command) -> Result<Value, Refusal> {
        match self.change::<Services>(&who.entity(Kind::Services), request, command).await? {
            Reply::Service(service) => Ok(service),
            _ => Err(unexpected("the services")),
        }
    }
}
