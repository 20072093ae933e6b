//! What can be asked of an agent, and what it answers.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::call::CallStatus;
use super::definition::{Definition, Standing};
use super::event::DeadLetter;
use super::returned::{Blob, Returned};
use super::state::{Class, Instance, Item, Usage, is_false};
use super::waits::{Outcome, WaitRecord};
use crate::fence::Token;
use crate::id::{InstanceId, Name};
use crate::time::Timestamp;
use crate::triggers::{Envelope, Filter};

/// Verbs, each decided in one file of `decide`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Sets what the agent is. Limits of a run already started stay as they were at its start.
    Define {
        definition: Definition,
        group: Name,
    },
    /// Ends every run and empties the queue; hand-made instances stay.
    Undefine,
    /// A disabled agent takes no work; its waiting runs end, its running ones go on.
    SetEnabled {
        enabled: bool,
    },
    /// A paused agent takes work and starts none; what runs goes on, and what wakes from a wait waits for the end
    /// of the pause.
    SetPaused {
        paused: bool,
    },
    /// The same for all agents of the swarm. `word` rises with each change, so that a late one does nothing.
    SetSwarmPaused {
        paused: bool,
        word: u64,
    },
    /// Says how many slots the agent has at most at a time, whatever its definition says; without a number, or with the
    /// definition's own, that holds again.
    SetScale {
        scale: Option<NonZeroU32>,
    },
    /// Takes in an instance that no runner watches: a hand-made token, on its first use.
    Attach {
        instance: InstanceId,
        agent_id: Uuid,
    },
    /// Queues a run that is no call.
    Enqueue {
        class: Class,
        source: String,
        receipt: Option<Uuid>,
        input: Value,
    },
    /// Queues what a dead letter holds, once.
    Replay {
        letter: Box<DeadLetter>,
    },
    /// Runs this again once it is done.
    RequestRerun {
        instance: InstanceId,
    },
    /// Calls this agent; `call` is the id that the caller will ask with.
    Call {
        call: Uuid,
        caller: Caller,
        context: String,
        /// The caller has this agent among those that it calls ([`Command::NoteCallee`]): the service looked. Left out
        /// if not, so that a request has the digest that it had before there was such a thing.
        #[serde(default, skip_serializing_if = "is_false")]
        noted: bool,
    },
    /// Asks how a call stands. Only the instance that made it may.
    CheckCall {
        call: Uuid,
        instance: InstanceId,
    },
    /// Gives a call up; a run that was started for it alone is stopped.
    CancelCall {
        call: Uuid,
        instance: InstanceId,
    },
    /// An instance that made calls to this agent has ended. `cancel` stops the runs it caused.
    CallerEnded {
        instance: InstanceId,
        #[serde(default)]
        cancel: bool,
    },
    /// From a called agent: `instance` has calls at `target`, which wants to hear of its end.
    NoteCallee {
        instance: InstanceId,
        target: Name,
    },
    /// A call that `instance` wanted to make was refused by the agent that it named, for this reason.
    NoteRefusedCall {
        call: Uuid,
        instance: InstanceId,
        target: Name,
        reason: String,
    },
    SetStatus {
        instance: InstanceId,
        text: String,
    },
    /// What the calls that this instance serves will get; the last one wins.
    ReturnValue {
        instance: InstanceId,
        value: Returned,
    },
    /// Begins to wait. `wait` names the new wait; the answer may name an older one that goes on.
    BeginWait {
        instance: InstanceId,
        wait: Uuid,
        filter: Filter,
        timeout_ms: Option<u64>,
        #[serde(default)]
        broadcast: bool,
        /// An event counts too that came since the run began.
        #[serde(default)]
        look_back: bool,
        /// Names the question, which may be answered with the outcome of an older wait.
        #[serde(default)]
        asked: Uuid,
    },
    /// What a look back over the events since the run began has found for a wait, if anything.
    LookedBack {
        wait: Uuid,
        found: Option<(Uuid, Envelope)>,
    },
    /// Asks how a wait stands, and takes its outcome. Without `wait`: the latest that was not delivered.
    CheckWait {
        instance: InstanceId,
        wait: Option<Uuid>,
        /// Names the question.
        #[serde(default)]
        asked: Uuid,
    },
    /// What a question about a wait was answered has not reached its client, which gave up in that instant. With the
    /// event, if that is known.
    AnswerLost {
        instance: InstanceId,
        asked: Uuid,
        event: Option<Envelope>,
    },
    /// From triggers: a webhook matched this wait.
    Trigger {
        wait: Uuid,
        receipt: Uuid,
        payload: Envelope,
    },
    /// From triggers: events from now on reach the wait.
    WaitRegistered {
        wait: Uuid,
    },
    /// From the lockspace: the instance's lock outlives the wait.
    LocksExtended {
        wait: Uuid,
    },
    /// From the pool: the instance's leases outlive the wait.
    LeasesExtended {
        wait: Uuid,
    },
    /// From the fleet: the bid has a slot on `runner`.
    Granted {
        bid: Uuid,
        runner: String,
    },
    /// From the fleet: the bid cannot be served.
    GrantLost {
        bid: Uuid,
        reason: String,
    },
    /// From a runner, at least once.
    Report {
        instance: InstanceId,
        token: Token,
        runner: String,
        what: Report,
    },
    /// From the fleet: the runner is gone, and with it these instances.
    RunnerLost {
        runner: String,
        instances: Vec<InstanceId>,
    },
    /// From the fleet: the runner has one more stream, or its agents have changed. Of these, which are placed on it, it
    /// held those with a token when it said so, the highest that it had seen of each, and not the others.
    RunnerHolds {
        runner: String,
        held: Vec<(InstanceId, Option<Token>)>,
    },
    /// Ends an instance from outside.
    Kill {
        instance: InstanceId,
        reason: String,
    },
    /// A hand-made instance says that it is done.
    Complete {
        instance: InstanceId,
    },
    /// A run ends itself, with an exit status of its own choice.
    Finish {
        instance: InstanceId,
        code: u8,
    },
    /// Handles everything due.
    Tick,
    /// Everything live, for lists.
    List,
    /// One live instance, with its chain of callers.
    Inspect {
        instance: InstanceId,
    },
}

/// Who calls, with its own callers, oldest first and without itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    pub agent: Name,
    pub instance: InstanceId,
    #[serde(default)]
    pub chain: Vec<(Name, InstanceId)>,
    /// How many of its callers are on top of each other at most, where they are fewer than its chain has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<usize>,
}

impl Caller {
    /// How many callers are above it.
    pub fn depth(&self) -> usize {
        self.depth.unwrap_or(self.chain.len())
    }
}

/// What a runner saw of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    Started {
        pid: Option<u32>,
    },
    Frozen,
    Thawed,
    /// The processes of a frozen instance have ended, and its files are kept.
    Spilled,
    /// It was started again after that.
    Restored {
        pid: Option<u32>,
    },
    Exited {
        code: Option<i32>,
        signal: Option<i32>,
        reason: Option<String>,
        #[serde(default)]
        usage: Option<Usage>,
    },
    StartFailed {
        reason: String,
        /// Of what had run before, when one could not be started again after a long sleep.
        #[serde(default)]
        usage: Option<Usage>,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Done, or done before.
    Done,
    /// The run waits for a slot, under the instance id that it will have.
    Queued {
        instance: InstanceId,
    },
    /// A tick of the same schedule is queued already; one run serves both.
    Coalesced {
        instance: InstanceId,
    },
    /// Nothing will run; the event is kept with the reason.
    DeadLettered {
        id: Uuid,
        reason: String,
    },
    /// It will be run again, for the `number`-th of `most` times.
    WillRerun {
        number: u32,
        most: u32,
    },
    Call(CallView),
    Wait(WaitView),
    /// The instance is being stopped, or was ended.
    Killed {
        instance: InstanceId,
    },
    Instance(Box<Instance>),
    Overview(Box<Overview>),
}

/// A call as its caller may see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallView {
    pub call_id: Uuid,
    pub status: CallStatus,
    /// What was returned; of a blob how it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<Blob>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// When it ended, once it has. It is kept from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
}

/// A wait as its instance may see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitView {
    pub wait: Uuid,
    pub deadline: Timestamp,
    /// Present once the wait has ended and the instance may run on.
    pub outcome: Option<Outcome>,
    /// The outcome was handed out before.
    pub redelivered: bool,
    /// The wait wants a look back to this moment, and is for events from now on: nothing falls in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look_back_to: Option<Timestamp>,
}

/// The agent at a glance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    pub definition: Option<Definition>,
    pub group: Option<Name>,
    pub instances: Vec<Instance>,
    pub queue: Vec<Item>,
    pub waits: Vec<WaitRecord>,
    #[serde(default)]
    pub standing: Standing,
    /// Takes work: by its definition and by the word of its operators.
    #[serde(default)]
    pub enabled: bool,
    /// Dead letters that can be replayed.
    #[serde(default)]
    pub letters: usize,
}
