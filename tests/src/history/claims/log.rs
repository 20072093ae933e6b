//! What clients were told, compared with the log of the pool.

use std::collections::{BTreeMap, BTreeSet};

use super::{Answer, Call, Evidence, claimed, may_have_claimed};

/// What an event says of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    Created,
    Started {
        client: usize,
        attempt: u32,
    },
    Released,
    /// Its agent was counted as gone.
    Lost,
    Completed {
        output: Option<String>,
    },
}

/// An event as it was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Which commit it came with, in the order of the store's log.
    pub commit: usize,
    /// The pool's version: rises with each commit.
    pub version: u64,
    pub task: String,
    pub fact: Fact,
}

#[derive(Default)]
struct State {
    created: bool,
    attempts: u32,
    holder: Option<usize>,
    completed: bool,
}

pub(super) fn check(evidence: &Evidence, log: &[Logged]) -> Vec<String> {
    let mut broken = Vec::new();
    let mut tasks: BTreeMap<&str, State> = BTreeMap::new();
    let mut holding: BTreeMap<usize, BTreeSet<&str>> = BTreeMap::new();
    for logged in log {
        let state = tasks.entry(&logged.task).or_default();
        broken.extend(follow(state, logged));
        if let Some(problem) = count(&mut holding, logged, evidence.capacity) {
            broken.push(problem);
        }
        if let Fact::Started { client, .. } = logged.fact
            && !evidence
                .history
                .iter()
                .any(|operation| operation.client == client && may_have_claimed(operation, &logged.task))
        {
            broken.push(format!("C4: client {client} never claimed what {logged:?} says"));
        }
    }
    broken.extend(versions(log));
    broken.extend(told_is_logged(evidence, log));
    broken
}

/// One task through its events.
fn follow(state: &mut State, logged: &Logged) -> Option<String> {
    let rule = |rule: &str, why: &str| Some(format!("{rule}: {logged:?}, {why}"));
    match &logged.fact {
        Fact::Created if state.created => return rule("C7", "and it had been made before"),
        Fact::Created => state.created = true,
        _ if !state.created => return rule("C4", "and it was never made"),
        _ if state.completed => return rule("C2", "after it was completed"),
        Fact::Started { client, attempt } => {
            if let Some(holder) = state.holder {
                return rule("C1", &format!("and client {holder} had it"));
            }
            state.attempts += 1;
            state.holder = Some(*client);
            if *attempt != state.attempts {
                return rule("C2", &format!("and it should be attempt {}", state.attempts));
            }
        }
        Fact::Released | Fact::Lost => state.holder = None,
        Fact::Completed { .. } => {
            state.completed = true;
            if state.holder.take().is_none() {
                return rule("C2", "and nobody had it");
            }
        }
    }
    None
}

/// C6: by the log too nobody has more than may be.
fn count<'a>(
    holding: &mut BTreeMap<usize, BTreeSet<&'a str>>,
    logged: &'a Logged,
    capacity: usize,
) -> Option<String> {
    let task = logged.task.as_str();
    if let Fact::Started { client, .. } = logged.fact {
        let has = holding.entry(client).or_default();
        has.insert(task);
        return (has.len() > capacity)
            .then(|| format!("C6: {logged:?}, and it had {} others", has.len() - 1));
    }
    if logged.fact != Fact::Created {
        for has in holding.values_mut() {
            has.remove(task);
        }
    }
    None
}

/// C3: commits follow one another, and none takes the place of another.
fn versions(log: &[Logged]) -> Vec<String> {
    let follows = |a: &Logged, b: &Logged| match a.commit == b.commit {
        true => a.version == b.version,
        false => a.version < b.version,
    };
    let back = log.windows(2).filter(|pair| !follows(&pair[0], &pair[1]));
    back.map(|pair| format!("C3: version {} follows {}", pair[1].version, pair[0].version)).collect()
}

/// C3: what clients were told was committed.
fn told_is_logged(evidence: &Evidence, log: &[Logged]) -> Vec<String> {
    let mut starts: BTreeSet<(&str, usize)> = BTreeSet::new();
    let mut completed: BTreeMap<&str, &Option<String>> = BTreeMap::new();
    for logged in log {
        match &logged.fact {
            Fact::Started { client, .. } => {
                starts.insert((&logged.task, *client));
            }
            Fact::Completed { output } => {
                completed.insert(&logged.task, output);
            }
            _ => {}
        }
    }
    let mut broken = Vec::new();
    for operation in evidence.history {
        if claimed(operation).is_some_and(|task| !starts.contains(&(task, operation.client))) {
            broken.push(format!("C3: {operation:?} was acknowledged and never committed"));
        }
        if let (Call::Complete { task, output }, Some(Answer::Done)) = (&operation.call, operation.answer())
            && completed.get(task.as_str()).copied() != Some(&Some(output.clone()))
        {
            broken.push(format!("C3: {operation:?} was acknowledged and never committed"));
        }
    }
    broken
}
