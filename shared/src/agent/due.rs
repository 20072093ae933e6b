//! When an agent has something to do by itself.

use std::collections::BTreeSet;
use std::time::Duration;

use super::call::CallRecord;
use super::state::{Agent, Class, Instance, Item, State};
use crate::id::InstanceId;
use crate::limits;
use crate::time::Timestamp;

impl Agent {
    /// What is still queued though nothing of it is to start. Hand-made instances may serve its calls.
    pub(super) fn leftover(&self) -> impl Iterator<Item = &Item> {
        let stopped = !self.takes_work();
        self.queued().filter(move |item| stopped && item.class != Class::Call)
    }

    /// Hand-made instances that neither wait nor serve a call, and when each is forgotten if it makes none either:
    /// nobody says that one has ended, and each new token is one more.
    pub(super) fn silent(&self) -> impl Iterator<Item = (&InstanceId, Timestamp)> {
        let serving: BTreeSet<&InstanceId> =
            self.calls.values().filter_map(|call| call.callee.as_ref()).collect();
        let idle = self.instances.values().filter(|known| known.external && known.state == State::Running);
        let idle = idle.filter(move |known| !serving.contains(&known.id));
        idle.map(|known| (&known.id, known.since + limits::HAND_MADE))
    }

    /// When an open call fails for want of an end. None while its callee waits.
    pub(super) fn call_due(&self, call: &CallRecord) -> Option<Timestamp> {
        let callee = call.callee.as_ref().and_then(|id| self.instances.get(id));
        let waits = callee.is_some_and(|callee| callee.state.is_waiting());
        (!waits).then_some(call.until)
    }

    /// When a frozen run gives its memory back. One whose wait is over is about to need it again.
    pub(super) fn spill_due(&self, instance: &Instance) -> Option<Timestamp> {
        let after = self.defined.as_ref()?.definition.spill_after_ms;
        let sleeps = instance.state == State::Frozen && instance.spill.is_none() && after > 0;
        let wait = self.waits.get(&instance.wait.filter(|_| sleeps)?).filter(|wait| wait.is_open())?;
        Some(wait.registered + Duration::from_millis(after))
    }

    /// The next moment at which something happens by itself.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let waits = self.waits.values().filter(|wait| wait.is_open()).map(|wait| wait.deadline);
        let calls = self.calls.values().filter_map(|call| self.call_due(call));
        let runs = self.instances.values().filter_map(Instance::run_deadline);
        let spills = self.instances.values().filter_map(|instance| self.spill_due(instance));
        let leftover = self.leftover().map(|item| item.at);
        let silent = self.silent().map(|(_, due)| due);
        let own = waits.chain(calls).chain(runs).chain(spills).chain(leftover).chain(silent);
        own.chain(self.finished.next_due()).min()
    }
}
