//! A poll that stands open at its pool, which then starts a task for it by the decision that makes the task.

use skein_shared::entity::{Poller, Signal};
use skein_shared::id::{EntityKey, Kind};
use uuid::Uuid;

use crate::auth::Principal;
use crate::entity::Entities;

/// Ends at the pool when it is dropped. What the pool then starts for it, by a hair, is handed out again at
/// the agent's next poll.
pub(super) struct Standing<'a> {
    entities: &'a Entities,
    pool: EntityKey,
    poller: Poller,
}

impl<'a> Standing<'a> {
    /// `request` is the id with which the pool is polled again once it has started something.
    pub(super) fn new(entities: &'a Entities, who: &Principal, request: Uuid) -> Self {
        let poller =
            Poller { agent: who.agent, instance: who.instance.clone(), managed: who.managed, poll: request };
        Self { entities, pool: who.entity(Kind::Pool), poller }
    }

    /// Says that the agent found nothing and waits. A pool that was loaded anew learns it at the next look.
    pub(super) fn stands(&self) {
        self.entities.observe(&self.pool, Signal::AgentPolls(self.poller.clone()));
    }
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        let Poller { agent, poll, .. } = self.poller;
        self.entities.observe(&self.pool, Signal::AgentWent { agent, poll });
    }
}
