//! What ends by the clock: waits, calls, runs.

use super::calls::Work;
use super::draft::Draft;
use super::reports::TIMED_OUT;
use crate::agent::Reply;
use crate::agent::call::CallRecord;
use crate::agent::event::Event;
use crate::agent::state::{End, Exit, Instance};
use crate::agent::waits::Outcome;
use crate::id::InstanceId;
use crate::json;
use crate::slice::Slice;
use uuid::Uuid;

impl Draft<'_> {
    pub(super) fn tick(&mut self) -> Reply {
        self.end_due(&mut Slice::default());
        self.bid_next();
        Reply::Done
    }

    /// What all have to write down who were due while nobody served the agent may be more than one commit takes. `None`
    /// says that the slice is full: the rest stays due.
    fn end_due(&mut self, slice: &mut Slice) -> Option<()> {
        for wait in self.due_waits() {
            let instance = self.agent.waits.get(&wait).map(|wait| wait.instance.clone());
            if let Some(instance) = instance {
                self.has_room(slice, &instance)?;
                self.cancel_wait_of(&instance);
            }
            self.finish_wait(wait, Outcome::WaitTimeout);
        }
        for run in self.due_spills() {
            self.has_room(slice, &run)?;
            self.spill(&run);
        }
        for run in self.due_runs() {
            self.has_room(slice, &run)?;
            let reason = "timeout".to_owned();
            self.stop(
                &run,
                Exit { end: End::Error, code: Some(TIMED_OUT), signal: None, reason, usage: None },
            );
        }
        for call in self.due_calls() {
            slice.takes(0).then_some(())?;
            self.abandon(call, "call timed out", Work::IsNotBegun);
        }
        self.empty_queue(slice)?;
        self.forget_silent(slice)?;
        for call in self.agent.finished.due(self.now()) {
            let error = self.call(call).and_then(|call| call.error.as_ref()).map_or(0, String::len);
            slice.takes(error).then_some(())?;
            self.push(Event::CallForgotten { call });
        }
        Some(())
    }

    /// Whether an instance, which its document holds with what it was given and has returned, can be written once more,
    /// beside an event that it gives back.
    pub(super) fn has_room(&self, slice: &mut Slice, id: &InstanceId) -> Option<()> {
        let texts = self.agent.instances.get(id).map_or(0, json::length);
        slice.takes(texts + self.unheard_length(id)).then_some(())
    }

    fn unheard_length(&self, id: &InstanceId) -> usize {
        self.unheard(id).map_or(0, |(_, _, event)| json::length(event))
    }

    /// What they hold in the swarm stays: of a life that shows there alone nothing is known here.
    fn forget_silent(&mut self, slice: &mut Slice) -> Option<()> {
        let due = self.agent.silent().filter(|(_, due)| *due <= self.now());
        let silent: Vec<InstanceId> = due.map(|(id, _)| id.clone()).collect();
        if silent.is_empty() {
            return Some(());
        }
        for instance in silent {
            slice.takes(self.unheard_length(&instance)).then_some(())?;
            self.give_back_unheard(&instance);
            self.push(Event::Forgotten { instance });
        }
        self.drop_unserved();
        Some(())
    }

    fn due_waits(&self) -> Vec<Uuid> {
        let waits = self.agent.waits.values();
        waits.filter(|wait| wait.is_open() && wait.deadline <= self.now()).map(|wait| wait.id).collect()
    }

    fn due_spills(&self) -> Vec<InstanceId> {
        let due = |run: &&Instance| self.agent.spill_due(run).is_some_and(|at| at <= self.now());
        self.agent.instances.values().filter(due).map(|run| run.id.clone()).collect()
    }

    fn due_runs(&self) -> Vec<InstanceId> {
        let due = |run: &&Instance| run.run_deadline().is_some_and(|deadline| deadline <= self.now());
        self.agent.instances.values().filter(due).map(|run| run.id.clone()).collect()
    }

    fn due_calls(&self) -> Vec<Uuid> {
        let due = |call: &&CallRecord| self.agent.call_due(call).is_some_and(|at| at <= self.now());
        self.agent.calls.values().filter(due).map(|call| call.id).collect()
    }
}
