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
    /// With the run that was asked for on its account.
    Called {
        callee: String,
    },
    Served {
        instance: String,
    },
    Ended {
        value: Option<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    pub call: String,
    pub fact: Fact,
}

#[derive(Default)]
struct State {
    callee: Option<String>,
    served: bool,
    /// With the value that was returned.
    ended: Option<Option<String>>,
}

/// Compares the three. What was made, heard or begun at a time that is lost counts for nothing: it may be so, or have
/// been undone.
pub fn check(made: &[Made], log: &[Logged], runs: &[Run], lost: &Lost) -> Vec<String> {
    let is_lost = |at: &Moment| (lost.start..=lost.end).contains(at);
    let mut broken = Vec::new();
    let mut calls: BTreeMap<&str, State> = BTreeMap::new();
    let mut reasons: BTreeMap<&str, &str> = BTreeMap::new();
    for logged in log {
        let state = calls.entry(&logged.call).or_default();
        broken.extend(follow(state, logged));
        let Fact::Called { callee } = &logged.fact else { continue };
        match reasons.get(callee.as_str()) {
            Some(other) => broken.push(format!("doubled: {callee} serves {other} and {}", logged.call)),
            None => _ = reasons.insert(callee, &logged.call),
        }
    }
    for made in made.iter().filter(|made| !is_lost(&made.at)) {
        let Some(state) = calls.get(made.call.as_str()).filter(|state| state.callee.is_some()) else {
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
        match reasons.get(instance.as_str()).map(|call| &calls[call]) {
            None => broken.push(format!("invented: {instance} serves no call")),
            // Its caller may have ended before it began: then it is done all the same, and answers nobody.
            Some(state) if !state.served && state.ended.is_none() => {
                broken.push(format!("lost: {instance} has begun, and its call is not known to be served"));
            }
            Some(_) => {}
        }
    }
    broken
}

/// One call through its events.
fn follow(state: &mut State, logged: &Logged) -> Option<String> {
    let rule = |rule: &str, why: &str| Some(format!("{rule}: {logged:?}, {why}"));
    match &logged.fact {
        Fact::Called { .. } if state.callee.is_some() => {
            return rule("doubled", "and it had been made before");
        }
        Fact::Called { callee } => state.callee = Some(callee.clone()),
        _ if state.callee.is_none() => return rule("invented", "and it was never made"),
        _ if state.ended.is_some() => return rule("doubled", "after its end"),
        Fact::Served { .. } if state.served => return rule("doubled", "and it was served already"),
        Fact::Served { instance } => {
            state.served = true;
            if state.callee.as_ref() != Some(instance) {
                return rule("invented", &format!("and {:?} was asked for", state.callee));
            }
        }
        Fact::Ended { value } => {
            state.ended = Some(value.clone());
            if value.is_some() && !state.served {
                return rule("invented", "and nobody served it");
            }
        }
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

    fn called(callee: &str) -> Logged {
        logged(Fact::Called { callee: callee.to_owned() })
    }

    fn served(instance: &str) -> Logged {
        logged(Fact::Served { instance: instance.to_owned() })
    }

    fn ended(value: &str) -> Logged {
        logged(Fact::Ended { value: Some(value.to_owned()) })
    }

    fn given_up() -> Logged {
        logged(Fact::Ended { value: None })
    }

    fn good() -> Vec<Logged> {
        vec![called("i"), served("i"), ended("v")]
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
        let log = [called("i"), served("i"), given_up()];
        assert_eq!(judge(&[failed], &log, &["i"]), [""; 0]);
    }

    #[test]
    fn a_call_is_served_and_answered_once() {
        let told = [made(Some("v"))];
        breaks(&judge(&told, &[called("i"), served("i"), served("i"), ended("v")], &["i"]), "doubled");
        breaks(&judge(&told, &[called("i"), served("j"), ended("v")], &["i"]), "invented");
        breaks(&judge(&told, &[called("i"), ended("v")], &["i"]), "invented");
        breaks(&judge(&told, &[good(), vec![ended("v")]].concat(), &["i"]), "doubled");
        breaks(&judge(&told, &[good(), vec![called("j")]].concat(), &["i"]), "doubled");
        breaks(&judge(&told, &good(), &["i", "i"]), "doubled");
        breaks(&judge(&told, &good(), &["i", "j"]), "invented");
        breaks(&judge(&[], &good()[1..2], &["i"]), "invented");
        let both = Logged { call: "d".to_owned(), fact: Fact::Called { callee: "i".to_owned() } };
        breaks(&judge(&told, &[good(), vec![both]].concat(), &["i"]), "doubled");
    }

    /// Its caller has ended, which ends the call and not the run.
    #[test]
    fn a_run_whose_call_was_given_up_before_it_began_is_one_that_was_asked_for() {
        assert_eq!(judge(&[], &[called("i"), given_up()], &["i"]), [""; 0]);
        breaks(&judge(&[], &[called("i"), given_up()], &["j"]), "invented");
        breaks(&judge(&[], &[called("i"), given_up()], &["i", "i"]), "doubled");
        breaks(&judge(&[], &[called("i")], &["i"]), "lost");
        breaks(&judge(&[], &[called("i"), given_up(), served("i")], &["i"]), "doubled");
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
