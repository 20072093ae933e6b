//! What operators say of the agent: whether it takes work, whether it starts what it has, and how much at a time.
//!
//! It outlives registrations of the runner, which say what the agent is and nothing of this but its scale: that of a
//! definition counts from when it is another one than before.

use std::num::NonZeroU32;

use super::define::killed;
use super::draft::Draft;
use crate::agent::event::Event;
use crate::agent::state::{Input, Instance, State};
use crate::agent::{Command, Reply, effects};
use crate::code::{Code, Refusal};
use crate::id::InstanceId;
use crate::json;
use crate::slice::Slice;
use crate::time::Timestamp;

/// Reason of a dead letter, and what the callers are told.
pub(super) const AGENT_DISABLED: &str = "agent_disabled";
pub(super) const DISABLED: &str = "the agent was disabled";
pub(super) const AGENT_REMOVED: &str = "agent_removed";
pub(super) const REMOVED: &str = "the agent was removed";

impl Draft<'_> {
    pub(super) fn set_enabled(&mut self, enabled: bool) -> Result<Reply, Refusal> {
        self.must_be_defined()?;
        let was_enabled = self.agent.is_enabled();
        if self.agent.standing.disabled != enabled && was_enabled == enabled {
            return Ok(Reply::Done);
        }
        self.push(Event::Enabled { enabled });
        if was_enabled && !enabled {
            self.stop_work(DISABLED, AGENT_DISABLED);
        }
        self.bid_next();
        Ok(Reply::Done)
    }

    pub(super) fn set_paused(&mut self, paused: bool) -> Result<Reply, Refusal> {
        self.must_be_defined()?;
        if self.agent.standing.paused != paused {
            self.push(Event::Paused { paused });
            self.hold_or_go_on();
        }
        Ok(Reply::Done)
    }

    pub(super) fn set_swarm_paused(&mut self, paused: bool, word: u64) -> Reply {
        if word > self.agent.standing.swarm_word {
            self.push(Event::SwarmPaused { paused, word });
            self.hold_or_go_on();
        }
        Reply::Done
    }

    /// Says how many slots the agent has at most, or has its definition say it again.
    pub(super) fn set_scale(&mut self, scale: Option<NonZeroU32>) -> Result<Reply, Refusal> {
        self.must_be_defined()?;
        let usual = self.agent.limits().scale;
        let scale = scale.filter(|scale| scale.get() != usual);
        if scale == self.agent.standing.scale {
            return Ok(Reply::Done);
        }
        let took_work = self.agent.takes_work();
        self.push(Event::Scaled { scale });
        if took_work && !self.agent.takes_work() {
            self.stop_work(DISABLED, AGENT_DISABLED);
            self.serve_queued_calls();
        }
        self.renew_bids_of_woken();
        self.unbid_queued();
        self.bid_next();
        Ok(Reply::Done)
    }

    /// Empties the queue of what nobody serves and ends the runs that wait; what runs goes on. A dead letter holds all
    /// that its run was to be given, so one decision writes so many of them; the rest starts no more and is due at
    /// once.
    pub(super) fn stop_work(&mut self, reason: &str, dead: &str) {
        if !self.agent.serves_calls() {
            for id in self.queued_calls() {
                self.drop_queued(&id, reason, None);
            }
        }
        self.drop_leftover(reason, dead, &mut Slice::default());
        self.unbid_queued();
        self.stop_each(self.runs(|run| run.state.is_waiting()), reason);
    }

    /// Ends as many of these runs as one decision may write, and has each of the others ended by one of its own.
    pub(super) fn stop_each(&mut self, runs: Vec<InstanceId>, reason: &str) {
        let mut slice = Slice::default();
        for instance in runs {
            match self.has_room(&mut slice, &instance) {
                Some(()) => self.stop(&instance, killed(reason)),
                None => self.go_on_later(&Command::Kill { instance, reason: reason.to_owned() }),
            }
        }
    }

    /// Goes on with that, as far as there is room.
    pub(super) fn empty_queue(&mut self, slice: &mut Slice) -> Option<()> {
        match self.agent.defined {
            Some(_) => self.drop_leftover(DISABLED, AGENT_DISABLED, slice),
            None => self.drop_leftover(REMOVED, AGENT_REMOVED, slice),
        }
    }

    fn drop_leftover(&mut self, reason: &str, dead: &str, slice: &mut Slice) -> Option<()> {
        let leftover: Vec<(InstanceId, Input)> =
            self.agent.leftover().map(|item| (item.instance.clone(), item.input.clone())).collect();
        for (id, input) in leftover {
            slice.takes(json::length(input.get())).then_some(())?;
            self.drop_queued(&id, reason, Some(dead));
        }
        Some(())
    }

    pub(super) fn runs(&self, wanted: impl Fn(&Instance) -> bool) -> Vec<InstanceId> {
        let runs = self.agent.instances.values().filter(|instance| !instance.external);
        runs.filter(|run| wanted(run)).map(|run| run.id.clone()).collect()
    }

    fn hold_or_go_on(&mut self) {
        if self.agent.standing.is_paused() {
            self.unbid_queued();
            for id in self.runs(|run| run.state == State::Resuming) {
                self.hold(&id);
            }
            return;
        }
        for id in self.woken() {
            self.wake(&id);
        }
        self.bid_next();
    }

    /// A frozen run whose wait is over stays frozen while its agent is paused.
    fn hold(&mut self, id: &InstanceId) {
        let Some(instance) = self.agent.instances.get(id) else { return };
        let effect = instance.bid.and_then(|bid| effects::withdraw(instance, bid));
        self.send(effect);
        self.push(Event::Held { instance: id.clone() });
    }

    /// Frozen runs whose wait is over, the longest-waiting first.
    fn woken(&self) -> Vec<InstanceId> {
        let over = |run: &Instance| -> Option<(Timestamp, InstanceId)> {
            let wait = self.wait_of(&run.id).filter(|wait| !wait.is_open())?;
            (run.state == State::Frozen).then(|| (wait.registered, run.id.clone()))
        };
        let mut woken: Vec<_> = self.agent.instances.values().filter_map(over).collect();
        woken.sort();
        woken.into_iter().map(|(_, id)| id).collect()
    }

    fn must_be_defined(&self) -> Result<(), Refusal> {
        if self.agent.defined.is_some() {
            return Ok(());
        }
        Err(Refusal::new(
            Code::NotFound,
            format!("agent {} is not defined; define it on a runner first", self.agent.name),
        ))
    }
}
