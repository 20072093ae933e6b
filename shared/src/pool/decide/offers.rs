//! Offers: an agent is asked, and says yes or no.

use uuid::Uuid;

use super::{Answer, not_yours, require_ready, require_reason, wrong_state};
use crate::code::Refusal;
use crate::entity::{Ctx, Decision};
use crate::pool::command::Reply;
use crate::pool::event::Event;
use crate::pool::state::{Pool, Status, Task};
use crate::pool::view::TaskView;

impl Pool {
    /// Offers that the agent could accept now, oldest first. One that waits for other tasks is left out: it
    /// would end every poll at once and could not be acted on.
    pub(super) fn open_offers(&self, agent: Uuid) -> Vec<TaskView> {
        let offers = self.indexes.offers_to(agent).filter_map(|id| Some((id, self.tasks.get(id)?)));
        offers.filter(|(_, task)| task.is_ready()).map(|(id, task)| task.view(id)).collect()
    }

    pub(super) fn decide_review(&self, agent: Uuid, ctx: &Ctx) -> Answer {
        self.joined(agent)?;
        let mut offers = self.open_offers(agent).into_iter();
        let Some(mut view) = offers.find(|offer| offer.status == Status::Offered) else {
            return Ok(Decision::reply(Reply::Reviewing { task: None }));
        };
        let event = Event::Reviewed { task: view.id, at: ctx.now };
        (view.status, view.updated) = (Status::Reviewing, ctx.now);
        Ok(Decision::new(Reply::Reviewing { task: Some(view) }, vec![event]))
    }

    pub(super) fn decide_accept(&self, agent: Uuid, id: Uuid, ctx: &Ctx) -> Answer {
        let task = &self.offer(agent, id, "accepted")?;
        require_ready(id, task)?;
        Ok(self.changed(id, task, vec![Event::Accepted { task: id, agent, at: ctx.now }]))
    }

    pub(super) fn decide_reject(&self, agent: Uuid, id: Uuid, reason: &Option<String>, ctx: &Ctx) -> Answer {
        let offer = self.offer(agent, id, "rejected");
        let task = &offer.map_err(|refusal| self.instead_of_rejecting(agent, id, refusal))?;
        require_reason(reason.as_deref())?;
        let event = Event::Rejected { task: id, reason: reason.clone(), at: ctx.now };
        Ok(self.changed(id, task, vec![event]))
    }

    /// Whoever has the task may want to be rid of it, as of an offer, and can be in another way.
    fn instead_of_rejecting(&self, agent: Uuid, id: Uuid, refusal: Refusal) -> Refusal {
        let has_it = |task: &Task| {
            task.agent == Some(agent) && matches!(task.status, Status::Pending | Status::InProgress)
        };
        if !self.tasks.get(id).is_some_and(|task| has_it(&task)) {
            return refusal;
        }
        let message = format!(
            "{}; this one is yours: give it back with task-action `release`, or end it with store-progress as failed \
             and say why",
            refusal.message
        );
        Refusal { message, ..refusal }
    }

    fn offer(&self, agent: Uuid, id: Uuid, doing: &str) -> Result<Task, Refusal> {
        let task = self.live(id)?;
        if !task.status.is_offer() {
            return Err(wrong_state(id, task.status, doing, "offered or reviewing"));
        }
        if task.offered_to != Some(agent) {
            return Err(not_yours(id, doing, "the agent that it is offered to"));
        }
        Ok(task)
    }
}
