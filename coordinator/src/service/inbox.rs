//! Inboxes: what people wrote to an agent through Slack or mail.

use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::id::Kind;
use skein_shared::inboxes::{Command, Inboxes, Reply};
use skein_shared::pool::{Create, Rules, Source, Status, Target, TaskSpec};
use skein_shared::text::excerpt;
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

/// Messages that one look at an inbox shows, and how much of each, characters.
const SHOWN: u32 = 5;
const EXCERPT: usize = 1000;

/// What waits in an inbox.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The oldest, with the beginnings of what is long.
    pub messages: Vec<Value>,
    /// How many there are.
    pub count: usize,
}

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

    /// What is open in the lead's inbox, also what it has been given and has not ended.
    ///
    /// # Errors
    /// `forbidden`.
    pub async fn open_messages(&self, who: &Principal) -> Result<Waiting, Refusal> {
        self.require_lead(who).await?;
        let (ids, count) = self.open_in_inbox(who, SHOWN).await?;
        self.waiting(who, &ids, count).await
    }

    /// Shows these messages of the caller's inbox. Those that have gone since they were found are open no more.
    async fn waiting(&self, who: &Principal, ids: &[Uuid], count: usize) -> Result<Waiting, Refusal> {
        let mut messages = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(mut message) = self.message_of(who, *id).await? else { continue };
            let content = excerpt(message["content"].as_str().unwrap_or_default(), EXCERPT);
            message["content"] = content.into();
            messages.push(message);
        }
        let gone = ids.len() - messages.len();
        Ok(Waiting { messages, count: count.saturating_sub(gone) })
    }

    /// How many messages are open in the lead's inbox. None while the inboxes cannot be asked: that undoes nothing of
    /// what the answer is about.
    pub async fn count_open_messages(&self, who: &Principal) -> Option<usize> {
        self.open_in_inbox(who, 0).await.ok().map(|(_, count)| count)
    }

    async fn open_in_inbox(&self, who: &Principal, limit: u32) -> Result<(Vec<Uuid>, usize), Refusal> {
        let open = Command::Open { agent: who.agent, limit };
        match self.ask::<Inboxes>(&who.entity(Kind::Inboxes), open).await? {
            Reply::Open { messages, count } => Ok((messages, usize::try_from(count).unwrap_or(usize::MAX))),
            _ => Err(unexpected("the inboxes")),
        }
    }

    /// A message of the caller's inbox.
    pub(super) async fn own_message(&self, who: &Principal, message: Uuid) -> Result<Value, Refusal> {
        self.message_of(who, message).await?.ok_or_else(|| {
            let problem = format!(
                "there is no message {message} in your inbox; get-inbox-message without an id shows those that are \
                 open"
            );
            Refusal::new(Code::NotFound, problem)
        })
    }

    /// The same, if it is there.
    pub(super) async fn message_of(&self, who: &Principal, message: Uuid) -> Result<Option<Value>, Refusal> {
        policy::require(who, Right::Work)?;
        self.own_member(who).await?;
        let body = self.body(&who.entity(Kind::Inboxes), &format!("message/{message}")).await?;
        let own = body.filter(|body| body["agentId"] == json!(who.agent));
        Ok(own.map(|body| wire::shown(body, &[])))
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
        let text = |field: &str| message[field].as_str().map(str::to_owned);
        let words = delegation.description.or_else(|| text("content")).unwrap_or_default();
        let source = match message["source"].as_str() {
            Some("agentmail") => Source::Agentmail,
            Some("slack") => Source::Slack,
            // The swarm's own word: nobody who wrote waits for what comes of it.
            _ => Source::System,
        };
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
        let task = self.hand_over(who, request, delegation.message, agent, create).await?;
        Ok(Changed { task, repeated: false, warnings: Vec::new() })
    }

    /// The inbox decides, and tells the pool. Gives the task, or what the pool had against it.
    async fn hand_over(
        &self,
        who: &Principal,
        request: Uuid,
        message: Uuid,
        worker: Option<Uuid>,
        create: Create,
    ) -> Result<Value, Refusal> {
        let command = Command::Delegate { agent: who.agent, message, task: Box::new(create.clone()) };
        let command = self.naming(who, worker, command, Command::Denied).await?;
        let reply = self.change::<Inboxes>(&who.entity(Kind::Inboxes), request, command).await?;
        let Reply::Ended(fields) = reply else { return Err(unexpected("the inboxes")) };
        let id = fields["delegatedToTaskId"].as_str().and_then(|id| Uuid::try_parse(id).ok());
        let Some(task) = id else { return Err(unexpected("the inboxes")) };
        let look = || async {
            if let Some(task) = self.task(who, task).await? {
                return Ok(Some(task));
            }
            // Whose it is by now does not matter: what came back is for whoever leads.
            let body = self.body(&who.entity(Kind::Inboxes), &format!("message/{message}")).await?;
            let refused = body.map_or(Value::Null, |mut body| body["delegationRefused"].take());
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

#[cfg(test)]
mod tests {
    use skein_shared::inboxes;

    use super::*;
    use crate::auth::Role;
    use crate::entity::tests::node;
    use crate::service::swarm::Introduction;

    #[tokio::test]
    async fn a_message_that_gives_way_meanwhile_hides_no_other() {
        let node = node();
        let service = Service::new(node.entities.clone());
        let lead = Principal::named("lead", Role::Lead);
        let introduction = Introduction { name: "lead".to_owned(), lead: true, ..Introduction::default() };
        service.join(&lead, Uuid::now_v7(), introduction).await.unwrap();
        let deliver = Command::Deliver(Box::new(inboxes::Deliver {
            agent: lead.agent,
            content: "help".to_owned(),
            source: inboxes::Source::Slack,
            slack: inboxes::Slack::default(),
            mail: None,
            dedupe: None,
        }));
        let key = lead.entity(Kind::Inboxes);
        let delivered = service.change::<Inboxes>(&key, Uuid::now_v7(), deliver).await.unwrap();
        let Reply::Delivered { message, .. } = delivered else { panic!("{delivered:?}") };

        let gone = Uuid::now_v7();
        let waiting = service.waiting(&lead, &[gone, message], 2).await.unwrap();
        assert_eq!((waiting.messages.len(), waiting.count), (1, 1));
        assert_eq!(waiting.messages[0]["id"], json!(message));
        assert_eq!(service.own_message(&lead, gone).await.unwrap_err().code, Code::NotFound);
    }
}
