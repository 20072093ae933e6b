//! Mail: which of the swarm's inboxes at AgentMail are whose.

use serde_json::Value;
use skein_shared::id::{Kind, derived};
use skein_shared::mail::{Command, Mail, Reply};
use skein_shared::{Code, Refusal};
use tracing::debug;
use uuid::Uuid;

use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};

impl Service {
    /// Lets the mail of an inbox come to the caller. Gives the caller's inboxes, the newest first.
    ///
    /// # Errors
    /// `not_joined`; `forbidden` for another agent's inbox, unless the caller leads.
    pub async fn register_inbox(
        &self,
        who: &Principal,
        request: Uuid,
        inbox: String,
        email: Option<String>,
    ) -> Result<Vec<Value>, Refusal> {
        self.may_have_inboxes(who).await?;
        let by = self.caller(who).await?;
        self.mail(who, request, Command::Register { by, agent: who.agent, inbox, email }).await
    }

    /// Gives an inbox of the caller up. Gives those that are left.
    ///
    /// # Errors
    /// `not_joined`, `not_found`; `forbidden` for another agent's inbox.
    pub async fn unregister_inbox(
        &self,
        who: &Principal,
        request: Uuid,
        inbox: String,
    ) -> Result<Vec<Value>, Refusal> {
        self.may_have_inboxes(who).await?;
        self.mail(who, request, Command::Unregister { agent: who.agent, inbox }).await
    }

    /// The caller's inboxes, the newest first.
    ///
    /// # Errors
    /// `not_joined`.
    pub async fn inboxes(&self, who: &Principal) -> Result<Vec<Value>, Refusal> {
        self.may_have_inboxes(who).await?;
        let list = Command::List { agent: who.agent };
        listed(self.ask::<Mail>(&who.entity(Kind::Mail), list).await?)
    }

    /// Makes the inboxes of an agent that left nobody's, so that others may have them and there is room for theirs.
    /// While the mail cannot be asked they stay, and the lead, who gets what comes to them, may take them over.
    pub(super) async fn give_up_inboxes(&self, who: &Principal, request: Uuid, agent: Uuid) {
        if let Err(refusal) = self.unregister_all(who, request, agent).await {
            debug!(problem = %refusal.message, "the inboxes of an agent that left stay registered");
        }
    }

    async fn unregister_all(&self, who: &Principal, request: Uuid, agent: Uuid) -> Result<(), Refusal> {
        let own = listed(self.ask::<Mail>(&who.entity(Kind::Mail), Command::List { agent }).await?)?;
        for inbox in own.iter().filter_map(|address| address["inboxId"].as_str()) {
            let (request, inbox) = (derived(request, &format!("inbox {inbox}")), inbox.to_owned());
            match self.mail(who, request, Command::Unregister { agent, inbox }).await {
                // The lead has taken it over meanwhile.
                Err(refusal) if !matches!(refusal.code, Code::NotFound | Code::Forbidden) => {
                    return Err(refusal);
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn may_have_inboxes(&self, who: &Principal) -> Result<(), Refusal> {
        policy::require(who, Right::Work)?;
        self.own_member(who).await.map(|_| ())
    }

    async fn mail(&self, who: &Principal, request: Uuid, command: Command) -> Result<Vec<Value>, Refusal> {
        listed(self.change::<Mail>(&who.entity(Kind::Mail), request, command).await?)
    }
}

fn listed(reply: Reply) -> Result<Vec<Value>, Refusal> {
    match reply {
        Reply::Addresses(addresses) => Ok(addresses),
        Reply::Done => Err(unexpected("the mail")),
    }
}
