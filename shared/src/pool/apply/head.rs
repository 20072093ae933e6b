//! A task's head before and after an event. Decisions use the same edits to say what their reply shows.

use crate::pool::event::{Created, Event, Return};
use crate::pool::guard;
use crate::pool::state::{Source, Status, Task};
use crate::pool::tag::Tag;
use crate::slack::Thread;

impl Task {
    pub(in crate::pool) fn of(created: &Created) -> Self {
        let is_from_slack = created.spec.source == Source::Slack;
        Task {
            status: created.status,
            priority: created.spec.priority,
            tags: distinct(&created.spec.tags),
            creator: created.by,
            agent: created.agent,
            offered_to: created.offered_to,
            instance: None,
            managed: false,
            attempt: 0,
            generation: 0,
            until: created.until,
            created: created.at,
            updated: created.at,
            dependencies: created.dependencies.clone(),
            epic: created.spec.epic,
            schedule: created.spec.schedule,
            progress: None,
            reported: false,
            stalled: false,
            news: created.news,
            thread: Thread::of(&created.spec.context).filter(|_| is_from_slack),
            forge: created.spec.forge.clone().filter(|_| !is_from_slack),
        }
    }

    /// Edits the head of the event's task.
    pub(in crate::pool) fn edit(&mut self, event: &Event) {
        match event {
            Event::Started { agent, instance, managed, attempt, until, .. } => {
                self.status = Status::InProgress;
                self.agent = Some(*agent);
                self.offered_to = None;
                self.instance = Some(instance.clone());
                self.managed = *managed;
                self.attempt = *attempt;
                self.until = Some(*until);
                self.reported = false;
                self.stalled = false;
            }
            Event::Progressed { text, reported, until, .. } => {
                self.progress = Some(guard::hash(text));
                self.reported |= reported;
                self.stalled = false;
                self.until = self.until.max(Some(*until));
            }
            Event::Reported { until, .. } => {
                self.reported = true;
                self.until = self.until.max(Some(*until));
            }
            Event::Finished { outcome, .. } => {
                self.status = outcome.status();
                self.tags = Vec::new();
                self.offered_to = None;
                self.instance = None;
                self.until = None;
            }
            Event::Paused { until, .. } => {
                self.status = Status::Paused;
                self.instance = None;
                self.managed = false;
                self.until = Some(*until);
            }
            Event::Accepted { agent, .. } => {
                self.status = Status::Pending;
                self.agent = Some(*agent);
                self.offered_to = None;
                self.until = None;
            }
            Event::PassedOn { agent, .. } => {
                self.status = Status::Pending;
                self.agent = Some(*agent);
            }
            Event::EpicSet { epic, .. } => self.epic = *epic,
            Event::Stalled { .. } => self.stalled = true,
            Event::Unclaimed { again, .. } => self.until = Some(*again),
            Event::Reviewed { .. } => self.status = Status::Reviewing,
            Event::Parked { .. } => {
                self.leave_agent();
                self.status = Status::Backlog;
            }
            Event::LeaseLost { generation, to, .. } => self.lose(*generation, *to),
            Event::Rejected { .. }
            | Event::OfferExpired { .. }
            | Event::Withdrawn { .. }
            | Event::Released { .. }
            | Event::Unparked { .. }
            | Event::ReservationEnded { .. } => self.return_to_pool(),
            _ => {}
        }
        if let Some(at) = event.at() {
            self.updated = at;
        }
    }

    fn lose(&mut self, generation: u32, to: Return) {
        let agent = self.agent;
        self.leave_agent();
        self.generation = generation;
        match to {
            Return::SameAgent { until } => {
                self.status = Status::Pending;
                self.agent = agent;
                self.until = Some(until);
            }
            Return::Lead { lead } => {
                self.status = Status::Pending;
                self.agent = Some(lead);
            }
            Return::Pool => self.return_to_pool(),
        }
    }

    /// What anybody may take is news for the lead no more.
    fn return_to_pool(&mut self) {
        self.leave_agent();
        self.status = Status::Unassigned;
        self.news = false;
    }

    fn leave_agent(&mut self) {
        self.agent = None;
        self.offered_to = None;
        self.instance = None;
        self.managed = false;
        self.until = None;
    }
}

fn distinct(tags: &[String]) -> Vec<Tag> {
    let mut distinct: Vec<Tag> = Vec::with_capacity(tags.len());
    for tag in tags.iter().map(|tag| Tag::from(tag.as_str())) {
        if !distinct.contains(&tag) {
            distinct.push(tag);
        }
    }
    distinct
}
