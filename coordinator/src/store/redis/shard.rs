//! Shards, and the names of their keys.
//!
//! All keys of a store share one hash tag, so a Redis Cluster keeps them on one of its nodes: a script reaches a shard
//! and the position that gives all shards one order. Lists whose order matters are sorted sets of equal scores, which
//! Redis keeps in the order of their bytes.

use skein_shared::id::EntityKey;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

/// How many shards a store has, for ever: it is written into the store, and another number is refused.
pub const SHARDS: u16 = 256;

/// What all keys begin with. The braces make it the part that decides which node of a Redis Cluster has a key.
pub(super) const OURS: &str = "{skein}:";

/// What says that this database holds a store of Skein, and which.
pub(super) const CLUSTER: &str = "{skein}:cluster";

/// The position of the last batch of all shards. Every commit touches it: that gives all coordinators one order, and
/// feeds one cursor.
pub(super) const POSITION: &str = "{skein}:position";

/// A bit for each shard with an entity: most have none, and need not be asked.
pub(super) const INHABITED: &str = "{skein}:inhabited";

/// The coordinators by their ids: who lives, and where.
pub(super) const MEMBERS: &str = "{skein}:members";

/// What failovers threw away, for people to read.
pub(super) const INCIDENTS: &str = "{skein}:incidents";

/// A part of the store that has one owner at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(u16);

impl Shard {
    /// Where an entity lives. Most of a swarm shares a shard.
    pub fn of(key: &EntityKey) -> Self {
        let hash = xxh3_64(key.placement().as_bytes());
        Self(u16::try_from(hash % u64::from(SHARDS)).unwrap_or_default())
    }

    pub fn all() -> impl Iterator<Item = Shard> {
        (0..SHARDS).map(Shard)
    }

    pub fn number(self) -> u16 {
        self.0
    }

    /// Its bit in a string of bits, the first of which is the highest of the first byte.
    pub(super) fn bit_of(self, bits: &[u8]) -> bool {
        bits.get(usize::from(self.0 / 8)).is_some_and(|byte| byte & (0x80 >> (self.0 % 8)) != 0)
    }

    /// Who may write: a hash. It is never deleted and never expires, or its epochs would begin anew.
    pub(super) fn lease(self) -> String {
        self.key("lease")
    }

    /// The names of its entities, in order.
    pub(super) fn entities(self) -> String {
        self.key("entities")
    }

    /// Entities by the time of their timers.
    pub(super) fn timers(self) -> String {
        self.key("timers")
    }

    /// A stream: the events of each batch under its position.
    pub(super) fn events(self) -> String {
        self.key("events")
    }

    /// A stream: undelivered effects under the position of their batch and their place in it.
    pub(super) fn outbox(self) -> String {
        self.key("outbox")
    }

    /// With a colon and a position: a dead letter.
    pub(super) fn dead(self) -> String {
        self.key("dead")
    }

    /// The positions of the dead letters, in order.
    pub(super) fn dead_order(self) -> String {
        self.key("dead-order")
    }

    pub(super) fn dead_ages(self) -> String {
        self.key("dead-ages")
    }

    /// Batches with replies, by time: an entity's name and a version.
    pub(super) fn reply_ages(self) -> String {
        self.key("reply-ages")
    }

    /// Marks by the time when they last moved: an entity's name and a source.
    pub(super) fn mark_ages(self) -> String {
        self.key("mark-ages")
    }

    /// Documents that are not live, by the time when they were written: an entity's name and a document.
    pub(super) fn archived(self) -> String {
        self.key("archived")
    }

    /// Blobs that no batch has kept yet, by the time when their last chunk was written: an entity's name and a blob.
    pub(super) fn loose(self) -> String {
        self.key("loose")
    }

    /// What all its keys begin with.
    pub(super) fn prefix(self) -> String {
        self.key("")
    }

    /// The key of something that it has.
    pub fn key(self, name: &str) -> String {
        format!("{OURS}s{}:{name}", self.0)
    }
}

/// The keys of one entity.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) shard: Shard,
    /// The entity's key as text.
    pub(super) name: String,
}

impl Keys {
    pub(super) fn new(key: &EntityKey) -> Self {
        Self { shard: Shard::of(key), name: key.text() }
    }

    /// A hash: version, last batch, times, timer.
    pub(super) fn entity(&self) -> String {
        self.of("entity")
    }

    /// The keys of its documents, in order.
    pub(super) fn documents(&self) -> String {
        self.of("documents")
    }

    /// The keys of those that are live, in order.
    pub(super) fn live(&self) -> String {
        self.of("live")
    }

    /// A hash: of each document whether it is live (`1` or `0`), the version that wrote it last, when that was, and its
    /// head, with spaces between them. One command reads or writes many.
    pub(super) fn heads(&self) -> String {
        self.of("heads")
    }

    /// A hash: of each document its body, as it was made ([`super::body`]).
    pub(super) fn bodies(&self) -> String {
        self.of("bodies")
    }

    /// A hash: of each document what was changed of its body since.
    pub(super) fn changes(&self) -> String {
        self.of("changes")
    }

    /// A hash: how far each source was taken in.
    pub(super) fn marks(&self) -> String {
        self.of("marks")
    }

    /// Replies by version.
    pub(super) fn replies(&self) -> String {
        self.of("replies")
    }

    /// Positions of its events, by version.
    pub(super) fn history(&self) -> String {
        self.of("history")
    }

    /// A hash: the blobs that are kept, with their lengths and times.
    pub(super) fn blobs(&self) -> String {
        self.of("blobs")
    }

    /// A hash: the chunks of a blob by their places.
    pub(super) fn chunks(&self, blob: Uuid) -> String {
        self.of("chunks") + &format!(":{blob}")
    }

    fn of(&self, what: &str) -> String {
        self.shard.key(&format!("{what}:{}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use skein_shared::id::{Kind, Name};

    use super::*;

    #[test]
    fn a_swarm_shares_a_shard_and_agents_spread() {
        let swarm = Name::parse("default").unwrap();
        let of = |kind| Shard::of(&EntityKey::of(kind, &swarm));
        assert_eq!(of(Kind::Pool), of(Kind::Lockspace));
        let agents = (0..200).map(|n| EntityKey::agent(&swarm, &Name::parse(&format!("a{n}")).unwrap()));
        let shards: BTreeSet<Shard> = agents.map(|key| Shard::of(&key)).collect();
        assert!(shards.len() > 100, "{}", shards.len());
    }

    /// A change of the hash would look for every entity in the wrong place.
    #[test]
    fn places_are_for_ever() {
        let pool = Keys::new(&EntityKey::of(Kind::Pool, &Name::parse("default").unwrap()));
        assert_eq!(pool.entity(), format!("{{skein}}:s{}:entity:pool/default", pool.shard.number()));
        assert_eq!(pool.shard.number(), 26);
    }
}
