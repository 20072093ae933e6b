//! Time and death: leases, offers and reservations that end, and instances that are gone.

use uuid::Uuid;

use crate::agent::{self, Agent};
use crate::entity::{Ctx, Decision, Effect};
use crate::id::{EntityKey, InstanceId};
use crate::limits;
use crate::pool::command::Reply;
use crate::pool::event::{Event, Return};
use crate::pool::state::{Pool, Status, Task, Term};
use crate::time::Timestamp;

impl Pool {
    /// Ends what is due. A new owner has heard no sign of life yet, so each term gets one full period from
    /// the start of its service; [`Event::Served`] makes the timer know.
    pub(super) fn decide_tick(&self, ctx: &mut Ctx) -> Decision<Pool> {
        let (mut events, mut effects) = (Vec::new(), Vec::new());
        for term in Term::ALL {
            if ctx.grace(Timestamp::ZERO, term.period()) > ctx.now {
                continue;
            }
            for id in self.deadlines.due(term, ctx.now) {
                let Some(task) = self.tasks.get(id) else { continue };
                match term {
                    Term::Offer => events.push(Event::OfferExpired { task: id, at: ctx.now }),
                    Term::Return => events.push(Event::ReservationEnded { task: id, at: ctx.now }),
                    Term::Runner | Term::Agent | Term::Report => {
                        let lost = self.lose(id, &task, silence(term), ctx);
                        events.extend(lost.0);
                        effects.extend(lost.1);
                    }
                }
            }
        }
        let ended = events.len();
        // What else is due is looked at by itself: a task that has just been lost is not stalled.
        if ended == 0 {
            events.extend(self.stalled(ctx));
            events.extend(self.neglected(ctx));
            events.extend(self.idlers(ctx));
        }
        if self.deadlines.serving_since() != ctx.serving_since {
            events.push(Event::Served { since: ctx.serving_since });
        }
        Decision::new(Reply::Ticked { ended }, events).effects(effects)
    }

    pub(super) fn decide_end(&self, instance: &InstanceId, reason: &str, ctx: &mut Ctx) -> Decision<Pool> {
        let tasks: Vec<Uuid> = self.indexes.of_instance(instance).collect();
        let (mut events, mut effects) = (Vec::new(), Vec::new());
        for &id in &tasks {
            let Some(task) = self.tasks.get(id) else { continue };
            let lost = self.lose(id, &task, reason, ctx);
            events.extend(lost.0);
            effects.extend(lost.1);
        }
        Decision::new(Reply::Ended { tasks }, events).effects(effects)
    }

    /// The same agent has the first right to a task that it lost, for it may hold half of the work; after
    /// too many losses the lead decides. A lead's own task stays with the lead. What goes on losing whoever takes it
    /// is failed.
    fn lose(&self, task: Uuid, head: &Task, reason: &str, ctx: &mut Ctx) -> (Vec<Event>, Vec<Effect>) {
        let generation = head.generation + 1;
        if generation >= limits::TASK_GENERATIONS_MAX {
            return self.give_up(
                task,
                head,
                &format!("it lost its agent {generation} times, last because {reason}"),
                ctx,
            );
        }
        let spent = generation >= limits::TASK_GENERATIONS;
        let agent = head.agent.filter(|agent| self.members.contains_key(agent));
        let to = match (self.lead, agent) {
            (Some(lead), agent) if spent || agent == Some(lead) => Return::Lead { lead },
            (None, _) if spent => Return::Pool,
            (_, Some(_)) => Return::SameAgent { until: ctx.now + limits::TASK_RETURN },
            (_, None) => Return::Pool,
        };
        let lost = Event::LeaseLost { task, generation, to, reason: reason.to_owned(), at: ctx.now };
        (vec![lost], Vec::new())
    }

    /// The acknowledgement goes out even when there was nothing to extend: the sleeper waits for it.
    pub(super) fn decide_extend(
        &self,
        instance: &InstanceId,
        until: Timestamp,
        wait: Uuid,
        reply_to: &EntityKey,
        ctx: &Ctx,
    ) -> Decision<Pool> {
        let tasks: Vec<Uuid> = self.started_by(instance).collect();
        let mut events = Vec::new();
        if !tasks.is_empty() {
            let (instance, tasks) = (instance.clone(), tasks.clone());
            events.push(Event::LeasesExtended { instance, tasks, until, at: ctx.now });
        }
        let acknowledged =
            Effect::entity::<Agent>(reply_to.clone(), &agent::Command::LeasesExtended { wait });
        Decision::new(Reply::Extended { tasks }, events).effects(vec![acknowledged])
    }

    /// The wait is over: its tasks have a usual lease again, from now. Who has just woken has reported nothing for the
    /// whole wait, so that a task counts as stalled when this ends: it is the longer of the usual leases also for one
    /// that a runner watches, and no shorter one because little of the wait was left.
    pub(super) fn decide_shorten(&self, instance: &InstanceId, ctx: &Ctx) -> Decision<Pool> {
        let until = ctx.now + Term::Agent.period();
        let is_short = |id: &Uuid| self.tasks.get(*id).is_some_and(|task| task.until < Some(until));
        let is_long = |id: &Uuid| self.deadlines.get(*id).is_some_and(|(_, end)| until < end);
        let short: Vec<Uuid> = self.started_by(instance).filter(is_short).collect();
        let long: Vec<Uuid> = self.started_by(instance).filter(is_long).collect();
        let tasks = self.started_by(instance).filter(|id| is_short(id) || is_long(id)).collect();
        let (instance, at) = (instance.clone(), ctx.now);
        let mut events = Vec::new();
        if !short.is_empty() {
            events.push(Event::LeasesExtended { instance: instance.clone(), tasks: short, until, at });
        }
        if !long.is_empty() {
            events.push(Event::LeasesShortened { instance, tasks: long, until, at });
        }
        Decision::new(Reply::Extended { tasks }, events)
    }

    fn started_by(&self, instance: &InstanceId) -> impl Iterator<Item = Uuid> {
        let started = |id: &Uuid| self.tasks.get(*id).is_some_and(|task| task.status == Status::InProgress);
        self.indexes.of_instance(instance).filter(started)
    }
}

/// Why the agent of a task counts as gone.
fn silence(term: Term) -> &'static str {
    match term {
        Term::Runner => "its runner no longer answers for the instance",
        _ => "its agent has made no call for the length of its lease",
    }
}
