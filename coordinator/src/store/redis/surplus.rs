//! Which entities of a shard have more events than they may keep.

use std::collections::VecDeque;

use redis::cmd;
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;

use super::connection::Connection;
use super::reader::entity;
use super::scan::page;
use super::shard::{Keys, Shard};
use crate::store::{Fence, StoreError, TrimPlan, Version};

/// Entities that are looked at together.
const ENTITIES: usize = 250;

/// Entities with too many events, each with the last version whose events are too many. Versions only rise under one
/// fence, so what was found once serves all steps of a plan: each looking for itself would ask for every entity again.
pub(super) struct Surplus {
    fence: Fence,
    /// The time of the plan that it was found for, and how many events it leaves to each.
    plan: (Timestamp, u64),
    found: VecDeque<(String, Version)>,
    /// Where the entities begin that nobody has looked at yet; none if there are no more.
    begin: Option<String>,
}

impl Surplus {
    /// Nothing is found yet.
    pub(super) fn new(fence: Fence, plan: &TrimPlan) -> Self {
        let plan = (plan.now, plan.events_per_entity);
        Self { fence, plan, found: VecDeque::new(), begin: Some("-".to_owned()) }
    }

    /// Whether it was found for this plan.
    pub(super) fn is_for(&self, fence: Fence, plan: &TrimPlan) -> bool {
        self.fence == fence && self.plan == (plan.now, plan.events_per_entity)
    }

    /// Looks on until so many entities are known, or all. What cannot be read is an alarm, and left out.
    pub(super) async fn look(
        &mut self,
        connection: &Connection,
        shard: Shard,
        count: usize,
    ) -> Result<(), StoreError> {
        let (list, (_, keep)) = (shard.entities(), self.plan);
        while self.found.len() < count
            && let Some(begin) = self.begin.take()
        {
            let ask = page(&list, &begin, ENTITIES);
            let names = connection.ask_sound::<Vec<String>>(&[(list.clone(), ask)]).await?;
            let names = names.into_iter().find_map(|names| sound(connection, names)).unwrap_or_default();
            let there = names.iter().filter_map(|name| sound(connection, entity(&list, name)));
            self.found.extend(beyond(connection, there.collect(), keep).await?);
            self.begin = names.last().filter(|_| names.len() == ENTITIES).map(|last| format!("({last}"));
        }
        Ok(())
    }

    /// The first that were found, so many at most.
    pub(super) fn first(&self, count: usize) -> impl Iterator<Item = &(String, Version)> {
        self.found.iter().take(count)
    }

    /// So many of the first have no more than they may keep by now.
    pub(super) fn done(&mut self, count: usize) {
        self.found.drain(..count.min(self.found.len()));
    }
}

/// Those of the entities that have more events than so many, each with the last version whose events are too many.
async fn beyond(
    connection: &Connection,
    entities: Vec<EntityKey>,
    keep: u64,
) -> Result<Vec<(String, Version)>, StoreError> {
    let (mut versions, mut firsts) = (Vec::new(), Vec::new());
    for key in &entities {
        let keys = Keys::new(key);
        let (version, history) = (keys.entity(), keys.history());
        versions.push((version.clone(), cmd("HGET").arg(version).arg("version").to_owned()));
        let first = cmd("ZRANGE").arg(&history).arg(0).arg(0).arg("WITHSCORES").to_owned();
        firsts.push((history, first));
    }
    let versions = connection.ask_sound::<Option<u64>>(&versions).await?;
    let firsts = connection.ask_sound::<Vec<(String, u64)>>(&firsts).await?;
    let each = entities.iter().zip(versions).zip(firsts);
    let found = each.filter_map(|((key, version), first)| {
        let (version, first) = (sound(connection, version)?, sound(connection, first)?);
        let last = version.unwrap_or(0).saturating_sub(keep);
        let (_, first) = first.first()?;
        (*first <= last).then(|| (key.text(), Version(last)))
    });
    Ok(found.collect())
}

/// What was read; nothing if it is garbage, which is an alarm.
fn sound<T>(connection: &Connection, read: Result<T, StoreError>) -> Option<T> {
    read.inspect_err(|StoreError(problem)| connection.watch.failed(problem)).ok()
}
