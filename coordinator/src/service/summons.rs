//! What a program that only polls is to do next, one thing at a time: the seed's runner loop (spec: Agent Swarm 5.2).

use serde_json::{Value, json};
use skein_shared::channels::{self, Channels};
use skein_shared::epics::{self, Epics};
use skein_shared::id::{Kind, derived};
use skein_shared::inboxes::{self, Inboxes};
use skein_shared::pool::{Command, Pool, Reply};
use skein_shared::which::Which;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};

/// Messages of the inbox that a lead gets at a time.
const MESSAGES: u32 = 5;

/// One thing to do.
#[derive(Clone, Debug)]
pub enum Summons {
    /// An offer to decide about, which now is under review.
    Offered(Value),
    /// A task that the caller now works on.
    Assigned(Value),
    /// Channels with new mentions, and how many these are.
    Mentioned { mentions: usize, channels: Vec<Uuid> },
    /// What people wrote to the lead.
    Wrote(Vec<Value>),
    /// Epics whose tasks have ended: `{epic, finishedTasks}`.
    Progressed(Vec<Value>),
}

impl Service {
    /// Offers first, then the caller's own tasks, mentions, and what its role has: the inbox and the epics of a lead, for a
    /// worker a task of the pool, which is claimed for it.
    ///
    /// # Errors
    /// `not_joined`.
    pub async fn next_summons(&self, who: &Principal, request: Uuid) -> Result<Option<Summons>, Refusal> {
        policy::require(who, Right::Work)?;
        let member = self.own_member(who).await?;
        if let Some(found) = self.own_work(who, request).await? {
            return Ok(Some(found));
        }
        if let Some(found) = self.new_mentions(who, request).await? {
            return Ok(Some(found));
        }
        if member["isLead"] != true {
            return self.pool_work(who, request).await;
        }
        match self.new_messages(who, request).await? {
            None => self.epics_news(who, request).await,
            found => Ok(found),
        }
    }

    async fn own_work(&self, who: &Principal, request: Uuid) -> Result<Option<Summons>, Refusal> {
        let key = who.entity(Kind::Pool);
        let review = Command::Review { agent: who.agent };
        if let (Reply::Reviewing { task: Some(task) }, body) =
            self.change_shown::<Pool>(&key, derived(request, "review"), review).await?
        {
            return Ok(Some(Summons::Offered(self.shown(who, &task, body).await?)));
        }
        let (agent, instance, managed) = (who.agent, who.instance.clone(), who.managed);
        let poll = Command::Poll { agent, instance, managed, last: false };
        match self.change_shown::<Pool>(&key, derived(request, "poll"), poll).await? {
            (Reply::Polled { task: Some(task), .. }, body) => {
                Ok(Some(Summons::Assigned(self.shown(who, &task, body).await?)))
            }
            (Reply::Polled { .. }, _) => Ok(None),
            _ => Err(unexpected("the pool")),
        }
    }

    async fn pool_work(&self, who: &Principal, request: Uuid) -> Result<Option<Summons>, Refusal> {
        let (agent, instance, managed) = (who.agent, who.instance.clone(), who.managed);
        let claim = Command::ClaimNext { agent, instance, managed, tags: Vec::new() };
        match self.change_shown::<Pool>(&who.entity(Kind::Pool), derived(request, "claim"), claim).await {
            Ok((Reply::Claimed { task: Some(task), .. }, body)) => {
                Ok(Some(Summons::Assigned(self.shown(who, &task, body).await?)))
            }
            Ok((Reply::Claimed { .. }, _)) => Ok(None),
            Ok(_) => Err(unexpected("the pool")),
            Err(refusal) if refusal.code == Code::NoCapacity => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    async fn new_mentions(&self, who: &Principal, request: Uuid) -> Result<Option<Summons>, Refusal> {
        let claim = channels::Command::ClaimMentions { agent: who.agent };
        let key = who.entity(Kind::Channels);
        let reply = self.change::<Channels>(&key, derived(request, "mentions"), claim).await?;
        let channels::Reply::Mentions(batches) = reply else { return Err(unexpected("the channels")) };
        let mentions = batches.iter().map(|batch| batch.numbers.len()).sum();
        let channels = batches.iter().map(|batch| batch.channel).collect();
        Ok((mentions > 0).then_some(Summons::Mentioned { mentions, channels }))
    }

    async fn new_messages(&self, who: &Principal, request: Uuid) -> Result<Option<Summons>, Refusal> {
        let take = inboxes::Command::Take { agent: who.agent, limit: MESSAGES };
        let key = who.entity(Kind::Inboxes);
        let reply = self.change::<Inboxes>(&key, derived(request, "inbox"), take).await?;
        let inboxes::Reply::Taken(ids) = reply else { return Err(unexpected("the inboxes")) };
        let mut messages = Vec::with_capacity(ids.len());
        for id in ids {
            messages.push(self.own_message(who, id).await?);
        }
        Ok((!messages.is_empty()).then_some(Summons::Wrote(messages)))
    }

    async fn epics_news(&self, who: &Principal, request: Uuid) -> Result<Option<Summons>, Refusal> {
        let key = who.entity(Kind::Epics);
        let reply = self.change::<Epics>(&key, derived(request, "epics"), epics::Command::TakeNews).await?;
        let epics::Reply::News(notices) = reply else { return Err(unexpected("the epics")) };
        let mut epics = Vec::with_capacity(notices.len());
        for notice in notices {
            let (_, epic) = self.find_epic(who, Which::Id(notice.epic)).await?;
            let mut finished = Vec::new();
            for task in notice.tasks {
                finished.extend(self.task(who, task).await?);
            }
            epics.push(json!({ "epic": epic, "finishedTasks": finished }));
        }
        Ok((!epics.is_empty()).then_some(Summons::Progressed(epics)))
    }
}
