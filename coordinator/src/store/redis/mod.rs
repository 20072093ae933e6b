//! The store of a cluster: one Redis, which holds the truth, the timers and the outbox, and nothing to search by.
//!
//! Entities are spread over 256 shards ([`shard`]). A shard has one owner ([`lease`]), and each write compares the
//! owner's fence in the same script that writes ([`writer`], `scripts/`): whoever lost the shard changes nothing, however
//! late its write arrives. Reads are pages of sorted sets and streams ([`reader`] for one entity, [`scan`] over the
//! shards).

mod batch;
mod connection;
pub mod lease;
mod merge;
mod options;
mod reader;
mod scan;
mod server;
pub mod shard;
mod upkeep;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redis::cmd;
use skein_shared::entity::LiveDocument;
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    Batch, CommitError, DeadLetter, Fence, Loaded, OutboxEntry, OutboxPlace, Record, Store, StoreError,
    StoredDocument, TrimPlan, Trimmed, Version,
};
use batch::Prepared;
use connection::{Connection, Door};
use lease::{Acquired, Kept, Leases};
pub use options::{Durability, Options};
use reader::Reader;
use scan::Scan;
use server::{Generation, Info};
use shard::{SHARDS, Shard};
use upkeep::Upkeep;
use writer::{Acknowledgement, Start, Writer};

/// How often to look whether a shard that somebody else has is free.
const LOOK: Duration = Duration::from_millis(250);

/// The store of a cluster, with all its shards in this process' hands.
pub struct Redis {
    writer: Writer,
    reader: Reader,
    upkeep: Upkeep,
    leases: Leases,
    /// For the leases alone, so that no long answer delays them.
    aside: Connection,
    generation: Generation,
    lease: Duration,
    /// By the number of the shard.
    fences: Vec<Fence>,
    /// Shards with an entity: most have none, and need not be asked.
    inhabited: Vec<AtomicBool>,
}

/// The shards are no longer this process' own, or may be no longer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Lost(String);

/// Why leases were not renewed.
enum Unkept {
    Lost(Lost),
    /// It may be better at the next try.
    NotNow(StoreError),
}

impl From<StoreError> for Unkept {
    fn from(problem: StoreError) -> Self {
        Unkept::NotNow(problem)
    }
}

impl Redis {
    /// Connects, looks whether the server keeps what it acknowledges, and takes all shards. A shard that another owner
    /// has is waited for, as long as its lease may last.
    ///
    /// # Errors
    /// When Redis cannot be reached or is set up to lose writes, another program or another number of shards has the
    /// database, or another owner keeps its shards.
    pub async fn open(options: &Options, wall: Timestamp) -> Result<Self, StoreError> {
        let door = Door::new(options)?;
        let (connection, aside) = (door.connection().await?, door.connection().await?);
        let info = server::check(&connection, options.durability, wall).await?;
        server::claim(&connection).await?;
        let leases = Leases::new(aside.clone(), options);
        let fences = take(&leases, options.lease).await?;
        // From here on nobody else writes, so these stay as they are.
        let position = newest_position(&connection).await?;
        let inhabited = inhabited(&connection).await?;
        let acknowledgement = Acknowledgement::of(options.durability, &info, options.answer / 2);
        let generation = info.generation();
        let writer = Writer::start(Start {
            door,
            aside: aside.clone(),
            generation: generation.clone(),
            acknowledgement,
            position,
        });
        Ok(Self {
            writer,
            reader: Reader::new(connection.clone()),
            upkeep: Upkeep::new(connection),
            leases,
            aside,
            generation,
            lease: options.lease,
            fences,
            inhabited,
        })
    }

    /// Keeps the shards until `stop`, and then gives them up.
    ///
    /// # Errors
    /// When another owner has taken one, the leases could not be renewed in time, or the server is not the one on which
    /// they were taken: what this process has in memory may be out of date, so it must not go on.
    pub async fn keep(&self, stop: CancellationToken) -> Result<(), Lost> {
        let held: Vec<(Shard, Fence)> = Shard::all().zip(self.fences.iter().copied()).collect();
        // A lease counts from before it was asked for, and ends here before it ends there.
        let good_for = self.lease * 4 / 5;
        let mut ends = Instant::now() + good_for;
        let mut pause = self.lease / 3;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
            let asked = Instant::now();
            let renewed = tokio::time::timeout_at(ends, self.renew(&held)).await;
            let problem = match renewed {
                Ok(Ok(())) => {
                    (ends, pause) = (asked + good_for, self.lease / 3);
                    continue;
                }
                Ok(Err(Unkept::Lost(lost))) => return Err(lost),
                Ok(Err(Unkept::NotNow(StoreError(problem)))) => problem,
                Err(_) => "Redis does not answer".to_owned(),
            };
            if Instant::now() >= ends {
                return Err(Lost(format!(
                    "the leases of this process could not be renewed for {good_for:?}, and another one may take them: \
                     {problem}"
                )));
            }
            warn!(problem, "the leases of this process could not be renewed; it tries again");
            pause = (self.lease / 20).min(ends - Instant::now());
        }
        if let Err(problem) = self.leases.release(&held).await {
            warn!(%problem, "the leases could not be given up; they end by themselves");
        }
        Ok(())
    }

    async fn renew(&self, held: &[(Shard, Fence)]) -> Result<(), Unkept> {
        if Info::ask(&self.aside).await?.generation() != self.generation {
            return Err(Unkept::Lost(Lost(server::REPLACED.to_owned())));
        }
        let kept = self.leases.renew(held).await?;
        let lost = kept.iter().zip(held).find_map(|(kept, (shard, _))| match kept {
            Kept::Done => None,
            Kept::Fenced(epoch) => Some((shard, epoch)),
        });
        let Some((shard, epoch)) = lost else { return Ok(()) };
        Err(Unkept::Lost(Lost(format!(
            "another coordinator has taken shard {} with epoch {epoch}; two of them share this store: give each its own \
             database of Redis, or run one",
            shard.number()
        ))))
    }

    fn scan(&self) -> Scan<'_> {
        let shards = Shard::all().zip(&self.inhabited);
        let shards = shards.filter(|(_, inhabited)| inhabited.load(Ordering::Acquire));
        Scan { reader: &self.reader, shards: shards.map(|(shard, _)| shard).collect() }
    }

    fn fence_of(&self, shard: Shard) -> Fence {
        self.fences.get(usize::from(shard.number())).copied().unwrap_or_default()
    }
}

/// Takes all shards, and waits for those that somebody else has until its lease must have ended.
async fn take(leases: &Leases, ttl: Duration) -> Result<Vec<Fence>, StoreError> {
    let all: Vec<Shard> = Shard::all().collect();
    let begun = Instant::now();
    let mut told = false;
    loop {
        let mut fences = Vec::with_capacity(all.len());
        let mut holder = None;
        // The first decides: two that begin at one time must not get half of the shards each.
        let (first, others) = all.split_at(1);
        let mut answers = leases.acquire(first).await?;
        if matches!(answers[..], [Acquired::Taken(_)]) {
            answers.extend(leases.acquire(others).await?);
        }
        for answer in answers {
            match answer {
                Acquired::Taken(fence) => fences.push(fence),
                Acquired::Held { owner, address, ends_in } => holder = Some((owner, address, ends_in)),
            }
        }
        let Some((owner, address, ends_in)) = holder else { return Ok(fences) };
        if begun.elapsed() > ttl * 2 {
            return Err(StoreError(format!(
                "another coordinator ({owner}{}{address}) has this store and keeps renewing its leases; stop it, or use \
                 another database of Redis",
                if address.is_empty() { "" } else { " at " }
            )));
        }
        if !told {
            info!(
                owner,
                address,
                ?ends_in,
                "another coordinator has the store; waiting for the end of its leases"
            );
            told = true;
        }
        tokio::time::sleep(ends_in.min(LOOK)).await;
    }
}

async fn newest_position(connection: &Connection) -> Result<u64, StoreError> {
    let ask = |shard: Shard| (shard.position(), cmd("GET").arg(shard.position()).to_owned());
    let positions: Vec<Option<u64>> = connection.ask_all(&Shard::all().map(ask).collect::<Vec<_>>()).await?;
    Ok(positions.into_iter().flatten().max().unwrap_or(0))
}

async fn inhabited(connection: &Connection) -> Result<Vec<AtomicBool>, StoreError> {
    let ask = |shard: Shard| (shard.entities(), cmd("ZCARD").arg(shard.entities()).to_owned());
    let entities: Vec<u64> = connection.ask_all(&Shard::all().map(ask).collect::<Vec<_>>()).await?;
    debug_assert_eq!(entities.len(), usize::from(SHARDS));
    Ok(entities.into_iter().map(|count| AtomicBool::new(count > 0)).collect())
}

#[async_trait]
impl Store for Redis {
    fn fence(&self, key: &EntityKey) -> Fence {
        self.fence_of(Shard::of(key))
    }

    async fn commit(&self, fence: Fence, batch: Arc<Batch>) -> Result<Version, CommitError> {
        let batch = Prepared::new(&batch)?;
        // Before it is sent, so that whoever knows of the commit finds it.
        if let Some(inhabited) = self.inhabited.get(usize::from(batch.shard.number())) {
            inhabited.store(true, Ordering::Release);
        }
        self.writer.commit(fence, batch).await
    }

    async fn load(&self, key: &EntityKey) -> Result<Loaded, StoreError> {
        self.reader.load(key).await
    }

    async fn live(
        &self,
        key: &EntityKey,
        after: &str,
        limit: usize,
    ) -> Result<Vec<LiveDocument>, StoreError> {
        self.reader.live(key, after, limit).await
    }

    async fn document(&self, key: &EntityKey, document: &str) -> Result<Option<StoredDocument>, StoreError> {
        Ok(self.reader.documents(&[(key.clone(), document.to_owned())]).await?.pop())
    }

    async fn documents(
        &self,
        after: Option<(EntityKey, String)>,
        limit: usize,
    ) -> Result<Vec<StoredDocument>, StoreError> {
        self.scan().documents(after, limit).await
    }

    async fn versions(&self) -> Result<Vec<(EntityKey, Version)>, StoreError> {
        self.scan().versions().await
    }

    async fn records(&self, after: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.scan().records(after, limit).await
    }

    async fn records_of(&self, key: &EntityKey, versions: Vec<Version>) -> Result<Vec<Record>, StoreError> {
        self.reader.records_of(key, versions).await
    }

    async fn last_position(&self) -> Result<u64, StoreError> {
        Ok(self.writer.newest())
    }

    async fn timers(&self, limit: usize) -> Result<Vec<(EntityKey, Timestamp)>, StoreError> {
        self.scan().timers(limit).await
    }

    async fn outbox(&self, after: u64, limit: usize) -> Result<Vec<OutboxEntry>, StoreError> {
        self.scan().outbox(after, limit).await
    }

    async fn delivered(&self, effects: Vec<OutboxPlace>) -> Result<(), CommitError> {
        self.upkeep.delivered(|shard| self.fence_of(shard), &effects).await
    }

    async fn bury(&self, effect: OutboxPlace, reason: String, at: Timestamp) -> Result<(), CommitError> {
        self.upkeep.bury(self.fence(&effect.source), &effect, reason, at).await
    }

    async fn dead_letters(&self, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.scan().dead_letters(after, limit).await
    }

    async fn trim(&self, plan: TrimPlan) -> Result<Trimmed, CommitError> {
        self.upkeep.trim(|shard| self.fence_of(shard), &self.scan().shards, &plan).await
    }

    async fn backup(&self, _path: &Path) -> Result<(), StoreError> {
        Err(StoreError(
            "a store in Redis is copied by Redis: run BGSAVE there and keep its dump file".to_owned(),
        ))
    }
}
