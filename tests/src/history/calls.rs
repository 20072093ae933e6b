//! Calls between agents: each that was made is served by one run, ends once, and its caller is told that end.

use std::collections::{BTreeMap, BTreeSet};

use super::{Lost, Moment};

/// A call, as its caller wrote it down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub call: String,
    pub at: Moment,
    /// What the caller heard in the end, if it did: the value, or that there is none; and when.
    pub told: Option<(Option<String>, Moment)>,
}

/// What a run of the agent that was called wrote down at its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub instance: String,
    pub at: Moment,
}

/// What the log of the agent that was called says, in the order of its commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    Called,
    Served { instance: String },
    Ended { value: Option<String> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    pub call: String,
    pub fact: Fact,
}

#[derive(Default)]
struct State {
    called: bool,
    served: Option<String>,
    /// With the value that was returned.
    ended: Option<Option<String>>,
}

/// Compares the three. What was made, heard or begun at a time that is lost counts for nothing: it may be so, or have been
/// undone.
pub fn check(made: &[Made], log: &[Logged], runs: &[Run], lost: &Lost) -> Vec<String> {
    let is_lost = |at: &Moment| (lost.start..=lost.end).contains(at);
    let mut broken = Vec::new();
    let mut calls: BTreeMap<&str, State> = BTreeMap::new();
    let mut serving: BTreeMap<&str, &str> = BTreeMap::new();
    for logged in log {
        let state = calls.entry(&logged.call).or_default();
        broken.extend(follow(state, logged));
        if let Fact::Served { instance } = &logged.fact
            && let Some(other) = serving.insert(instance, &logged.call)
        {
            broken.push(format!("doubled: {instance} serves {other} and {}", logged.call));
        }
    }
    for made in made.iter().filter(|made| !is_lost(&made.at)) {
        let Some(state) = calls.get(made.call.as_str()).filter(|state| state.called) else {
            broken.push(format!("lost: {made:?} was acknowledged and never committed"));
            continue;
        };
        match (&made.told, &state.ended) {
            (None, None) => broken.push(format!("stuck: {made:?} has never ended")),
            (None, Some(end)) => {
                broken.push(format!("lost: {made:?} ended with {end:?}, and its caller was not told"));
            }
            (Some((_, at)), _) if is_lost(at) => {}
            (Some((told, _)), end) if Some(told) != end.as_ref() => {
                broken.push(format!("wrong: {made:?} was told, and it ended with {end:?}"));
            }
            _ => {}
        }
    }
    let mut began: BTreeSet<&str> = BTreeSet::new();
    for Run { instance, .. } in runs.iter().filter(|run| !is_lost(&run.at)) {
        if !began.insert(instance) {
            broken.push(format!("doubled: {instance} began twice"));
        }
        if !serving.contains_key(instance.as_str()) {
            broken.push(format!("invented: {instance} serves no call"));
        }
    }
    broken
}

/// One call through its events.
fn follow(state: &mut State, logged: &Logged) -> Option<String> {
    let rule = |rule: &str, why: &str| Some(format!("{rule}: {logged:?}, {why}"));
    match &logged.fact {
        Fact::Called if state.called => return rule("doubled", "and it had been made before"),
        Fact::Called => state.called = true,
        _ if !state.called => return rule("invented", "and it was never made"),
        _ if state.ended.is_some() => return rule("doubled", "after its end"),
        Fact::Served { instance } => {
            if let Some(other) = state.served.replace(instance.clone()) {
                return rule("doubled", &format!("and {other} served it"));
            }
        }
        Fact::Ended { value } => state.ended = Some(value.clone()),
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::NOTHING;
    use super::super::record::tests::breaks;
    use super::*;

    /// Made after a second, and heard after three.
    fn made(value: Option<&str>) -> Made {
        let told = value.map(|value| (Some(value.to_owned()), Moment::from_secs(3)));
        Made { call: "c".to_owned(), at: Moment::from_secs(1), told }
    }

    fn logged(fact: Fact) -> Logged {
        Logged { call: "c".to_owned(), fact }
    }

    fn served(instance: &str) -> Logged {
        logged(Fact::Served { instance: instance.to_owned() })
    }

    fn ended(value: &str) -> Logged {
        logged(Fact::Ended { value: Some(value.to_owned()) })
    }

    fn good() -> Vec<Logged> {
        vec![logged(Fact::Called), served("i"), ended("v")]
    }

    fn judge(made: &[Made], log: &[Logged], runs: &[&str]) -> Vec<String> {
        judge_without(made, log, runs, NOTHING)
    }

    /// Where the runs began after two seconds.
    fn judge_without(made: &[Made], log: &[Logged], runs: &[&str], lost: Lost) -> Vec<String> {
        let run = |&run: &&str| Run { instance: run.to_owned(), at: Moment::from_secs(2) };
        check(made, log, &runs.iter().map(run).collect::<Vec<_>>(), &lost)
    }

    #[test]
    fn a_good_history_passes() {
        assert_eq!(judge(&[made(Some("v"))], &good(), &["i"]), [""; 0]);
        let failed = Made { told: Some((None, Moment::from_secs(3))), ..made(None) };
        let log = [logged(Fact::Called), served("i"), logged(Fact::Ended { value: None })];
        assert_eq!(judge(&[failed], &log, &["i"]), [""; 0]);
    }

    #[test]
    fn a_call_is_served_and_answered_once() {
        let told = [made(Some("v"))];
        let log = [logged(Fact::Called), served("i"), served("j"), ended("v")];
        breaks(&judge(&told, &log, &["i", "j"]), "doubled");
        breaks(&judge(&told, &[good(), vec![ended("v")]].concat(), &["i"]), "doubled");
        breaks(&judge(&told, &[good(), vec![logged(Fact::Called)]].concat(), &["i"]), "doubled");
        breaks(&judge(&told, &good(), &["i", "i"]), "doubled");
        breaks(&judge(&told, &good(), &["i", "j"]), "invented");
        breaks(&judge(&[], &good()[1..2], &["i"]), "invented");
        let both = Logged { call: "d".to_owned(), fact: Fact::Called };
        let again = Logged { call: "d".to_owned(), fact: Fact::Served { instance: "i".to_owned() } };
        breaks(&judge(&told, &[good(), vec![both, again]].concat(), &["i"]), "doubled");
    }

    #[test]
    fn what_is_lost_counts_for_nothing() {
        let second = |at: u64| Moment::from_secs(at)..Moment::from_secs(at);
        assert_eq!(judge_without(&[made(None)], &[], &[], second(1)), [""; 0]);
        breaks(&judge_without(&[made(None)], &[], &[], second(2)), "lost");
        let told = [made(Some("v"))];
        assert_eq!(judge_without(&told, &good(), &["i", "j"], second(2)), [""; 0]);
        breaks(&judge_without(&told, &good(), &["i", "j"], second(1)), "invented");
        let other = [made(Some("w"))];
        assert_eq!(judge_without(&other, &good(), &["i"], second(3)), [""; 0]);
        breaks(&judge_without(&other, &good(), &["i"], second(2)), "wrong");
    }

    #[test]
    fn its_caller_is_told_how_it_ended() {
        breaks(&judge(&[made(Some("v"))], &[], &[]), "lost");
        breaks(&judge(&[made(None)], &good(), &["i"]), "lost");
        breaks(&judge(&[made(None)], &good()[..2], &["i"]), "stuck");
        breaks(&judge(&[made(Some("x"))], &good(), &["i"]), "wrong");
        breaks(&judge(&[made(Some("v"))], &good()[..2], &["i"]), "wrong");
    }
}
