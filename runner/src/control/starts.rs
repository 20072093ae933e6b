//! Which agents are to be started with the runner.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use skein_shared::limits;
use tokio::time::Instant;

/// A swarm and a name.
pub(super) type Agent = (String, String);

/// How long a start may be asked for again: the coordinators know it for the same as long as they keep its answer.
const AGAIN: Duration = Duration::from_secs(limits::REPLY_KEEP.as_secs() / 3);

/// The agents whose start was asked for since the runner's process began.
#[derive(Debug, Default)]
pub(super) struct Starts {
    /// Those that the coordinators have taken in, and when.
    taken: BTreeMap<Agent, Instant>,
    /// Those that they could not take in just then.
    late: BTreeSet<Agent>,
}

impl Starts {
    /// Whether a registration may ask for a start: it was not taken in yet, or so lately that it is known.
    pub(super) fn may_be_asked_for(&self, agent: &Agent, now: Instant) -> bool {
        self.taken.get(agent).is_none_or(|taken| now.duration_since(*taken) < AGAIN)
    }

    /// Whether a start was asked for and is still to be taken in.
    pub(super) fn is_late(&self, agent: &Agent) -> bool {
        self.late.contains(agent)
    }

    /// Starts were asked for and taken in, but for agents that are `late`. All agents that the coordinators have of
    /// this runner are in `all`: one that is gone may come back.
    pub(super) fn note(
        &mut self,
        asked: BTreeSet<Agent>,
        late: &BTreeSet<Agent>,
        all: &BTreeSet<Agent>,
        now: Instant,
    ) {
        self.taken.retain(|agent, _| all.contains(agent));
        self.late.retain(|agent| all.contains(agent));
        for agent in asked {
            if !late.contains(&agent) {
                self.late.remove(&agent);
                self.taken.entry(agent).or_insert(now);
            } else if !self.taken.contains_key(&agent) {
                self.late.insert(agent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agents<const N: usize>(names: [&str; N]) -> BTreeSet<Agent> {
        names.map(|name| ("default".to_owned(), name.to_owned())).into()
    }

    #[test]
    fn a_start_is_asked_for_only_as_long_as_it_is_known_for_the_same() {
        let (mut starts, now) = (Starts::default(), Instant::now());
        let may = |starts: &Starts, name: &str, at| {
            agents([name]).iter().all(|agent| starts.may_be_asked_for(agent, at))
        };
        assert!(may(&starts, "one", now));
        starts.note(agents(["one"]), &agents([]), &agents(["one", "two"]), now);
        // Said once more on the next stream, which makes it no younger.
        let soon = now + AGAIN / 2;
        assert!(may(&starts, "one", soon) && may(&starts, "two", soon));
        starts.note(agents(["one"]), &agents([]), &agents(["one", "two"]), soon);
        let late = now + AGAIN;
        assert!(!may(&starts, "one", late), "its answer may be forgotten, and it would be another start");
        assert!(may(&starts, "two", late), "it never was");
        starts.note(agents([]), &agents([]), &agents(["two"]), late);
        assert!(may(&starts, "one", late), "it is defined anew");
        assert!(AGAIN < limits::REPLY_KEEP / 2);
    }

    #[test]
    fn a_start_is_late_until_it_is_taken_in_or_its_agent_is_gone() {
        let (mut starts, now) = (Starts::default(), Instant::now());
        let late = |starts: &Starts| {
            ["one", "two"].map(|name| agents([name]).iter().all(|agent| starts.is_late(agent)))
        };
        let both = agents(["one", "two"]);
        starts.note(both.clone(), &both, &both, now);
        assert_eq!(late(&starts), [true, true]);
        // Another registration, which did not ask for it.
        starts.note(agents([]), &agents([]), &both, now);
        assert_eq!(late(&starts), [true, true]);
        starts.note(both.clone(), &agents(["two"]), &both, now);
        assert_eq!(late(&starts), [false, true]);
        starts.note(both.clone(), &both, &both, now);
        assert_eq!(late(&starts), [false, true], "the first was taken in already");
        starts.note(agents([]), &agents([]), &agents(["one"]), now);
        assert_eq!(late(&starts), [false, false]);
    }
}
