//! Long sleeps: a frozen run gives its memory back and is started again when its wait is over.
//!
//! The wait goes on as before; only its runner knows the difference. A run that wakes while its processes are being
//! ended bids once that is done, so that nobody has to guess whether it is thawed or started.

use serde_json::{Value, json};

use super::draft::Draft;
use crate::agent::effects;
use crate::agent::event::Event;
use crate::agent::state::{Class, Instance, Spill};
use crate::agent::waits::Outcome;
use crate::entity::Effect;
use crate::fence::Token;
use crate::id::InstanceId;

impl Draft<'_> {
    /// Has the runner end the processes of a frozen run and keep its files.
    pub(super) fn spill(&mut self, id: &InstanceId) {
        let Some(instance) = self.agent.instances.get(id).cloned() else { return };
        let token = self.next_token(&instance);
        self.push(Event::Spilling { instance: id.clone(), token });
        self.send(effects::spill(&instance, token));
    }

    pub(super) fn spilled(&mut self, instance: &Instance) {
        if instance.spill == Some(Spill::Ordered) {
            self.push(Event::Spilled { instance: instance.id.clone() });
            self.wake_if_over(&instance.id);
        }
    }

    /// The runner says that it is frozen still.
    pub(super) fn spill_refused(&mut self, instance: &Instance) {
        self.push(Event::SpillRefused { instance: instance.id.clone() });
        self.wake_if_over(&instance.id);
    }

    /// The runner has started it again: from now on it is a run like any other, and has heard what woke it.
    pub(super) fn restored(&mut self, instance: &Instance, pid: Option<u32>) {
        if instance.begins_again() {
            self.push(Event::Restored { instance: instance.id.clone(), pid });
        }
    }

    /// A frozen run whose wait is over bids for a slot, unless its agent is paused or its runner is busy ending its
    /// processes.
    pub(super) fn wake(&mut self, id: &InstanceId) {
        let ending = self.agent.instances.get(id).is_some_and(|run| run.spill == Some(Spill::Ordered));
        if !ending && !self.agent.standing.is_paused() {
            self.bid(id, Class::Resumed);
        }
    }

    fn wake_if_over(&mut self, id: &InstanceId) {
        if self.wait_of(id).is_some_and(|wait| !wait.is_open()) {
            self.wake(id);
        }
    }

    /// What its wait came to goes with the order to start it again: no call of its own waits for it any more.
    pub(super) fn hand_over(&mut self, instance: &Instance) {
        let wait = self.wait_of(&instance.id).filter(|wait| !wait.delivered).map(|wait| wait.id);
        if let (Some(wait), Some(Spill::Done)) = (wait, instance.spill) {
            self.push(Event::WaitDelivered { wait, asked: None });
        }
    }

    /// Has the runner let it run on, in whichever way it sleeps.
    pub(super) fn go_on(&self, instance: &Instance, token: Token) -> Option<Effect> {
        match instance.spill {
            Some(Spill::Done) => effects::restore(instance, token, self.what_woke(&instance.id)),
            _ => effects::thaw(instance, token),
        }
    }

    /// The input of a run that is started again.
    fn what_woke(&self, id: &InstanceId) -> Value {
        let outcome = self.wait_of(id).and_then(|wait| wait.outcome.clone());
        let mut input = json!({ "type": "resumed" });
        match outcome {
            Some(Outcome::Triggered { payload, .. }) => {
                input["outcome"] = json!("triggered");
                input["payload"] = json!(payload);
            }
            Some(Outcome::WaitTimeout) => input["outcome"] = json!("wait_timeout"),
            None => {}
        }
        input
    }
}
