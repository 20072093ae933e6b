//! Calls: taken, asked after, given up.

use serde_json::{Value, json};
use uuid::Uuid;

use super::define::killed;
use super::draft::Draft;
use crate::agent::call::{CallRecord, CallStatus};
use crate::agent::event::Event;
use crate::agent::state::{Class, Instance, State};
use crate::agent::waits::Outcome;
use crate::agent::{CallView, Caller, Reply, Returned};
use crate::code::{Code, Refusal};
use crate::entity::BlobChange;
use crate::id::{InstanceId, Name};
use crate::limits;
use crate::mutation::{self, Mutation};
use crate::triggers::Envelope;

/// What becomes of the run of a call that is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// It is done all the same.
    Stays,
    /// It is not begun any more. One that has begun goes on.
    IsNotBegun,
    /// It is not begun, or stopped if it is for this call alone.
    Stops,
}

impl Draft<'_> {
    /// `noted` says that the caller has this agent among those it calls. It is told all the same if a runner runs it:
    /// one that has ended since answers that it has, and its call is given up.
    pub(super) fn take_call(
        &mut self,
        id: Uuid,
        caller: &Caller,
        context: &str,
        noted: bool,
    ) -> Result<Reply, Refusal> {
        if let Some(known) = self.call(id) {
            return repeated(known, caller);
        }
        self.admit(caller, context)?;
        let event = Envelope::agent_trigger(caller.agent.as_str(), json!(context));
        match self.longest_waiting(&event) {
            Some(wait) => self.wake_with_call(id, caller, wait, event),
            None => self.queue_call(id, caller, context)?,
        }
        if !noted || is_run_of(&caller.instance, &caller.agent) {
            let note = self.agent.note_callee(&caller.agent, &caller.instance);
            self.send([note]);
        }
        self.view(id)
    }

    pub(super) fn check_call(&self, call: Uuid, instance: &InstanceId) -> Result<Reply, Refusal> {
        self.owned(call, instance)?;
        self.view(call)
    }

    pub(super) fn cancel_call(&mut self, call: Uuid, instance: &InstanceId) -> Result<Reply, Refusal> {
        self.owned(call, instance)?;
        self.abandon(call, "the caller cancelled the call", Work::Stops);
        self.bid_next();
        self.view(call)
    }

    pub(super) fn caller_ended(&mut self, caller: &InstanceId, cancel: bool) -> Reply {
        // A hand-made instance serves calls and nothing else.
        let work = match cancel {
            true => Work::Stops,
            false if self.agent.defined.is_none() => Work::IsNotBegun,
            false => Work::Stays,
        };
        let made = |call: &&CallRecord| call.caller_instance == *caller;
        let calls: Vec<Uuid> = self.agent.calls.values().filter(made).map(|call| call.id).collect();
        for call in calls {
            self.abandon(call, "the caller has ended", work);
        }
        self.bid_next();
        Reply::Done
    }

    pub(super) fn note_callee(&mut self, instance: &InstanceId, target: &Name) -> Reply {
        let at = self.now();
        match self.agent.instances.get(instance) {
            Some(caller) if caller.callees.contains(target) && !caller.is_fading(at) => {}
            Some(_) => {
                self.push(Event::CalleeNoted { instance: instance.clone(), target: target.clone(), at });
            }
            // A run that is unknown here has ended; a hand-made token may not have been attached yet.
            None if is_run_of(instance, &self.agent.name) => {
                let cancel = self.agent.limits().cancel_children;
                let effect = self.agent.caller_ended(target, instance, cancel);
                self.send([effect]);
            }
            None => {}
        }
        Reply::Done
    }

    pub(super) fn note_refused_call(
        &mut self,
        call: Uuid,
        id: &InstanceId,
        target: &Name,
        reason: &str,
    ) -> Result<Reply, Refusal> {
        let depth = self.agent.depth_of(self.instance(id)?) + 1;
        let (caller, target, at) = (id.clone(), target.clone(), self.now());
        self.push(Event::CallRefused { call, caller, target, depth, reason: reason.to_owned(), at });
        Ok(Reply::Done)
    }

    pub(super) fn return_value(&mut self, id: &InstanceId, value: &Returned) -> Result<Reply, Refusal> {
        let shown = value.shown().len();
        if shown > limits::TEXT {
            return Err(too_large("value", shown));
        }
        if !self.instance(id)?.external {
            self.began(id, None);
            self.push(Event::ValueReturned { instance: id.clone(), value: value.clone() });
            return Ok(Reply::Done);
        }
        // Nobody reports the end of a hand-made instance, so its word is the end of what it serves.
        for call in self.agent.calls_at(id) {
            self.end_call(call, Ok(Some(value.clone())));
        }
        // What nobody gets takes no room.
        if let Some(blob) = value.blob().filter(|blob| !self.agent.blobs.contains_key(&blob.id)) {
            let freed = self.agent.account_for(BlobChange::Free { blob: blob.id });
            self.send([freed]);
        }
        Ok(Reply::Done)
    }

    /// A queued call that a hand-made instance can serve, now that it waits.
    pub(super) fn serve_queued_call(&mut self, waiter: &InstanceId) {
        let Some((wait, outcome)) = self.take_queued_call(waiter) else { return };
        // Nobody has got ready for the wait yet, so nobody is told that it is over.
        self.push(Event::WaitEnded { wait, outcome });
        let at = self.now();
        self.push(Event::Resumed { instance: waiter.clone(), token: None, at });
    }

    /// The same for those who waited before the agent came to start nothing more, the longest-waiting first.
    pub(super) fn serve_queued_calls(&mut self) {
        let open = self.agent.waits.values().filter(|wait| wait.is_open());
        let mut waiters: Vec<_> =
            open.map(|wait| (wait.registered, wait.id, wait.instance.clone())).collect();
        waiters.sort();
        for (_, _, waiter) in waiters {
            if let Some((wait, outcome)) = self.take_queued_call(&waiter) {
                self.finish_wait(wait, outcome);
            }
        }
    }

    /// Gives a hand-made instance the oldest queued call that it waits for, and says which wait that ends. An agent
    /// that starts runs serves its queue by itself, and what a runner was told to start serves its own call.
    fn take_queued_call(&mut self, waiter: &InstanceId) -> Option<(Uuid, Outcome)> {
        if self.agent.takes_work() || !self.instance(waiter).is_ok_and(|waiter| waiter.external) {
            return None;
        }
        let mut items: Vec<_> = self.agent.queued().filter(|item| item.class == Class::Call).collect();
        items.sort_by_key(|item| item.number);
        let (queued_run, call, wait, event) = items.into_iter().find_map(|item| {
            let queued_run = self.agent.instances.get(&item.instance)?;
            let call = self.call(queued_run.call?)?;
            let event = Envelope::agent_trigger(call.caller.as_str(), context_of(item.input.get()));
            let wait = self.wait_of(waiter)?;
            wait.takes(&event).then_some((item.instance.clone(), call.id, wait.id, event))
        })?;
        self.push(Event::CallRuns { call, instance: waiter.clone() });
        self.end(&queued_run, killed("a waiting instance took the call"));
        Some((wait, Outcome::Triggered { payload: event, receipt: None }))
    }

    /// Ends a call that is not over.
    pub(super) fn end_call(&mut self, call: Uuid, result: Result<Option<Returned>, String>) {
        let at = self.now();
        let (value, error) = match result {
            Ok(value) => (value, None),
            Err(error) => (None, Some(error)),
        };
        if mutation::is_on(Mutation::EndCallTwice) {
            self.push(Event::CallEnded { call, value: value.clone(), error: error.clone(), at });
        }
        self.push(Event::CallEnded { call, value, error, at });
    }

    /// Fails a call that is not over. What bids in place of a run that it drops, the caller says once.
    pub(super) fn abandon(&mut self, call: Uuid, reason: &str, work: Work) {
        let Some(record) = self.agent.calls.get(&call) else { return };
        let callee = record.callee.clone();
        self.end_call(call, Err(reason.to_owned()));
        let Some(run) = callee.and_then(|callee| self.agent.instances.get(&callee)) else { return };
        let (id, state, own) = (run.id.clone(), run.state, run.call == Some(call));
        match state {
            State::Queued if work == Work::Stays => {}
            State::Queued => self.drop_queued(&id, reason, None),
            _ if own && work == Work::Stops && self.agent.calls_at(&id).is_empty() => {
                self.stop(&id, killed(reason))
            }
            _ => {}
        }
    }

    /// The rules in the order in which their refusals are given.
    fn admit(&self, caller: &Caller, context: &str) -> Result<(), Refusal> {
        let name = &self.agent.name;
        if context.len() > limits::TEXT {
            return Err(too_large("context", context.len()));
        }
        if caller.agent == *name {
            return Err(Refusal::new(Code::SelfCall, "an agent cannot call itself; do the work in this run"));
        }
        if caller.chain.iter().any(|(ancestor, _)| ancestor == name) {
            return Err(Refusal::new(
                Code::Cycle,
                format!("agent {name} is among the callers of this run; return a value to it instead"),
            ));
        }
        let limit = self.agent.limits().max_call_depth;
        let depth = caller.depth();
        if depth >= limit as usize {
            return Err(Refusal::new(
                Code::DepthExceeded,
                format!(
                    "calls go at most {limit} deep, and this run is {depth} deep; do the work in this run"
                ),
            ));
        }
        match self.accepts_work() {
            Err(refusal) if refusal.code == Code::NotFound && self.agent.has_external() => Ok(()),
            Err(refusal) if self.agent.serves_calls() => {
                debug_assert_eq!(refusal.code, Code::Disabled);
                Ok(())
            }
            verdict => verdict,
        }
    }

    /// The wait that the event ends: of those that match, the one that waits longest.
    fn longest_waiting(&self, event: &Envelope) -> Option<Uuid> {
        let matching = self.agent.waits.values().filter(|wait| wait.takes(event));
        matching.min_by_key(|wait| (wait.registered, wait.id)).map(|wait| wait.id)
    }

    /// The longest-waiting instance serves the call. Waits that asked for a broadcast hear of it too.
    fn wake_with_call(&mut self, call: Uuid, caller: &Caller, wait: Uuid, event: Envelope) {
        let Some(callee) = self.agent.waits.get(&wait).map(|wait| wait.instance.clone()) else { return };
        self.record_call((call, CallStatus::Running), caller, callee, with_itself(caller));
        let heard =
            |other: &&crate::agent::WaitRecord| other.id == wait || (other.broadcast && other.takes(&event));
        let waits: Vec<Uuid> = self.agent.waits.values().filter(heard).map(|wait| wait.id).collect();
        for wait in waits {
            self.finish_wait(wait, Outcome::Triggered { payload: event.clone(), receipt: None });
        }
    }

    fn queue_call(&mut self, call: Uuid, caller: &Caller, context: &str) -> Result<(), Refusal> {
        if self.is_full() {
            return Err(self.queue_full());
        }
        let input = json!({ "call": { "call_id": call, "caller": caller.agent, "context": context } });
        let item = self.item(Class::Call, &format!("agent:{}", caller.agent), None, input);
        let callee = item.instance.clone();
        let mut run = Instance::of(&item);
        run.call = Some(call);
        (run.chain, run.depth) = (with_itself(caller), depth_below(caller));
        self.queue_run(run, item);
        self.record_call((call, CallStatus::Pending), caller, callee, Vec::new());
        self.bid_next();
        Ok(())
    }

    fn record_call(
        &mut self,
        (id, status): (Uuid, CallStatus),
        caller: &Caller,
        callee: InstanceId,
        chain: Vec<(Name, InstanceId)>,
    ) {
        let at = self.now();
        // Of a run of its own that says so itself.
        let depth = depth_below(caller).filter(|_| !chain.is_empty());
        let call = CallRecord {
            id,
            status,
            caller: caller.agent.clone(),
            caller_instance: caller.instance.clone(),
            callee: Some(callee),
            chain,
            depth,
            until: at + limits::CALL_EXPIRY,
            value: None,
            error: None,
        };
        self.push(Event::Called { call, depth: caller.depth() + 1, at });
    }

    fn owned(&self, call: Uuid, instance: &InstanceId) -> Result<&CallRecord, Refusal> {
        self.call(call).filter(|record| record.caller_instance == *instance).ok_or_else(|| unknown(call))
    }

    fn view(&self, call: Uuid) -> Result<Reply, Refusal> {
        self.call(call).map(|record| Reply::Call(record.into())).ok_or_else(|| unknown(call))
    }
}

impl From<&CallRecord> for CallView {
    fn from(record: &CallRecord) -> Self {
        Self {
            call_id: record.id,
            status: record.status,
            return_value: record.value.as_ref().map(|value| value.shown().to_owned()),
            blob: record.value.as_ref().and_then(Returned::blob),
            error_message: record.error.clone(),
            ended: record.ended(),
        }
    }
}

/// The callers of what somebody calls.
fn with_itself(caller: &Caller) -> Vec<(Name, InstanceId)> {
    let mut chain = caller.chain.clone();
    chain.push((caller.agent.clone(), caller.instance.clone()));
    chain
}

/// How deep what somebody calls is, where the callers that it gets do not say so.
fn depth_below(caller: &Caller) -> Option<usize> {
    caller.depth.map(|depth| depth + 1)
}

/// One text whether the call does not exist or is another's: a stranger must not learn which calls exist.
fn unknown(call: Uuid) -> Refusal {
    Refusal::new(Code::NotFound, format!("call {call} not found or not owned by this instance"))
}

fn repeated(known: &CallRecord, caller: &Caller) -> Result<Reply, Refusal> {
    if known.caller_instance == caller.instance {
        return Ok(Reply::Call(known.into()));
    }
    Err(Refusal::new(
        Code::KeyReused,
        format!("call id {} belongs to another call; make a new one", known.id),
    ))
}

/// Whether the id has the form of a runner's run of `agent`, as [`InstanceId::new`] makes it.
fn is_run_of(id: &InstanceId, agent: &Name) -> bool {
    let rest = id.as_str().strip_prefix(agent.as_str()).and_then(|rest| rest.strip_prefix('-'));
    rest.is_some_and(|hex| hex.len() == 8 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn too_large(field: &str, bytes: usize) -> Refusal {
    Refusal::new(
        Code::TooLarge,
        format!("{field} has {bytes} bytes, at most {} are taken; put it into a file", limits::TEXT),
    )
}

fn context_of(input: &Value) -> Value {
    input.pointer("/call/context").cloned().unwrap_or_default()
}
