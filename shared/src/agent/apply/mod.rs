//! Follows events: what each changes in memory, and which documents it writes.

mod body;

use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use super::call::{CallRecord, CallStatus};
use super::definition::{Defined, Standing};
use super::event::{DeadLetter, Event};
use super::index::Part;
use super::returned::Returned;
use super::state::{Agent, Exit, Instance, Item, Letter, Spill, State};
use super::waits::WaitRecord;
use crate::entity::Changes;
use crate::fence::Token;
use crate::id::InstanceId;
use crate::limits;
use crate::time::{Iso, Timestamp};

impl Agent {
    pub(super) fn follow(&mut self, event: &Event, changes: &mut Changes) {
        match event {
            Event::Defined(defined) => self.define(Some(defined.clone()), changes),
            Event::Undefined => self.define(None, changes),
            Event::Enabled { enabled } => {
                // The operator's word goes over what the definition has said so far.
                let mut defined = self.defined.clone();
                if let Some(defined) = defined.as_mut().filter(|_| *enabled) {
                    defined.definition.enabled = true;
                }
                self.stand(Standing { disabled: !enabled, ..self.standing.clone() }, changes);
                self.define(defined, changes);
            }
            Event::Paused { paused } => {
                self.stand(Standing { paused: *paused, ..self.standing.clone() }, changes);
            }
            Event::SwarmPaused { paused, word } => {
                let (swarm_paused, swarm_word) = (*paused, *word);
                self.stand(Standing { swarm_paused, swarm_word, ..self.standing.clone() }, changes);
            }
            Event::Scaled { scale } => {
                self.stand(Standing { scale: *scale, ..self.standing.clone() }, changes);
            }
            Event::Attached { instance, agent_id } => {
                self.add_instance(instance, body::HandMade { agent_id: *agent_id }, changes);
            }
            Event::Queued { instance, item } => self.queue(instance, item, changes),
            Event::DeadLettered(letter) => self.keep_letter(letter, changes),
            Event::Replayed { letter, instance, at } => {
                if let Some(head) = self.letters.remove(letter) {
                    let replayed =
                        body::Replayed { replayable: false, replayed_as: instance, replayed_at: Iso(*at) };
                    changes.archive_with(format_args!("dead/{letter}"), &head, &replayed);
                }
            }
            Event::Called { call, depth, at } => self.add_call(call, *depth, *at, changes),
            Event::CallRuns { call, instance } => self.run_call(*call, instance, changes),
            Event::CallEnded { call, value, error, at } => {
                self.end_call(*call, value.as_ref(), error.as_ref(), *at, changes);
            }
            Event::CallForgotten { call } => {
                if let Some(mut record) = self.finished.remove(*call) {
                    // The body has the value for whoever looks the call up; nobody decides by such a head any more, and
                    // many calls are forgotten at a time.
                    let value = record.value.take();
                    self.let_go(value.as_ref(), changes);
                    changes.archive(format!("call/{call}"), &record, None);
                }
            }
            Event::CallRefused { call, caller, target, depth, reason, at } => {
                let body = body::CallRefused {
                    call_id: *call,
                    caller_agent: &self.name,
                    caller_instance_id: caller,
                    target_agent: target,
                    status: CallStatus::Error,
                    created_at: Iso(*at),
                    depth: *depth,
                    error_message: reason,
                    completed_at: Iso(*at),
                };
                changes.archive_with(format_args!("call/{call}"), &json!({}), &body);
            }
            Event::WaitBegun(wait) => self.begin_wait(wait, changes),
            Event::WaitAcknowledged { wait, by } => self.with_wait(*wait, changes, |wait| {
                wait.unacknowledged.remove(by);
            }),
            Event::WaitEnded { wait, outcome } => self.with_wait(*wait, changes, |wait| {
                wait.unacknowledged.clear();
                wait.outcome = Some(outcome.clone());
            }),
            Event::WaitDelivered { wait, asked } => self.with_wait(*wait, changes, |wait| {
                (wait.delivered, wait.asked) = (true, *asked);
            }),
            Event::WaitUnread { wait } => self.with_wait(*wait, changes, |wait| {
                (wait.delivered, wait.asked) = (false, None);
            }),
            Event::WaitDropped { wait, token, at } => self.drop_wait(*wait, *token, *at, changes),
            Event::Forgotten { instance } => self.forget(instance, changes),
            Event::Ended { instance, exit, at } => self.end(instance, exit, *at, changes),
            other => self.move_instance(other, changes),
        }
    }

    /// Events that move one instance along and touch little else.
    fn move_instance(&mut self, event: &Event, changes: &mut Changes) {
        match event {
            Event::Bid { instance, bid, group } => self.with_instance(instance, changes, |instance| {
                instance.bid = Some(*bid);
                instance.group = Some(group.clone());
                if instance.state == State::Frozen {
                    instance.state = State::Resuming;
                }
            }),
            Event::Granted { instance, runner, token, timeout_ms, terms, at } => {
                self.move_files(runner, changes);
                self.with_instance(instance, changes, |instance| {
                    instance.state = State::Starting;
                    (instance.bid, instance.slot) = (None, true);
                    instance.runner = Some(runner.clone());
                    (instance.token, instance.first_token) = (Some(*token), Some(*token));
                    instance.attempts += 1;
                    (instance.timeout_ms, instance.terms) = (*timeout_ms, *terms);
                    (instance.since, instance.granted, instance.started) = (*at, Some(*at), Some(*at));
                    body::OnRunner { runner: Some(runner) }
                });
            }
            Event::Requeued { instance, token } => self.with_instance(instance, changes, |instance| {
                instance.state = State::Queued;
                (instance.bid, instance.slot, instance.started) = (None, false, None);
                instance.runner = None;
                instance.token = *token;
                body::OnRunner { runner: None }
            }),
            Event::Started { instance, pid, at } => {
                self.remove_item(instance, changes);
                self.with_instance(instance, changes, |instance| {
                    instance.state = State::Running;
                    (instance.since, instance.started) = (*at, Some(*at));
                    body::Started { started_at: Iso(*at), pid: *pid }
                });
            }
            Event::Overruled { instance, token } => {
                self.with_instance(instance, changes, |instance| instance.token = Some(*token));
            }
            Event::Freezing { instance, token } => self.with_instance(instance, changes, |instance| {
                instance.state = State::Freezing;
                instance.token = Some(*token);
            }),
            Event::Frozen { instance } => self.with_instance(instance, changes, |instance| {
                instance.state = State::Frozen;
                instance.slot = false;
            }),
            Event::Spilling { instance, token } => self.with_instance(instance, changes, |instance| {
                (instance.token, instance.spill) = (Some(*token), Some(Spill::Ordered));
            }),
            Event::Spilled { instance } => self.set_spill(instance, Some(Spill::Done), changes),
            Event::SpillRefused { instance } => self.set_spill(instance, Some(Spill::Refused), changes),
            Event::Restored { instance, pid } => self.with_instance(instance, changes, |instance| {
                instance.spill = None;
                body::Process { pid: *pid }
            }),
            Event::Held { instance } => self.with_instance(instance, changes, |instance| {
                instance.state = State::Frozen;
                instance.bid = None;
            }),
            Event::Resumed { instance, token, at } => self.resume(instance, *token, *at, changes),
            Event::Stopping { instance, token, exit, at } => {
                let asleep = self.asleep_ms(instance, *at);
                // What is just being started again may give back what woke it.
                if !self.instances.get(instance).is_some_and(Instance::begins_again) {
                    self.remove_wait_of(instance, changes);
                }
                self.remove_item(instance, changes);
                self.with_instance(instance, changes, |instance| {
                    instance.state = State::Stopping;
                    instance.waited_ms += asleep;
                    (instance.token, instance.bid) = (Some(*token), None);
                    instance.stop = Some(exit.clone());
                    body::Waiting { waiting_for: None }
                });
            }
            Event::CalleeNoted { instance, target, at } => {
                self.with_instance(instance, changes, |instance| {
                    instance.callees.insert(target.clone());
                    if instance.external {
                        instance.since = instance.since.max(*at);
                    }
                })
            }
            Event::Recalled { instance, receipt } => self.with_instance(instance, changes, |instance| {
                instance.recalled.insert(*receipt);
            }),
            Event::RerunWanted { instance } => self.with_instance(instance, changes, |instance| {
                instance.again = true;
                body::Rerun { rerun_wanted: true }
            }),
            Event::StatusSet { instance, text } => {
                self.with_instance(instance, changes, |_| body::Status { status_text: text });
            }
            Event::ValueReturned { instance, value } => self.return_value(instance, value, changes),
            _ => {}
        }
    }

    fn set_spill(&mut self, id: &InstanceId, spill: Option<Spill>, changes: &mut Changes) {
        self.with_instance(id, changes, |instance| instance.spill = spill);
    }

    fn define(&mut self, defined: Option<Defined>, changes: &mut Changes) {
        self.defined = defined;
        match &self.defined {
            Some(defined) => {
                let (agent, Defined { group, definition }) = (&self.name, defined);
                changes.put_with(
                    "definition/self",
                    defined,
                    &body::DefinitionBody { agent, group, definition },
                );
            }
            None => changes.delete("definition/self"),
        }
    }

    fn stand(&mut self, standing: Standing, changes: &mut Changes) {
        let body = body::StandingBody { agent: &self.name, standing: &standing };
        changes.put_with("standing/self", &standing, &body);
        self.standing = standing;
    }

    /// Seldom written: an agent stays where it was as long as there is room.
    fn move_files(&mut self, runner: &str, changes: &mut Changes) {
        if self.files.as_deref() != Some(runner) {
            self.files = Some(runner.to_owned());
            changes.put("files/self", &self.files, None);
        }
    }

    /// Keeps a letter, and lets the oldest of too many be read only.
    fn keep_letter(&mut self, letter: &DeadLetter, changes: &mut Changes) {
        let head = Letter { reason: letter.reason.clone(), at: letter.at };
        let body = body::Letter::new(&self.name, letter);
        changes.create_with(format_args!("dead/{}", letter.id), &head, &body);
        self.letters.insert(letter.id, head);
        if self.letters.len() > limits::LETTERS
            && let Some((id, head)) = self.letters.pop_first()
        {
            changes.archive_with(format_args!("dead/{id}"), &head, &body::ReadOnly { replayable: false });
        }
    }

    fn end(&mut self, id: &InstanceId, exit: &Exit, at: Timestamp, changes: &mut Changes) {
        let asleep = self.asleep_ms(id, at);
        self.remove_wait_of(id, changes);
        self.remove_item(id, changes);
        let Some(mut ended) = self.instances.remove(id) else { return };
        self.index.move_run(None, Part::of(&ended), Part::default());
        self.let_go(ended.returned.as_ref(), changes);
        ended.state = State::Ended;
        ended.since = at;
        ended.waited_ms += asleep;
        (ended.bid, ended.slot, ended.stop) = (None, false, Some(exit.clone()));
        if self.was_taken_over(id, &ended) {
            changes.delete(format!("instance/{id}"));
            return;
        }
        let body = body::Ended {
            state: exit.end,
            ended_at: Iso(at),
            exit,
            waiting_for: (),
            duration_ms: ended.started.map(|started| millis(at.since(started))),
            waited_ms: ended.waited_ms,
        };
        changes.archive_with(format_args!("instance/{id}"), &ended, &body);
    }

    fn forget(&mut self, id: &InstanceId, changes: &mut Changes) {
        self.remove_wait_of(id, changes);
        let Some(gone) = self.instances.remove(id) else { return };
        self.index.move_run(None, Part::of(&gone), Part::default());
        self.let_go(gone.returned.as_ref(), changes);
        changes.delete(format!("instance/{id}"));
    }

    /// Whether a waiting instance took the call that a run was queued for, and the run never was.
    fn was_taken_over(&self, id: &InstanceId, ended: &Instance) -> bool {
        let call = ended.call.and_then(|call| self.calls.get(&call));
        !ended.external && ended.attempts == 0 && call.is_some_and(|call| call.callee.as_ref() != Some(id))
    }

    fn queue(&mut self, instance: &Instance, item: &Item, changes: &mut Changes) {
        let wanted = body::Wanted { source: &item.source, receipt: item.receipt };
        self.add_instance(instance, wanted, changes);
        let queued = body::Queued::new(&self.name, item);
        changes.create_with(format_args!("queue/{}", item.instance), item, &queued);
        self.index.enter(item, Part::of(instance));
        self.queue.insert(item.instance.clone(), item.clone());
    }

    fn add_instance(&mut self, instance: &Instance, more: impl Serialize, changes: &mut Changes) {
        let body = body::Run::new(&self.name, instance, more);
        changes.put_with(format_args!("instance/{}", instance.id), instance, &body);
        self.index.move_run(None, Part::default(), Part::of(instance));
        self.instances.insert(instance.id.clone(), instance.clone());
    }

    /// Changes one instance and writes it down, its state with it; `change` may add to the body.
    fn with_instance<M: Serialize>(
        &mut self,
        id: &InstanceId,
        changes: &mut Changes,
        change: impl FnOnce(&mut Instance) -> M,
    ) {
        let Some(instance) = self.instances.get_mut(id) else { return };
        let before = Part::of(instance);
        let more = change(instance);
        self.index.move_run(self.queue.get(id), before, Part::of(instance));
        let body = body::Moved { state: instance.shown(), more };
        changes.put_with(format_args!("instance/{id}"), instance, &body);
    }

    fn remove_item(&mut self, instance: &InstanceId, changes: &mut Changes) {
        if let Some(item) = self.queue.remove(instance) {
            self.index.leave(&item);
            changes.delete(format!("queue/{instance}"));
        }
    }

    fn add_call(&mut self, call: &CallRecord, depth: usize, at: Timestamp, changes: &mut Changes) {
        let body = body::Called::new(&self.name, call, depth, at);
        changes.put_with(format_args!("call/{}", call.id), call, &body);
        self.index.serve(call);
        self.calls.insert(call.id, call.clone());
    }

    fn run_call(&mut self, call: Uuid, instance: &InstanceId, changes: &mut Changes) {
        let Some(record) = self.calls.get_mut(&call) else { return };
        self.index.serve_no_more(record);
        let own = record.callee.replace(instance.clone()).filter(|own| own != instance);
        // An instance that waited serves it in place of the run that was queued for it.
        if let Some(own) = own.and_then(|own| self.instances.get(&own)) {
            record.chain.clone_from(&own.chain);
            record.depth = own.depth;
        }
        record.status = CallStatus::Running;
        self.index.serve(record);
        let body = body::CallRuns { status: record.status, target_instance_id: instance };
        changes.put_with(format_args!("call/{call}"), record, &body);
    }

    fn end_call(
        &mut self,
        call: Uuid,
        value: Option<&Returned>,
        error: Option<&String>,
        at: Timestamp,
        changes: &mut Changes,
    ) {
        let Some(mut record) = self.calls.remove(&call) else { return };
        self.index.serve_no_more(&record);
        record.status = if error.is_some() { CallStatus::Error } else { CallStatus::Completed };
        record.value = value.cloned();
        self.hold(value, changes);
        record.error = error.cloned();
        record.until = at + limits::CALL_KEEP;
        let body = body::CallEnded {
            status: record.status,
            return_value: value.map(Returned::shown),
            error_message: error,
            return_bytes: value.and_then(Returned::blob).map(|blob| blob.bytes),
            completed_at: Iso(at),
        };
        changes.put_with(format_args!("call/{call}"), &record, &body);
        if let Some(server) = record.callee.as_ref().filter(|_| error.is_none()) {
            self.note_served(server, at, changes);
        }
        self.finished.insert(record);
    }

    /// To have served a call is a sign of life of a hand-made instance, however long ago the call came.
    fn note_served(&mut self, id: &InstanceId, at: Timestamp, changes: &mut Changes) {
        if self.instances.get(id).is_some_and(|known| known.external && known.since < at) {
            self.with_instance(id, changes, |instance| instance.since = at);
        }
    }

    /// The last word wins, and what it takes the place of is let go.
    fn return_value(&mut self, id: &InstanceId, value: &Returned, changes: &mut Changes) {
        if !self.instances.contains_key(id) {
            return;
        }
        self.hold(Some(value), changes);
        let mut before = None;
        self.with_instance(id, changes, |instance| before = instance.returned.replace(value.clone()));
        self.let_go(before.as_ref(), changes);
    }

    fn begin_wait(&mut self, wait: &WaitRecord, changes: &mut Changes) {
        self.remove_wait_of(&wait.instance, changes);
        changes.put_with(format_args!("wait/{}", wait.id), wait, &body::Wait::new(&self.name, wait));
        self.waits.insert(wait.id, wait.clone());
        self.with_instance(&wait.instance, changes, |instance| {
            instance.state = State::Waiting;
            instance.since = wait.registered;
            (instance.wait, instance.spill) = (Some(wait.id), None);
            body::Waiting { waiting_for: Some(wait.into()) }
        });
    }

    fn with_wait(&mut self, id: Uuid, changes: &mut Changes, change: impl FnOnce(&mut WaitRecord)) {
        let Some(wait) = self.waits.get_mut(&id) else { return };
        change(wait);
        changes.put_with(format_args!("wait/{id}"), wait, &body::WaitMoved::from(&*wait));
    }

    fn drop_wait(&mut self, wait: Uuid, token: Option<Token>, at: Timestamp, changes: &mut Changes) {
        let Some(instance) = self.waits.get(&wait).map(|wait| wait.instance.clone()) else { return };
        self.resume(&instance, token, at, changes);
        self.remove_wait_of(&instance, changes);
        self.with_instance(&instance, changes, |_| ());
    }

    /// How long the instance is in the wait that goes on.
    fn asleep_ms(&self, id: &InstanceId, at: Timestamp) -> u64 {
        let waiting = self.instances.get(id).filter(|known| known.state.is_waiting());
        let wait = waiting.and_then(|known| self.waits.get(&known.wait?));
        wait.map_or(0, |wait| millis(at.since(wait.registered)))
    }

    fn remove_wait_of(&mut self, instance: &InstanceId, changes: &mut Changes) {
        let Some(instance) = self.instances.get_mut(instance) else { return };
        // Nobody asks for a wait that is over: its run says how long it waited, and the events what came of it.
        if let Some(wait) = instance.wait.take().and_then(|id| self.waits.remove(&id)) {
            changes.delete(format!("wait/{}", wait.id));
        }
    }

    /// The instance runs on. The time that it waited counts against neither its limit nor its calls'.
    fn resume(&mut self, id: &InstanceId, token: Option<Token>, at: Timestamp, changes: &mut Changes) {
        let Some(instance) = self.instances.get(id) else { return };
        let began = instance.wait.and_then(|id| self.waits.get(&id)).map_or(at, |wait| wait.registered);
        let waited = at.since(began);
        self.with_instance(id, changes, |instance| {
            instance.state = State::Running;
            instance.since = at;
            instance.bid = None;
            instance.slot = !instance.external;
            instance.token = token.or(instance.token);
            instance.waited_ms += millis(waited);
            body::Waiting { waiting_for: None }
        });
        self.prolong_calls(id, waited, at, changes);
    }

    /// None has more than its whole time left: one that came during the wait, and may have ended it, began later.
    fn prolong_calls(&mut self, callee: &InstanceId, span: Duration, at: Timestamp, changes: &mut Changes) {
        for call in self.calls_at(callee) {
            if let Some(record) = self.calls.get_mut(&call) {
                record.until = (record.until + span).min(at + limits::CALL_EXPIRY);
                changes.put(format!("call/{call}"), record, None);
            }
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
