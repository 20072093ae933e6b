//! The saga of `wait_for_trigger`: begun, acknowledged by locks, leases and triggers, frozen, resumed.
//!
//! Registration is the moment from which events count. An event before the freeze resumes without one.

use std::collections::BTreeSet;
use std::time::Duration;

use uuid::Uuid;

use super::draft::Draft;
use crate::agent::command::WaitView;
use crate::agent::event::Event;
use crate::agent::state::{Instance, State};
use crate::agent::waits::{Outcome, Party, WaitRecord};
use crate::agent::{Reply, effects};
use crate::code::{Code, Refusal};
use crate::fence::Token;
use crate::id::InstanceId;
use crate::limits;
use crate::time::Timestamp;
use crate::triggers::{Envelope, Filter, FilterKind};

/// Locks and leases outlive the deadline by this, so that what is told of the end of a wait finds them.
const MARGIN: Duration = Duration::from_secs(300);

/// How an instance wants to wait.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    pub(super) broadcast: bool,
    pub(super) look_back: bool,
}

impl Draft<'_> {
    pub(super) fn begin_wait(
        &mut self,
        id: &InstanceId,
        wait: Uuid,
        filter: &Filter,
        timeout_ms: Option<u64>,
        manner: Manner,
        asked: Uuid,
    ) -> Result<Reply, Refusal> {
        filter.validate()?;
        let deadline = self.deadline(timeout_ms)?;
        self.instance(id)?;
        self.began(id, None);
        let after = self.wait_of(id).and_then(|before| before.asked.or(before.after));
        if let Some(reply) = self.earlier_wait(id, wait, filter, asked)? {
            return Ok(reply);
        }
        self.may_wait(id)?;
        if manner.look_back {
            self.may_look_back(id, filter)?;
        }
        let registered = self.now();
        let mut record = WaitRecord {
            id: wait,
            instance: id.clone(),
            filter: filter.clone(),
            registered,
            deadline,
            broadcast: manner.broadcast,
            unacknowledged: BTreeSet::from([Party::Locks, Party::Leases]),
            outcome: None,
            delivered: false,
            asked: None,
            after,
        };
        if record.is_webhook() {
            record.unacknowledged.insert(Party::Triggers);
        }
        if manner.look_back {
            record.unacknowledged.insert(Party::LookBack);
        }
        self.push(Event::WaitBegun(record.clone()));
        self.serve_queued_call(id);
        self.prepare(&record);
        self.take_outcome(wait, asked)
    }

    /// Has everybody get ready for a wait that goes on. One that found its call in the queue is over already.
    fn prepare(&mut self, wait: &WaitRecord) {
        if !self.agent.waits.get(&wait.id).is_some_and(WaitRecord::is_open) {
            return;
        }
        let registered = wait.is_webhook().then(|| self.agent.register_wait(wait));
        self.send(registered);
        self.extend(wait, wait.deadline + MARGIN, false);
    }

    /// Tells locks and leases how long a wait goes on at most, or that it is over: then they have their own time again,
    /// which whoever waited can renew itself. The deadline ends them also for a hand-made instance that has died in its
    /// wait: nobody watches it, so nothing else would.
    fn extend(&mut self, wait: &WaitRecord, until: Timestamp, over: bool) {
        let told = [self.agent.extend_locks(wait, until, over), self.agent.extend_leases(wait, until, over)];
        self.send(told);
    }

    /// The instance runs on after its wait.
    pub(super) fn resume(&mut self, id: &InstanceId, token: Option<Token>) {
        let (wait, at) = (self.wait_of(id).cloned(), self.now());
        self.push(Event::Resumed { instance: id.clone(), token, at });
        if let Some(wait) = wait {
            self.extend(&wait, at, true);
        }
    }

    pub(super) fn check_wait(
        &mut self,
        id: &InstanceId,
        wait: Option<Uuid>,
        asked: Uuid,
    ) -> Result<Reply, Refusal> {
        self.instance(id)?;
        let latest = self.wait_of(id).filter(|latest| match wait {
            Some(wanted) => latest.id == wanted,
            None => !latest.delivered,
        });
        let Some(latest) = latest.map(|latest| latest.id) else {
            return Err(Refusal::new(
                Code::NotFound,
                "this instance has no such wait; call wait_for_trigger to begin one",
            ));
        };
        self.take_outcome(latest, asked)
    }

    /// Takes an event back that the instance was told of and has not heard. It has it by asking again; an instance that
    /// has asked again already, and waits for another, has it now.
    pub(super) fn answer_lost(&mut self, id: &InstanceId, asked: Uuid, event: Option<&Envelope>) -> Reply {
        let Some(latest) = self.wait_of(id) else { return Reply::Done };
        let (wait, is_next) = (latest.id, latest.is_open() && latest.after == Some(asked));
        if latest.asked == Some(asked) {
            self.push(Event::WaitUnread { wait });
        } else if let Some(payload) = event.filter(|_| is_next).cloned() {
            self.cancel_wait_of(id);
            self.finish_wait(wait, Outcome::Triggered { payload, receipt: None });
        }
        Reply::Done
    }

    pub(super) fn trigger(&mut self, wait: Uuid, receipt: Uuid, payload: &Envelope) -> Reply {
        if self.agent.waits.get(&wait).is_some_and(WaitRecord::is_open) {
            let (payload, receipt) = (payload.clone(), Some(receipt));
            self.finish_wait(wait, Outcome::Triggered { payload, receipt });
        } else {
            let effect = self.agent.unclaimed(receipt, wait, payload);
            self.send([effect]);
        }
        Reply::Done
    }

    pub(super) fn acknowledge(&mut self, wait: Uuid, by: Party) -> Reply {
        if self.agent.waits.get(&wait).is_some_and(|wait| wait.unacknowledged.contains(&by)) {
            self.push(Event::WaitAcknowledged { wait, by });
            self.freeze_if_ready(wait);
        }
        Reply::Done
    }

    /// A look back found an event that ends the wait, or none; then the instance may be frozen.
    pub(super) fn looked_back(&mut self, wait: Uuid, found: Option<&(Uuid, Envelope)>) -> Reply {
        let looks =
            |record: &&WaitRecord| record.is_open() && record.unacknowledged.contains(&Party::LookBack);
        let Some(record) = self.agent.waits.get(&wait).filter(looks).cloned() else { return Reply::Done };
        let Some((receipt, payload)) = found.filter(|(_, payload)| record.takes(payload)) else {
            return self.acknowledge(wait, Party::LookBack);
        };
        self.cancel_wait_of(&record.instance);
        self.push(Event::Recalled { instance: record.instance, receipt: *receipt });
        self.finish_wait(wait, Outcome::Triggered { payload: payload.clone(), receipt: None });
        Reply::Done
    }

    /// Ends a wait. An instance that was not frozen runs on at once; a frozen one bids for a slot.
    pub(super) fn finish_wait(&mut self, wait: Uuid, outcome: Outcome) {
        let Some(id) = self.agent.waits.get(&wait).map(|wait| wait.instance.clone()) else { return };
        self.push(Event::WaitEnded { wait, outcome });
        let Some(instance) = self.agent.instances.get(&id).cloned() else { return };
        match instance.state {
            State::Waiting => self.resume(&id, None),
            State::Freezing => {
                let token = self.next_token(&instance);
                self.resume(&id, Some(token));
                self.send(effects::thaw(&instance, token));
            }
            State::Frozen => {
                self.keep_what_it_has(wait);
                self.wake(&id);
            }
            _ => {}
        }
    }

    /// Nobody knows when a frozen run gets a slot, or its agent is resumed: until then what it has must not end. It has
    /// its own time again when the run goes on, and ends with it otherwise.
    fn keep_what_it_has(&mut self, wait: Uuid) {
        let Some(wait) = self.agent.waits.get(&wait).cloned() else { return };
        self.extend(&wait, self.now() + limits::WAIT_MAX, false);
    }

    /// Tells triggers that nobody waits any more. Waits for agents are known here alone.
    pub(super) fn cancel_wait_of(&mut self, id: &InstanceId) {
        let open = self.wait_of(id).filter(|wait| wait.is_open() && wait.is_webhook());
        let effect = open.map(|wait| self.agent.cancel_wait(wait.id));
        self.send(effect);
    }

    /// Gives back the event that has woken an instance which ends before it hears of it: nobody else has it. The wait
    /// goes with the end, so that nothing is given back twice.
    pub(super) fn give_back_unheard(&mut self, id: &InstanceId) {
        let unheard = self.unheard(id);
        let effect = unheard.map(|(receipt, wait, event)| self.agent.unclaimed(receipt, wait, event));
        self.send(effect);
    }

    /// The event of triggers that the instance was woken by and has not heard of, with its receipt and the wait. What
    /// it is started again with it has heard once its runner has said that it was.
    pub(super) fn unheard(&self, id: &InstanceId) -> Option<(Uuid, Uuid, &Envelope)> {
        let begins_again = self.agent.instances.get(id).is_some_and(Instance::begins_again);
        let wait = self.wait_of(id).filter(|wait| !wait.delivered || begins_again)?;
        match &wait.outcome {
            Some(Outcome::Triggered { payload, receipt: Some(receipt) }) => {
                Some((*receipt, wait.id, payload))
            }
            _ => None,
        }
    }

    fn freeze_if_ready(&mut self, wait: Uuid) {
        let Some(wait) = self.agent.waits.get(&wait).filter(|wait| wait.unacknowledged.is_empty()) else {
            return;
        };
        let Some(instance) = self.agent.instances.get(&wait.instance).cloned() else { return };
        if instance.external || instance.state != State::Waiting {
            return;
        }
        let token = self.next_token(&instance);
        self.push(Event::Freezing { instance: instance.id.clone(), token });
        self.send(effects::freeze(&instance, token));
    }

    /// A wait of the same instance that was not seen to its end. A client that gave up on its request and
    /// asks again goes on with it; an event that it has not seen comes before anything new.
    fn earlier_wait(
        &mut self,
        id: &InstanceId,
        wait: Uuid,
        filter: &Filter,
        asked: Uuid,
    ) -> Result<Option<Reply>, Refusal> {
        let Some(old) = self.wait_of(id).cloned() else { return Ok(None) };
        let unseen = match &old.outcome {
            Some(Outcome::Triggered { .. }) => !old.delivered,
            _ => !old.delivered && old.filter == *filter,
        };
        if old.id == wait || unseen {
            return self.take_outcome(old.id, asked).map(Some);
        }
        if old.is_open() {
            self.supersede(&old)?;
        }
        Ok(None)
    }

    /// Gives an open wait up for one with another filter.
    fn supersede(&mut self, old: &WaitRecord) -> Result<(), Refusal> {
        let instance = self.instance(&old.instance)?.clone();
        let token = match instance.state {
            State::Waiting => None,
            State::Freezing => Some(self.next_token(&instance)),
            _ => return Err(cannot_wait(&old.instance, instance.state)),
        };
        self.cancel_wait_of(&old.instance);
        let at = self.now();
        self.push(Event::WaitDropped { wait: old.id, token, at });
        self.extend(old, at, true);
        self.send(token.and_then(|token| effects::thaw(&instance, token)));
        Ok(())
    }

    /// How the wait stands. The outcome is handed out once the instance may run on.
    fn take_outcome(&mut self, wait: Uuid, asked: Uuid) -> Result<Reply, Refusal> {
        let Some(record) = self.agent.waits.get(&wait).cloned() else {
            return Err(Refusal::new(Code::NotFound, format!("there is no wait {wait}; begin a new one")));
        };
        let runs = self.instance(&record.instance)?.state == State::Running;
        let outcome = record.outcome.filter(|_| runs);
        if outcome.is_some() {
            self.push(Event::WaitDelivered { wait, asked: Some(asked) });
        }
        Ok(Reply::Wait(WaitView {
            wait,
            deadline: record.deadline,
            redelivered: record.delivered && outcome.is_some(),
            look_back_to: self.look_back_to(wait),
            outcome,
        }))
    }

    fn may_wait(&self, id: &InstanceId) -> Result<(), Refusal> {
        let state = self.instance(id)?.state;
        if state != State::Running {
            return Err(cannot_wait(id, state));
        }
        let most = self.agent.limits().max_waiting;
        let waiting = self.agent.instances.values().filter(|instance| instance.state.is_waiting()).count();
        if waiting >= most {
            return Err(Refusal::new(
                Code::NoCapacity,
                format!(
                    "{waiting} instances of agent {} wait already, at most {most} may; try again later",
                    self.agent.name
                ),
            ));
        }
        Ok(())
    }

    fn may_look_back(&self, id: &InstanceId, filter: &Filter) -> Result<(), Refusal> {
        if self.instance(id)?.granted.is_some() && filter.kind == FilterKind::Webhook {
            return Ok(());
        }
        Err(Refusal::new(
            Code::InvalidArgument,
            "since: run_start is for webhooks, in runs that a runner has started; leave it out",
        ))
    }

    /// Not before triggers have the wait: an event that comes after the look back must end it.
    fn look_back_to(&self, wait: Uuid) -> Option<Timestamp> {
        let record = self.agent.waits.get(&wait)?;
        let out = &record.unacknowledged;
        let due = out.contains(&Party::LookBack) && !out.contains(&Party::Triggers);
        self.agent.instances.get(&record.instance)?.granted.filter(|_| due)
    }

    fn deadline(&self, timeout_ms: Option<u64>) -> Result<Timestamp, Refusal> {
        let own = self.agent.limits();
        let longest = own.max_wait_timeout_ms.map(|longest| Duration::from_millis(longest.get()));
        let longest = longest.unwrap_or(limits::WAIT_MAX).min(limits::WAIT_MAX);
        let usual = Duration::from_millis(own.wait_timeout_ms).min(longest);
        let span = timeout_ms.map_or(usual, Duration::from_millis);
        if span.is_zero() || span > longest {
            return Err(Refusal::new(
                Code::InvalidArgument,
                format!("timeout must be more than 0 and at most {}", humantime::format_duration(longest)),
            ));
        }
        Ok(self.now() + span)
    }
}

fn cannot_wait(id: &InstanceId, state: State) -> Refusal {
    Refusal::new(
        Code::WrongState,
        format!("instance {id} is {} and cannot begin to wait; only a running one can", state.as_str()),
    )
}
