//! The work queue: what is taken in, and what gives way.

use serde_json::Value;
use uuid::Uuid;

use super::define::killed;
use super::draft::Draft;
use super::standing::AGENT_DISABLED;
use crate::agent::Reply;
use crate::agent::event::Event;
use crate::agent::state::{Class, Input, Instance, Item, State};
use crate::code::{Code, Refusal};
use crate::id::InstanceId;

impl Draft<'_> {
    pub(super) fn enqueue(
        &mut self,
        class: Class,
        source: &str,
        receipt: Option<Uuid>,
        input: &Value,
    ) -> Result<Reply, Refusal> {
        if matches!(class, Class::Resumed | Class::Call) {
            return Err(Refusal::new(
                Code::InvalidArgument,
                "only manual, webhook and schedule runs are queued so; calls come in by `call`",
            ));
        }
        if let Err(refusal) = self.accepts_work() {
            // A webhook was answered long ago: nobody would hear the refusal.
            return match class {
                Class::Webhook => {
                    let reason =
                        if refusal.code == Code::Disabled { AGENT_DISABLED } else { refusal.code.as_str() };
                    Ok(self.dead_letter(class, source, receipt, (input, 0), reason))
                }
                _ => Err(refusal),
            };
        }
        let tick = self.queued_ticks(class, source).next().map(|tick| tick.instance.clone());
        if let Some(instance) = tick {
            return Ok(Reply::Coalesced { instance });
        }
        if !self.make_room() {
            return Ok(self.dead_letter(class, source, receipt, (input, 0), OVERFLOW));
        }
        let item = self.item(class, source, receipt, input.clone());
        let instance = item.instance.clone();
        self.queue_run(Instance::of(&item), item);
        self.bid_next();
        Ok(Reply::Queued { instance })
    }

    /// # Errors
    /// `not_found` and `disabled`, when this agent starts no runs.
    pub(super) fn accepts_work(&self) -> Result<(), Refusal> {
        let name = &self.agent.name;
        if self.agent.takes_work() {
            return Ok(());
        }
        if self.agent.defined.is_none() {
            return Err(Refusal::new(
                Code::NotFound,
                format!(
                    "no agent {name} takes calls or runs: define it on a runner, or let it call wait_for_trigger with type agent_trigger first"
                ),
            ));
        }
        Err(Refusal::new(
            Code::Disabled,
            format!("agent {name} is disabled; enable it, or give it a scale above 0"),
        ))
    }

    pub(super) fn is_full(&self) -> bool {
        let bids = self.agent.openings().saturating_sub(self.agent.index.active());
        // What can bid at once does not wait in the queue.
        self.agent.index.in_line() >= self.agent.limits().work_queue + bids
    }

    pub(super) fn item(
        &mut self,
        class: Class,
        source: &str,
        receipt: Option<Uuid>,
        input: impl Into<Input>,
    ) -> Item {
        let mut instance = InstanceId::new(&self.agent.name, self.ctx.random());
        while self.agent.instances.contains_key(&instance) {
            instance = InstanceId::new(&self.agent.name, self.ctx.random());
        }
        let (number, at) = (self.agent.index.next_number(), self.now());
        Item { instance, number, class, source: source.to_owned(), receipt, at, input: input.into() }
    }

    pub(super) fn queue_run(&mut self, instance: Instance, item: Item) {
        self.push(Event::Queued { instance, item });
    }

    pub(super) fn queue_full(&self) -> Refusal {
        let problem = format!("the queue of agent {} is full; try again later", self.agent.name);
        Refusal::new(Code::QueueFull, problem)
    }

    /// Ends a run that has not started. Its call fails with `reason`; with `dead` any other item becomes a
    /// dead letter. Whoever drops runs lets others bid once all are dropped: the next one may be dropped as well.
    pub(super) fn drop_queued(&mut self, id: &InstanceId, reason: &str, dead: Option<&str>) {
        let item = self.agent.queue.get(id).filter(|item| item.class != Class::Call).cloned();
        if let (Some(item), Some(dead)) = (item, dead) {
            let rerun = self.agent.instances.get(id).map_or(0, |run| run.rerun);
            self.dead_letter(item.class, &item.source, item.receipt, (item.input.get(), rerun), dead);
        }
        self.close(id, killed(reason));
    }

    /// The last hand-made instance of an agent that starts no runs has ended: nobody will serve its calls.
    pub(super) fn drop_unserved(&mut self) {
        if self.agent.takes_work() || self.agent.has_external() {
            return;
        }
        for id in self.queued_calls() {
            self.drop_queued(&id, "no instance is left to serve the call", None);
        }
    }

    pub(super) fn queued_calls(&self) -> Vec<InstanceId> {
        let calls = self.agent.queued().filter(|item| item.class == Class::Call);
        calls.map(|item| item.instance.clone()).collect()
    }

    /// Makes the oldest item that is no call give way if the queue is full. False when all are calls.
    pub(super) fn make_room(&mut self) -> bool {
        if !self.is_full() {
            return true;
        }
        let evictable = Class::ALL.into_iter().filter(|class| *class != Class::Call);
        let oldest = evictable.filter_map(|class| self.agent.index.line(class).next()).min();
        let Some(oldest) = oldest.map(|(_, run)| run.clone()) else { return false };
        self.drop_queued(&oldest, "it gave way to newer work in a full queue", Some(OVERFLOW));
        true
    }

    /// Ticks of the same schedule that have not started: one run serves them and this one.
    pub(super) fn queued_ticks(&self, class: Class, source: &str) -> impl Iterator<Item = &Item> {
        let queue = (class == Class::Schedule).then_some(&self.agent.queue);
        queue.into_iter().flat_map(|queue| queue.values()).filter(move |item| {
            let state = self.agent.instances.get(&item.instance).map(|instance| instance.state);
            item.class == Class::Schedule && item.source == source && state == Some(State::Queued)
        })
    }
}

/// Reason of a dead letter: the queue was full.
pub(super) const OVERFLOW: &str = "queue_overflow";
