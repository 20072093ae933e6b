//! Tasks: C1 one claim at a time, C2 attempts and completions, C3 none lost, C4 none invented, C5 order, C6 capacity,
//! C7 effects once; and a read shows what was acknowledged before it.
//!
//! Three witnesses are compared: what clients were told, what the store shows after everything has healed, and the log
//! of the pool's events in the order of their commits.

mod log;
mod store;
mod told;

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Moment, Operation, Outcome, forget_between};

pub use log::{Fact, Logged};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Texts are unique, so that a task is known by its text though its id was never told.
    Create {
        text: String,
        priority: u8,
        needs: Vec<String>,
    },
    /// A message that makes a task for one agent, by an effect.
    Order {
        text: String,
    },
    Claim {
        task: String,
    },
    ClaimNext,
    Release {
        task: String,
    },
    Complete {
        task: String,
        output: String,
    },
    /// Looks at a task and changes nothing.
    Read {
        task: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The task that was made or claimed.
    Task(String),
    /// A task that the client has, handed to it again: it never said that it had heard of it.
    Again(String),
    /// There was nothing to claim.
    Nothing,
    Done,
    /// The state that was read.
    Seen(String),
}

pub type History = [Operation<Call, Answer>];

/// A task as the store shows it in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub text: String,
    pub status: String,
    /// The client that has it or had it last.
    pub holder: Option<usize>,
    pub output: Option<String>,
}

/// What is known at the end, by three witnesses.
pub struct Evidence<'a> {
    pub history: &'a History,
    /// By id.
    pub tasks: &'a BTreeMap<String, Task>,
    /// The pool's events, oldest first; none where only the clients and the store are asked.
    pub log: Option<&'a [Logged]>,
    /// Tasks that a client may have at a time.
    pub capacity: usize,
}

pub fn check(evidence: &Evidence) -> Vec<String> {
    let mut broken = told::check(evidence);
    broken.extend(store::check(evidence));
    if let Some(log) = evidence.log {
        broken.extend(log::check(evidence, log));
    }
    broken
}

/// What was told between two moments may have been lost, and counts for nothing. A node may hear of the loss late, and
/// tell a client once more, until a third moment, what it had claimed by then: that counts for nothing either.
pub fn forget_lost(history: &History, lost: &Range<Moment>, heard: Moment) -> Vec<Operation<Call, Answer>> {
    let mut known = forget_between(history, lost.start, lost.end);
    let is_claim = |call: &Call| matches!(call, Call::Claim { .. } | Call::ClaimNext);
    let claimed_then = |client: usize| {
        let mut own = history.iter().filter(|then| then.client == client && is_claim(&then.call));
        own.any(|then| then.invoked <= lost.end && then.returned >= lost.start)
    };
    for told in &mut known {
        let again = matches!(told.answer(), Some(Answer::Again(_)));
        if again && told.invoked > lost.end && told.invoked <= heard && claimed_then(told.client) {
            (told.returned, told.outcome) = (Moment::MAX, Outcome::Unknown);
        }
    }
    known
}

/// The task of a claim that succeeded.
fn claimed(operation: &Operation<Call, Answer>) -> Option<&str> {
    match (&operation.call, operation.answer()) {
        (Call::Claim { .. } | Call::ClaimNext, Some(Answer::Task(task) | Answer::Again(task))) => Some(task),
        _ => None,
    }
}

/// The task that a client gave up or completed, as soon as it asked for that.
fn given_up(operation: &Operation<Call, Answer>) -> Option<&str> {
    match &operation.call {
        Call::Release { task } | Call::Complete { task, .. } if operation.may_have_happened() => Some(task),
        _ => None,
    }
}

/// Whether an operation may have claimed a task for its client.
fn may_have_claimed(operation: &Operation<Call, Answer>, task: &str) -> bool {
    match (&operation.call, operation.answer()) {
        (_, Some(_)) => claimed(operation) == Some(task),
        (Call::Claim { task: asked }, None) => asked == task && operation.may_have_happened(),
        (Call::ClaimNext, None) => operation.may_have_happened(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
