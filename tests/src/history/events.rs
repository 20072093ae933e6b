//! Events from outside: for each agent each one resumes one wait or starts one run, none is lost, and no wait is
//! resumed twice.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::{Lost, Moment};

/// An event that was sent, and whether somebody said that it was taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Unique.
    pub number: u64,
    pub accepted: bool,
    /// From the first time that it was sent until it was taken in or given up.
    pub time: Range<Moment>,
}

/// What an instance did with an event, as it wrote down itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// Its run was started for it.
    Started,
    /// Its wait was resumed with it.
    Resumed,
}

/// A use of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    pub agent: String,
    pub instance: String,
    pub number: u64,
    pub by: Use,
    pub at: Moment,
}

/// What the log of an agent says of a wait, in the order of its commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub wait: String,
}

/// Compares what was sent with what each of the agents, all of which want all events, did with it.
///
/// What was taken in at a time that is lost may be gone, and what was used then may be used once more: the runners did
/// what the store has forgotten.
pub fn check(sent: &[Sent], agents: &[&str], used: &[Used], ended: &[Ended], lost: &Lost) -> Vec<String> {
    let is_certain =
        |sent: &Sent| sent.accepted && !(sent.time.start <= lost.end && sent.time.end >= lost.start);
    let accepted: BTreeMap<u64, bool> = sent.iter().map(|sent| (sent.number, is_certain(sent))).collect();
    let mut broken = Vec::new();
    let mut uses: BTreeMap<(&str, u64), Vec<&Used>> = BTreeMap::new();
    for used in used {
        if !accepted.contains_key(&used.number) {
            broken.push(format!("invented: {used:?}, and nobody sent that"));
        }
        uses.entry((&used.agent, used.number)).or_default().push(used);
    }
    for uses in uses.values() {
        let lasting = uses.iter().filter(|used| !(lost.start..=lost.end).contains(&used.at));
        if lasting.count() > 1 {
            broken.push(format!("doubled: {uses:?}"));
        }
    }
    for agent in agents {
        let missing = accepted
            .iter()
            .filter(|(number, accepted)| **accepted && !uses.contains_key(&(*agent, **number)));
        broken.extend(missing.map(|(number, _)| format!("lost: {agent} never got event {number}")));
    }
    let mut over: BTreeSet<&str> = BTreeSet::new();
    for Ended { wait } in ended {
        if !over.insert(wait) {
            broken.push(format!("doubled: the wait {wait} ended twice"));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::super::NOTHING;
    use super::super::record::tests::breaks;
    use super::*;

    const fn sent(number: u64, accepted: bool) -> Sent {
        Sent { number, accepted, time: Moment::from_secs(number)..Moment::from_secs(number + 1) }
    }

    const SENT: [Sent; 3] = [sent(1, true), sent(2, true), sent(3, false)];

    /// Two seconds after it was sent.
    fn used(agent: &str, number: u64, by: Use) -> Used {
        let at = Moment::from_secs(number + 2);
        Used { agent: agent.to_owned(), instance: format!("{agent}-0"), number, by, at }
    }

    fn judge(uses: &[Used]) -> Vec<String> {
        check(&SENT, &["a", "b"], uses, &[], &NOTHING)
    }

    fn good() -> Vec<Used> {
        let of = |agent: &str| [used(agent, 1, Use::Started), used(agent, 2, Use::Resumed)];
        [of("a"), of("b")].concat()
    }

    #[test]
    fn a_good_history_passes() {
        assert_eq!(judge(&good()), [""; 0]);
        // Nobody said that the third was taken in, and it was.
        let all = [good(), vec![used("a", 3, Use::Resumed)]].concat();
        assert_eq!(judge(&all), [""; 0]);
        let ended = ["v", "w"].map(|wait| Ended { wait: wait.to_owned() });
        assert_eq!(check(&SENT, &["a", "b"], &good(), &ended, &NOTHING), [""; 0]);
    }

    #[test]
    fn an_event_is_used_once_by_each_agent() {
        breaks(&judge(&good()[1..]), "lost");
        breaks(&judge(&[good(), vec![used("a", 2, Use::Started)]].concat()), "doubled");
        breaks(&judge(&[good(), vec![used("a", 4, Use::Started)]].concat()), "invented");
    }

    #[test]
    fn a_wait_ends_once() {
        let ended = ["w", "w"].map(|wait| Ended { wait: wait.to_owned() });
        breaks(&check(&SENT, &["a", "b"], &good(), &ended, &NOTHING), "doubled");
    }

    #[test]
    fn what_is_lost_may_be_gone_or_done_once_more() {
        let second = Moment::from_secs;
        let judge = |uses: &[Used], lost: Lost| check(&SENT, &["a", "b"], uses, &[], &lost);
        // The second event was taken in between 2 and 3 and used at 4.
        let without = [good()[0].clone(), good()[2].clone(), good()[3].clone()];
        assert_eq!(judge(&without, second(3)..second(3)), [""; 0]);
        breaks(&judge(&without, second(4)..second(5)), "lost");
        let again = [good(), vec![Used { at: second(9), ..good()[1].clone() }]].concat();
        assert_eq!(judge(&again, second(4)..second(5)), [""; 0]);
        breaks(&judge(&again, second(5)..second(6)), "doubled");
    }
}
