//! The store of the simulation is held against the real one: random operations on both, and the same outcomes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use skein_coordinator::store::redis::lease::{Acquired, Kept, Lease};
use skein_coordinator::store::redis::shard::Shard;
use skein_coordinator::store::redis::vigil::Vigil;
use skein_coordinator::store::redis::{Options, Redis};
use skein_coordinator::store::{
    Batch, Chunk, CommitError, EventRecord, Fence, Mark, OutboxEffect, OutboxEntry, Store, StoredReply,
    TimerChange, Version,
};
use skein_shared::entity::{BlobChange, DocumentChange, Effect};
use skein_shared::fence::Epoch;
use skein_shared::id::{EntityKey, Kind, Name};
use skein_shared::json::Json;
use skein_shared::limits::CHUNK;
use skein_shared::time::Timestamp;
use skein_tests::redis::Server;
use skein_tests::sim::store::{Server as Simulated, Wanted};
use skein_tests::sim::world::BEGIN;
use tokio::time::Instant;
use uuid::Uuid;

const OWNERS: [&str; 2] = ["a", "b"];
/// No lease ends by itself while the test runs.
const LEASE: Duration = Duration::from_secs(3600);
const STEPS: usize = 1000;
/// Blobs of an entity, and what the last of a blob's chunks has, bytes.
const BLOBS: u128 = 2;
const REST: usize = 3;

/// A fence as either store gave it.
type Fences = (Fence, Fence);

struct Both {
    server: Server,
    real: Vec<Redis>,
    simulated: Simulated,
    /// With which each owner watches the simulated leases.
    vigils: [Vigil<Shard>; 2],
    rng: Rng,
    /// What each owner was last given, by owner and shard.
    fences: Vec<(usize, Shard, Fences)>,
    /// For repeats.
    sent: Vec<(usize, Fences, Arc<Batch>)>,
    refused: usize,
    /// Commits that kept a blob.
    kept: usize,
    /// Documents with names of their own.
    made: u64,
    /// When the last batch was made. An entity's time never goes back.
    now: u64,
}

fn keys() -> Vec<EntityKey> {
    let swarms = ["alpha", "beta"].map(|name| Name::parse(name).unwrap());
    let agent = Name::parse("worker").unwrap();
    vec![
        EntityKey::of(Kind::Pool, &swarms[0]),
        EntityKey::of(Kind::Lockspace, &swarms[0]),
        EntityKey::of(Kind::Pool, &swarms[1]),
        EntityKey::agent(&swarms[1], &agent),
    ]
}

impl Both {
    async fn new(seed: u64) -> Self {
        let server = Server::start().await.unwrap();
        let mut real = Vec::new();
        for owner in OWNERS {
            let options = Options { lease: LEASE, ..Options::new(server.url(), owner) };
            let wall = skein_coordinator::entity::Clock::start().wall();
            real.push(Redis::join(&options, wall).await.unwrap());
        }
        let (simulated, rng) = (Simulated::default(), Rng::with_seed(seed));
        Self {
            server,
            real,
            simulated,
            vigils: [Vigil::over_leases(), Vigil::over_leases()],
            rng,
            fences: Vec::new(),
            sent: Vec::new(),
            refused: 0,
            kept: 0,
            made: 0,
            now: BEGIN,
        }
    }

    fn any_key(&mut self) -> EntityKey {
        let keys = keys();
        keys[self.rng.usize(0..keys.len())].clone()
    }

    /// A fence that the owner has, or had.
    fn any_fence(&mut self, shard: Shard) -> Option<(usize, Fences)> {
        let of: Vec<_> = self.fences.iter().filter(|(_, other, _)| *other == shard).collect();
        // Mostly the newest.
        let place =
            if self.rng.u8(0..4) > 0 { of.len().checked_sub(1)? } else { self.rng.usize(0..of.len().max(1)) };
        of.get(place).map(|(owner, _, fences)| (*owner, *fences))
    }

    async fn step(&mut self) {
        match self.rng.u32(0..24) {
            0..=1 => self.acquire().await,
            2 => self.keep(true).await,
            3 => self.keep(false).await,
            4 => self.end_lease().await,
            5..=12 => self.commit().await,
            13 => self.repeat().await,
            14..=16 => self.load().await,
            17 => self.timers().await,
            18..=19 => self.outbox().await,
            20..=22 => self.write_chunk().await,
            _ => self.blobs().await,
        }
    }

    async fn acquire(&mut self) {
        let owner = self.rng.usize(0..OWNERS.len());
        let shard = Shard::of(&self.any_key());
        let (leases, now) = (self.real[owner].leases(), Instant::now());
        let standing = leases.all().await.unwrap();
        let simulated = self.vigils[owner].standing(self.simulated.leases(), BEGIN, now);
        let told = |lease: &Lease| (lease.owner.clone(), lease.held);
        assert!(standing.iter().map(told).eq(simulated.iter().map(told)), "{standing:?} and {simulated:?}");
        let real = leases.acquire(&[shard]).await.unwrap().remove(0).unwrap();
        let wanted = Wanted { shard, nonce: self.rng.u64(..), over: self.vigils[owner].over(&shard, now) };
        let seen = simulated.iter().map(|lease| lease.epoch.0).max().unwrap_or_default();
        let simulated = self.simulated.acquire(wanted, (OWNERS[owner], seen), LEASE, BEGIN, None);
        match (real, simulated) {
            (Acquired::Taken(real), Acquired::Taken(simulated)) => {
                self.real[owner].held().take(shard, real, None);
                self.real[1 - owner].held().lose(&[shard]);
                self.fences.push((owner, shard, (real, simulated)));
            }
            (Acquired::Held { owner: real, .. }, Acquired::Held { owner: simulated, .. }) => {
                assert_eq!(real, simulated);
                self.refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }

    async fn keep(&mut self, renew: bool) {
        let shard = Shard::of(&self.any_key());
        let Some((owner, (real, simulated))) = self.any_fence(shard) else { return };
        let leases = self.real[owner].leases();
        let (real, simulated) = if renew {
            let real = leases.renew(&[(shard, real)]).await.unwrap();
            (real, self.simulated.renew(shard, simulated, LEASE, BEGIN))
        } else {
            let real = leases.release(&[(shard, real)]).await.unwrap();
            (real, self.simulated.release(shard, simulated))
        };
        assert_eq!(real[0] == Ok(Kept::Done), simulated == Kept::Done);
    }

    /// As one who lasts no longer has it.
    async fn end_lease(&mut self) {
        let shard = Shard::of(&self.any_key());
        if !self.fences.iter().any(|(_, other, _)| *other == shard) {
            return;
        }
        let mut link = self.server.connection().await.unwrap();
        let lease = shard.key("lease");
        let epoch: u64 = redis::cmd("HGET").arg(&lease).arg("epoch").query_async(&mut link).await.unwrap();
        let lasts = format!("{epoch} 0");
        let ends = redis::cmd("HSET").arg(lease).arg("until").arg(1).arg("lasts").arg(lasts).to_owned();
        ends.exec_async(&mut link).await.unwrap();
        self.simulated.end_lease(shard);
    }

    async fn commit(&mut self) {
        let key = self.any_key();
        let Some((owner, fences)) = self.any_fence(Shard::of(&key)) else { return };
        let stands = self.simulated.state.load(&key).version.0;
        let expected = if self.rng.u8(0..8) == 0 { stands + self.rng.u64(0..3) } else { stands };
        let batch = Arc::new(self.batch(key, Version(expected)));
        self.send(owner, fences, Arc::clone(&batch)).await;
        self.sent.push((owner, fences, batch));
    }

    async fn repeat(&mut self) {
        if let Some(last) = self.sent.len().checked_sub(1) {
            let (owner, fences, batch) = self.sent[last - self.rng.usize(0..=last.min(3))].clone();
            self.send(owner, fences, batch).await;
        }
    }

    async fn send(&mut self, owner: usize, (real, simulated): Fences, batch: Arc<Batch>) {
        // It would not send what was decided under a fence that it has lost, and what the script says of that is asked
        // here.
        let now = self.believe(owner, Shard::of(&batch.key), real);
        let real = self.real[owner].commit(real, Arc::clone(&batch)).await;
        self.believe(owner, Shard::of(&batch.key), now);
        let simulated = self.simulated.commit(simulated, &batch, None);
        match (&real, &simulated) {
            (Ok(real), Ok(simulated)) => {
                assert_eq!(real, simulated);
                self.kept += batch.blobs.iter().filter(|it| matches!(it, BlobChange::Keep { .. })).count();
            }
            (Err(CommitError::Fenced(_)), Err(CommitError::Fenced(_)))
            | (Err(CommitError::Failed(_)), Err(CommitError::Failed(_))) => self.refused += 1,
            (Err(CommitError::Conflict { actual }), Err(CommitError::Conflict { actual: simulated })) => {
                assert_eq!(actual, simulated);
                self.refused += 1;
            }
            _ => panic!("{real:?} and {simulated:?}"),
        }
    }

    /// Lets an owner take a shard for its own under a fence, or for another's. Gives what it believed before.
    fn believe(&self, owner: usize, shard: Shard, fence: Fence) -> Fence {
        let held = self.real[owner].held();
        let before = held.fence(shard);
        match fence {
            Fence::NONE => held.lose(&[shard]),
            fence => held.take(shard, fence, None),
        }
        before
    }

    fn batch(&mut self, key: EntityKey, expected: Version) -> Batch {
        let (rng, made) = (&mut self.rng, &mut self.made);
        self.now += rng.u64(0..10_000);
        let at = Timestamp(self.now);
        let documents = (0..rng.usize(0..3)).map(|_| {
            // Only what has a name of its own is known to be new.
            let new = rng.u8(0..4) == 0;
            let name = match rng.u64(0..8) {
                _ if new => {
                    *made += 1;
                    format!("thing/new-{made}")
                }
                number @ 0..6 => format!("thing/{number}"),
                number => format!("thing/new-{}", made.saturating_sub(number - 6)),
            };
            if !new && rng.u8(0..5) == 0 {
                return DocumentChange::Delete { key: name };
            }
            let body = json!({ "a": rng.u8(..), "b": if rng.bool() { Value::Null } else { json!("x") } });
            let head = Json::of(&json!({ "n": rng.u8(..) }));
            DocumentChange::Put { key: name, live: rng.bool(), head, body: Some(body.into()), new }
        });
        let documents = documents.collect();
        let events =
            (0..rng.usize(0..3)).map(|n| EventRecord { subject: None, body: Json::of(&json!({ "n": n })) });
        let events = events.collect();
        let replies = (0..rng.usize(0..2)).map(|_| StoredReply {
            request: Uuid::from_u128(rng.u128(..)),
            digest: rng.u64(..),
            at,
            reply: Json::of(&json!("done")),
        });
        let replies = replies.collect();
        let source = EntityKey::agent(&Name::parse("beta").unwrap(), &Name::parse("source").unwrap());
        let mark = |rng: &mut Rng| Mark {
            source: source.clone(),
            epoch: Epoch(rng.u64(1..3)),
            sequence: rng.u64(1..30),
        };
        let seen = (0..rng.usize(0..2)).map(|_| mark(rng)).collect();
        let stands = self.simulated.state.load(&key);
        let sequence = stands.sequence;
        // Somebody else's batch may have made that version.
        let after = if rng.u8(0..8) == 0 { Uuid::from_u128(rng.u128(..)) } else { stands.batch };
        let outbox = (0..rng.u64(0..3)).map(|n| OutboxEffect {
            sequence: sequence + n + 1,
            effect: Effect::Entity { key: source.clone(), command: Json::of(&json!({ "n": n })) },
        });
        let outbox = outbox.collect();
        let timer = match rng.u8(0..3) {
            0 => TimerChange::Keep,
            1 => TimerChange::Clear,
            _ => TimerChange::Set(Timestamp(BEGIN + rng.u64(0..1_000_000))),
        };
        let blob = Uuid::from_u128(rng.u128(0..BLOBS));
        let blobs = match rng.u8(0..6) {
            0..=2 => Vec::new(),
            3 => vec![BlobChange::Free { blob }],
            _ => {
                let bytes = [REST, CHUNK, CHUNK + REST][rng.usize(0..3)] as u64;
                vec![BlobChange::Keep { blob, bytes }]
            }
        };
        let id = Uuid::from_u128(rng.u128(..));
        Batch { key, expected, after, id, at, documents, events, seen, replies, timer, outbox, blobs }
    }

    /// The first of one or two chunks, or the second.
    async fn write_chunk(&mut self) {
        let key = self.any_key();
        let shard = Shard::of(&key);
        let Some((owner, (real, simulated))) = self.any_fence(shard) else { return };
        let (place, bytes) = [(0, CHUNK), (0, REST), (1, REST)][self.rng.usize(0..3)];
        let bytes = vec![self.rng.u8(..); bytes];
        let blob = Uuid::from_u128(self.rng.u128(0..BLOBS));
        let at = Timestamp(BEGIN + self.rng.u64(0..1_000_000));
        let chunk = Chunk { key, blob, place, bytes, at };
        let simulated = self.simulated.write_chunk(simulated, &chunk);
        // As with commits, the script is asked also where the owner would not.
        let now = self.believe(owner, shard, real);
        let real = self.real[owner].write_chunk(real, chunk).await;
        self.believe(owner, shard, now);
        match (real, simulated) {
            (Ok(()), Ok(())) => {}
            (Err(CommitError::Fenced(_)), Err(CommitError::Fenced(_))) => self.refused += 1,
            other => panic!("{other:?}"),
        }
    }

    /// What is kept can be read by everybody, and nothing else.
    async fn blobs(&mut self) {
        let key = self.any_key();
        for blob in (0..BLOBS).map(Uuid::from_u128) {
            for place in 0..2 {
                let real = self.real[0].chunk(&key, blob, place).await.unwrap();
                assert!(real == self.simulated.state.chunk(&key, blob, place), "{key} {blob} {place}");
            }
        }
        let owner = self.rng.usize(0..OWNERS.len());
        let mut simulated = self.simulated.state.blobs(None, 100);
        let ours = self.ours(owner);
        simulated.retain(|blob| ours.contains(&Shard::of(&blob.key)));
        assert_eq!(self.real[owner].blobs(None, 100).await.unwrap(), simulated);
    }

    async fn load(&mut self) {
        let key = self.any_key();
        let shard = Shard::of(&key);
        let (owner, (real, simulated)) = self.any_fence(shard).unwrap_or_default();
        let now = self.believe(owner, shard, real);
        let real = self.real[owner].load(&key).await;
        self.believe(owner, shard, now);
        let is_owned = simulated == Fence::NONE || self.simulated.check(&key, simulated).is_ok();
        assert_eq!(real.is_ok(), is_owned, "{key}");
        let Ok(mut real) = real else {
            self.refused += 1;
            return;
        };
        let mut simulated = self.simulated.state.load(&key);
        for loaded in [&mut real, &mut simulated] {
            loaded.replies.sort_by_key(|reply| reply.request);
            loaded.marks.sort_by_key(|mark| mark.source.clone());
        }
        let told = |loaded: &skein_coordinator::store::Loaded| {
            let live: Vec<(String, Value)> = loaded
                .live
                .iter()
                .map(|document| (document.key.clone(), serde_json::from_str(&document.head).unwrap()))
                .collect();
            (
                loaded.version,
                loaded.batch,
                loaded.at,
                loaded.sequence,
                live,
                loaded.marks.clone(),
                loaded.timer,
            )
        };
        assert_eq!(told(&real), told(&simulated), "{key}");
        assert_eq!(real.replies, simulated.replies, "{key}");
        let new = (self.made.saturating_sub(6)..=self.made).map(|number| format!("thing/new-{number}"));
        for name in (0..6).map(|number| format!("thing/{number}")).chain(new) {
            let real = self.real[0].document(&key, &name).await.unwrap();
            let simulated = self.simulated.state.document(&key, &name);
            let told = |found: Option<skein_coordinator::store::StoredDocument>| {
                found.map(|found| (found.live, found.head, found.body, found.version, found.at))
            };
            let (real, simulated) = (told(real), told(simulated));
            assert_eq!(
                real.as_ref().map(|it| (&it.0, &it.1, it.3, it.4)),
                simulated.as_ref().map(|it| (&it.0, &it.1, it.3, it.4)),
                "{key} {name}"
            );
            let fields = |found: &Option<(bool, Value, Value, Version, Timestamp)>| {
                let found = found.as_ref().and_then(|found| found.2.as_object().cloned());
                found.unwrap_or_default().into_iter().collect::<std::collections::BTreeMap<_, _>>()
            };
            assert_eq!(fields(&real), fields(&simulated), "{key} {name}");
        }
    }

    /// The shards that an owner holds.
    fn ours(&self, owner: usize) -> Vec<Shard> {
        self.real[owner].held().all().into_iter().map(|(shard, _)| shard).collect()
    }

    async fn timers(&mut self) {
        let owner = self.rng.usize(0..OWNERS.len());
        let real = self.real[owner].timers(100).await.unwrap();
        assert_eq!(real, self.simulated.timers(100, &self.ours(owner)));
    }

    async fn outbox(&mut self) {
        let owner = self.rng.usize(0..OWNERS.len());
        let real = self.real[owner].outbox(0, 1000).await.unwrap();
        let simulated = self.simulated.outbox(0, 1000, &self.ours(owner));
        let told =
            |entry: &OutboxEntry| (entry.source.clone(), entry.sequence, entry.at, entry.effect.clone());
        assert_eq!(real.iter().map(told).collect::<Vec<_>>(), simulated.iter().map(told).collect::<Vec<_>>());
        let Some((real, simulated)) = real.first().zip(simulated.first()) else { return };
        // Done under the fence that the owner relies on now.
        let shard = Shard::of(&real.source);
        let held = self.real[owner].held().fence(shard);
        let Some((_, _, fences)) = self.fences.iter().rev().find(|(_, _, fences)| fences.0 == held) else {
            return;
        };
        let (place, done) = (simulated.place(), self.real[owner].delivered(vec![real.place()]).await);
        assert_eq!(done.is_ok(), self.simulated.delivered(fences.1, &place).is_ok());
    }
}

#[tokio::test]
async fn the_simulated_store_does_what_the_scripts_do() {
    for seed in 0..3 {
        let mut both = Both::new(seed).await;
        for _ in 0..STEPS {
            both.step().await;
        }
        let committed: u64 = keys().iter().map(|key| both.simulated.state.load(key).version.0).sum();
        assert!(
            committed > 50 && both.refused > 20 && both.kept > 5,
            "seed {seed}: {committed} commits, {} refusals, {} blobs kept",
            both.refused,
            both.kept
        );
    }
}
