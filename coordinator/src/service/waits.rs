//! Waiting for a trigger: a webhook, or a call by another agent.
//!
//! The wait itself is durable and belongs to the agent entity. A request only listens to it: one that ends
//! early loses nothing, for the next one with the same filter goes on with the same wait.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;
use skein_shared::agent::{Agent, Command, Outcome, Reply, WaitView};
use skein_shared::id::{EntityKey, Kind, derived};
use skein_shared::time::Timestamp;
use skein_shared::triggers::{self, Envelope, Filter, Incoming, Triggers};
use skein_shared::{Code, Refusal};
use tracing::Instrument;
use uuid::Uuid;

use super::calls::inspect;
use super::unread::{Carries, Lost, Unread};
use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};

/// What became of listening to a wait.
#[derive(Debug)]
pub enum Waited {
    /// The event came. `again` when this answer was given before and may have been lost; else it is to be held until
    /// it was read.
    Triggered { payload: Arc<Envelope>, again: bool, unread: Option<Unread> },
    /// The wait's own time is over.
    TimedOut,
    /// The listener's patience is over; the wait goes on.
    Pending { wait: Uuid, deadline: Timestamp },
}

/// What an instance waits for, and how.
#[derive(Clone, Debug)]
pub struct Wish {
    pub filter: Filter,
    /// The agent's own if there is none.
    pub timeout: Option<Duration>,
    /// Does not use the event up.
    pub broadcast: bool,
    /// An event counts too that came since the run began.
    pub look_back: bool,
}

/// Events of a page of a look back, and how many of them are read at a time.
const PAGE: usize = 500;
const AT_ONCE: usize = 16;

impl Service {
    /// Begins to wait, or goes on with the same wait, and listens for up to `patience`.
    ///
    /// A managed instance may be frozen as soon as the wait is registered.
    ///
    /// # Errors
    /// `invalid_argument` for a bad filter or time-out; `queue_full` when too many instances wait.
    pub async fn wait_for_trigger(
        &self,
        who: &Principal,
        request: Uuid,
        wish: Wish,
        patience: Duration,
    ) -> Result<Waited, Refusal> {
        policy::require(who, Right::Work)?;
        let asked = Uuid::now_v7();
        let begin = Command::BeginWait {
            instance: who.instance.clone(),
            wait: derived(request, "wait"),
            filter: wish.filter.clone(),
            timeout_ms: wish.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
            broadcast: wish.broadcast,
            look_back: wish.look_back,
            asked,
        };
        // Its repeat asks for the same wait, which is not over before its outcome was taken: so the entity
        // makes it harmless, and a kept answer (`still waiting`) would hide the outcome.
        let (begun, over) = self.stands(who, begin, asked).await?;
        if let Some(over) = over {
            return Ok(over);
        }
        let wait = begun.wait;
        let topics = BTreeSet::from([wait.to_string(), who.instance.to_string()]);
        let check = || async {
            let command = Command::CheckWait { instance: who.instance.clone(), wait: Some(wait), asked };
            let (view, over) = self.stands(who, command.clone(), asked).await?;
            let Some(since) = view.look_back_to else { return Ok(over) };
            self.look_back(who, wait, &wish.filter, since).await?;
            Ok(self.stands(who, command, asked).await?.1)
        };
        let left = self.clock().until(begun.deadline) + Duration::from_secs(1);
        let found = self.until(who, topics, patience.min(left), check).await?;
        Ok(found.unwrap_or(Waited::Pending { wait, deadline: begun.deadline }))
    }

    /// Asks how a wait stands, and what it came to. The question is not given up with who asks, so that an event that
    /// comes with the answer is not lost with them.
    async fn stands(
        &self,
        who: &Principal,
        command: Command,
        asked: Uuid,
    ) -> Result<(WaitView, Option<Waited>), Refusal> {
        let (service, who) = (self.clone(), who.clone());
        let question = async move {
            let answer = service.ask_own(&who, command).await;
            let lost = |event| Lost { service, who, what: Carries::Outcome { asked, event } };
            if answer.as_ref().is_err_and(|refusal| refusal.code == Code::Unknown) {
                tokio::spawn(lost.clone()(None).give_back());
            }
            let mut view = wait_view(answer?)?;
            let over = view.outcome.take().map(|outcome| match outcome {
                Outcome::WaitTimeout => Waited::TimedOut,
                Outcome::Triggered { payload, .. } => {
                    let (payload, again) = (Arc::new(payload), view.redelivered);
                    let unread = (!again).then(|| Unread::new(lost(Some(Arc::clone(&payload)))));
                    Waited::Triggered { payload, again, unread }
                }
            });
            Ok((view, over))
        };
        let answered = tokio::spawn(question.in_current_span()).await;
        answered.unwrap_or_else(|error| {
            Err(Refusal::new(Code::Internal, format!("the question broke off: {error}")))
        })
    }

    /// Looks for the event among those that came since a moment, and tells the agent.
    async fn look_back(
        &self,
        who: &Principal,
        wait: Uuid,
        filter: &Filter,
        since: Timestamp,
    ) -> Result<(), Refusal> {
        let found = self.earlier_event(who, filter, since).await?;
        self.ask::<Agent>(&who.own_agent(), Command::LookedBack { wait, found }).await.map(|_| ())
    }

    /// The oldest event that matches and that the instance has not had.
    async fn earlier_event(
        &self,
        who: &Principal,
        filter: &Filter,
        since: Timestamp,
    ) -> Result<Option<(Uuid, Envelope)>, Refusal> {
        let had = match self.ask::<Agent>(&who.own_agent(), inspect(who)).await? {
            Reply::Instance(instance) => instance.recalled,
            _ => return Err(unexpected("the agent")),
        };
        let key = who.entity(Kind::Triggers);
        let mut after = None;
        loop {
            let received = triggers::Command::ReceivedSince { at: since, limit: PAGE, after };
            let triggers::Reply::Receipts(receipts) = self.ask::<Triggers>(&key, received).await? else {
                return Err(unexpected("the triggers"));
            };
            let last = receipts.last().copied().filter(|_| receipts.len() == PAGE);
            let new = receipts.into_iter().filter(|receipt| !had.contains(receipt));
            let events = new.map(|receipt| self.event_of(who, &key, receipt)).collect::<Vec<_>>();
            let mut events = stream::iter(events).buffered(AT_ONCE);
            while let Some(event) = events.try_next().await? {
                if let Some(found) = event.filter(|(_, event)| filter.matches(event)) {
                    return Ok(Some(found));
                }
            }
            if last.is_none() {
                return Ok(None);
            }
            after = last;
        }
    }

    /// What was received, unless it has woken the instance.
    async fn event_of(
        &self,
        who: &Principal,
        triggers: &EntityKey,
        receipt: Uuid,
    ) -> Result<Option<(Uuid, Envelope)>, Refusal> {
        let Some(mut body) = self.body(triggers, &format!("receipt/{receipt}")).await? else {
            return Ok(None);
        };
        let woke = |to: &Value| to["instance"] == who.instance.0.as_str();
        if body["resumed"].as_array().is_some_and(|resumed| resumed.iter().any(woke)) {
            return Ok(None);
        }
        let incoming = serde_json::from_value::<Incoming>(body["incoming"].take()).ok();
        Ok(incoming.map(|incoming| (receipt, Envelope::webhook(&incoming))))
    }
}

fn wait_view(reply: Reply) -> Result<WaitView, Refusal> {
    match reply {
        Reply::Wait(view) => Ok(view),
        _ => Err(unexpected("the agent")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::auth::Role;
    use crate::entity::tests::node;
    use crate::ingress::Intake;

    #[tokio::test]
    async fn a_look_back_goes_on_behind_its_first_page() {
        let node = node();
        let service = Service::new(node.entities.clone());
        let who = Principal::named("waiter", Role::Worker);
        service.set_status(&who, Uuid::now_v7(), "here".to_owned()).await.unwrap();
        let began = service.clock().now();
        let receive = |number: usize, event: &str| {
            let incoming = Incoming {
                receipt: Uuid::now_v7(),
                delivery: number.to_string(),
                source: "hooks".to_owned(),
                provider: "github".to_owned(),
                event: event.to_owned(),
                context: json!({}),
                payload: json!({}),
                received_at: began,
                unsigned: false,
                said: None,
                letter: None,
                activity: None,
            };
            Intake::deliver(&service.entities, &who.swarm, incoming)
        };
        let earlier = stream::iter((0..=2 * PAGE).map(|number| receive(number, "push")));
        earlier.buffered(64).try_collect::<Vec<_>>().await.unwrap();
        receive(2 * PAGE + 1, "release").await.unwrap();
        let filter: Filter = serde_json::from_value(json!({"kind": "webhook", "event": "release"})).unwrap();
        let found = service.earlier_event(&who, &filter, began).await.unwrap();
        assert_eq!(found.map(|(_, event)| event.0["event"].clone()), Some(json!("release")));
        let none: Filter = serde_json::from_value(json!({"kind": "webhook", "event": "nothing"})).unwrap();
        assert_eq!(service.earlier_event(&who, &none, began).await.unwrap(), None);
    }
}
