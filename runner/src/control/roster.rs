//! Which coordinators there are, as those say that are connected, and which stream leads to which of them.
//!
//! A coordinator may be known by several addresses, one of which may even lead to another coordinator each time. So a
//! stream takes its coordinator by the name that it answers with, before the runner registers there.

use std::collections::{BTreeMap, BTreeSet};

use skein_proto::v1;
use tokio::sync::watch;

/// A coordinator's name for itself.
pub(super) type Node = String;

#[derive(Default)]
pub(super) struct Roster(watch::Sender<Known>);

#[derive(Clone, Default)]
pub(super) struct Known {
    /// The last word of the coordinator at the end of each stream: who there is, and where.
    lists: BTreeMap<usize, BTreeMap<Node, String>>,
    taken: BTreeMap<Node, usize>,
}

impl Known {
    /// All whom somebody knows, and where they are.
    pub(super) fn all(&self) -> BTreeMap<Node, String> {
        self.lists.values().flatten().map(|(node, url)| (node.clone(), url.clone())).collect()
    }
}

impl Roster {
    /// Changes with every word and every stream.
    pub(super) fn changes(&self) -> watch::Receiver<Known> {
        self.0.subscribe()
    }

    /// Takes in what a coordinator says of all.
    pub(super) fn hear(&self, stream: usize, all: v1::Coordinators) {
        let list = all.coordinators.into_iter().map(|one| (one.node, one.url)).collect();
        self.0.send_modify(|known| _ = known.lists.insert(stream, list));
    }

    /// Makes a stream the one to a coordinator. Says whether it is: another one may be.
    pub(super) fn take(&self, stream: usize, node: &str) -> bool {
        let mut took = true;
        self.0.send_modify(|known| took = *known.taken.entry(node.to_owned()).or_insert(stream) == stream);
        took
    }

    /// A stream has ended. What its coordinator said holds only while nobody else says anything.
    pub(super) fn leave(&self, stream: usize) {
        self.0.send_modify(|known| {
            known.taken.retain(|_, by| *by != stream);
            let connected: BTreeSet<usize> = known.taken.values().copied().collect();
            if known.lists.keys().any(|other| *other != stream && connected.contains(other)) {
                known.lists.remove(&stream);
            }
        });
    }

    /// Waits until no other stream leads to a coordinator.
    pub(super) async fn is_free(&self, stream: usize, node: &str) {
        let free = |known: &Known| known.taken.get(node).is_none_or(|by| *by == stream);
        // The sender lives in `self`, so there is no error.
        let _ = self.0.subscribe().wait_for(free).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(nodes: &[&str]) -> v1::Coordinators {
        let one = |node: &&str| v1::Coordinator { node: (*node).to_owned(), url: format!("http://{node}") };
        v1::Coordinators { coordinators: nodes.iter().map(one).collect() }
    }

    fn known(roster: &Roster) -> Vec<Node> {
        roster.0.borrow().all().into_keys().collect()
    }

    #[tokio::test]
    async fn a_coordinator_has_one_stream_whatever_it_is_called() {
        let roster = Roster::default();
        assert!(roster.take(0, "a") && roster.take(0, "a") && !roster.take(1, "a"));
        let freed = roster.is_free(1, "a");
        tokio::pin!(freed);
        assert!(futures::poll!(&mut freed).is_pending());
        roster.leave(0);
        freed.await;
        assert!(roster.take(1, "a"));
    }

    #[test]
    fn what_the_last_one_knew_is_kept_when_all_are_away() {
        let roster = Roster::default();
        assert!(roster.take(0, "a") && roster.take(1, "b"));
        roster.hear(0, list(&["a", "b", "c"]));
        roster.hear(1, list(&["a", "b"]));
        assert_eq!(known(&roster), ["a", "b", "c"]);
        roster.leave(0);
        assert_eq!(known(&roster), ["a", "b"], "the others know better");
        roster.hear(1, list(&["b", "d"]));
        roster.leave(1);
        assert_eq!(known(&roster), ["b", "d"], "there is nobody to ask");
    }
}
