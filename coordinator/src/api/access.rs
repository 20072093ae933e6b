//! Clients, and the end of tokens.

use std::time::Duration;

use serde_json::{Value, json};
use skein_proto::v1;
use skein_shared::access::Of;
use skein_shared::id::{Name, parse_uuid};
use skein_shared::{Code, Refusal};
use tonic::Request;

use super::Admin;
use crate::auth::token::{LEEWAY, OWN};
use crate::auth::{Rights, Role, View};
use crate::service::access::NewClient;

impl Admin {
    /// The secret is in the answer, this once.
    pub(super) async fn add_client(&self, request: Request<v1::AddClientRequest>) -> Result<Value, Refusal> {
        let asked = request.get_ref();
        let who = self.changes_swarm(&request, &asked.swarm).await?;
        let role: Role = asked.role.parse()?;
        if role == Role::Runner {
            let problem = "a runner has a token of its own: `skein token issue --role runner`";
            return Err(Refusal::new(Code::InvalidArgument, problem));
        }
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let rights = some(&asked.scope).map(|scope| scope.parse::<Rights>()).transpose()?.unwrap_or_default();
        if rights.and(Rights::of(role)).are_none() {
            let problem = format!("a {role} has none of these scopes; it may have {}", Rights::of(role));
            return Err(Refusal::new(Code::InvalidArgument, problem));
        }
        let client = NewClient {
            name: Name::parse(&asked.name)?,
            agent: some(&asked.agent).map(|id| parse_uuid("agent", &id)).transpose()?,
            agent_name: Name::parse(some(&asked.agent_name).as_ref().unwrap_or(&asked.name))?,
            role,
            rights,
            view: some(&asked.view).map(|view| View::parse(&view)).transpose()?,
            lifetime: Duration::from_millis(asked.lifetime_ms),
        };
        let id = format!("{}/{}", who.swarm, client.name);
        let (mut shown, secret) = self.access.add_client(&who, client).await?;
        shown["clientId"] = json!(id);
        shown["secret"] = json!(secret);
        Ok(shown)
    }

    pub(super) async fn remove_client(
        &self,
        request: Request<v1::RemoveClientRequest>,
    ) -> Result<Value, Refusal> {
        let asked = request.get_ref();
        let who = self.changes_swarm(&request, &asked.swarm).await?;
        self.access.remove_client(&who, Name::parse(&asked.name)?).await?;
        Ok(json!({ "removed": asked.name }))
    }

    /// Ends one token, all of an agent, or all of the swarm's agents.
    pub(super) async fn revoke(&self, request: Request<v1::RevokeRequest>) -> Result<Value, Refusal> {
        let asked = request.get_ref();
        if !asked.token.is_empty() {
            self.changes(&request, &asked.swarm).await?;
            let ended = self.access.give_back(&asked.token).await?;
            return ended
                .ok_or_else(|| Refusal::new(Code::Unauthenticated, "the token does not hold anyway"));
        }
        let who = self.changes_swarm(&request, &asked.swarm).await?;
        let of = match (asked.id.as_str(), asked.agent.as_str(), asked.everyone) {
            (id, "", false) if !id.is_empty() => Of::Token(parse_uuid("id", id)?),
            ("", agent, false) if !agent.is_empty() => Of::Agent(parse_uuid("agent", agent)?),
            ("", "", true) => Of::Everyone,
            _ => {
                let problem = "say what to revoke: a token, its id, an agent's id, or everyone";
                return Err(Refusal::new(Code::InvalidArgument, problem));
            }
        };
        // An id does not say how long what it names holds; a node's own tokens hold longest.
        self.access.revoke(&who, of, OWN + LEEWAY).await
    }
}
