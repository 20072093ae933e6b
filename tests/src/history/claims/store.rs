//! What clients were told, compared with what the store shows in the end.

use std::collections::BTreeMap;

use super::{Answer, Call, Evidence, Task, claimed, may_have_claimed};
use crate::history::Outcome;

pub(super) fn check(evidence: &Evidence) -> Vec<String> {
    let mut broken = none_is_lost(evidence);
    broken.extend(none_is_invented(evidence));
    broken.extend(effects_happen_once(evidence));
    broken
}

/// The states from which a task still goes on, or that are its end.
const STATES: [&str; 5] = ["unassigned", "pending", "in_progress", "completed", "failed"];

/// C3: what was acknowledged is there, and as it was acknowledged.
fn none_is_lost(evidence: &Evidence) -> Vec<String> {
    let mut broken = Vec::new();
    for operation in evidence.history {
        let task = match (&operation.call, operation.answer()) {
            (
                Call::Create { .. } | Call::Claim { .. } | Call::ClaimNext | Call::Order { .. },
                Some(Answer::Task(task)),
            ) => task,
            (Call::Complete { task, .. }, Some(_)) => task,
            _ => continue,
        };
        let Some(found) = evidence.tasks.get(task) else {
            broken.push(format!("C3: {operation:?} was acknowledged, and the task is gone"));
            continue;
        };
        if !STATES.contains(&found.status.as_str()) {
            broken.push(format!("C3: {task} is neither done nor to be had: {found:?}"));
        }
        if let Call::Complete { output, .. } = &operation.call
            && (found.status != "completed" || found.output.as_ref() != Some(output))
        {
            broken.push(format!("C3: {operation:?} was acknowledged, and the task is {found:?}"));
        }
        if claimed(operation).is_some() && found.status == "unassigned" && !was_released(evidence, task) {
            broken.push(format!("C3: {operation:?} was acknowledged, and the task is in the pool"));
        }
    }
    broken
}

/// Whether a task may have gone back to the pool.
fn was_released(evidence: &Evidence, task: &str) -> bool {
    let asked = |call: &Call| matches!(call, Call::Release { task: released } if released == task);
    evidence.history.iter().any(|operation| operation.may_have_happened() && asked(&operation.call))
        || evidence
            .log
            .into_iter()
            .flatten()
            .any(|logged| logged.task == task && logged.fact == super::Fact::Lost)
}

/// C4: what is there was asked for, and whoever has a task may have claimed it.
fn none_is_invented(evidence: &Evidence) -> Vec<String> {
    let mut asked: BTreeMap<&str, bool> = BTreeMap::new();
    for operation in evidence.history {
        if let Call::Create { text, .. } | Call::Order { text } = &operation.call {
            asked.insert(text, operation.may_have_happened());
        }
    }
    let mut broken = Vec::new();
    for (id, task) in evidence.tasks {
        match asked.get(task.text.as_str()) {
            Some(true) => {}
            Some(false) => broken.push(format!("C4: {id} is there, and `{}` was refused", task.text)),
            None => broken.push(format!("C4: nobody asked for {id}, `{}`", task.text)),
        }
        if let Some(holder) =
            task.holder.filter(|_| matches!(task.status.as_str(), "in_progress" | "completed"))
            && !evidence
                .history
                .iter()
                .any(|operation| operation.client == holder && may_have_claimed(operation, id))
        {
            broken.push(format!("C4: client {holder} never claimed {id} and has it: {task:?}"));
        }
    }
    broken
}

/// C7: what was asked for once is there once, however often it was sent.
fn effects_happen_once(evidence: &Evidence) -> Vec<String> {
    let mut found: BTreeMap<&str, Vec<(&str, &Task)>> = BTreeMap::new();
    for (id, task) in evidence.tasks {
        found.entry(&task.text).or_default().push((id, task));
    }
    let mut broken = Vec::new();
    for operation in evidence.history {
        let (Call::Create { text, .. } | Call::Order { text }) = &operation.call else { continue };
        let times = found.get(text.as_str()).map_or(0, Vec::len);
        if times > 1 {
            broken.push(format!("C7: `{text}` was asked for once and is there {times} times"));
        }
        if let Outcome::Ok(Answer::Task(id)) = &operation.outcome
            && let Some(task) = evidence.tasks.get(id)
            && task.text != *text
        {
            broken.push(format!("C7: {id} was made for `{text}` and is `{}`", task.text));
        }
    }
    broken
}
