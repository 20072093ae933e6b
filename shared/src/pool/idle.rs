//! Agents that have work to begin and do nothing. All of this is memory: whoever serves the pool next watches anew, and
//! gives each of them its whole time.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::state::Pool;
use crate::time::Timestamp;

/// Who, and since when.
#[derive(Clone, Debug, Default)]
pub(super) struct Idle {
    since: BTreeMap<Uuid, Timestamp>,
    /// Those of whom nobody was told yet, and those of whom an operator was.
    untold: BTreeSet<(Timestamp, Uuid)>,
    told: BTreeSet<(Timestamp, Uuid)>,
    /// When that is said again: as long as it lasts a timer is due, by which the next owner finds the pool.
    again: Timestamp,
}

impl Idle {
    fn note(&mut self, agent: Uuid, is_idle: bool, at: Timestamp) {
        match (is_idle, self.since.get(&agent).copied()) {
            (true, None) => {
                self.since.insert(agent, at);
                self.untold.insert((at, agent));
            }
            (false, Some(since)) => {
                self.since.remove(&agent);
                self.untold.remove(&(since, agent));
                self.told.remove(&(since, agent));
            }
            _ => {}
        }
    }

    /// An operator is told of it from now on, and it is said again then.
    pub(super) fn tell(&mut self, agent: Uuid, again: Timestamp) {
        self.again = again;
        let Some(&since) = self.since.get(&agent) else { return };
        if self.untold.remove(&(since, agent)) {
            self.told.insert((since, agent));
        }
    }

    /// Those of whom nobody was told yet, the longest idle first.
    pub(super) fn untold(&self) -> impl Iterator<Item = (Timestamp, Uuid)> + '_ {
        self.untold.iter().copied()
    }

    /// Of those of whom an operator is told, the one that is idle for longest, and when that is said again.
    pub(super) fn worst(&self) -> Option<(Uuid, Timestamp)> {
        self.told.first().map(|&(_, agent)| (agent, self.again))
    }
}

impl Pool {
    /// Notes whether the agent does nothing from `at` on though work waits for it.
    pub(super) fn watch(&mut self, agent: Uuid, at: Timestamp) {
        let is_idle = self.is_idle(agent);
        self.idle.note(agent, is_idle, at);
    }

    /// The same of all agents, of whom a new owner knows no more than their tasks.
    pub(super) fn watch_all(&mut self) {
        let since = |(agent, task)| Some((agent, self.tasks.get(task)?.updated));
        let queued: Vec<(Uuid, Timestamp)> = self.indexes.queued().filter_map(since).collect();
        for (agent, at) in queued {
            self.watch(agent, at);
        }
    }

    /// What waits for the lead is mostly news, which a person who leads may read whenever it suits.
    fn is_idle(&self, agent: Uuid) -> bool {
        let is_lead = self.lead == Some(agent);
        !is_lead && self.active(agent) == 0 && self.indexes.next_for(agent).is_some()
    }

    /// Whether it is known of each agent.
    pub(super) fn knows_the_idle(&self) -> bool {
        let idle = self.indexes.queued().map(|(agent, _)| agent).filter(|agent| self.is_idle(*agent));
        self.idle.since.keys().copied().eq(idle)
    }
}
