//! Waiting for a trigger: a webhook, or a call by another agent.
//!
//! The wait itself is durable and belongs to the agent entity. A request only listens to it: one that ends
//! early loses nothing, for the next one with the same filter goes on with the same wait.

use std::collections::BTreeSet;
use std::time::Duration;

use skein_shared::Refusal;
use skein_shared::agent::{Agent, Command, Outcome, Reply, WaitView};
use skein_shared::time::Timestamp;
use skein_shared::triggers::{Envelope, Filter};
use uuid::Uuid;

use super::{Service, step, unexpected};
use crate::auth::{Principal, Right, policy};

/// What became of listening to a wait.
#[derive(Clone, Debug, PartialEq)]
pub enum Waited {
    /// The event came. `again` when this answer was given before and may have been lost.
    Triggered { payload: Envelope, again: bool },
    /// The wait's own time is over.
    TimedOut,
    /// The listener's patience is over; the wait goes on.
    Pending { wait: Uuid, deadline: Timestamp },
}

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
        filter: Filter,
        timeout: Option<Duration>,
        broadcast: bool,
        patience: Duration,
    ) -> Result<Waited, Refusal> {
        policy::require(who, Right::Work)?;
        self.attach(who).await?;
        let begin = Command::BeginWait {
            instance: who.instance.clone(),
            wait: step(request, "wait"),
            filter,
            timeout_ms: timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
            broadcast,
        };
        // Its repeat asks for the same wait, which is not over before its outcome was taken: so the entity
        // makes it harmless, and a kept answer (`still waiting`) would hide the outcome.
        let begun = wait_view(self.ask::<Agent>(&who.own_agent(), begin).await?)?;
        let wait = begun.wait;
        if let Some(outcome) = begun.outcome {
            return Ok(ended(outcome, begun.redelivered));
        }
        let topics = BTreeSet::from([wait.to_string(), who.instance.to_string()]);
        let check = || async {
            let command = Command::CheckWait { instance: who.instance.clone(), wait: Some(wait) };
            let view = wait_view(self.ask::<Agent>(&who.own_agent(), command).await?)?;
            Ok(view.outcome.map(|outcome| ended(outcome, view.redelivered)))
        };
        let left = self.clock().until(begun.deadline) + Duration::from_secs(1);
        let found = self.until(who, topics, patience.min(left), check).await?;
        Ok(found.unwrap_or(Waited::Pending { wait, deadline: begun.deadline }))
    }
}

fn wait_view(reply: Reply) -> Result<WaitView, Refusal> {
    match reply {
        Reply::Wait(view) => Ok(view),
        _ => Err(unexpected("the agent")),
    }
}

fn ended(outcome: Outcome, again: bool) -> Waited {
    match outcome {
        Outcome::Triggered { payload } => Waited::Triggered { payload, again },
        Outcome::WaitTimeout => Waited::TimedOut,
    }
}
