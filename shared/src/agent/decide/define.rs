//! What the agent is, by the word of its runner.

use uuid::Uuid;

use super::draft::Draft;
use super::standing::{AGENT_DISABLED, AGENT_REMOVED, DISABLED, REMOVED};
use crate::agent::event::Event;
use crate::agent::state::{Class, End, Instance, State};
use crate::agent::{Defined, Definition, Exit, Reply};
use crate::code::{Code, Refusal};
use crate::id::{InstanceId, Name};

impl Draft<'_> {
    pub(super) fn define(&mut self, definition: &Definition, group: &Name) -> Result<Reply, Refusal> {
        check(definition)?;
        let new = Defined { definition: definition.clone(), group: group.clone() };
        let old = self.agent.defined.clone();
        // Hand-made instances of an agent that nobody has defined may have calls in its queue.
        let was_enabled = old.is_none() || self.agent.is_enabled();
        let took_work = old.is_none() || self.agent.takes_work();
        let scale = self.agent.wanted_scale();
        if old.as_ref() == Some(&new) {
            return Ok(Reply::Done);
        }
        self.push(Event::Defined(new));
        // A number that it has not said before is the later word.
        let is_said_anew = old.as_ref().is_none_or(|old| old.definition.scale != definition.scale);
        if is_said_anew && self.agent.standing.scale.is_some() {
            self.push(Event::Scaled { scale: None });
        }
        if (was_enabled && !self.agent.is_enabled()) || (took_work && !self.agent.takes_work()) {
            self.stop_work(DISABLED, AGENT_DISABLED);
            self.serve_queued_calls();
        }
        if let Some(old) = old {
            let same_bids = old.group == *group
                && scale == self.agent.wanted_scale()
                && old.definition.needs == definition.needs;
            if !same_bids {
                self.renew_bids_of_woken();
                self.unbid_queued();
            }
        }
        self.bid_next();
        Ok(Reply::Done)
    }

    /// It takes nothing more while its runs are ended under the terms that they were started under.
    pub(super) fn undefine(&mut self) -> Reply {
        let Some(mut last) = self.agent.defined.clone() else { return Reply::Done };
        last.definition.enabled = false;
        self.push(Event::Defined(last));
        self.stop_work(REMOVED, AGENT_REMOVED);
        self.stop_each(self.runs(|run| !matches!(run.state, State::Queued | State::Stopping)), REMOVED);
        self.push(Event::Undefined);
        Reply::Done
    }

    pub(super) fn attach(&mut self, id: &InstanceId, agent_id: Uuid) -> Reply {
        if !self.agent.instances.contains_key(id) {
            let mut instance = Instance::new(id.clone(), Class::Manual, self.now());
            instance.external = true;
            instance.state = State::Running;
            self.push(Event::Attached { instance, agent_id });
        }
        Reply::Done
    }

    /// Runs that bid to go on do so under the new terms. The bid stays the same one, so that it has waited as long as
    /// before, and a grant that is on its way holds.
    pub(super) fn renew_bids_of_woken(&mut self) {
        for id in self.runs(|run| run.state == State::Resuming) {
            let woken = self.agent.instances.get(&id);
            let renewed = woken.and_then(|run| self.agent.place_bid(run, run.bid?, Class::Resumed));
            self.send(renewed);
        }
    }

    /// Bids made under the old terms are void.
    pub(super) fn unbid_queued(&mut self) {
        for id in self.runs(|run| run.state == State::Queued && run.bid.is_some()) {
            self.unbid(&id);
        }
    }
}

pub(super) fn killed(reason: &str) -> Exit {
    Exit { end: End::Killed, code: None, signal: None, reason: reason.to_owned(), usage: None }
}

fn check(definition: &Definition) -> Result<(), Refusal> {
    if definition.timeout_ms == 0 || definition.wait_timeout_ms == 0 {
        return Err(Refusal::new(
            Code::InvalidArgument,
            "timeout_ms and wait_timeout_ms must be at least 1; leave them out for the defaults",
        ));
    }
    Ok(())
}
