//! The life of a run: granted, started, stopped, ended.

use std::cmp::Ordering;

use uuid::Uuid;

use super::define::killed;
use super::draft::Draft;
use super::reports::chosen;
use super::standing::DISABLED;
use crate::agent::call::CallStatus;
use crate::agent::event::Event;
use crate::agent::state::{Class, End, Exit, Instance, Spill, State};
use crate::agent::{Command, Reply, Terms, effects};
use crate::code::{Code, Refusal};
use crate::entity::{Effect, RunnerCommand};
use crate::fence::Token;
use crate::id::InstanceId;
use crate::limits;
use crate::slice::Slice;

/// After this many starts that ended with their runner, a run fails: it may be what brings runners down.
const STARTS: u32 = 3;

impl Draft<'_> {
    pub(super) fn granted(&mut self, bid: Uuid, runner: &str) -> Reply {
        // An unknown bid was withdrawn while the grant was on its way; the withdrawal frees the slot.
        let Some(instance) = self.agent.by_bid(bid).cloned() else { return Reply::Done };
        let (token, at) = (self.next_token(&instance), self.now());
        if instance.state == State::Resuming {
            self.resume(&instance.id, Some(token));
            self.hand_over(&instance);
            self.send(self.go_on(&instance, token));
            return Reply::Done;
        }
        self.send([self.start(&instance.id, runner, token)]);
        let definition = self.agent.limits();
        self.push(Event::Granted {
            instance: instance.id.clone(),
            runner: runner.to_owned(),
            token,
            timeout_ms: definition.timeout_ms,
            terms: Some(Terms::from(&definition)),
            at,
        });
        Reply::Done
    }

    fn start(&self, id: &InstanceId, runner: &str, token: Token) -> Effect {
        let item = self.agent.queue.get(id);
        let command = RunnerCommand::Start {
            instance: id.to_string(),
            agent: self.agent.name.to_string(),
            swarm: self.agent.swarm.to_string(),
            token,
            input: item.map(|item| item.input.get().clone()).unwrap_or_default(),
        };
        Effect::Runner { runner: runner.to_owned(), command }
    }

    pub(super) fn grant_lost(&mut self, bid: Uuid, reason: &str) -> Reply {
        let Some(instance) = self.agent.by_bid(bid).cloned() else { return Reply::Done };
        if instance.state == State::Resuming {
            self.end(&instance.id, failed(reason));
            return Reply::Done;
        }
        self.push(Event::Requeued { instance: instance.id, token: instance.token });
        self.bid_next();
        Reply::Done
    }

    pub(super) fn runner_lost(&mut self, runner: &str, instances: &[InstanceId]) -> Reply {
        let mut slice = Slice::default();
        for (place, id) in instances.iter().enumerate() {
            let Some(instance) = self.on(runner, id) else { continue };
            if self.has_room(&mut slice, id).is_none() {
                let rest = instances[place..].to_vec();
                self.go_on_later(&Command::RunnerLost { runner: runner.to_owned(), instances: rest });
                break;
            }
            if instance.state != State::Starting || instance.attempts >= STARTS {
                self.lose(&instance, runner);
                continue;
            }
            // What was queued as its agent was disabled has ended then. A call must not come back to such a queue:
            // nobody looks for it there any more, as is done for what is no call.
            if !self.agent.serves_calls() && instance.class == Class::Call {
                self.drop_queued(id, DISABLED, None);
                continue;
            }
            // Should the runner get the start after all, this keeps it from running beside the next.
            let token = self.next_token(&instance);
            let grace = self.agent.terms_of(&instance).grace_ms;
            self.send(effects::stop(&instance, token, "the run starts elsewhere", grace));
            self.send(effects::free_slot(&instance, false));
            self.push(Event::Requeued { instance: instance.id, token: Some(token) });
        }
        self.serve_queued_calls();
        self.bid_next();
        Reply::Done
    }

    /// Makes good what was lost with a stream of the runner: nobody else knows of it. Nothing is given up for what the
    /// runner does not hold. It wrote that down earlier, and may have been given a run since, over another stream; so
    /// it is told again what each is to be, and says what it knows nothing of.
    pub(super) fn runner_holds(&mut self, runner: &str, held: &[(InstanceId, Option<Token>)]) -> Reply {
        for (id, seen) in held {
            let Some(instance) = self.on(runner, id) else { continue };
            match seen.cmp(&instance.token) {
                Ordering::Less => self.send(self.command_anew(&instance, runner)),
                // A failover may have dropped the answer.
                Ordering::Equal if awaits(&instance) => self.send(self.command_anew(&instance, runner)),
                Ordering::Equal => {}
                Ordering::Greater => self.overrule(&instance, *seen),
            }
        }
        Reply::Done
    }

    /// The runner has obeyed a command that a failover of the store has dropped. It is told above that what the
    /// instance is to be; what obeyed more than its start has begun.
    pub(super) fn overrule(&mut self, instance: &Instance, seen: Option<Token>) {
        self.began(&instance.id, None);
        let token = self.token_after(seen);
        self.push(Event::Overruled { instance: instance.id.clone(), token });
        let known = self.agent.instances.get(&instance.id);
        let command = known.and_then(|known| self.command_anew(known, known.runner.as_deref()?));
        self.send(command);
    }

    /// What makes an instance on the runner what it is to be, under the token of what the runner was told last: where
    /// that was heard it changes nothing, and the first may just be on its way. Were a run started elsewhere instead,
    /// it would run twice; and one that has begun is never told to start, so that it does not begin anew.
    fn command_anew(&self, instance: &Instance, runner: &str) -> Option<Effect> {
        let token = instance.token?;
        match instance.state {
            State::Starting => Some(self.start(&instance.id, runner, token)),
            State::Running | State::Waiting => self.go_on(instance, token),
            State::Freezing => effects::freeze(instance, token),
            State::Frozen | State::Resuming => match instance.spill {
                Some(Spill::Ordered | Spill::Done) => effects::spill(instance, token),
                Some(Spill::Refused) | None => effects::freeze(instance, token),
            },
            State::Stopping => {
                let reason = instance.stop.as_ref().map_or("", |exit| exit.reason.as_str());
                effects::stop(instance, token, reason, self.agent.terms_of(instance).grace_ms)
            }
            State::Queued | State::Ended => None,
        }
    }

    /// The instance, if it is on that runner as far as is known here.
    fn on(&self, runner: &str, id: &InstanceId) -> Option<Instance> {
        self.agent.instances.get(id).filter(|known| known.runner.as_deref() == Some(runner)).cloned()
    }

    fn lose(&mut self, instance: &Instance, runner: &str) {
        let exit = match instance.state {
            State::Stopping => instance.stop.clone().unwrap_or_else(|| failed("runner lost")),
            _ => failed(&format!("runner lost: {runner}")),
        };
        self.close(&instance.id, exit);
    }

    /// The run is alive: its runner said so, or it did by making a call.
    pub(super) fn began(&mut self, id: &InstanceId, pid: Option<u32>) {
        let Some(instance) = self.agent.instances.get(id) else { return };
        if instance.state != State::Starting {
            return;
        }
        let call = instance.call;
        let at = self.now();
        self.push(Event::Started { instance: id.clone(), pid, at });
        let pending = call.filter(|call| self.call(*call).is_some_and(|c| c.status == CallStatus::Pending));
        if let Some(call) = pending {
            self.push(Event::CallRuns { call, instance: id.clone() });
        }
    }

    pub(super) fn set_status(&mut self, id: &InstanceId, text: &str) -> Result<Reply, Refusal> {
        self.instance(id)?;
        let text = text.chars().take(limits::STATUS).collect();
        self.push(Event::StatusSet { instance: id.clone(), text });
        Ok(Reply::Done)
    }

    pub(super) fn kill(&mut self, id: &InstanceId, reason: &str) -> Result<Reply, Refusal> {
        self.instance(id)?;
        self.stop(id, killed(reason));
        Ok(Reply::Killed { instance: id.clone() })
    }

    /// What the run's process ends with after this does not count.
    pub(super) fn finish(&mut self, id: &InstanceId, code: u8) -> Result<Reply, Refusal> {
        self.instance(id)?;
        self.stop(id, chosen(code));
        Ok(Reply::Killed { instance: id.clone() })
    }

    pub(super) fn complete(&mut self, id: &InstanceId) -> Result<Reply, Refusal> {
        if !self.instance(id)?.external {
            return Err(Refusal::new(
                Code::WrongState,
                format!("instance {id} ends when its process does; let it exit, or kill it"),
            ));
        }
        let exit = Exit {
            end: End::Completed,
            code: None,
            signal: None,
            reason: "completed".to_owned(),
            usage: None,
        };
        self.end(id, exit);
        Ok(Reply::Done)
    }

    /// Has the runner end a run. Its locks and its slot stay until the runner says that it is dead, so that
    /// nobody works beside it. What has no process ends at once.
    pub(super) fn stop(&mut self, id: &InstanceId, exit: Exit) {
        let Some(instance) = self.agent.instances.get(id).cloned() else { return };
        if instance.state == State::Stopping {
            return;
        }
        if instance.runner.is_none() {
            return self.end(id, exit);
        }
        self.cancel_wait_of(id);
        // Whether one that is just being started again hears what woke it shows by how it ends.
        if !instance.begins_again() {
            self.give_back_unheard(id);
        }
        self.send(instance.bid.and_then(|bid| effects::withdraw(&instance, bid)));
        let token = self.next_token(&instance);
        let grace = self.agent.terms_of(&instance).grace_ms;
        self.send(effects::stop(&instance, token, &exit.reason, grace));
        let at = self.now();
        self.push(Event::Stopping { instance: id.clone(), token, exit, at });
    }

    /// Ends an instance with everything that hangs on it, in one decision, and lets the next run bid.
    pub(super) fn end(&mut self, id: &InstanceId, exit: Exit) {
        self.close(id, exit);
        self.bid_next();
    }

    /// The same for one of many: others bid once all are closed.
    pub(super) fn close(&mut self, id: &InstanceId, exit: Exit) {
        let Some(instance) = self.agent.instances.get(id).cloned() else { return };
        for call in self.agent.calls_at(id) {
            let result = match exit.end {
                End::Completed => Ok(instance.returned.clone()),
                End::Error | End::Killed => Err(exit.reason.clone()),
            };
            self.end_call(call, result);
        }
        self.cancel_wait_of(id);
        self.give_back_unheard(id);
        self.send(instance.bid.and_then(|bid| effects::withdraw(&instance, bid)));
        if instance.runner.is_some() {
            let token = self.next_token(&instance);
            self.send(effects::free_slot(&instance, false));
            self.send(effects::forget(&instance, token));
        }
        // What was ever told to start may hold something, also when its runner was lost and it waits for another.
        if instance.external || instance.attempts > 0 {
            let released = self.agent.release_locks(id, &exit.reason);
            let ended = self.agent.end_in_pool(id, &exit.reason);
            self.send([released, ended]);
        }
        let cancel = self.agent.terms_of(&instance).cancel_children;
        for target in &instance.callees {
            let effect = self.agent.caller_ended(target, id, cancel);
            self.send([effect]);
        }
        let at = self.now();
        self.send(self.agent.tell_cost(&instance, &exit, at));
        self.push(Event::Ended { instance: id.clone(), exit: exit.clone(), at });
        self.rerun(&instance, &exit);
        if instance.external {
            self.drop_unserved();
        }
    }
}

/// Whether nothing goes on before its runner says that it has done what it was told.
fn awaits(instance: &Instance) -> bool {
    instance.state == State::Freezing || instance.spill == Some(Spill::Ordered)
}

pub(super) fn failed(reason: &str) -> Exit {
    Exit { end: End::Error, code: None, signal: None, reason: reason.to_owned(), usage: None }
}
