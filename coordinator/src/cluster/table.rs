//! Who lives and who owns which shard, as far as this node has heard.

use std::sync::{Mutex, MutexGuard, PoisonError};

use skein_shared::fence::Epoch;
use tokio::sync::watch;

use super::member::Member;
use crate::store::redis::lease::Lease;
use crate::store::redis::shard::{SHARDS, Shard};

pub(super) struct Table {
    known: Mutex<Known>,
    /// Counts the changes.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Known {
    members: Vec<Member>,
    /// By the number of the shard.
    leases: Vec<Lease>,
}

impl Default for Table {
    fn default() -> Self {
        Self { known: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl Table {
    /// Takes in how the leases stand. Says whether that is new.
    pub(super) fn leases_are(&self, leases: Vec<Lease>) -> bool {
        let mut known = self.lock();
        let news = known.leases != leases;
        known.leases = leases;
        drop(known);
        self.tell(news)
    }

    /// Takes in who lives. Says whether that is new.
    pub(super) fn members_are(&self, mut members: Vec<Member>) -> bool {
        members.sort_by(|a, b| a.id.cmp(&b.id));
        let mut known = self.lock();
        let news = known.members != members;
        known.members = members;
        drop(known);
        self.tell(news)
    }

    /// What another node said of a shard, which counts if it is newer than what is known.
    pub(super) fn hint(&self, shard: Shard, owner: &str, epoch: u64) {
        let mut known = self.lock();
        let newer = known.leases.get_mut(usize::from(shard.number())).filter(|lease| lease.epoch.0 < epoch);
        let news = newer.is_some();
        if let Some(lease) = newer {
            *lease = Lease { epoch: Epoch(epoch), owner: owner.to_owned(), held: !owner.is_empty() };
        }
        drop(known);
        self.tell(news);
    }

    pub(super) fn owner(&self, shard: Shard) -> Option<String> {
        let known = self.lock();
        known
            .leases
            .get(usize::from(shard.number()))
            .filter(|lease| lease.held)
            .map(|lease| lease.owner.clone())
    }

    /// The last lease that is known of a shard.
    pub(super) fn lease(&self, shard: Shard) -> Lease {
        self.lock().leases.get(usize::from(shard.number())).cloned().unwrap_or_default()
    }

    pub(super) fn member(&self, id: &str) -> Option<Member> {
        self.lock().members.iter().find(|member| member.id == id).cloned()
    }

    pub(super) fn members(&self) -> Vec<Member> {
        self.lock().members.clone()
    }

    /// Whether every shard has an owner.
    pub(super) fn is_whole(&self) -> bool {
        let known = self.lock();
        known.leases.len() == usize::from(SHARDS) && known.leases.iter().all(|lease| lease.held)
    }

    /// Each member with its shards and their epochs.
    pub(super) fn survey(&self) -> Vec<(Member, Vec<(u16, u64)>)> {
        let known = self.lock();
        let shards_of = |id: &str| {
            let leases = Shard::all().zip(&known.leases);
            let theirs = leases.filter(|(_, lease)| lease.held && lease.owner == id);
            theirs.map(|(shard, lease)| (shard.number(), lease.epoch.0)).collect()
        };
        known.members.iter().map(|member| (member.clone(), shards_of(&member.id))).collect()
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn tell(&self, news: bool) -> bool {
        if news {
            self.changes.send_modify(|count| *count += 1);
        }
        news
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_counts_only_when_it_is_newer() {
        let (table, shard) = (Table::default(), Shard::all().next().unwrap());
        let mut leases = vec![Lease::default(); usize::from(SHARDS)];
        leases[0] = Lease { epoch: Epoch(5), owner: "a".to_owned(), held: true };
        table.leases_are(leases);
        table.hint(shard, "old", 4);
        assert_eq!(table.owner(shard).as_deref(), Some("a"));
        table.hint(shard, "b", 6);
        assert_eq!(table.owner(shard).as_deref(), Some("b"));
        table.hint(shard, "", 7);
        assert_eq!(table.owner(shard), None);
        assert!(!table.is_whole());
    }
}
