//! Follows events: the state after them, and the documents that change.
//!
//! Every change of a live task goes through [`Pool::change`], which keeps the indexes and the document.

mod alive;
mod body;
mod head;
mod members;

use serde_json::json;
use uuid::Uuid;

use super::creation::Fact;
use super::event::{Created, Event};
use super::state::{Outcome, Pool, Status, Task, Term};
use crate::entity::Changes;
use crate::json::Json;
use crate::limits;
use crate::time::Timestamp;

pub(super) use members::profile_key;

impl Pool {
    pub(super) fn follow(&mut self, event: &Event, changes: &mut Changes) {
        self.standing.follow(event);
        match event {
            _ if event.is_steering() => self.steering.follow(event, changes),
            Event::Created(created) => self.create(created, changes),
            Event::Finished { task, outcome, at, .. } => self.finish(*task, *outcome, *at, event, changes),
            Event::LeasesExtended { tasks, until, .. } => {
                for &task in tasks {
                    self.extend(task, *until, changes);
                }
            }
            Event::LeasesShortened { tasks, until, .. } => {
                for &task in tasks {
                    self.shorten(task, *until, changes);
                }
            }
            Event::Unbegun { agent, again } => self.idle.tell(*agent, *again),
            Event::Served { since } => {
                self.deadlines.serve(*since);
                self.reports.serve(*since);
            }
            _ => match event.task() {
                Some(task) => self.change(task, event, changes),
                None => self.follow_member(event, changes),
            },
        }
    }

    fn create(&mut self, created: &Created, changes: &mut Changes) {
        if let (Some(creator), Some(sketch)) = (created.by, &created.sketch) {
            self.recent.add(creator, created.at, created.task, sketch.clone());
        }
        self.enter(created.task, &Task::of(created));
        if let Some(task) = self.tasks.get(created.task) {
            changes.create(key(created.task), &task, body::of(created));
        }
        if let Some(agent) = created.agent {
            self.watch(agent, created.at);
        }
    }

    /// Changes a live task, its indexes, its document, and what its agent shows.
    fn change(&mut self, id: Uuid, event: &Event, changes: &mut Changes) {
        let renewed = self.deadlines.get(id);
        let Some(mut task) = self.remove(id) else { return };
        let before = (task.status, task.agent);
        task.edit(event);
        let (at, agent) = (task.updated, before.1.or(task.agent));
        let after = task.status;
        let body = body::after(&task, event);
        self.enter(id, &task);
        // The same promise goes on: what signs of life have added to it stays.
        if let (true, Some((_, until))) = (before.0 == after, renewed) {
            self.deadlines.renew(id, until);
        }
        self.save(id, Some(body), changes);
        let (was, is) = (before.0 == Status::InProgress, after == Status::InProgress);
        if let (true, Some(agent)) = (was != is, agent) {
            self.settle_member(agent, is, at, changes);
        }
        for agent in before.1.into_iter().chain(task.agent) {
            self.watch(agent, at);
        }
    }

    /// Ends a task: it leaves memory, and its dependants note how it ended.
    fn finish(&mut self, id: Uuid, outcome: Outcome, at: Timestamp, event: &Event, changes: &mut Changes) {
        let Some(mut task) = self.remove(id) else { return };
        let active = task.status == Status::InProgress;
        task.edit(event);
        if let Some(creator) = task.creator {
            self.recent.remove(creator, task.created, id);
        }
        changes.archive(key(id), &task, Some(body::after(&task, event)));
        self.ends.note(Fact { outcome: Some(outcome), agent: task.agent, ..Fact::unknown(id) });
        self.steering.give_up(id, changes);
        if let (true, Some(agent)) = (active, task.agent) {
            self.settle_member(agent, false, at, changes);
        }
        let dependants: Vec<Uuid> = self.indexes.waiting_for(id).collect();
        for dependant in dependants {
            self.note_outcome(dependant, id, outcome, at, changes);
        }
        if let Some(agent) = task.agent {
            self.watch(agent, at);
        }
    }

    /// What can start by it has its time from then: nobody could have claimed it before, nor accepted an offer.
    fn note_outcome(
        &mut self,
        dependant: Uuid,
        ended: Uuid,
        outcome: Outcome,
        at: Timestamp,
        changes: &mut Changes,
    ) {
        let renewed = self.deadlines.get(dependant);
        let Some(mut task) = self.remove(dependant) else { return };
        for dependency in task.dependencies.iter_mut().filter(|d| d.task == ended) {
            dependency.outcome = Some(outcome);
        }
        let is_ready = task.is_ready();
        if is_ready {
            task.updated = at;
            if task.status.is_offer() {
                task.until = Some(at + limits::OFFER);
            }
        }
        let broken = task.broken();
        self.enter(dependant, &task);
        if let Some((_, until)) = renewed {
            self.deadlines.renew(dependant, until);
        }
        let body = match outcome {
            Outcome::Completed => is_ready.then(|| json!({ "lastUpdatedAt": at.iso() })),
            Outcome::Failed | Outcome::Cancelled => Some(json!({ "blockedBy": broken })),
        };
        self.save(dependant, body.map(Json::from), changes);
        if let Some(agent) = task.agent {
            self.watch(agent, at);
        }
    }

    fn extend(&mut self, id: Uuid, until: Timestamp, changes: &mut Changes) {
        let Some(mut task) = self.tasks.get(id) else { return };
        task.until = task.until.max(Some(until));
        self.tasks.insert(id, &task);
        self.deadlines.renew(id, until);
        self.reports.set(id, Some(Term::Report), task.report_due());
        self.save(id, None, changes);
    }

    /// Ends the lease at `until` if it would end later, whatever was promised for a wait.
    fn shorten(&mut self, id: Uuid, until: Timestamp, changes: &mut Changes) {
        let Some(mut task) = self.tasks.get(id) else { return };
        task.until = task.until.min(Some(until));
        self.tasks.insert(id, &task);
        self.deadlines.set(id, task.term(), Some(until));
        self.reports.set(id, Some(Term::Report), task.report_due());
        self.save(id, None, changes);
    }

    /// Writes a live task's document.
    fn save(&self, id: Uuid, body: Option<Json>, changes: &mut Changes) {
        let Some(task) = self.tasks.get(id) else { return };
        changes.put(key(id), &task, body);
    }
}

pub(super) fn key(task: Uuid) -> String {
    format!("task/{task}")
}
