//! The ways between clients, nodes and the store, and what goes wrong on them. Each kind of fault has randomness of its
//! own.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::config::{Faults, stream};

/// An end of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Clients,
    Node(usize),
    /// The store's end of the connection to a node.
    Store(usize),
}

pub struct Network {
    faults: Faults,
    delays: Rng,
    drops: Rng,
    duplicates: Rng,
    late: Rng,
    cuts: Rng,
    store_requests: Rng,
    store_answers: Rng,
    slow: Rng,
    refusals: Rng,
    /// Ways that carry nothing until then.
    cut_until: BTreeMap<(Place, Place), u64>,
}

/// Once in so many.
fn hits(rng: &mut Rng, one_in: u32) -> bool {
    one_in > 0 && rng.u32(0..one_in) == 0
}

impl Network {
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self {
            faults,
            delays: stream(seed, "delays"),
            drops: stream(seed, "drops"),
            duplicates: stream(seed, "duplicates"),
            late: stream(seed, "late"),
            cuts: stream(seed, "cuts"),
            store_requests: stream(seed, "store requests"),
            store_answers: stream(seed, "store answers"),
            slow: stream(seed, "slow"),
            refusals: stream(seed, "refusals"),
            cut_until: BTreeMap::new(),
        }
    }

    /// When copies of a message arrive, in microseconds from now; and whether it is just one, and in time.
    pub fn carry(&mut self, from: Place, to: Place, now: u64) -> (Vec<u64>, bool) {
        if self.is_cut(from, to, now) || hits(&mut self.drops, self.faults.drop) {
            return (Vec::new(), false);
        }
        let mut delays = vec![self.delays.u64(100..3_000)];
        if hits(&mut self.duplicates, self.faults.duplicate) {
            delays.push(self.duplicates.u64(100..2_000_000));
        }
        let mut clean = delays.len() == 1;
        if hits(&mut self.late, self.faults.late) {
            delays[0] += self.late.u64(10_000..8_000_000);
            clean = false;
        }
        (delays, clean)
    }

    /// When something arrives on the connection between a node and the store, if at all.
    pub fn to_store(&mut self, from: Place, now: u64) -> Option<u64> {
        let (node, lost) = match from {
            Place::Node(node) => (node, hits(&mut self.store_requests, self.faults.store_request_lost)),
            Place::Store(node) => (node, hits(&mut self.store_answers, self.faults.store_answer_lost)),
            Place::Clients => return None,
        };
        let ends = (Place::Node(node), Place::Store(node));
        let way = if from == ends.0 { ends } else { (ends.1, ends.0) };
        if lost || self.is_cut(way.0, way.1, now) {
            return None;
        }
        let mut delay = self.delays.u64(50..800);
        if hits(&mut self.slow, self.faults.store_slow) {
            delay += self.slow.u64(20_000..4_000_000);
        }
        Some(delay)
    }

    /// Whether the store refuses a write.
    pub fn refuses(&mut self) -> bool {
        hits(&mut self.refusals, self.faults.store_refuses)
    }

    /// Cuts a way, one way or both, for a while.
    pub fn cut(&mut self, nodes: usize, now: u64) -> (Place, Place) {
        let node = self.cuts.usize(0..nodes);
        let other = match self.cuts.u32(0..3) {
            0 => Place::Clients,
            1 => Place::Store(node),
            _ => Place::Node(self.cuts.usize(0..nodes)),
        };
        let until = now + self.cuts.u64(100_000..12_000_000);
        let (from, to) =
            if self.cuts.bool() { (Place::Node(node), other) } else { (other, Place::Node(node)) };
        self.cut_until.insert((from, to), until);
        if self.cuts.bool() {
            self.cut_until.insert((to, from), until);
        }
        (from, to)
    }

    fn is_cut(&self, from: Place, to: Place, now: u64) -> bool {
        self.cut_until.get(&(from, to)).is_some_and(|until| *until > now)
    }

    /// From now on all goes well.
    pub fn heal(&mut self) {
        self.faults = Faults { offset: self.faults.offset, rate: self.faults.rate, ..Faults::default() };
        self.cut_until.clear();
    }
}
