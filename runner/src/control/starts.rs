//! Which agents are to be started with the runner.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use skein_shared::limits;
use tokio::time::Instant;

/// A swarm and a name.
pub(super) type Agent = (String, String);

/// How long a start may be asked for again: the coordinators know it for the same as long as they keep its answer.
const AGAIN: Duration = Duration::from_secs(limits::REPLY_KEEP.as_secs() / 3);

/// The agents whose start the coordinators have taken in since the runner's process began, and when.
#[derive(Debug, Default)]
pub(super) struct Starts(BTreeMap<Agent, Instant>);

impl Starts {
    /// Whether a registration may ask for a start: it was not taken in yet, or so lately that it is known.
    pub(super) fn may_be_asked_for(&self, agent: &Agent, now: Instant) -> bool {
        self.0.get(agent).is_none_or(|taken| now.duration_since(*taken) < AGAIN)
    }

    /// Starts were taken in, and these are all agents that the coordinators have of this runner: one that is gone may come
    /// back.
    pub(super) fn note(&mut self, taken: BTreeSet<Agent>, all: &BTreeSet<Agent>, now: Instant) {
        self.0.retain(|agent, _| all.contains(agent));
        for agent in taken {
            self.0.entry(agent).or_insert(now);
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
        starts.note(agents(["one"]), &agents(["one", "two"]), now);
        // Said once more on the next stream, which makes it no younger.
        let soon = now + AGAIN / 2;
        assert!(may(&starts, "one", soon) && may(&starts, "two", soon));
        starts.note(agents(["one"]), &agents(["one", "two"]), soon);
        let late = now + AGAIN;
        assert!(!may(&starts, "one", late), "its answer may be forgotten, and it would be another start");
        assert!(may(&starts, "two", late), "it never was");
        starts.note(agents([]), &agents(["two"]), late);
        assert!(may(&starts, "one", late), "it is defined anew");
        assert!(AGAIN < limits::REPLY_KEEP / 2);
    }
}
