//! What an entity wants an operator to look after, as an alarm of this node. It is over when the entity leaves: whoever
//! has it next says so anew.

use std::time::Duration;

use skein_shared::id::{EntityKey, Kind as Entity};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::Entities;
use crate::alarms::{Alarms, Kind};
use crate::store::StoreError;

/// More timers than there are.
const ALL: usize = i32::MAX as usize;
const AFTER_ERROR: Duration = Duration::from_secs(1);

pub(super) struct Notice {
    alarms: Alarms,
    subject: String,
    raised: bool,
}

impl Notice {
    pub(super) fn new(alarms: Alarms, key: &EntityKey) -> Self {
        Self { alarms, subject: key.to_string(), raised: false }
    }

    pub(super) fn tell(&mut self, problem: Option<String>) {
        let is_one = problem.is_some();
        match problem {
            Some(problem) => self.alarms.raise(Kind::Unclaimed, &self.subject, &problem),
            None if self.raised => self.alarms.clear(Kind::Unclaimed, &self.subject),
            None => {}
        }
        self.raised = is_one;
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        self.tell(None);
    }
}

/// Takes the pools of this node that have something due into memory, at its start and when shards have come to it: of a
/// pool that is not there nobody would know what it wants looked after, until its next tick. Runs until `stop`.
pub async fn look(entities: Entities, stop: CancellationToken) {
    let mut shards = entities.shared().shards.subscribe();
    while !stop.is_cancelled() {
        shards.mark_unchanged();
        let looked = tokio::select! {
            () = stop.cancelled() => return,
            looked = look_at_pools(&entities) => looked,
        };
        let pause = match looked {
            Ok(()) => Duration::MAX,
            Err(problem) => {
                warn!(%problem, "pools cannot be looked at");
                AFTER_ERROR
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            _ = shards.changed() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn look_at_pools(entities: &Entities) -> Result<(), StoreError> {
    let timers = entities.shared().store.timers(ALL).await?;
    for (key, _) in timers.into_iter().filter(|(key, _)| key.kind == Entity::Pool) {
        // One that cannot be loaded, or is another node's by now, is not this one's to tell of.
        let _ = entities.version(&key).await;
    }
    Ok(())
}
