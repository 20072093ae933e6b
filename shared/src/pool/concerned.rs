//! Whom an event concerns: those who may be waiting for just this.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::event::{Event, Return};
use super::state::{Pool, Task};

impl Pool {
    /// The task and every agent whose queue, offers or own tasks changed by it.
    pub(super) fn concerned(&self, event: &Event) -> BTreeSet<Uuid> {
        let mut ids: BTreeSet<Uuid> = event.task().into_iter().chain(event.agent()).collect();
        match event {
            Event::Created(created) => {
                ids.extend([created.task].into_iter().chain(created.agent).chain(created.offered_to));
            }
            Event::LeaseLost { to: Return::Lead { lead }, .. } => {
                ids.insert(*lead);
            }
            // The dependants of an ended task may be startable now.
            Event::Finished { task, .. } => {
                ids.extend(self.awaiting(*task).flat_map(owners));
            }
            _ => {}
        }
        let touched: Vec<Uuid> = ids.iter().filter_map(|id| self.tasks.get(id)).flat_map(owners).collect();
        ids.extend(touched);
        ids
    }

    /// Live tasks that wait for `ended`.
    fn awaiting(&self, ended: Uuid) -> impl Iterator<Item = &Task> {
        self.indexes.waiting_for(ended).filter_map(|id| self.tasks.get(&id))
    }
}

fn owners(task: &Task) -> impl Iterator<Item = Uuid> + use<> {
    task.agent.into_iter().chain(task.offered_to).chain(task.creator)
}
