//! Who lives and who owns which shard, as far as this node has heard.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use skein_shared::fence::Epoch;
use tokio::sync::watch;

use super::Route;
use super::member::Member;
use crate::store::redis::lease::Lease;
use crate::store::redis::shard::{SHARDS, Shard};

pub(super) struct Table {
    known: Mutex<Known>,
    /// Counts the changes.
    changes: watch::Sender<u64>,
}

/// What a node has heard.
#[derive(Clone, Debug, Default)]
pub struct Known {
    members: Vec<Arc<Member>>,
    /// By the number of the shard.
    leases: Vec<Lease>,
}

impl Known {
    /// Takes in how the leases stand. Says whether that is new.
    pub fn leases_are(&mut self, leases: Vec<Lease>) -> bool {
        let news = self.leases != leases;
        self.leases = leases;
        news
    }

    /// Takes in who lives, in the order of their ids. Says whether that is new.
    pub fn members_are(&mut self, members: Vec<Member>) -> bool {
        let news = !self.members.iter().map(Arc::as_ref).eq(&members);
        if news {
            self.members = members.into_iter().map(Arc::new).collect();
        }
        news
    }

    /// What another node said of a shard, which counts if it is newer than what is known. Says whether it did.
    pub fn hint(&mut self, shard: Shard, owner: &str, epoch: u64) -> bool {
        let newer = self.leases.get_mut(usize::from(shard.number())).filter(|lease| lease.epoch.0 < epoch);
        let Some(lease) = newer else { return false };
        let (epoch, owner, held) = (Epoch(epoch), owner.to_owned(), !owner.is_empty());
        *lease = Lease { epoch, owner, held, ..Lease::default() };
        true
    }

    /// Where something for a shard goes from the node `me`, which holds it or does not.
    pub fn route(&self, shard: Shard, me: &str, held: bool) -> Route {
        if held {
            return Route::Here;
        }
        match self.owner(shard) {
            Some(owner) if owner != me => self.member(owner).map_or(Route::Nowhere, Route::There),
            _ => Route::Nowhere,
        }
    }

    /// Who has a shard.
    pub fn owner(&self, shard: Shard) -> Option<&str> {
        let lease = self.leases.get(usize::from(shard.number()))?;
        lease.held.then_some(lease.owner.as_str())
    }

    /// The last lease that is known of a shard.
    pub fn lease(&self, shard: Shard) -> Lease {
        self.leases.get(usize::from(shard.number())).cloned().unwrap_or_default()
    }

    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().map(Arc::as_ref)
    }

    /// Whether every shard is somebody's whom the node `me` can ask, itself for those that it holds. The leases of a
    /// node that has died end later than it is known to live.
    pub fn is_whole(&self, me: &str, held: impl Fn(Shard) -> bool) -> bool {
        Shard::all().all(|shard| self.route(shard, me, held(shard)) != Route::Nowhere)
    }

    /// Whether every shard that anybody can have has an owner that serves it. Whoever was `me` in an earlier life is
    /// none: a node that crashed is about to take its shards again. Nor is whoever has the store for itself.
    pub fn is_settled(&self, me: &str, held: impl Fn(Shard) -> bool) -> bool {
        let is_settled = |(shard, lease): (Shard, &Lease)| {
            lease.unreadable || held(shard) || (lease.held && !lease.alone && lease.owner != me)
        };
        self.leases.len() == usize::from(SHARDS) && Shard::all().zip(&self.leases).all(is_settled)
    }

    /// Who has the store for itself, if anybody has: its shards are served by nobody until that has ended. Who has some
    /// of them is about to give them back, and what went by the id of the node `me` has ended.
    pub fn sole_owner(&self, me: &str) -> Option<&str> {
        let has_all = self.leases.iter().all(|lease| lease.held && lease.alone && lease.owner != me);
        self.leases.first().filter(|_| has_all).map(|lease| lease.owner.as_str())
    }

    fn member(&self, id: &str) -> Option<Arc<Member>> {
        self.members.iter().find(|member| member.id == id).cloned()
    }
}

impl Default for Table {
    fn default() -> Self {
        Self { known: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl Table {
    pub(super) fn leases_are(&self, leases: Vec<Lease>) -> bool {
        let news = self.lock().leases_are(leases);
        self.tell(news)
    }

    pub(super) fn members_are(&self, members: Vec<Member>) -> bool {
        let news = self.lock().members_are(members);
        self.tell(news)
    }

    pub(super) fn hint(&self, shard: Shard, owner: &str, epoch: u64) {
        let news = self.lock().hint(shard, owner, epoch);
        self.tell(news);
    }

    pub(super) fn route(&self, shard: Shard, me: &str, held: bool) -> Route {
        self.lock().route(shard, me, held)
    }

    pub(super) fn lease(&self, shard: Shard) -> Lease {
        self.lock().lease(shard)
    }

    pub(super) fn members(&self) -> Vec<Member> {
        self.lock().members().cloned().collect()
    }

    pub(super) fn is_whole(&self, me: &str, held: impl Fn(Shard) -> bool) -> bool {
        self.lock().is_whole(me, held)
    }

    pub(super) fn is_settled(&self, me: &str, held: impl Fn(Shard) -> bool) -> bool {
        self.lock().is_settled(me, held)
    }

    pub(super) fn sole_owner(&self, me: &str) -> Option<String> {
        self.lock().sole_owner(me).map(str::to_owned)
    }

    /// Each member with its shards and their epochs.
    pub(super) fn survey(&self) -> Vec<(Member, Vec<(u16, u64)>)> {
        let known = self.lock();
        let shards_of = |id: &str| {
            let leases = Shard::all().zip(&known.leases);
            let theirs = leases.filter(|(_, lease)| lease.held && lease.owner == id);
            theirs.map(|(shard, lease)| (shard.number(), lease.epoch.0)).collect()
        };
        known.members().map(|member| (member.clone(), shards_of(&member.id))).collect()
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
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_hint_counts_only_when_it_is_newer() {
        let (mut known, shard) = (Known::default(), Shard::all().next().unwrap());
        let mut leases = vec![Lease::default(); usize::from(SHARDS)];
        leases[0] = of("a");
        known.leases_are(leases);
        known.hint(shard, "old", 4);
        assert_eq!(known.owner(shard), Some("a"));
        known.hint(shard, "b", 6);
        assert_eq!(known.owner(shard), Some("b"));
        known.hint(shard, "", 7);
        assert_eq!(known.owner(shard), None);
        assert!(!known.is_whole("a", |_| false));
    }

    #[test]
    fn a_lease_that_cannot_be_read_keeps_nobody_waiting_and_makes_no_list_whole() {
        let mut known = Known::default();
        known.members_are(vec![member("b")]);
        let mut leases = vec![of("b"); usize::from(SHARDS)];
        leases[7] = Lease::default();
        known.leases_are(leases.clone());
        assert!(!known.is_settled("a", |_| false), "somebody can take it");
        leases[7].unreadable = true;
        known.leases_are(leases);
        assert!(known.is_settled("a", |_| false) && !known.is_whole("a", |_| false));
    }

    #[test]
    fn nobody_serves_the_shards_of_whoever_has_the_store_for_itself() {
        let mut known = Known::default();
        known.members_are(vec![member("a")]);
        let mut leases = vec![Lease { alone: true, ..of("importer") }; usize::from(SHARDS)];
        known.leases_are(leases.clone());
        assert_eq!((known.is_settled("a", |_| false), known.sole_owner("a")), (false, Some("importer")));
        assert_eq!(known.sole_owner("importer"), None, "it was killed, and left them to its folder's node");
        // It has to wait for one of them.
        leases[7] = of("b");
        known.leases_are(leases.clone());
        assert_eq!((known.is_settled("a", |_| false), known.sole_owner("a")), (false, None));
        leases.fill(of("b"));
        known.leases_are(leases);
        assert_eq!((known.is_settled("a", |_| false), known.sole_owner("a")), (true, None));
    }

    #[test]
    fn lists_are_whole_only_while_every_owner_can_be_asked() {
        let mut known = Known::default();
        let own = |shard: Shard| shard.number() == 0;
        assert!(!known.is_whole("a", own), "nothing is known yet");
        let mut leases = vec![of("b"); usize::from(SHARDS)];
        leases[0] = of("a");
        known.leases_are(leases);
        known.members_are(vec![member("a"), member("b")]);
        assert!(known.is_whole("a", own) && known.is_whole("c", |_| false));
        assert!(!known.is_whole("a", |_| false), "it has lost what the leases say is its own");
        // It has died: its leases end a while after nobody asks it any more.
        known.members_are(vec![member("a")]);
        assert!(!known.is_whole("a", own) && known.is_settled("a", own));
        assert!(!known.is_settled("a", |_| false), "it takes again what it had before it crashed");
        assert!(known.is_whole("a", |_| true), "it has taken them");
    }

    fn of(owner: &str) -> Lease {
        Lease { epoch: Epoch(5), owner: owner.to_owned(), held: true, ..Lease::default() }
    }

    fn member(id: &str) -> Member {
        Member::new(id, Uuid::nil(), "127.0.0.1:1")
    }
}
