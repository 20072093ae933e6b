//! The store of the simulation: what the scripts of `coordinator/src/store/redis/scripts` do, each in one step, on a
//! server with a replica that lags. `sim::the_simulated_store_does_what_the_scripts_do` holds it against Redis.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use skein_coordinator::cluster::member::Member;
use skein_coordinator::store::memory::State;
use skein_coordinator::store::redis::lease::{Acquired, Kept, Lease, Written};
use skein_coordinator::store::redis::members::Said;
use skein_coordinator::store::redis::shard::{SHARDS, Shard};
use skein_coordinator::store::redis::vigil::Word;
use skein_coordinator::store::{Batch, Chunk, CommitError, Fence, OutboxEntry, OutboxPlace, Version};
use skein_shared::fence::Epoch;
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;

use super::config::Broken;

/// Everything that a dump would hold.
#[derive(Clone)]
pub struct Server {
    leases: Vec<Record>,
    members: BTreeMap<String, Said>,
    pub state: State,
}

/// A shard that somebody wants.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub shard: Shard,
    pub nonce: u64,
    /// The lease that was seen to have ended.
    pub over: Option<Word>,
}

/// A shard's lease, which is never deleted.
#[derive(Clone, Debug, Default)]
struct Record {
    epoch: u64,
    /// None while it is nobody's.
    nonce: Option<u64>,
    owner: String,
    until: u64,
    lasts: Duration,
    held: bool,
}

impl Record {
    fn is(&self, fence: Fence) -> bool {
        self.epoch == fence.epoch.0 && self.nonce == Some(fence.nonce)
    }
}

impl Default for Server {
    fn default() -> Self {
        let leases = vec![Record::default(); usize::from(SHARDS)];
        Self { leases, members: BTreeMap::new(), state: State::default() }
    }
}

impl Server {
    /// `acquire.lua`, at a time in milliseconds.
    pub fn acquire(
        &mut self,
        Wanted { shard, nonce, over }: Wanted,
        (owner, seen): (&str, u64),
        ttl: Duration,
        now: u64,
        broken: Option<Broken>,
    ) -> Acquired {
        let record = &mut self.leases[usize::from(shard.number())];
        let is_own = record.owner == owner && seen >= record.epoch;
        let has_ended = over.is_some_and(|word| (word.epoch, word.until) == (record.epoch, record.until));
        if record.held && !has_ended && !is_own {
            let (owner, ends_in) = (record.owner.clone(), record.lasts);
            return Acquired::Held { owner, address: String::new(), ends_in };
        }
        let epoch = match broken {
            Some(Broken::AcquireResetsEpoch) => 1,
            Some(Broken::EpochsSeenAreForgotten) => (record.epoch + 1).max(now),
            _ => (record.epoch + 1).max(seen + 1).max(now),
        };
        let until = now + millis(ttl);
        *record =
            Record { epoch, nonce: Some(nonce), owner: owner.to_owned(), until, lasts: ttl, held: true };
        Acquired::Taken(Fence { epoch: Epoch(epoch), nonce })
    }

    /// `renew.lua`.
    pub fn renew(&mut self, shard: Shard, fence: Fence, ttl: Duration, now: u64) -> Kept {
        let record = &mut self.leases[usize::from(shard.number())];
        if !record.is(fence) {
            return Kept::Fenced(Epoch(record.epoch));
        }
        let until = now + millis(ttl);
        (record.until, record.lasts) = (if until == record.until { until + 1 } else { until }, ttl);
        Kept::Done
    }

    /// `release.lua`.
    pub fn release(&mut self, shard: Shard, fence: Fence) -> Kept {
        let record = &mut self.leases[usize::from(shard.number())];
        if !record.is(fence) {
            return Kept::Fenced(Epoch(record.epoch));
        }
        (record.until, record.held, record.nonce) = (0, false, None);
        Kept::Done
    }

    /// Makes a lease one that lasts no longer.
    pub fn end_lease(&mut self, shard: Shard) {
        let record = &mut self.leases[usize::from(shard.number())];
        (record.until, record.lasts) = (1, Duration::ZERO);
    }

    pub fn leases(&self) -> Vec<Written> {
        let written = |record: &Record| Written {
            lease: Lease {
                epoch: Epoch(record.epoch),
                owner: record.owner.clone(),
                held: record.held,
                ..Lease::default()
            },
            word: Word { epoch: record.epoch, until: record.until, lasts: record.lasts },
        };
        self.leases.iter().map(written).collect()
    }

    /// `beat.lua`.
    ///
    /// # Panics
    /// Never: a member is plain data.
    pub fn beat(&mut self, member: &Member, hold: Duration, silent: &[(String, u64)], now: u64) -> Vec<Said> {
        for (id, until) in silent {
            if self.members.get(id).is_some_and(|said| said.until == *until) {
                self.members.remove(id);
            }
        }
        let record = serde_json::to_string(member).expect("a member is plain data");
        let said = Said { id: member.id.clone(), until: now + millis(hold), record };
        self.members.insert(member.id.clone(), said);
        self.members.values().cloned().collect()
    }

    pub fn leave(&mut self, member: &str) {
        self.members.remove(member);
    }

    /// Whether `check.lua` lets a writer pass.
    ///
    /// # Errors
    /// `Fenced` with the epoch that the shard has.
    pub fn check(&self, key: &EntityKey, fence: Fence) -> Result<(), CommitError> {
        let record = &self.leases[usize::from(Shard::of(key).number())];
        if record.is(fence) { Ok(()) } else { Err(CommitError::Fenced(Epoch(record.epoch))) }
    }

    /// `check.lua` and `commit.lua`.
    ///
    /// # Errors
    /// `Fenced` or `Conflict`; `Failed` when chunks are missing of what the batch keeps.
    pub fn commit(
        &mut self,
        fence: Fence,
        batch: &Batch,
        broken: Option<Broken>,
    ) -> Result<Version, CommitError> {
        if broken != Some(Broken::NoFenceInTheCommit) {
            self.check(&batch.key, fence)?;
        }
        match self.state.commit(fence, batch) {
            Err(CommitError::Conflict { actual }) if broken == Some(Broken::NoVersionInTheCommit) => {
                let after = self.state.load(&batch.key).batch;
                let forced = Batch { expected: actual, after, ..batch.clone() };
                self.state.commit(fence, &forced)
            }
            answer => answer,
        }
    }

    /// `check.lua` and `chunk.lua`.
    ///
    /// # Errors
    /// `Fenced`.
    pub fn write_chunk(&mut self, fence: Fence, chunk: &Chunk) -> Result<(), CommitError> {
        self.check(&chunk.key, fence)?;
        self.state.write_chunk(chunk);
        Ok(())
    }

    /// Effects of these shards (in order) behind a position.
    pub fn outbox(&self, after: u64, limit: usize, shards: &[Shard]) -> Vec<OutboxEntry> {
        let mut page = self.state.outbox(after, usize::MAX);
        page.retain(|entry| shards.binary_search(&Shard::of(&entry.source)).is_ok());
        page.truncate(limit);
        page
    }

    /// The earliest timers of these shards (in order).
    pub fn timers(&self, limit: usize, shards: &[Shard]) -> Vec<(EntityKey, Timestamp)> {
        let mut timers = self.state.timers(usize::MAX);
        timers.retain(|(key, _)| shards.binary_search(&Shard::of(key)).is_ok());
        timers.truncate(limit);
        timers
    }

    /// `delivered.lua`, for the effects of one shard.
    ///
    /// # Errors
    /// `Fenced`.
    pub fn delivered(&mut self, fence: Fence, effect: &OutboxPlace) -> Result<(), CommitError> {
        self.check(&effect.source, fence)?;
        self.state.delivered(std::iter::once(effect.position));
        Ok(())
    }
}

/// A primary, its replica, and who is connected.
pub struct Store {
    pub primary: Server,
    replica: Server,
    /// New with each life of the server.
    pub run: u64,
    /// How far the clock of this server is off, and by how much more since it was set, milliseconds.
    pub offset: i64,
    pub set: i64,
    /// Connections of writers that may be used.
    links: BTreeSet<u64>,
    last_link: u64,
    broken: Option<Broken>,
}

impl Store {
    pub fn new(broken: Option<Broken>) -> Self {
        Self {
            primary: Server::default(),
            replica: Server::default(),
            run: 1,
            offset: 0,
            set: 0,
            links: BTreeSet::new(),
            last_link: 0,
            broken,
        }
    }

    /// Kills a writer's old connection, and makes a new one.
    pub fn connect(&mut self, old: Option<u64>) -> (u64, u64) {
        if let Some(old) = old {
            self.links.remove(&old);
        }
        self.last_link += 1;
        self.links.insert(self.last_link);
        (self.run, self.last_link)
    }

    pub fn is_connected(&self, link: u64) -> bool {
        self.links.contains(&link)
    }

    pub fn commit(&mut self, fence: Fence, batch: &Arc<Batch>) -> Result<Version, CommitError> {
        self.primary.commit(fence, batch, self.broken)
    }

    /// The replica catches up.
    pub fn replicate(&mut self) {
        self.replica = self.primary.clone();
    }

    /// The replica becomes the primary. Whatever it lacks is lost; its clock is off by so much.
    pub fn fail_over(&mut self, offset: i64) {
        self.primary = self.replica.clone();
        self.links.clear();
        self.run += 1;
        (self.offset, self.set) = (offset, 0);
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
