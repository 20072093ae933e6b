//! What ends by the clock: waits, calls, runs.

use super::calls::Work;
use super::draft::Draft;
use super::reports::TIMED_OUT;
use crate::agent::Reply;
use crate::agent::event::Event;
use crate::agent::state::{CallRecord, End, Exit, Instance};
use crate::agent::waits::Outcome;
use crate::id::InstanceId;
use uuid::Uuid;

impl Draft<'_> {
    pub(super) fn tick(&mut self) -> Reply {
        for wait in self.due_waits() {
            let instance = self.agent.waits.get(&wait).map(|wait| wait.instance.clone());
            if let Some(instance) = instance {
                self.cancel_wait_of(&instance);
            }
            self.finish_wait(wait, Outcome::WaitTimeout);
        }
        for run in self.due_spills() {
            self.spill(&run);
        }
        for run in self.due_runs() {
            let reason = "timeout".to_owned();
            self.stop(
                &run,
                Exit { end: End::Error, code: Some(TIMED_OUT), signal: None, reason, usage: None },
            );
        }
        for call in self.due_calls() {
            self.abandon(call, "call timed out", Work::IsNotBegun);
        }
        self.empty_queue();
        self.forget_silent();
        for call in self.agent.finished.due(self.now()) {
            self.push(Event::CallForgotten { call });
        }
        Reply::Done
    }

    /// What they hold in the swarm stays: of a life that shows there alone nothing is known here.
    fn forget_silent(&mut self) {
        let due = self.agent.silent().filter(|(_, due)| *due <= self.now());
        let silent: Vec<InstanceId> = due.map(|(id, _)| id.clone()).collect();
        if silent.is_empty() {
            return;
        }
        for instance in silent {
            self.push(Event::Forgotten { instance });
        }
        self.drop_unserved();
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
