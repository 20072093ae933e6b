//! What must hold of an agent after every event.

use std::collections::BTreeSet;

use super::call::CallRecord;
use super::index::Index;
use super::returned::Returned;
use super::state::{Agent, Instance, Spill, State};
use super::waits::WaitRecord;

pub(super) fn check(agent: &Agent) -> Result<(), String> {
    let bids: Vec<_> = agent.instances.values().filter_map(|instance| instance.bid).collect();
    rule(bids.iter().collect::<BTreeSet<_>>().len() == bids.len(), "a bid is for one instance", "bids")?;
    for instance in agent.instances.values() {
        check_instance(agent, instance)?;
    }
    for item in agent.queue.values() {
        let state = agent.instances.get(&item.instance).map(|instance| instance.state);
        let unstarted = matches!(state, Some(State::Queued | State::Starting));
        rule(unstarted, "a queue item has a run that has not started", &item.instance)?;
    }
    for wait in agent.waits.values() {
        check_wait(agent, wait)?;
    }
    let named = agent.instances.values().filter_map(|instance| instance.returned.as_ref());
    let named = named.chain(agent.finished.values().filter_map(|call| call.value.as_ref()));
    let named = named.filter_map(Returned::blob).count();
    let counted: u32 = agent.blobs.values().sum();
    rule(named == counted as usize, "each who names a blob is counted", counted)?;
    rule(agent.index == Index::of(agent), "what is counted and in order is what there is", "index")?;
    let closed = agent.finished.values().all(CallRecord::is_over);
    rule(closed && !agent.calls.values().any(CallRecord::is_over), "calls are open or over", "calls")?;
    agent.calls.values().try_for_each(|call| check_call(agent, call))
}

fn check_instance(agent: &Agent, instance: &Instance) -> Result<(), String> {
    use State::{Ended, Freezing, Frozen, Queued, Resuming, Running, Starting, Stopping, Waiting};
    let id = &instance.id;
    let state = instance.state;
    rule(state != Ended, "an ended instance leaves memory", id)?;
    rule((state == Stopping) == instance.stop.is_some(), "what stops has a reason", id)?;
    if state.is_waiting() {
        let wait = instance.wait.and_then(|wait| agent.waits.get(&wait));
        rule(wait.is_some(), "what waits has a wait", id)?;
    }
    if instance.external {
        rule(matches!(state, Running | Waiting), "a hand-made instance is never frozen", id)?;
        rule(!instance.is_active() && instance.runner.is_none(), "a hand-made instance takes no slot", id)?;
        return Ok(());
    }
    let bids = instance.bid.is_some();
    match state {
        Queued => {
            rule(agent.queue.contains_key(id), "a queued run has its item", id)?;
            rule(!instance.slot && instance.runner.is_none(), "a queued run has no slot", id)
        }
        Starting => {
            rule(agent.queue.contains_key(id), "a start keeps its item", id)?;
            rule(instance.slot && !bids, "what starts has a slot", id)
        }
        Running | Waiting | Freezing => rule(instance.slot && !bids, "what runs has a slot", id),
        Frozen => rule(!instance.slot && !bids, "what is frozen has no slot", id),
        Resuming => rule(!instance.slot && bids, "what resumes bids for a slot", id),
        Stopping | Ended => rule(!bids, "what stops bids for nothing", id),
    }?;
    let spills = match instance.spill {
        Some(Spill::Ordered) => matches!(state, Frozen | Stopping),
        Some(Spill::Done) => matches!(state, Frozen | Resuming | Running | Stopping),
        Some(Spill::Refused) | None => true,
    };
    rule(spills, "what is spilled sleeps, or is about to be started again", id)?;
    let placed = instance.runner.is_some() && instance.token >= instance.first_token;
    rule(state == Queued || placed, "a run has a runner and rising tokens", id)
}

fn check_wait(agent: &Agent, wait: &WaitRecord) -> Result<(), String> {
    let owner = agent.instances.get(&wait.instance);
    rule(owner.is_some_and(|owner| owner.wait == Some(wait.id)), "a wait is its instance's latest", wait.id)?;
    let waits = owner.is_some_and(|owner| owner.state.is_waiting());
    rule(!wait.is_open() || waits, "an open wait has a waiting instance", wait.id)?;
    let frozen = owner.is_some_and(|owner| matches!(owner.state, State::Freezing | State::Frozen));
    rule(!frozen || wait.unacknowledged.is_empty(), "nothing freezes before all are ready", wait.id)
}

fn check_call(agent: &Agent, call: &CallRecord) -> Result<(), String> {
    let served = call.callee.as_ref().is_some_and(|callee| agent.instances.contains_key(callee));
    rule(served, "an open call has an instance behind it", call.id)?;
    rule(call.error.is_none(), "an open call has no error", call.id)
}

fn rule(holds: bool, name: &str, about: impl std::fmt::Display) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("`{name}` ({about})")) }
}
