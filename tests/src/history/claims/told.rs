//! What clients were told, compared with what they were told before.

use std::collections::{BTreeMap, BTreeSet};

use super::{Answer, Call, Evidence, Fact, History, claimed, given_up, may_have_claimed};
use crate::history::{Moment, Operation};

type Told = Operation<Call, Answer>;

pub(super) fn check(evidence: &Evidence) -> Vec<String> {
    let mut broken = one_claim_at_a_time(evidence);
    broken.extend(first_result_stays(evidence.history));
    broken.extend(results_of_holders(evidence.history));
    broken.extend(dependencies(evidence));
    broken.extend(priorities(evidence));
    broken.extend(capacity(evidence));
    broken.extend(reads_are_fresh(evidence.history));
    broken
}

/// C1: of two clients that were told that a task is theirs, the first must have begun to give it back, or lost it.
fn one_claim_at_a_time(evidence: &Evidence) -> Vec<String> {
    let mut claims: BTreeMap<&str, Vec<&Told>> = BTreeMap::new();
    for operation in evidence.history {
        if let Some(task) = claimed(operation) {
            claims.entry(task).or_default().push(operation);
        }
    }
    let released: BTreeSet<(&str, usize)> = evidence
        .history
        .iter()
        .filter(|operation| matches!(operation.call, Call::Release { .. }))
        .filter_map(|operation| Some((given_up(operation)?, operation.client)))
        .collect();
    let lost = |task: &str| {
        let facts = || evidence.log.into_iter().flatten();
        facts().any(|logged| logged.task == task && logged.fact == Fact::Lost)
    };
    let mut broken = Vec::new();
    for (task, claims) in claims {
        for pair in claims.windows(2) {
            let (a, b) = (pair[0], pair[1]);
            let changed_hands = released.contains(&(task, a.client)) || released.contains(&(task, b.client));
            if a.client != b.client && !changed_hands && !lost(task) {
                broken
                    .push(format!("C1: {task} was given to client {} and to client {}", a.client, b.client));
            }
        }
    }
    broken
}

/// C2: one completion is accepted, and nothing of the task after it.
fn first_result_stays(history: &History) -> Vec<String> {
    let mut first: BTreeMap<&str, &Told> = BTreeMap::new();
    for operation in history {
        if let (Call::Complete { task, .. }, Some(_)) = (&operation.call, operation.answer()) {
            let earliest = first.entry(task).or_insert(operation);
            if operation.returned < earliest.returned {
                *earliest = operation;
            }
        }
    }
    let mut broken = Vec::new();
    for operation in history {
        let about = match (&operation.call, operation.answer()) {
            (Call::Complete { task, .. } | Call::Release { task }, Some(_)) => task.as_str(),
            _ => match claimed(operation) {
                Some(task) => task,
                None => continue,
            },
        };
        let Some(done) = first.get(about).filter(|done| !std::ptr::eq(**done, operation)) else { continue };
        if matches!(operation.call, Call::Complete { .. }) || operation.invoked > done.returned {
            broken.push(format!("C2: {operation:?} was accepted beside {done:?}"));
        }
    }
    broken
}

/// C2: a completion is accepted only from whoever may have the task.
fn results_of_holders(history: &History) -> Vec<String> {
    let mut broken = Vec::new();
    let mut clients: BTreeMap<usize, Vec<&Told>> = BTreeMap::new();
    for operation in history {
        clients.entry(operation.client).or_default().push(operation);
    }
    for operation in history {
        let (Call::Complete { task, .. }, Some(_)) = (&operation.call, operation.answer()) else { continue };
        let mut own = clients[&operation.client].iter();
        if !own.any(|other| other.invoked <= operation.returned && may_have_claimed(other, task)) {
            broken.push(format!("C2: {operation:?} was accepted from one who never claimed it"));
        }
    }
    broken
}

/// C5: nothing is claimed before everybody who could have completed what it needs had begun to.
fn dependencies(evidence: &Evidence) -> Vec<String> {
    let mut needs: BTreeMap<&str, &[String]> = BTreeMap::new();
    let mut completing: BTreeMap<&str, Moment> = BTreeMap::new();
    for operation in evidence.history {
        match (&operation.call, operation.answer()) {
            (Call::Create { needs: tasks, .. }, Some(Answer::Task(task))) => {
                needs.insert(task, tasks);
            }
            (Call::Complete { task, .. }, _) if operation.may_have_happened() => {
                let began = completing.entry(task).or_insert(Moment::MAX);
                *began = operation.invoked.min(*began);
            }
            _ => {}
        }
    }
    let mut broken = Vec::new();
    for operation in evidence.history {
        let Some(task) = claimed(operation) else { continue };
        for need in needs.get(task).copied().into_iter().flatten() {
            if completing.get(need.as_str()).is_none_or(|began| *began > operation.returned) {
                broken.push(format!("C5: {task} was claimed before {need}, which it needs, was completed"));
            }
        }
    }
    broken
}

/// C5: the next task is never less urgent than one that was certainly there all the while.
fn priorities(evidence: &Evidence) -> Vec<String> {
    let created = |operation: &'_ Told| match (&operation.call, operation.answer()) {
        (Call::Create { priority, needs, .. }, Some(Answer::Task(_))) => Some((*priority, needs.is_empty())),
        _ => None,
    };
    let mut tasks: BTreeMap<&str, (u8, Moment)> = BTreeMap::new();
    let mut priority_of: BTreeMap<&str, u8> = BTreeMap::new();
    for operation in evidence.history {
        let (Some((priority, free)), Some(Answer::Task(task))) = (created(operation), operation.answer())
        else {
            continue;
        };
        priority_of.insert(task, priority);
        // One that was held, or may have been when it was not known, was not there for others.
        if free {
            tasks.insert(task, (priority, operation.returned));
        }
    }
    let taken = first_taken(evidence);
    let next = evidence.history.iter().filter(|operation| operation.call == Call::ClaimNext);
    let mut broken = Vec::new();
    for operation in next {
        let Some(Answer::Task(task)) = operation.answer() else { continue };
        let Some(priority) = priority_of.get(task.as_str()) else { continue };
        let there = tasks.iter().find(|(other, (urgent, made))| {
            urgent > priority
                && *made < operation.invoked
                && taken.get(*other).is_none_or(|moment| *moment > operation.returned)
        });
        if let Some((other, (urgent, _))) = there {
            broken.push(format!(
                "C5: client {} got {task} of priority {priority} while {other} of {urgent} was there",
                operation.client
            ));
        }
    }
    broken
}

/// When each task may have been claimed for the first time, told or not.
fn first_taken<'a>(evidence: &Evidence<'a>) -> BTreeMap<&'a str, Moment> {
    let mut taken: BTreeMap<&str, Moment> = BTreeMap::new();
    let mut note = |task: &'a str, moment: Moment| {
        let first = taken.entry(task).or_insert(Moment::MAX);
        *first = moment.min(*first);
    };
    let mut silent: BTreeMap<usize, Moment> = BTreeMap::new();
    for operation in evidence.history {
        match (&operation.call, claimed(operation)) {
            (_, Some(task)) => note(task, operation.invoked),
            (Call::Claim { task }, None) if operation.may_have_happened() => note(task, operation.invoked),
            (Call::ClaimNext, None) if operation.may_have_happened() && operation.answer().is_none() => {
                let first = silent.entry(operation.client).or_insert(Moment::MAX);
                *first = operation.invoked.min(*first);
            }
            _ => {}
        }
    }
    // A claim that was never answered took what its client has in the end, gave back, or was handed again.
    let in_the_end = evidence.tasks.iter().filter_map(|(task, state)| Some((task.as_str(), state.holder?)));
    let before = evidence.history.iter().filter_map(|told| match told.answer() {
        Some(Answer::Again(task)) => Some((task.as_str(), told.client)),
        _ => Some((given_up(told)?, told.client)),
    });
    for (task, client) in in_the_end.chain(before) {
        if let Some(moment) = silent.get(&client) {
            note(task, *moment);
        }
    }
    taken
}

/// C3: whoever looks at a task after its completion was acknowledged sees that.
fn reads_are_fresh(history: &History) -> Vec<String> {
    let mut completed: BTreeMap<&str, Moment> = BTreeMap::new();
    for operation in history {
        if let (Call::Complete { task, .. }, Some(_)) = (&operation.call, operation.answer()) {
            let first = completed.entry(task).or_insert(Moment::MAX);
            *first = operation.returned.min(*first);
        }
    }
    let mut broken = Vec::new();
    for operation in history {
        let (Call::Read { task }, Some(Answer::Seen(status))) = (&operation.call, operation.answer()) else {
            continue;
        };
        let over = completed.get(task.as_str()).is_some_and(|done| *done < operation.invoked);
        if over && status != "completed" {
            broken.push(format!("C3: {operation:?} shows less than was acknowledged before it"));
        }
    }
    broken
}

/// C6: nobody has more tasks than may be. A task counts from when the claim was told until its end is asked for.
fn capacity(evidence: &Evidence) -> Vec<String> {
    let mut clients: BTreeMap<usize, Vec<&Told>> = BTreeMap::new();
    for operation in evidence.history {
        clients.entry(operation.client).or_default().push(operation);
    }
    let mut broken = Vec::new();
    for (client, operations) in clients {
        let mut moments: Vec<(Moment, bool, &str)> = Vec::new();
        for operation in operations {
            moments.extend(claimed(operation).map(|task| (operation.returned, true, task)));
            moments.extend(given_up(operation).map(|task| (operation.invoked, false, task)));
        }
        moments.sort_unstable();
        let mut has: BTreeSet<&str> = BTreeSet::new();
        for (moment, claimed, task) in moments {
            if !claimed {
                has.remove(task);
            } else if has.insert(task) && has.len() > evidence.capacity {
                broken.push(format!(
                    "C6: client {client} had {has:?} at {moment:?}, {} at most",
                    evidence.capacity
                ));
            }
        }
    }
    broken
}
