//! What a program that only polls is to do next, one thing at a time: Agent Swarm's runner loop (spec: Agent Swarm
//! 5.2).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::{Value, json};
use skein_shared::channels::{self, Channels};
use skein_shared::epics::{self, Epics, Notice};
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
    /// Epics whose tasks have ended: `{epic, finishedTasks}`, and as `moreFinishedTasks` how many more there are that
    /// nobody can name.
    Progressed(Vec<Value>),
}

impl Service {
    /// Offers first, then the caller's own tasks, mentions, and what its role has: the inbox and the epics of a lead,
    /// for a worker a task of the pool, which is claimed for it.
    ///
    /// # Errors
    /// `not_joined`.
    pub async fn next_summons(&self, who: &Principal, request: Uuid) -> Result<Option<Summons>, Refusal> {
        policy::require(who, Right::Work)?;
        let member = self.awake(who, request).await?;
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
            match self.message_of(who, id).await {
                // One that another lead has by now hides no other.
                Ok(found) => messages.extend(found),
                // It is handed out, and would not be again for half an hour.
                Err(_) => messages.push(unseen(who, id)),
            }
        }
        Ok((!messages.is_empty()).then_some(Summons::Wrote(messages)))
    }

    async fn epics_news(&self, who: &Principal, request: Uuid) -> Result<Option<Summons>, Refusal> {
        let key = who.entity(Kind::Epics);
        let reply = self.ask::<Epics>(&key, epics::Command::News).await?;
        let epics::Reply::News(news) = reply else { return Err(unexpected("the epics")) };
        // What cannot be shown now is news the next time.
        let mut shown = BTreeMap::new();
        self.read_news(who, &news, &mut shown).await?;
        let tell = epics::Command::TellNews { news };
        let reply = self.change::<Epics>(&key, derived(request, "epics"), tell).await?;
        let epics::Reply::News(told) = reply else { return Err(unexpected("the epics")) };
        // To a repeat its first try has told what is no news by now.
        self.read_news(who, &told, &mut shown).await?;
        let there = |id: &Uuid| shown.get(id).and_then(Option::as_ref);
        let progress = |notice: &Notice| {
            let finished: Vec<&Value> = notice.tasks.iter().filter_map(there).collect();
            let mut told = json!({ "epic": there(&notice.epic)?, "finishedTasks": finished });
            if notice.unnamed > 0 {
                told["moreFinishedTasks"] = notice.unnamed.into();
            }
            Some(told)
        };
        let epics: Vec<Value> = told.iter().filter_map(progress).collect();
        Ok((!epics.is_empty()).then_some(Summons::Progressed(epics)))
    }

    /// Reads the epics and tasks of news that are not read yet; of those that are gone there is none.
    async fn read_news(
        &self,
        who: &Principal,
        news: &[Notice],
        shown: &mut BTreeMap<Uuid, Option<Value>>,
    ) -> Result<(), Refusal> {
        for notice in news {
            if let Entry::Vacant(epic) = shown.entry(notice.epic) {
                let found = self.find_epic(who, Which::Id(notice.epic)).await;
                epic.insert(match found {
                    Ok((_, found)) => Some(found),
                    Err(refusal) if refusal.code == Code::NotFound => None,
                    Err(refusal) => return Err(refusal),
                });
            }
            for task in &notice.tasks {
                if let Entry::Vacant(one) = shown.entry(*task) {
                    one.insert(self.task(who, *task).await?);
                }
            }
        }
        Ok(())
    }
}

/// A message that was handed out and cannot be looked at for the moment.
fn unseen(who: &Principal, message: Uuid) -> Value {
    let content = format!(
        "What somebody wrote cannot be looked at for the moment; get-inbox-message with inboxMessageId {message} shows \
         it."
    );
    json!({ "id": message, "agentId": who.agent, "content": content, "status": "processing" })
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use skein_shared::caller::Caller;

    use super::*;
    use crate::auth::Role;
    use crate::entity::tests::{Node, node};
    use crate::service::swarm::Introduction;
    use crate::store::memory::Fault;

    /// A lead, and so many messages in its inbox.
    async fn written(node: &Node, count: usize, content: &str) -> (Service, Principal, Vec<Uuid>) {
        let service = Service::new(node.entities.clone());
        let lead = Principal::named("lead", Role::Lead);
        let introduction = Introduction { name: "lead".to_owned(), lead: true, ..Introduction::default() };
        service.join(&lead, Uuid::now_v7(), introduction).await.unwrap();
        let mut ids = Vec::new();
        for _ in 0..count {
            let deliver = inboxes::Command::Deliver(Box::new(inboxes::Deliver {
                agent: lead.agent,
                content: content.to_owned(),
                source: inboxes::Source::Slack,
                slack: inboxes::Slack::default(),
                mail: None,
                dedupe: None,
            }));
            let told = service.change::<Inboxes>(&lead.entity(Kind::Inboxes), Uuid::now_v7(), deliver).await;
            let Ok(inboxes::Reply::Delivered { message, .. }) = told else { panic!("{told:?}") };
            ids.push(message);
        }
        (service, lead, ids)
    }

    #[tokio::test]
    async fn a_message_that_is_handed_out_and_cannot_be_shown_is_named() {
        let node = node();
        // Longer than what a node has at hand, so that it is looked for in the store.
        let (service, lead, ids) = written(&node, 1, &"x".repeat(3000)).await;
        let faults = node.store.contents().faults();
        faults.push(Fault::ThenUnreadable);
        let told = service.new_messages(&lead, Uuid::now_v7()).await.unwrap();
        faults.let_read();
        let Some(Summons::Wrote(messages)) = told else { panic!("{told:?}") };
        assert_eq!((messages.len(), &messages[0]["id"]), (1, &json!(ids[0])));
        assert!(messages[0]["content"].as_str().unwrap().contains("get-inbox-message"), "{messages:?}");
    }

    #[tokio::test]
    async fn a_repeat_is_shown_no_message_that_another_lead_has_by_now() {
        let node = node();
        let (service, lead, ids) = written(&node, 2, "help").await;
        let key = lead.entity(Kind::Inboxes);
        let tell = async |command| service.change::<Inboxes>(&key, Uuid::now_v7(), command).await.unwrap();
        let request = Uuid::now_v7();
        let shown = async || match service.new_messages(&lead, request).await.unwrap() {
            Some(Summons::Wrote(messages)) => messages.len(),
            None => 0,
            other => panic!("{other:?}"),
        };
        assert_eq!(shown().await, 2);
        let text = "done".to_owned();
        tell(inboxes::Command::Respond { agent: lead.agent, message: ids[0], text }).await;
        tell(inboxes::Command::Inherit { lead: Uuid::now_v7() }).await;
        assert_eq!(shown().await, 1, "what it has answered is its own still, and the other one is not");
    }

    #[tokio::test]
    async fn news_of_epics_last_until_they_could_be_shown() {
        let node = node();
        let service = Service::new(node.entities.clone());
        let lead = Principal::named("lead", Role::Lead);
        let key = lead.entity(Kind::Epics);
        let tell = async |command| service.change::<Epics>(&key, Uuid::now_v7(), command).await.unwrap();
        let by = Caller { agent: Some(lead.agent), lead: true };
        let mut epics = Vec::new();
        for name in ["one", "two"] {
            let texts = epics::Texts { goal: Some("ship it".to_owned()), ..epics::Texts::default() };
            let create =
                epics::Create { name: name.to_owned(), creator: None, lead: None, priority: 50, texts };
            let epics::Reply::Created(made) = tell(epics::Command::Create(Box::new(create))).await else {
                panic!("no epic")
            };
            let epic = Uuid::try_parse(made["id"].as_str().unwrap()).unwrap();
            let active = epics::Update {
                status: Some(epics::Status::Active),
                ..epics::Update::new(Which::Id(epic), by)
            };
            tell(epics::Command::Update(Box::new(active))).await;
            let status = |status: &str| Some(status.to_owned());
            let (from, to) = (status("in_progress"), status("completed"));
            tell(epics::Command::TaskChanged { epic, task: Uuid::now_v7(), from, to }).await;
            epics.push(epic);
        }
        let names = |summons: Option<Summons>| match summons {
            Some(Summons::Progressed(epics)) => {
                epics.iter().map(|one| one["epic"]["name"].as_str().unwrap().to_owned()).collect()
            }
            _ => Vec::new(),
        };

        // Whoever goes away at once has been shown nothing.
        let (first, again) = (Uuid::now_v7(), Uuid::now_v7());
        assert!(service.epics_news(&lead, first).now_or_never().is_none(), "it was to wait for the epics");
        let shown = names(service.epics_news(&lead, again).await.unwrap());
        assert_eq!(shown, ["one", "two"]);
        // A repeat is shown the same, and of an epic that is gone by now nothing.
        tell(epics::Command::Delete { which: Which::Id(epics[0]), by }).await;
        assert_eq!(names(service.epics_news(&lead, again).await.unwrap()), ["two"]);
        assert!(service.epics_news(&lead, Uuid::now_v7()).await.unwrap().is_none());
        // Of more than an epic can name it is shown how many they are.
        for _ in 0..60 {
            let (from, to) = (Some("in_progress".to_owned()), Some("completed".to_owned()));
            tell(epics::Command::TaskChanged { epic: epics[1], task: Uuid::now_v7(), from, to }).await;
        }
        let shown = service.epics_news(&lead, Uuid::now_v7()).await.unwrap();
        let Some(Summons::Progressed(many)) = shown else { panic!("{shown:?}") };
        assert_eq!(many[0]["moreFinishedTasks"], 10);
    }
}
