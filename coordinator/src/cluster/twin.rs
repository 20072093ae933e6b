//! Another process that goes by the id of this node, as one does in a data folder that was copied. Each would take the
//! shards of the other for its own, left by a predecessor that has ended.

use uuid::Uuid;

use super::member::Member;

/// Why a node cannot go on: another one has its id, and had it first.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Twin(String);

/// What is known of those who go by the id of this node.
#[derive(Debug, Default)]
pub(super) struct Twins {
    /// Whose word was found where this node's own should have stood. It may be that of a predecessor, or one that a
    /// failover has brought back, and such a word is found once in each life of the store.
    found: Option<Uuid>,
}

/// What stood in the name of this node.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Before {
    Nobody,
    /// Another process lives, which came later: it ends.
    Later(String),
    /// Another process lives, which was there before: this one ends.
    Earlier(Twin),
}

impl Twins {
    /// Forgets what was found before a failover, which may bring back a predecessor's word that was found already.
    pub(super) fn begin_anew(&mut self) {
        self.found = None;
    }

    /// Takes note that this node has said that it lives, and of what had stood in its name.
    pub(super) fn said(&mut self, me: &Member, before: &str) -> Before {
        let before = serde_json::from_str::<Member>(before).ok();
        let Some(other) = before.filter(|other| other.incarnation != me.incarnation) else {
            return Before::Nobody;
        };
        if self.found.replace(other.incarnation) != Some(other.incarnation) {
            return Before::Nobody;
        }
        let problem = format!(
            "another process, at {}, lives by the id of this node, {}: a data folder was copied with its node.id; stop one of \
             the two and remove node.id from the folder that is the copy, which is given an id of its own at its next start",
            other.address, me.id
        );
        // One of both goes on, whichever notices first: incarnations rise with time.
        if me.incarnation > other.incarnation {
            return Before::Earlier(Twin(problem));
        }
        Before::Later(problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(incarnation: u128) -> Member {
        Member::new("a", Uuid::from_u128(incarnation), "127.0.0.1:1")
    }

    fn record(incarnation: u128) -> String {
        serde_json::to_string(&member(incarnation)).unwrap()
    }

    #[test]
    fn a_word_that_is_found_once_is_that_of_one_that_has_ended() {
        let mut twins = Twins::default();
        assert_eq!(twins.said(&member(2), &record(1)), Before::Nobody);
        assert_eq!(twins.said(&member(2), &record(2)), Before::Nobody);
        assert_eq!(twins.said(&member(2), ""), Before::Nobody);
        assert_eq!(twins.said(&member(2), &record(0)), Before::Nobody);
    }

    #[test]
    fn of_two_that_live_by_one_id_the_later_ends() {
        let (mut first, mut later) = (Twins::default(), Twins::default());
        assert_eq!(first.said(&member(1), ""), Before::Nobody);
        assert_eq!(later.said(&member(2), &record(1)), Before::Nobody);
        assert_eq!(first.said(&member(1), &record(2)), Before::Nobody);
        let Before::Earlier(twin) = later.said(&member(2), &record(1)) else { panic!("both go on") };
        assert!(matches!(first.said(&member(1), &record(2)), Before::Later(_)));
        assert!(twin.to_string().contains("remove node.id"), "{twin}");
    }

    #[test]
    fn a_word_that_a_failover_has_brought_back_is_no_second_one() {
        let mut twins = Twins::default();
        assert_eq!(twins.said(&member(2), &record(1)), Before::Nobody);
        assert_eq!(twins.said(&member(2), &record(2)), Before::Nobody);
        twins.begin_anew();
        assert_eq!(twins.said(&member(2), &record(1)), Before::Nobody);
        assert!(
            matches!(twins.said(&member(2), &record(1)), Before::Earlier(_)),
            "one that lives says it again"
        );
    }
}
