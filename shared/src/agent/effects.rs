//! What an agent asks of other entities and of runners. Each function is one message.

use serde_json::Value;
use uuid::Uuid;

use super::command::Command;
use super::state::{Agent, Class, End, Exit, Instance};
use super::waits::WaitRecord;
use crate::costs::{self, Cost, Costs};
use crate::entity::{Effect, Entity, RunnerCommand};
use crate::fence::Token;
use crate::fleet::{self, Fleet};
use crate::id::{EntityKey, InstanceId, Name, agent_id};
use crate::lockspace::{self, Lockspace};
use crate::pool::{self, Pool};
use crate::time::Timestamp;
use crate::triggers::{self, Envelope, Triggers};

impl Agent {
    pub(super) fn key(&self) -> EntityKey {
        EntityKey::agent(&self.swarm, &self.name)
    }

    /// Locks of the instance end with it.
    pub(super) fn release_locks(&self, instance: &InstanceId, reason: &str) -> Effect {
        let (holder, reason) = (instance.clone(), reason.to_owned());
        self.to::<Lockspace>(&lockspace::Command::ReleaseAll { holder, reason })
    }

    /// A lock must not end while its holder is frozen and cannot refresh it. Once the wait is `over` it ends by itself.
    pub(super) fn extend_locks(&self, wait: &WaitRecord, until: Timestamp, over: bool) -> Effect {
        let (holder, wait, reply_to) = (wait.instance.clone(), wait.id, self.key());
        self.to::<Lockspace>(&lockspace::Command::Extend { holder, until, wait, reply_to, over })
    }

    /// The same of the leases of its tasks.
    pub(super) fn extend_leases(&self, wait: &WaitRecord, until: Timestamp, over: bool) -> Effect {
        let (instance, wait, reply_to) = (wait.instance.clone(), wait.id, self.key());
        self.to::<Pool>(&pool::Command::ExtendLease { instance, until, wait, reply_to, over })
    }

    pub(super) fn end_in_pool(&self, instance: &InstanceId, reason: &str) -> Effect {
        let (instance, reason) = (instance.clone(), reason.to_owned());
        self.to::<Pool>(&pool::Command::EndInstance { instance, reason })
    }

    /// What the run cost is added to what the swarm's work costs, if its harness has counted it.
    pub(super) fn tell_cost(&self, instance: &Instance, exit: &Exit, at: Timestamp) -> Option<Effect> {
        let usage = exit.usage?;
        let cost = Cost {
            total_cost_usd: (usage.cost_micros.unwrap_or_default() as f64 / 1e6).min(costs::MOST),
            input_tokens: Some(usage.input_tokens),
            output_tokens: Some(usage.output_tokens),
            // Harnesses count them among those that were read.
            cache_read_tokens: None,
            cache_write_tokens: None,
            duration_ms: instance.started.map(|started| at.millis().saturating_sub(started.millis())),
            num_turns: u32::try_from(usage.turns).ok().filter(|turns| *turns > 0),
            model: None,
        };
        let report = costs::Report {
            source: costs::Source::Run,
            session: instance.id.to_string(),
            agent: agent_id(&self.swarm, &self.name),
            task: None,
            failed: exit.end != End::Completed,
            cost,
        };
        Some(self.to::<Costs>(&costs::Command::Report(Box::new(report))))
    }

    pub(super) fn register_wait(&self, wait: &WaitRecord) -> Effect {
        let command = triggers::Command::Register {
            wait: wait.id,
            agent: self.name.clone(),
            instance: wait.instance.clone(),
            filter: wait.filter.clone(),
            registered_at: wait.registered,
            deadline: wait.deadline,
            broadcast: wait.broadcast,
            reply_to: self.key(),
        };
        self.to::<Triggers>(&command)
    }

    pub(super) fn cancel_wait(&self, wait: Uuid) -> Effect {
        self.to::<Triggers>(&triggers::Command::Cancel { wait })
    }

    /// The webhook came too late for the wait, or was never heard of, and is triggers' to place again.
    pub(super) fn unclaimed(&self, receipt: Uuid, wait: Uuid, payload: &Envelope) -> Effect {
        let (agent, payload) = (self.name.clone(), payload.clone());
        self.to::<Triggers>(&triggers::Command::Unclaimed { receipt, agent, wait, payload, kept: None })
    }

    /// The run that a webhook asked for is not to be, and its receipt shall say so.
    pub(super) fn refuse_webhook(&self, receipt: Uuid, reason: &str) -> Effect {
        let (agent, reason) = (self.name.clone(), reason.to_owned());
        self.to::<Triggers>(&triggers::Command::Refused { receipt, agent, reason })
    }

    /// The run is to be after all: a delivery that comes again need not ask for another.
    pub(super) fn take_webhook_up(&self, receipt: Uuid) -> Effect {
        self.to::<Triggers>(&triggers::Command::TakenUp { receipt, agent: self.name.clone() })
    }

    /// Asks the caller's agent to say when the caller has ended.
    pub(super) fn note_callee(&self, caller: &Name, instance: &InstanceId) -> Effect {
        let command = Command::NoteCallee { instance: instance.clone(), target: self.name.clone() };
        Effect::entity::<Agent>(EntityKey::agent(&self.swarm, caller), &command)
    }

    pub(super) fn caller_ended(&self, target: &Name, instance: &InstanceId, cancel: bool) -> Effect {
        let command = Command::CallerEnded { instance: instance.clone(), cancel };
        Effect::entity::<Agent>(EntityKey::agent(&self.swarm, target), &command)
    }

    pub(super) fn place_bid(&self, instance: &Instance, bid: Uuid, class: Class) -> Option<Effect> {
        let definition = self.limits();
        // What runs goes on when its agent starts no more, also once it has waited.
        let least = u32::from(class == Class::Resumed);
        let command = fleet::Command::Bid {
            bid,
            swarm: self.swarm.clone(),
            agent: self.name.clone(),
            instance: instance.id.clone(),
            class,
            scale: self.wanted_scale().max(least),
            needs: definition.needs,
            affinity: instance.runner.clone(),
            prefers: self.files.clone(),
        };
        to_fleet(instance, &command)
    }

    /// To the entity of that kind which the swarm has one of.
    fn to<E: Entity>(&self, command: &E::Command) -> Effect {
        Effect::entity::<E>(EntityKey::of(E::KIND, &self.swarm), command)
    }
}

pub(super) fn withdraw(instance: &Instance, bid: Uuid) -> Option<Effect> {
    to_fleet(instance, &fleet::Command::Withdraw { bid, instance: instance.id.clone() })
}

pub(super) fn free_slot(instance: &Instance, held: bool) -> Option<Effect> {
    to_fleet(instance, &fleet::Command::SlotFreed { instance: instance.id.clone(), held })
}

fn to_fleet(instance: &Instance, command: &fleet::Command) -> Option<Effect> {
    let group = instance.group.as_ref()?;
    Some(Effect::entity::<Fleet>(EntityKey::fleet(group), command))
}

pub(super) fn freeze(instance: &Instance, token: Token) -> Option<Effect> {
    to_runner(instance, RunnerCommand::Freeze { instance: instance.id.to_string(), token })
}

pub(super) fn thaw(instance: &Instance, token: Token) -> Option<Effect> {
    to_runner(instance, RunnerCommand::Thaw { instance: instance.id.to_string(), token })
}

pub(super) fn spill(instance: &Instance, token: Token) -> Option<Effect> {
    to_runner(instance, RunnerCommand::Spill { instance: instance.id.to_string(), token })
}

pub(super) fn restore(instance: &Instance, token: Token, input: Value) -> Option<Effect> {
    to_runner(instance, RunnerCommand::Restore { instance: instance.id.to_string(), token, input })
}

pub(super) fn stop(instance: &Instance, token: Token, reason: &str, grace_ms: u64) -> Option<Effect> {
    to_runner(
        instance,
        RunnerCommand::Stop { instance: instance.id.to_string(), token, reason: reason.to_owned(), grace_ms },
    )
}

pub(super) fn forget(instance: &Instance, token: Token) -> Option<Effect> {
    to_runner(instance, RunnerCommand::Forget { instance: instance.id.to_string(), token })
}

fn to_runner(instance: &Instance, command: RunnerCommand) -> Option<Effect> {
    let runner = instance.runner.clone()?;
    Some(Effect::Runner { runner, command })
}
