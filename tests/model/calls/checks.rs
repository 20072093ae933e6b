//! What must hold, what must be reachable, and the runs.

use skein_shared::agent::{Instance, State as Life};
use skein_shared::id::InstanceId;
use stateright::Property;

use super::{Answer, Call, Calls, DEPTH, Harm, Process, QUEUE, Refused, State, Variant, overview};
use crate::check;

const ONCE: &str = "a call is served by one run and answered once";
const LAST_ATTEMPT: &str = "the answer is the last attempt's";
const NOT_DEEPER: &str = "no call is deeper than the limit";
const QUEUE_KEPT: &str = "no more calls wait than the queue takes";
const REASON: &str = "the end of a callee ends its call, with its reason";
const INVARIANTS: &str = "the invariants of every agent hold";

pub(super) fn properties() -> Vec<Property<Calls>> {
    let mut properties = safety();
    properties.extend(reachable());
    properties.extend(refusals());
    properties
}

fn safety() -> Vec<Property<Calls>> {
    vec![
        Property::always(ONCE, |_, state: &State| {
            state.harm != Some(Harm::AnsweredTwice) && state.calls.iter().all(|call| call.runs.len() <= 1)
        }),
        Property::always(LAST_ATTEMPT, |_, state: &State| state.harm != Some(Harm::OldAttempt)),
        Property::always(NOT_DEEPER, |_, state: &State| state.calls.iter().all(|call| call.depth <= DEPTH)),
        Property::always(QUEUE_KEPT, |_, state: &State| {
            state.agents.iter().all(|agent| {
                let instances = overview(agent).instances;
                let waits = |instance: &&Instance| instance.state == Life::Queued && instance.bid.is_none();
                instances.iter().filter(waits).count() <= QUEUE
            })
        }),
        Property::always(REASON, |_, state: &State| {
            state.harm != Some(Harm::WrongReason) && state.calls.iter().all(|call| has_somebody(state, call))
        }),
        Property::always(INVARIANTS, |_, state: &State| state.harm != Some(Harm::Invariant)),
    ]
}

/// A call that is open has a run that waits, or a process.
fn has_somebody(state: &State, call: &Call) -> bool {
    let run = call.runs.first().and_then(|run| state.instance(call.target, run));
    let process = |run: &InstanceId| {
        let its = |process: &Process| process.agent == call.target && process.instance == *run;
        state.processes.iter().any(its)
    };
    call.answer.is_some() || run.is_some_and(|run| run.runner.is_none() || process(&run.id))
}

fn reachable() -> Vec<Property<Calls>> {
    vec![
        Property::sometimes("all calls are answered", |model: &Calls, state: &State| {
            let all = state.calls.len() == model.calls;
            all && state.calls.iter().all(|call| call.answer.is_some())
        }),
        Property::sometimes("a value is returned", |_, state: &State| {
            state.calls.iter().any(|call| call.answer == Some(Answer::Value(Some("done".to_owned()))))
        }),
        Property::sometimes("a callee fails and its caller learns why", |_, state: &State| {
            state
                .calls
                .iter()
                .any(|call| matches!(&call.answer, Some(Answer::Error(why)) if why.contains("status 1")))
        }),
    ]
}

/// What is refused, in the parts of the world where it can be.
fn refusals() -> Vec<Property<Calls>> {
    vec![
        Property::sometimes("a call too deep is refused", |model: &Calls, state: &State| {
            model.calls < model.pairs.len()
                || model.pairs.len() == 1
                || state.refused.contains(&Refused::Depth)
        }),
        Property::sometimes("a full queue refuses", |model: &Calls, state: &State| {
            model.pairs.len() > 1 || state.refused.contains(&Refused::Queue)
        }),
        Property::sometimes("a report of an older attempt is refused", |model: &Calls, state: &State| {
            model.losses == 0 || state.refused.contains(&Refused::Stale)
        }),
    ]
}

/// Each agent calls the next: the third call is too deep.
const DEEP: Calls = Calls {
    variant: Variant::Sound,
    pairs: &[(0, 1), (1, 2), (2, 3)],
    calls: 3,
    again: 0,
    losses: 0,
    expiry: false,
};

/// The lead calls one agent alone, more often than its queue takes.
const WIDE: Calls = Calls { pairs: &[(0, 1)], calls: 4, ..DEEP };

/// Runners are thought lost, answers are lost, and time runs out.
const LOST: Calls = Calls { calls: 2, again: 1, losses: 1, expiry: true, ..DEEP };

fn fails(model: Calls, variant: Variant, harm: &'static str) {
    check::fails(Calls { variant, ..model }, harm);
}

#[test]
fn calls_go_no_deeper_than_the_limit_and_are_answered_once() {
    check::holds(DEEP, 4_000);
}

#[test]
fn a_full_queue_refuses_and_serves_what_it_took() {
    check::holds(WIDE, 2_000);
}

#[test]
fn calls_are_answered_once_though_runners_and_answers_are_lost() {
    check::holds(LOST, 8_000);
}

#[test]
fn a_call_asked_for_again_under_a_new_id_is_served_twice() {
    fails(LOST, Variant::NewIdAgain, ONCE);
}

#[test]
fn a_call_without_its_chain_goes_too_deep() {
    fails(DEEP, Variant::NoChain, NOT_DEEPER);
}

#[test]
fn a_queue_without_a_limit_takes_too_much() {
    fails(WIDE, Variant::NoQueueLimit, QUEUE_KEPT);
}

#[test]
fn a_report_without_its_attempt_answers_for_another() {
    fails(LOST, Variant::AnyAttempt, LAST_ATTEMPT);
}

#[test]
fn an_end_that_nobody_tells_leaves_its_call_open() {
    fails(DEEP, Variant::SilentEnd, REASON);
}
