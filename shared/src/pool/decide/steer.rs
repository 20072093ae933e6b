//! Talking to whoever works on a task: what is said comes with the next answer that the agent gets.

use std::collections::BTreeMap;

use serde_json::json;
use uuid::Uuid;

use super::{Answer, not_yours, wrong_state};
use crate::code::{Code, Refusal};
use crate::entity::{Ctx, Decision};
use crate::id::InstanceId;
use crate::limits;
use crate::pool::command::Reply;
use crate::pool::event::Event;
use crate::pool::state::{Pool, Status};
use crate::pool::steering::Untold;
use crate::time::Timestamp;
use crate::wire;

impl Pool {
    /// The lead and the creator of a task may steer it; so may the administration.
    pub(super) fn decide_steer(&self, id: Uuid, by: Option<Uuid>, text: &str, ctx: &mut Ctx) -> Answer {
        if let Some(by) = by {
            self.joined(by)?;
        }
        let task = &self.live(id)?;
        if by.is_some() && by != self.lead && by != task.creator {
            return Err(not_yours(id, "steered", "the lead or the agent that created it"));
        }
        if !matches!(task.status, Status::Pending | Status::InProgress | Status::Paused) {
            return Err(wrong_state(id, task.status, "steered", "pending, in_progress or paused"));
        }
        wire::length("message", text, 1, limits::MESSAGE)?;
        if self.steering.of(id).count() >= limits::STEERING {
            return Err(Refusal::new(
                Code::QueueFull,
                format!(
                    "the agent of task {id} has not had the last {} messages yet; wait until it calls a tool",
                    limits::STEERING
                ),
            )
            .with(json!({ "task": id })));
        }
        let message = ctx.id();
        let since = self.steering.next(id, ctx.now);
        let event = Event::Steered { task: id, message, by, text: text.to_owned(), since };
        Ok(Decision::new(Reply::Steered { message, task: task.view(id) }, vec![event]))
    }

    /// What an instance has not been told yet about the tasks that it works on. Of a task that no runner watches any
    /// instance of its agent is told: such an agent may have got a new token meanwhile.
    pub(super) fn decide_take_steering(
        &self,
        agent: Uuid,
        instance: &InstanceId,
        ctx: &Ctx,
    ) -> Decision<Pool> {
        if self.steering.is_empty() {
            return Decision::reply(Reply::Steering(Vec::new()));
        }
        let mut events = Vec::new();
        let mut all = Vec::new();
        for id in self.indexes.active_of(agent) {
            let Some(task) = self.tasks.get(id) else { continue };
            let said: Vec<_> = self.steering.of(id).collect();
            let messages: Vec<Uuid> = said.iter().map(|(_, message)| *message).collect();
            if messages.is_empty() || (task.managed && task.instance.as_ref() != Some(instance)) {
                continue;
            }
            all.extend(said);
            events.push(Event::SteeringTaken { task: id, messages, agent, since: ctx.now });
        }
        all.sort_unstable();
        let all = all.into_iter().map(|(_, message)| message).collect();
        Decision::new(Reply::Steering(all), events)
    }

    /// What an answer has carried that reached nobody comes with the next one, unless its task has ended.
    pub(super) fn decide_steering_lost(&self, messages: &[Untold]) -> Decision<Pool> {
        let mut waiting = Vec::new();
        let mut by_task: BTreeMap<Uuid, Vec<(Timestamp, Uuid)>> = BTreeMap::new();
        for &Untold { message, task, since } in messages {
            if self.tasks.get(task).is_some() && self.steering.of(task).all(|(_, other)| other != message) {
                by_task.entry(task).or_default().push((since, message));
                waiting.push(message);
            }
        }
        let returned = |(task, messages)| Event::SteeringReturned { task, messages };
        Decision::new(Reply::Steering(waiting), by_task.into_iter().map(returned).collect())
    }
}
