//! Rendezvous hashing: which node of those that live is to have a shard, without anybody deciding it.
//!
//! Each node has a score for each shard, and the shard belongs to the highest. A node that comes takes only what is to
//! be its own, from all others alike; of one that goes only its own shards move.

use std::cmp::Reverse;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::store::redis::shard::Shard;

/// The nodes in the order in which they should have the shard.
pub fn order<'a>(shard: Shard, nodes: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut nodes: Vec<&str> = nodes.into_iter().collect();
    // The name decides between equal scores, so that all nodes agree.
    nodes.sort_by_cached_key(|node| (Reverse(score(shard, node)), *node));
    nodes.dedup();
    nodes
}

fn score(shard: Shard, node: &str) -> u64 {
    xxh3_64_with_seed(node.as_bytes(), u64::from(shard.number()))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn owners(nodes: &BTreeSet<String>) -> BTreeMap<Shard, String> {
        let first = |shard| order(shard, nodes.iter().map(String::as_str))[0].to_owned();
        Shard::all().map(|shard| (shard, first(shard))).collect()
    }

    fn nodes(count: std::ops::Range<usize>) -> impl Strategy<Value = BTreeSet<String>> {
        prop::collection::btree_set("[0-9a-f]{8}-[0-9a-f]{4}", count)
    }

    proptest! {
        #[test]
        fn only_the_shards_of_a_node_that_comes_or_goes_move(nodes in nodes(2..12), which in any::<prop::sample::Index>()) {
            let one = nodes.iter().nth(which.index(nodes.len())).unwrap().clone();
            let mut without = nodes.clone();
            without.remove(&one);
            let (with, without) = (owners(&nodes), owners(&without));
            for (shard, owner) in &with {
                prop_assert!(*owner == one || without[shard] == *owner, "{shard:?} moved for nothing");
            }
        }

        #[test]
        fn shards_spread_evenly(nodes in nodes(2..8)) {
            let owners = owners(&nodes);
            let (all, chance) = (owners.len() as f64, 1.0 / nodes.len() as f64);
            // As even as dice, which stray by more than six deviations once in hundreds of millions.
            let (share, deviation) = (all * chance, (all * chance * (1.0 - chance)).sqrt());
            for node in &nodes {
                let has = owners.values().filter(|owner| *owner == node).count() as f64;
                prop_assert!((has - share).abs() <= 6.0 * deviation, "{has} where {share} would be even");
            }
        }

        #[test]
        fn all_nodes_agree_whatever_order_they_heard_of_one_another(nodes in nodes(1..8), shard in 0_usize..256) {
            let shard = Shard::all().nth(shard).unwrap();
            let there = order(shard, nodes.iter().map(String::as_str));
            prop_assert_eq!(&there, &order(shard, nodes.iter().rev().map(String::as_str)));
            prop_assert_eq!(there.len(), nodes.len());
        }
    }
}
