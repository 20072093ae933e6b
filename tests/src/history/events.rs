//! Events from outside: for each agent each one resumes one wait or starts one run, none is lost, and no wait is
//! resumed twice.

use std::collections::{BTreeMap, BTreeSet};

/// An event that was sent, and whether somebody said that it was taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Unique.
    pub number: u64,
    pub accepted: bool,
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
}

/// What the log of an agent says of a wait, in the order of its commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub wait: String,
}

/// Compares what was sent with what each of the agents, all of which want all events, did with it.
pub fn check(sent: &[Sent], agents: &[&str], used: &[Used], ended: &[Ended]) -> Vec<String> {
    let accepted: BTreeMap<u64, bool> = sent.iter().map(|sent| (sent.number, sent.accepted)).collect();
    let mut broken = Vec::new();
    let mut uses: BTreeMap<(&str, u64), Vec<&Used>> = BTreeMap::new();
    for used in used {
        if !accepted.contains_key(&used.number) {
            broken.push(format!("invented: {used:?}, and nobody sent that"));
        }
        uses.entry((&used.agent, used.number)).or_default().push(used);
    }
    for uses in uses.values().filter(|uses| uses.len() > 1) {
        broken.push(format!("doubled: {uses:?}"));
    }
    for agent in agents {
        let lost = accepted
            .iter()
            .filter(|(number, accepted)| **accepted && !uses.contains_key(&(*agent, **number)));
        broken.extend(lost.map(|(number, _)| format!("lost: {agent} never got event {number}")));
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
    use super::super::record::tests::breaks;
    use super::*;

    const SENT: [Sent; 3] = [
        Sent { number: 1, accepted: true },
        Sent { number: 2, accepted: true },
        Sent { number: 3, accepted: false },
    ];

    fn used(agent: &str, number: u64, by: Use) -> Used {
        Used { agent: agent.to_owned(), instance: format!("{agent}-0"), number, by }
    }

    fn judge(uses: &[Used]) -> Vec<String> {
        check(&SENT, &["a", "b"], uses, &[])
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
        assert_eq!(check(&SENT, &["a", "b"], &good(), &ended), [""; 0]);
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
        breaks(&check(&SENT, &["a", "b"], &good(), &ended), "doubled");
    }
}
