//! What a node does next about its shards: a decision without I/O, from what it knows of the others.
//!
//! The members are a hint. Two nodes that know different ones ask for the same lease at worst, which one of them gets.

use std::time::Duration;

use super::member::Member;
use super::rank;
use crate::store::redis::lease::Lease;
use crate::store::redis::shard::Shard;

/// How much later each further node in the order of a free shard tries to take it.
const STEP: Duration = Duration::from_millis(500);
/// Shards that are handed over at a time: the others are served meanwhile.
const AT_A_TIME: usize = 4;

/// What a node knows.
#[derive(Debug)]
pub struct Situation<'a> {
    pub me: &'a Member,
    /// Those who live, as far as is known.
    pub members: &'a [Member],
    /// By the number of the shard.
    pub leases: &'a [Lease],
    /// Whether this process holds the shard.
    pub held: &'a [bool],
    /// How long the shard has been seen without an owner.
    pub free_for: &'a [Duration],
    /// Since when the members are the same.
    pub stable_for: Duration,
    /// For how long they have to be before shards are handed over.
    pub settle: Duration,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    pub acquire: Vec<Shard>,
    pub hand_over: Vec<Shard>,
}

/// Decides.
pub fn plan(now: &Situation<'_>) -> Steps {
    let mut steps = Steps::default();
    let mut nodes: Vec<&str> = takers(now.members).filter(|id| *id != now.me.id).collect();
    // What one that drains does not take is nobody's when no other is left.
    if now.me.takes_shards() || (nodes.is_empty() && now.me.is_last_resort()) {
        nodes.push(&now.me.id);
    }
    let facts = now.leases.iter().zip(now.held).zip(now.free_for);
    for (shard, ((lease, held), free_for)) in Shard::all().zip(facts) {
        // The order costs, and most shards stay where they are.
        let is_settled =
            if *held { now.stable_for < now.settle } else { lease.held && lease.owner != now.me.id };
        if is_settled {
            continue;
        }
        let order = rank::order(shard, nodes.iter().copied());
        let mine = order.iter().position(|id| *id == now.me.id);
        match (held, mine) {
            (false, Some(place)) if may_take(now, lease, *free_for, place) => steps.acquire.push(shard),
            (true, place) if place != Some(0) && !order.is_empty() => {
                steps.hand_over.push(shard);
            }
            _ => {}
        }
    }
    steps.hand_over.truncate(AT_A_TIME);
    steps
}

/// The ids of those to whom shards may come.
pub fn takers(members: &[Member]) -> impl Iterator<Item = &str> {
    members.iter().filter(|member| member.takes_shards()).map(|member| member.id.as_str())
}

/// One that cannot be read nobody gets. A running lease that names this node and is not held by this process is that of
/// its predecessor, which has ended.
fn may_take(now: &Situation<'_>, lease: &Lease, free_for: Duration, place: usize) -> bool {
    let patience = STEP.saturating_mul(u32::try_from(place).unwrap_or(u32::MAX));
    if lease.held { lease.owner == now.me.id } else { !lease.unreadable && free_for >= patience }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::cluster::member::FORMAT;

    fn member(id: &str) -> Member {
        Member::new(id, Uuid::nil(), "")
    }

    struct World {
        members: Vec<Member>,
        leases: Vec<Lease>,
        held: Vec<bool>,
        free_for: Vec<Duration>,
        stable_for: Duration,
    }

    impl World {
        fn new(members: &[&str]) -> Self {
            let shards = Shard::all().count();
            Self {
                members: members.iter().map(|id| member(id)).collect(),
                leases: vec![Lease::default(); shards],
                held: vec![false; shards],
                free_for: vec![Duration::ZERO; shards],
                stable_for: Duration::ZERO,
            }
        }

        fn owned_by(mut self, owner: &str) -> Self {
            self.leases.fill(Lease { owner: owner.to_owned(), held: true, ..Lease::default() });
            self
        }

        fn plan(&self, me: &Member) -> Steps {
            plan(&Situation {
                me,
                members: &self.members,
                leases: &self.leases,
                held: &self.held,
                free_for: &self.free_for,
                stable_for: self.stable_for,
                settle: Duration::from_secs(20),
            })
        }
    }

    #[test]
    fn free_shards_go_to_the_first_at_once_and_to_the_others_later() {
        let mut world = World::new(&["a", "b", "c"]);
        let at_once = ["a", "b", "c"].map(|id| world.plan(&member(id)).acquire);
        assert_eq!(at_once.iter().map(Vec::len).sum::<usize>(), 256, "each is somebody's, and one's alone");
        world.free_for.fill(STEP);
        let second = ["a", "b", "c"].map(|id| world.plan(&member(id)).acquire.len());
        assert_eq!(second.iter().sum::<usize>(), 512, "the next in order tries too");
        world.free_for.fill(STEP * 2);
        assert_eq!(world.plan(&member("c")).acquire.len(), 256, "nobody's shard stays so for long");
    }

    #[test]
    fn what_another_holds_is_left_alone_and_what_a_predecessor_held_is_taken_at_once() {
        let world = World::new(&["a", "b"]).owned_by("a");
        assert_eq!(world.plan(&member("b")), Steps::default());
        assert_eq!(world.plan(&member("a")).acquire.len(), 256);
    }

    #[test]
    fn a_lease_that_cannot_be_read_is_not_asked_for() {
        let mut world = World::new(&["a"]);
        world.leases[3].unreadable = true;
        assert_eq!(world.plan(&member("a")).acquire.len(), 255);
    }

    #[test]
    fn what_a_node_gave_up_for_another_it_does_not_take_back() {
        let mut world = World::new(&["a", "b"]).owned_by("a");
        world.leases.iter_mut().for_each(|lease| lease.held = false);
        let (a, b) = (world.plan(&member("a")).acquire, world.plan(&member("b")).acquire);
        assert!(!b.is_empty() && a.iter().all(|shard| !b.contains(shard)));
    }

    #[test]
    fn a_newcomer_gets_its_share_bit_by_bit_once_the_members_have_settled() {
        let mut world = World::new(&["a", "b"]).owned_by("a");
        world.held.fill(true);
        world.stable_for = Duration::from_secs(19);
        assert_eq!(world.plan(&member("a")), Steps::default());
        world.stable_for = Duration::from_secs(20);
        let first = world.plan(&member("a")).hand_over;
        assert_eq!(first.len(), AT_A_TIME);
        let mut moved = 0;
        loop {
            let step = world.plan(&member("a")).hand_over;
            if step.is_empty() {
                break;
            }
            for shard in step {
                world.held[usize::from(shard.number())] = false;
                world.leases[usize::from(shard.number())].owner = "b".to_owned();
                moved += 1;
            }
        }
        assert!((64..192).contains(&moved), "{moved} of 256 moved");
    }

    #[test]
    fn whoever_drains_passes_on_or_cannot_read_what_others_write_gets_nothing() {
        let mut world = World::new(&["a", "b"]);
        world.members[1].draining = true;
        assert_eq!(world.plan(&member("a")).acquire.len(), 256);
        assert!(world.plan(&world.members[1]).acquire.is_empty());
        world.members[1] = Member { passes_on: true, ..member("b") };
        assert_eq!(world.plan(&member("a")).acquire.len(), 256);
        assert!(world.plan(&world.members[1]).acquire.is_empty());
        world.members[1] = Member { formats: (FORMAT + 1, FORMAT + 2), ..member("b") };
        assert_eq!(world.plan(&member("a")).acquire.len(), 256);
    }

    #[test]
    fn the_last_node_keeps_what_nobody_else_could_take() {
        let mut world = World::new(&["a"]).owned_by("a");
        world.held.fill(true);
        world.stable_for = Duration::from_secs(60);
        let draining = Member { draining: true, ..member("a") };
        world.members[0] = draining.clone();
        assert_eq!(world.plan(&draining), Steps::default());
        let ending = Member { ending: true, ..draining };
        assert_eq!(world.plan(&ending), Steps::default());
    }

    #[test]
    fn a_draining_node_takes_what_nobody_else_could_until_somebody_comes() {
        let draining = Member { draining: true, ..member("a") };
        let ending = Member { ending: true, ..draining.clone() };
        let mut world = World::new(&["a"]);
        world.members[0] = draining.clone();
        assert_eq!(world.plan(&draining).acquire.len(), 256);
        assert_eq!(world.plan(&ending), Steps::default());
        let ingress = Member { passes_on: true, ..draining.clone() };
        assert_eq!(world.plan(&ingress), Steps::default());

        world.members.push(member("b"));
        assert_eq!(world.plan(&draining), Steps::default());
        world.stable_for = Duration::from_secs(60);
        world.held.fill(true);
        let given = world.owned_by("a").plan(&draining);
        assert_eq!((given.acquire.len(), given.hand_over.len()), (0, AT_A_TIME));
    }
}
