//! Getting work and giving it back: poll, claim, release, pause, resume.

use uuid::Uuid;

use super::{Answer, not_yours, require_ready, wrong_state};
use crate::code::{Code, Refusal};
use crate::entity::{Ctx, Decision};
use crate::id::InstanceId;
use crate::limits;
use crate::mutation::{self, Mutation};
use crate::pool::command::Reply;
use crate::pool::event::Event;
use crate::pool::state::{Pool, Status, Task, Term};
use crate::pool::view::TaskView;

impl Pool {
    /// Open offers first; then the task whose hand-over may have been lost; then, within the capacity, the
    /// best task of the agent's own queue that can start. The pool is counted, never dispensed.
    pub(super) fn decide_poll(
        &self,
        agent: Uuid,
        instance: &InstanceId,
        managed: bool,
        last: bool,
        ctx: &Ctx,
    ) -> Answer {
        let member = self.joined(agent)?;
        let offers = self.open_offers(agent);
        let lost = self.unreported(agent, instance);
        let full = self.active(agent) >= member.max_tasks as usize;
        let polled = |task: Option<TaskView>, redelivered: bool, empty_polls: u32| Reply::Polled {
            task,
            redelivered,
            offers: offers.clone(),
            pool: self.indexes.pool(),
            empty_polls,
            full,
        };
        if !offers.is_empty() || lost.is_some() {
            let redelivered = lost.as_ref().is_some_and(|task| !self.standing.is_for(task.id, ctx.request));
            // Who comes back by this begins to count anew.
            let empty_polls = if member.offline { 0 } else { member.empty_polls };
            return Ok(Decision::reply(polled(lost, redelivered, empty_polls)));
        }
        let next = self.indexes.next_for(agent).filter(|_| !full);
        if let Some((id, task)) = next.and_then(|id| Some((id, self.tasks.get(id)?))) {
            let event = start(id, &task, agent, instance, managed, ctx);
            let view = super::after(task, std::slice::from_ref(&event)).view(id);
            return Ok(Decision::new(polled(Some(view), false, 0), vec![event]));
        }
        if last && !full {
            let event = Event::PolledEmpty { agent, at: ctx.now };
            return Ok(Decision::new(polled(None, false, member.empty_polls + 1), vec![event]));
        }
        Ok(Decision::reply(polled(None, false, member.empty_polls)))
    }

    pub(super) fn decide_peek(&self, agent: Uuid, instance: &InstanceId) -> Answer {
        let member = self.joined(agent)?;
        let full = self.active(agent) >= member.max_tasks as usize;
        let queued = !full && self.indexes.next_for(agent).is_some();
        Ok(Decision::reply(Reply::Peeked {
            task: queued || self.unreported(agent, instance).is_some(),
            offers: self.open_offers(agent).len(),
            pool: self.indexes.pool(),
            full,
        }))
    }

    /// An atomic win: of any number of claims the first one decided gets the task.
    pub(super) fn decide_claim(
        &self,
        agent: Uuid,
        instance: &InstanceId,
        managed: bool,
        id: Uuid,
        ctx: &Ctx,
    ) -> Answer {
        self.joined(agent)?;
        if let Some(task) = self.tasks.get(id)
            && is_unreported(&task, agent, instance)
        {
            return Ok(Self::unchanged(id, &task));
        }
        self.require_capacity(agent)?;
        let task = &self.live(id)?;
        if task.status != Status::Unassigned && !mutation::is_on(Mutation::ClaimTaken) {
            return Err(wrong_state(id, task.status, "claimed", "unassigned"));
        }
        require_ready(id, task)?;
        Ok(self.changed(id, task, vec![start(id, task, agent, instance, managed, ctx)]))
    }

    /// The first task of the pool that can start and has any of the tags: found and taken in one decision, so
    /// that those who ask at the same moment get different tasks.
    pub(super) fn decide_claim_next(
        &self,
        agent: Uuid,
        instance: &InstanceId,
        managed: bool,
        tags: &[String],
        ctx: &Ctx,
    ) -> Answer {
        self.joined(agent)?;
        if let Some(task) = self.unreported(agent, instance) {
            return Ok(Decision::reply(Reply::Claimed { task: Some(task), redelivered: true }));
        }
        self.require_capacity(agent)?;
        let claimed = |task| Reply::Claimed { task, redelivered: false };
        let best = self.indexes.best(tags).and_then(|id| Some((id, self.tasks.get(id)?)));
        let Some((id, task)) = best else { return Ok(Decision::reply(claimed(None))) };
        let event = start(id, &task, agent, instance, managed, ctx);
        let view = super::after(task, std::slice::from_ref(&event)).view(id);
        Ok(Decision::new(claimed(Some(view)), vec![event]))
    }

    pub(super) fn decide_release(&self, agent: Uuid, id: Uuid, ctx: &Ctx) -> Answer {
        let task = &self.live(id)?;
        if task.agent != Some(agent) {
            return Err(not_yours(id, "released", "the agent that it is assigned to"));
        }
        if !matches!(task.status, Status::Pending | Status::InProgress) {
            return Err(wrong_state(id, task.status, "released", "pending or in_progress"));
        }
        Ok(self.changed(id, task, vec![Event::Released { task: id, at: ctx.now }]))
    }

    pub(super) fn decide_park(&self, id: Uuid, by: Option<Uuid>, ctx: &Ctx) -> Answer {
        if let Some(by) = by {
            self.joined(by)?;
        }
        let task = &self.live(id)?;
        if task.status != Status::Unassigned {
            return Err(wrong_state(id, task.status, "put into the backlog", "unassigned"));
        }
        Ok(self.changed(id, task, vec![Event::Parked { task: id, at: ctx.now }]))
    }

    pub(super) fn decide_unpark(&self, id: Uuid, by: Option<Uuid>, ctx: &Ctx) -> Answer {
        if let Some(by) = by {
            self.joined(by)?;
        }
        let task = &self.live(id)?;
        if task.status != Status::Backlog {
            return Err(wrong_state(id, task.status, "taken from the backlog", "backlog"));
        }
        Ok(self.changed(id, task, vec![Event::Unparked { task: id, at: ctx.now }]))
    }

    pub(super) fn decide_pause(&self, id: Uuid, by: Option<Uuid>, ctx: &Ctx) -> Answer {
        let task = &self.live(id)?;
        require_agent(id, task, by, "paused")?;
        match task.status {
            Status::Paused => Ok(Self::unchanged(id, task)),
            Status::InProgress => {
                let until = ctx.now + Term::Agent.period();
                Ok(self.changed(id, task, vec![Event::Paused { task: id, until, at: ctx.now }]))
            }
            status => Err(wrong_state(id, status, "paused", "in_progress")),
        }
    }

    pub(super) fn decide_resume(
        &self,
        id: Uuid,
        by: Option<Uuid>,
        instance: &InstanceId,
        managed: bool,
        ctx: &Ctx,
    ) -> Answer {
        let task = &self.live(id)?;
        require_agent(id, task, by, "resumed")?;
        let (Status::Paused, Some(agent)) = (task.status, task.agent) else {
            if task.status == Status::InProgress && task.instance.as_ref() == Some(instance) {
                return Ok(Self::unchanged(id, task));
            }
            return Err(wrong_state(id, task.status, "resumed", "paused"));
        };
        self.require_capacity(agent)?;
        Ok(self.changed(id, task, vec![start(id, task, agent, instance, managed, ctx)]))
    }

    pub(super) fn decide_session(&self, id: Uuid, by: Option<Uuid>, session: &str, ctx: &Ctx) -> Answer {
        let task = &self.live(id)?;
        require_agent(id, task, by, "given a session")?;
        if session.is_empty() || session.len() > limits::LOCK_KEY {
            let problem = format!("claudeSessionId: 1 to {} bytes", limits::LOCK_KEY);
            return Err(Refusal::new(Code::InvalidArgument, problem));
        }
        let event = Event::SessionNoted { task: id, session: session.to_owned(), at: ctx.now };
        Ok(self.changed(id, task, vec![event]))
    }

    pub(super) fn decide_epic(&self, id: Uuid, epic: Option<Uuid>, by: Option<Uuid>, ctx: &Ctx) -> Answer {
        if by.is_some() && by != self.lead {
            return Err(not_yours(id, "moved between epics", "the lead"));
        }
        let task = &self.live(id)?;
        if task.epic.is_none() && epic.is_none() {
            return Err(Refusal::new(Code::WrongState, format!("task {id} belongs to no epic")));
        }
        if task.epic == epic {
            return Ok(Self::unchanged(id, task));
        }
        Ok(self.changed(id, task, vec![Event::EpicSet { task: id, epic, at: ctx.now }]))
    }

    /// The task that this instance was given and has said nothing about: its answer may have been lost.
    fn unreported(&self, agent: Uuid, instance: &InstanceId) -> Option<TaskView> {
        self.indexes
            .active_of(agent)
            .filter_map(|id| Some((id, self.tasks.get(id)?)))
            .find(|(_, task)| is_unreported(task, agent, instance))
            .map(|(id, task)| task.view(id))
    }
}

fn is_unreported(task: &Task, agent: Uuid, instance: &InstanceId) -> bool {
    task.status == Status::InProgress
        && task.agent == Some(agent)
        && task.instance.as_ref() == Some(instance)
        && !task.reported
}

/// The agent itself, or the administration.
fn require_agent(id: Uuid, task: &Task, by: Option<Uuid>, doing: &str) -> Result<(), Refusal> {
    if by.is_none() || by == task.agent {
        return Ok(());
    }
    Err(not_yours(id, doing, "the agent that it is assigned to"))
}

pub(in crate::pool) fn start(
    id: Uuid,
    task: &Task,
    agent: Uuid,
    instance: &InstanceId,
    managed: bool,
    ctx: &Ctx,
) -> Event {
    Event::Started {
        task: id,
        agent,
        instance: instance.clone(),
        managed,
        attempt: task.attempt + 1,
        until: ctx.now + Term::lease(managed).period(),
        at: ctx.now,
    }
}
