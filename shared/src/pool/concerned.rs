//! Whom an event concerns: those who may be waiting for just this.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::event::{Event, Return};
use super::state::{Pool, Status, Task};
use crate::id::{EntityKey, Kind, Name};

/// The topic that changes when a task of the pool can be claimed, or one with a tag.
pub fn claimable(swarm: &Name, tag: Option<&str>) -> String {
    let pool = EntityKey::of(Kind::Pool, swarm);
    match tag {
        Some(tag) => format!("{pool}/claimable/{tag}"),
        None => format!("{pool}/claimable"),
    }
}

impl Pool {
    /// The topics of those who wait to claim what the event brings into the pool.
    pub(super) fn opened(&self, event: &Event) -> Vec<String> {
        let came = match event {
            Event::Created(created) if created.status == Status::Unassigned => vec![Task::of(created)],
            Event::Finished { task, .. } => {
                self.awaiting(*task).filter(|task| task.status == Status::Unassigned).collect()
            }
            _ => match event.status() {
                Some((task, Status::Unassigned)) => self.tasks.get(task).into_iter().collect(),
                _ => return Vec::new(),
            },
        };
        let topics = |task: &Task| {
            let tags = task.tags.iter().map(|tag| claimable(&self.swarm, Some(tag.as_str())));
            tags.chain([claimable(&self.swarm, None)]).collect::<Vec<_>>()
        };
        came.iter().flat_map(topics).collect()
    }

    /// The task and every agent whose queue, offers or own tasks changed by it.
    pub(super) fn concerned(&self, event: &Event) -> BTreeSet<Uuid> {
        let mut ids: BTreeSet<Uuid> = event.task().into_iter().chain(event.agent()).collect();
        match event {
            Event::Created(created) => {
                ids.extend([created.task].into_iter().chain(created.agent).chain(created.offered_to));
            }
            Event::LeaseLost { to: Return::Lead { lead: agent }, .. } | Event::PassedOn { agent, .. } => {
                ids.insert(*agent);
            }
            // The dependants of an ended task may be startable now.
            Event::Finished { task, .. } => {
                ids.extend(self.awaiting(*task).flat_map(|task| owners(&task)));
            }
            _ => {}
        }
        let touched: Vec<Uuid> =
            ids.iter().filter_map(|&id| self.tasks.get(id)).flat_map(|task| owners(&task)).collect();
        ids.extend(touched);
        ids
    }

    /// Live tasks that wait for `ended`.
    fn awaiting(&self, ended: Uuid) -> impl Iterator<Item = Task> {
        self.indexes.waiting_for(ended).filter_map(|id| self.tasks.get(id))
    }
}

fn owners(task: &Task) -> impl Iterator<Item = Uuid> + use<> {
    task.agent.into_iter().chain(task.offered_to).chain(task.creator)
}
