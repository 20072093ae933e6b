//! The bodies of an agent's documents: what clients read of its runs, calls and waits. Those with some fields alone are
//! merged into what was written before, where a null removes a field.

use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use crate::agent::call::{CallRecord, CallStatus};
use crate::agent::definition::{Definition, Standing};
use crate::agent::event::DeadLetter;
use crate::agent::state::{Class, End, Exit, Instance, Item};
use crate::agent::waits::{Outcome, WaitRecord};
use crate::id::{InstanceId, Name};
use crate::time::{Iso, Timestamp};
use crate::triggers::Filter;

#[derive(Serialize)]
pub(super) struct DefinitionBody<'a> {
    pub(super) agent: &'a Name,
    pub(super) group: &'a Name,
    pub(super) definition: &'a Definition,
}

#[derive(Serialize)]
pub(super) struct StandingBody<'a> {
    pub(super) agent: &'a Name,
    pub(super) standing: &'a Standing,
}

/// A run, or a hand-made instance. What more there is depends on how it came to be.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Run<'a, M> {
    instance: &'a InstanceId,
    agent: &'a Name,
    state: &'static str,
    external: bool,
    created_at: Iso,
    call: Option<Uuid>,
    depth: usize,
    class: Class,
    #[serde(flatten)]
    more: M,
}

impl<'a, M: Serialize> Run<'a, M> {
    pub(super) fn new(agent: &'a Name, instance: &'a Instance, more: M) -> Self {
        Self {
            instance: &instance.id,
            agent,
            state: instance.state.as_str(),
            external: instance.external,
            created_at: Iso(instance.since),
            call: instance.call,
            depth: instance.depth(),
            class: instance.class,
            more,
        }
    }
}

/// Of a hand-made instance.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HandMade {
    pub(super) agent_id: Uuid,
}

/// Of a run that was asked for.
#[derive(Serialize)]
pub(super) struct Wanted<'a> {
    pub(super) source: &'a str,
    pub(super) receipt: Option<Uuid>,
}

/// What an event changes of a run, beside its state.
#[derive(Serialize)]
pub(super) struct Moved<M> {
    pub(super) state: &'static str,
    #[serde(flatten)]
    pub(super) more: M,
}

#[derive(Serialize)]
pub(super) struct OnRunner<'a> {
    pub(super) runner: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Started {
    pub(super) started_at: Iso,
    pub(super) pid: Option<u32>,
}

#[derive(Serialize)]
pub(super) struct Process {
    pub(super) pid: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Waiting<'a> {
    pub(super) waiting_for: Option<WaitsFor<'a>>,
}

#[derive(Serialize)]
pub(super) struct WaitsFor<'a> {
    wait: Uuid,
    filter: &'a Filter,
    deadline: Iso,
}

impl<'a> From<&'a WaitRecord> for WaitsFor<'a> {
    fn from(wait: &'a WaitRecord) -> Self {
        Self { wait: wait.id, filter: &wait.filter, deadline: Iso(wait.deadline) }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rerun {
    pub(super) rerun_wanted: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status<'a> {
    pub(super) status_text: &'a str,
}

/// A run that is over.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ended<'a> {
    pub(super) state: End,
    pub(super) ended_at: Iso,
    pub(super) exit: &'a Exit,
    pub(super) waiting_for: (),
    pub(super) duration_ms: Option<u64>,
    pub(super) waited_ms: u64,
}

/// A place in the work queue.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Queued<'a> {
    instance: &'a InstanceId,
    agent: &'a Name,
    class: Class,
    source: &'a str,
    receipt: Option<Uuid>,
    received_at: Iso,
}

impl<'a> Queued<'a> {
    pub(super) fn new(agent: &'a Name, item: &'a Item) -> Self {
        Self {
            instance: &item.instance,
            agent,
            class: item.class,
            source: &item.source,
            receipt: item.receipt,
            received_at: Iso(item.at),
        }
    }
}

/// A call that was made.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Called<'a> {
    call_id: Uuid,
    caller_agent: &'a Name,
    caller_instance_id: &'a InstanceId,
    target_agent: &'a Name,
    target_instance_id: Option<&'a InstanceId>,
    status: CallStatus,
    created_at: Iso,
    depth: usize,
}

impl<'a> Called<'a> {
    pub(super) fn new(target: &'a Name, call: &'a CallRecord, depth: usize, at: Timestamp) -> Self {
        Self {
            call_id: call.id,
            caller_agent: &call.caller,
            caller_instance_id: &call.caller_instance,
            target_agent: target,
            target_instance_id: call.callee.as_ref(),
            status: call.status,
            created_at: Iso(at),
            depth,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CallRuns<'a> {
    pub(super) status: CallStatus,
    pub(super) target_instance_id: &'a InstanceId,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CallEnded<'a> {
    pub(super) status: CallStatus,
    pub(super) return_value: Option<&'a str>,
    pub(super) error_message: Option<&'a String>,
    pub(super) return_bytes: Option<u64>,
    pub(super) completed_at: Iso,
}

/// A call that was not taken: as [`Called`] and [`CallEnded`] would have it, with nobody who serves it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CallRefused<'a> {
    pub(super) call_id: Uuid,
    pub(super) caller_agent: &'a Name,
    pub(super) caller_instance_id: &'a InstanceId,
    pub(super) target_agent: &'a Name,
    pub(super) status: CallStatus,
    pub(super) created_at: Iso,
    pub(super) depth: usize,
    pub(super) error_message: &'a str,
    pub(super) completed_at: Iso,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Wait<'a> {
    wait_id: Uuid,
    instance: &'a InstanceId,
    agent: &'a Name,
    filter: &'a Filter,
    registered_at: Iso,
    deadline: Iso,
    state: &'static str,
}

impl<'a> Wait<'a> {
    pub(super) fn new(agent: &'a Name, wait: &'a WaitRecord) -> Self {
        Self {
            wait_id: wait.id,
            instance: &wait.instance,
            agent,
            filter: &wait.filter,
            registered_at: Iso(wait.registered),
            deadline: Iso(wait.deadline),
            state: "waiting",
        }
    }
}

#[derive(Serialize)]
pub(super) struct WaitMoved {
    state: &'static str,
    delivered: bool,
}

impl From<&WaitRecord> for WaitMoved {
    fn from(wait: &WaitRecord) -> Self {
        let state = match wait.outcome {
            None => "waiting",
            Some(Outcome::Triggered { .. }) => "triggered",
            Some(Outcome::WaitTimeout) => "timed_out",
        };
        Self { state, delivered: wait.delivered }
    }
}

#[derive(Serialize)]
pub(super) struct Letter<'a> {
    id: Uuid,
    agent: &'a Name,
    replayable: bool,
    class: Class,
    source: &'a str,
    receipt: Option<Uuid>,
    input: &'a Value,
    rerun: u32,
    reason: &'a str,
    at: Iso,
}

impl<'a> Letter<'a> {
    pub(super) fn new(agent: &'a Name, letter: &'a DeadLetter) -> Self {
        Self {
            id: letter.id,
            agent,
            replayable: true,
            class: letter.class,
            source: &letter.source,
            receipt: letter.receipt,
            input: &letter.input,
            rerun: letter.rerun,
            reason: &letter.reason,
            at: Iso(letter.at),
        }
    }
}

/// A letter that can be read and not replayed.
#[derive(Serialize)]
pub(super) struct ReadOnly {
    pub(super) replayable: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Replayed<'a> {
    pub(super) replayable: bool,
    pub(super) replayed_as: &'a InstanceId,
    pub(super) replayed_at: Iso,
}
