//! Noticing that something changes in a swarm, without a word on what.

use futures::future::select_all;
use skein_shared::Refusal;
use skein_shared::id::Kind;

use super::Service;
use crate::auth::{Principal, Right, policy};
use crate::entity::hub::{Subscription, commits_of};

/// Wakes at the commits of a swarm's entities, on whichever node.
pub struct Watch {
    topics: Vec<Subscription>,
}

impl Service {
    /// Watches entities of these kinds from here on. Make it before reading what may change.
    pub fn watch(&self, who: &Principal, kinds: &[Kind]) -> Result<Watch, Refusal> {
        policy::require(who, Right::Read)?;
        let subscribe = |kind: &Kind| self.entities.hub().subscribe(commits_of(*kind, &who.swarm));
        Ok(Watch { topics: kinds.iter().map(subscribe).collect() })
    }
}

impl Watch {
    /// Returns at the next change since the watch was made or last returned; of nothing, never.
    pub async fn changed(&mut self) {
        if self.topics.is_empty() {
            return std::future::pending().await;
        }
        let changes = self.topics.iter_mut().map(|topic| Box::pin(topic.changed()));
        select_all(changes).await;
    }
}
