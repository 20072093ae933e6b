//! Inboxes: what people wrote to an agent through Slack or mail.

use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::id::Kind;
use skein_shared::inboxes::{Command, Inboxes, Reply};
use skein_shared::pool::{Create, Rules, Source, Status, Target, TaskSpec};
use skein_shared::{Code, Refusal, wire};
use tokio::time::Instant;
use uuid::Uuid;

use super::tasks::Changed;
use super::{ARRIVAL, Service, unexpected};
use crate::auth::{Principal, Right, policy};

/// Fields that say where a message came from. Its task has them too.
const ORIGIN: [&str; 6] = [
    "slackChannelId",
    "slackThreadTs",
    "slackUserId",
    "agentmailInboxId",
    "agentmailMessageId",
    "agentmailThreadId",
];

/// Hands a message over to a worker.
#[derive(Clone, Debug)]
pub struct Delegation {
    pub message: Uuid,
    pub agent: Uuid,
    /// The message's own text when nothing is said.
    pub description: Option<String>,
    pub offer: bool,
    pub parent: Option<Uuid>,
    pub allow_duplicate: bool,
}

impl Service {
    /// A message of the lead's inbox. Only the lead reads there, and only its own messages.
    ///
    /// # Errors
    /// `forbidden`; `not_found`, also for messages of others.
    pub async fn inbox_message(&self, who: &Principal, message: Uuid) -> Result<Value, Refusal> {
        self.require_lead(who).await?;
        self.own_message(who, message).await
    }

    /// A message of the caller's inbox.
    pub(super) async fn own_message(&self, who: &Principal, message: Uuid) -> Result<Value, Refusal> {
        policy::require(who, Right::Work)?;
        self.own_member(who).await?;
        let body = self.body(&who.entity(Kind::Inboxes), &format!("message/{message}")).await?;
        let own = body.filter(|body| body["agentId"] == json!(who.agent));
        own.map(|body| wire::shown(body, &[])).ok_or_else(|| {
            Refusal::new(Code::NotFound, format!("there is no message {message} in your inbox"))
        })
    }

    /// Makes a task of a message and hands it to a worker. Only the lead does.
    ///
    /// # Errors
    /// `forbidden`, `duplicate`; `not_found`, also when it was answered or delegated before.
    pub async fn delegate(
        &self,
        who: &Principal,
        request: Uuid,
        delegation: Delegation,
    ) -> Result<Changed, Refusal> {
        self.require_lead(who).await?;
        let message = self.inbox_message(who, delegation.message).await?;
        self.must_be_member(who, Some(delegation.agent)).await?;
        let text = |field: &str| message[field].as_str().map(str::to_owned);
        let words = delegation.description.or_else(|| text("content")).unwrap_or_default();
        let source =
            if text("source").as_deref() == Some("agentmail") { Source::Agentmail } else { Source::Slack };
        let mut spec = TaskSpec { parent: delegation.parent, source, ..TaskSpec::new(words) };
        for field in ORIGIN {
            if let Some(value) = text(field) {
                spec.context.insert(field.to_owned(), json!(value));
            }
        }
        let agent = Some(delegation.agent);
        let target = if delegation.offer { Target::Offer { agent } } else { Target::Assign { agent } };
        let rules = Rules::Inbox { allow_duplicate: delegation.allow_duplicate };
        let create = Create { by: Some(who.agent), spec, target, rules, facts: Vec::new() };
        let task = self.hand_over(who, request, delegation.message, create).await?;
        Ok(Changed { task, repeated: false, warnings: Vec::new() })
    }

    /// The inbox decides, and tells the pool. Gives the task, or what the pool had against it.
    async fn hand_over(
        &self,
        who: &Principal,
        request: Uuid,
        message: Uuid,
        create: Create,
    ) -> Result<Value, Refusal> {
        let command = Command::Delegate { agent: who.agent, message, task: Box::new(create.clone()) };
        let reply = self.change::<Inboxes>(&who.entity(Kind::Inboxes), request, command).await?;
        let Reply::Ended(fields) = reply else { return Err(unexpected("the inboxes")) };
        let id = fields["delegatedToTaskId"].as_str().and_then(|id| Uuid::try_parse(id).ok());
        let Some(task) = id else { return Err(unexpected("the inboxes")) };
        let look = || async {
            if let Some(task) = self.task(who, task).await? {
                return Ok(Some(task));
            }
            let refused = self.own_message(who, message).await?["delegationRefused"].take();
            match Refusal::deserialize(&refused) {
                Ok(refusal) if refused["taskId"] == json!(task) => Err(refusal),
                _ => Ok(None),
            }
        };
        let arrived = self.arrival(&[task, message], Instant::now() + ARRIVAL, look).await?;
        let status =
            if matches!(create.target, Target::Offer { .. }) { Status::Offered } else { Status::Pending };
        Ok(arrived.unwrap_or_else(|| json!({ "id": task, "task": create.spec.task, "status": status })))
    }

    /// Notes that the caller answered a message.
    ///
    /// # Errors
    /// `not_found`, `wrong_state`.
    pub async fn respond(
        &self,
        who: &Principal,
        request: Uuid,
        message: Uuid,
        text: String,
    ) -> Result<Value, Refusal> {
        policy::require(who, Right::Work)?;
        let command = Command::Respond { agent: who.agent, message, text };
        match self.change::<Inboxes>(&who.entity(Kind::Inboxes), request, command).await? {
            Reply::Ended(changes) => Ok(changes),
            _ => Err(unexpected("the inboxes")),
        }
    }
}
