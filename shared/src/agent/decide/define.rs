//! What the agent is, and whether it takes work.

use uuid::Uuid;

use super::draft::Draft;
use crate::agent::event::Event;
use crate::agent::state::{Class, Defined, Definition, End, Instance, State};
use crate::agent::{Exit, Reply};
use crate::code::{Code, Refusal};
use crate::id::{InstanceId, Name};

impl Draft<'_> {
    pub(super) fn define(&mut self, definition: &Definition, group: &Name) -> Result<Reply, Refusal> {
        check(definition)?;
        let new = Defined { definition: definition.clone(), group: group.clone() };
        let old = self.agent.defined.clone();
        if old.as_ref() == Some(&new) {
            return Ok(Reply::Done);
        }
        self.push(Event::Defined(new));
        if let Some(old) = old {
            let same_bids = old.group == *group
                && old.definition.scale == definition.scale
                && old.definition.needs == definition.needs;
            if !same_bids {
                self.unbid_queued();
            }
            if old.definition.enabled && !definition.enabled {
                self.stop_work("the agent was disabled", "agent_disabled");
            }
        }
        self.bid_next();
        Ok(Reply::Done)
    }

    pub(super) fn undefine(&mut self) -> Reply {
        if self.agent.defined.is_none() {
            return Reply::Done;
        }
        self.push(Event::Enabled { enabled: false });
        self.stop_work("the agent was removed", "agent_removed");
        for id in self.runs(|_| true) {
            self.stop(&id, killed("the agent was removed"));
        }
        self.push(Event::Undefined);
        Reply::Done
    }

    pub(super) fn set_enabled(&mut self, enabled: bool) -> Result<Reply, Refusal> {
        let Some(defined) = &self.agent.defined else {
            return Err(Refusal::new(
                Code::NotFound,
                format!("agent {} is not defined; define it first", self.agent.name),
            ));
        };
        if defined.definition.enabled == enabled {
            return Ok(Reply::Done);
        }
        self.push(Event::Enabled { enabled });
        if !enabled {
            self.stop_work("the agent was disabled", "agent_disabled");
        }
        self.bid_next();
        Ok(Reply::Done)
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

    /// Empties the queue and ends the runs that wait; what runs goes on.
    fn stop_work(&mut self, reason: &str, dead: &str) {
        for id in self.runs(|run| run.state == State::Queued) {
            self.drop_queued(&id, reason, Some(dead));
        }
        for id in self.runs(|run| run.state.is_waiting()) {
            self.stop(&id, killed(reason));
        }
    }

    /// Bids made under the old terms are void.
    fn unbid_queued(&mut self) {
        for id in self.runs(|run| run.state == State::Queued && run.bid.is_some()) {
            self.unbid(&id);
        }
    }

    fn runs(&self, wanted: impl Fn(&Instance) -> bool) -> Vec<InstanceId> {
        let runs = self.agent.instances.values().filter(|instance| !instance.external);
        runs.filter(|run| wanted(run)).map(|run| run.id.clone()).collect()
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
