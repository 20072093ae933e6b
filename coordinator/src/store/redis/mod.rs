//! The store of a cluster: one Redis, which holds the truth, the timers and the outbox, and nothing to search by.
//!
//! Entities are spread over 256 shards ([`shard`]). A shard has one owner ([`lease`]), and each write compares the
//! owner's fence in the same script that writes ([`writer`], `scripts/`): whoever lost the shard changes nothing, however
//! late its write arrives. What this process holds is in [`held`].
//! Reads are pages of sorted sets and streams ([`reader`] for one entity, [`scan`] over the
//! shards).

mod batch;
mod connection;
pub mod held;
pub mod lease;
pub mod members;
mod merge;
mod options;
mod reader;
pub mod remembered;
mod scan;
mod server;
pub mod shard;
mod upkeep;
mod watch;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redis::cmd;
use skein_shared::entity::LiveDocument;
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::alarms::Kind;

use super::{
    Batch, CommitError, DeadLetter, Fence, Loaded, OutboxEntry, OutboxPlace, Record, Store, StoreError,
    StoredDocument, TrimPlan, Trimmed, Version,
};
use batch::Prepared;
use connection::{Connection, Door};
use held::Held;
use lease::{Acquired, Kept, Leases};
use members::Members;
pub use options::{Durability, Options};
use reader::Reader;
use remembered::Diary;
use scan::Scan;
use server::{Generation, Info};
use shard::{INHABITED, POSITION, Shard};
use upkeep::Upkeep;
use writer::{Acknowledgement, Start, Writer};

/// How often to look whether a shard that somebody else has is free.
const LOOK: Duration = Duration::from_millis(250);

/// The store of a cluster, of whose shards this process holds some.
pub struct Redis {
    writer: Writer,
    reader: Reader,
    upkeep: Upkeep,
    leases: Leases,
    /// For the leases alone, so that no long answer delays them.
    aside: Connection,
    generation: Generation,
    /// Which store the server holds.
    id: String,
    /// The last position whose commit was acknowledged to this process.
    reached: Arc<AtomicU64>,
    diary: Diary,
    lease: Duration,
    held: Arc<Held>,
}

/// Of which shards something is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// Those that this process holds.
    Ours,
    All,
}

/// The shards are no longer this process' own, or may be no longer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Lost(String);

impl Lost {
    /// The store is not the one in which the shards were taken.
    pub fn emptied() -> Self {
        Self(server::EMPTIED.to_owned())
    }
}

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
    /// Like [`Redis::join`], and takes all shards, for a process that needs the store for itself alone. A shard that
    /// another owner has is waited for, as long as its lease may last.
    ///
    /// # Errors
    /// Also when another owner keeps its shards.
    pub async fn open(options: &Options, wall: Timestamp) -> Result<Self, StoreError> {
        let store = Self::join(options, wall).await?;
        for (shard, fence) in Shard::all().zip(take(&store.leases, options.lease).await?) {
            store.held.take(shard, fence, None);
        }
        Ok(store)
    }

    /// Connects and looks whether the server keeps what it acknowledges. It holds no shard yet.
    ///
    /// # Errors
    /// When Redis cannot be reached or is set up to lose writes, another program or another number of shards has the
    /// database, or it is not the store that this owner has worked with before.
    pub async fn join(options: &Options, wall: Timestamp) -> Result<Self, StoreError> {
        let door = Door::new(options)?;
        let (connection, aside) = (door.connection("reads").await?, door.connection("leases").await?);
        let info = server::check(&connection, options.durability, wall).await?;
        let id = server::claim(&connection, options.remembered.as_ref()).await?;
        let position = server::position(&connection).await?;
        if let Some(missing) = options.remembered.as_ref().and_then(|known| known.missing(position)) {
            options.alarms.raise(Kind::StoreLost, "commits", &lost(missing));
        }
        let diary = Diary::new(options.remembered.clone());
        diary.note(&id, position).await;
        let leases = Leases::new(aside.clone(), id.clone(), options);
        let reached = Arc::new(AtomicU64::new(position));
        let acknowledgement = Acknowledgement::of(options.durability, &info, options.answer / 2);
        let generation = info.generation();
        let writer = Writer::start(Start {
            door,
            aside: aside.clone(),
            generation: generation.clone(),
            acknowledgement,
            reached: Arc::clone(&reached),
        });
        Ok(Self {
            writer,
            reader: Reader::new(connection.clone()),
            upkeep: Upkeep::new(connection),
            leases,
            aside,
            generation,
            id,
            reached,
            diary,
            lease: options.lease,
            held: Arc::default(),
        })
    }

    /// Keeps the shards until `stop`, and then gives them up.
    ///
    /// # Errors
    /// When another owner has taken one, the leases could not be renewed in time, or the server is not the one on which
    /// they were taken: what this process has in memory may be out of date, so it must not go on.
    pub async fn keep(&self, stop: CancellationToken) -> Result<(), Lost> {
        let held = self.held.all();
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
        self.is_the_same().await?.map_err(Unkept::Lost)?;
        let kept: Vec<Kept> = self.leases.renew(held).await?.into_iter().collect::<Result<_, _>>()?;
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

    /// The shards that this process holds.
    pub fn held(&self) -> &Arc<Held> {
        &self.held
    }

    /// What takes, keeps and gives up shards.
    pub fn leases(&self) -> &Leases {
        &self.leases
    }

    /// The list of those who take part.
    pub fn members(&self) -> Members {
        Members::new(self.aside.clone())
    }

    /// Whether this is still the server on which the leases were taken.
    ///
    /// # Errors
    /// `Ok(Err(…))` when it is another one; [`StoreError`] when it cannot be asked.
    pub async fn is_the_same(&self) -> Result<Result<(), Lost>, StoreError> {
        let same = Info::ask(&self.aside).await?.generation() == self.generation;
        let there = server::id(&self.aside).await?.as_ref() == Some(&self.id);
        // Also when it is another one: its successor compares.
        self.diary.note(&self.id, self.reached.load(Ordering::Relaxed)).await;
        Ok(match (there, same) {
            (false, _) => Err(Lost::emptied()),
            (true, false) => Err(Lost(server::REPLACED.to_owned())),
            (true, true) => Ok(()),
        })
    }

    /// What cannot be read is an alarm.
    fn seen<T>(&self, read: Result<T, StoreError>) -> Result<T, StoreError> {
        read.inspect_err(|StoreError(problem)| self.reader.connection.watch.failed(problem))
    }

    async fn scan(&self, of: Of) -> Result<Scan<'_>, StoreError> {
        let ask = cmd("MGET").arg(POSITION).arg(INHABITED).to_owned();
        let (newest, inhabited): (Option<u64>, Option<Vec<u8>>) =
            self.reader.connection.ask(POSITION, &ask).await?;
        let inhabited = inhabited.unwrap_or_default();
        let has = |shard: &Shard| shard.bit_of(&inhabited);
        let shards = match of {
            Of::All => Shard::all().filter(has).collect(),
            Of::Ours => self.held.all().into_iter().map(|(shard, _)| shard).filter(has).collect(),
        };
        Ok(Scan { reader: &self.reader, shards, newest: newest.unwrap_or(0) })
    }
}

/// What is said of a server that came back with less than it had acknowledged.
fn lost(missing: u64) -> String {
    format!(
        "Redis has lost commits that it had acknowledged (the last {missing}): what was done in them is undone, and agents may \
         do it again; look at its log, at `appendfsync`, and at the replica that took over"
    )
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
        if matches!(answers[..], [Ok(Acquired::Taken(_))]) {
            answers.extend(leases.acquire(others).await?);
        }
        for answer in answers {
            match answer? {
                Acquired::Taken(fence) => fences.push(fence),
                Acquired::Held { owner, address, ends_in } => holder = Some((owner, address, ends_in)),
                Acquired::Foreign => return Err(StoreError(server::EMPTIED.to_owned())),
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

#[async_trait]
impl Store for Redis {
    fn fence(&self, key: &EntityKey) -> Fence {
        self.held.fence(Shard::of(key))
    }

    async fn commit(&self, fence: Fence, batch: Arc<Batch>) -> Result<Version, CommitError> {
        let batch = Prepared::new(&batch)?;
        self.writer.commit(fence, batch).await
    }

    async fn load(&self, key: &EntityKey) -> Result<Loaded, StoreError> {
        self.seen(self.reader.load(key).await)
    }

    async fn live(
        &self,
        key: &EntityKey,
        after: &str,
        limit: usize,
    ) -> Result<Vec<LiveDocument>, StoreError> {
        self.seen(self.reader.live(key, after, limit).await)
    }

    async fn document(&self, key: &EntityKey, document: &str) -> Result<Option<StoredDocument>, StoreError> {
        Ok(self.seen(self.reader.documents(&[(key.clone(), document.to_owned())]).await)?.pop())
    }

    async fn documents(
        &self,
        after: Option<(EntityKey, String)>,
        limit: usize,
    ) -> Result<Vec<StoredDocument>, StoreError> {
        self.seen(self.scan(Of::Ours).await?.documents(after, limit).await)
    }

    async fn versions(&self) -> Result<Vec<(EntityKey, Version)>, StoreError> {
        self.seen(self.scan(Of::Ours).await?.versions().await)
    }

    async fn entities(&self) -> Result<Vec<EntityKey>, StoreError> {
        self.seen(self.scan(Of::All).await?.all_entities().await)
    }

    async fn records(&self, after: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.seen(self.scan(Of::All).await?.records(after, limit).await)
    }

    async fn records_of(&self, key: &EntityKey, versions: Vec<Version>) -> Result<Vec<Record>, StoreError> {
        self.seen(self.reader.records_of(key, versions).await)
    }

    async fn last_position(&self) -> Result<u64, StoreError> {
        Ok(self.scan(Of::All).await?.newest)
    }

    async fn timers(&self, limit: usize) -> Result<Vec<(EntityKey, Timestamp)>, StoreError> {
        self.seen(self.scan(Of::Ours).await?.timers(limit).await)
    }

    async fn outbox(&self, after: u64, limit: usize) -> Result<Vec<OutboxEntry>, StoreError> {
        self.seen(self.scan(Of::Ours).await?.outbox(after, limit).await)
    }

    async fn delivered(&self, effects: Vec<OutboxPlace>) -> Result<(), CommitError> {
        self.upkeep.delivered(|shard| self.held.fence(shard), &effects).await
    }

    async fn bury(&self, effect: OutboxPlace, reason: String, at: Timestamp) -> Result<(), CommitError> {
        self.upkeep.bury(self.fence(&effect.source), &effect, reason, at).await
    }

    async fn dead_letters(&self, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.seen(self.scan(Of::All).await?.dead_letters(after, limit).await)
    }

    async fn trim(&self, plan: TrimPlan) -> Result<Trimmed, CommitError> {
        let ours = self.scan(Of::Ours).await.map_err(|StoreError(problem)| CommitError::Failed(problem))?;
        self.upkeep.trim(|shard| self.held.fence(shard), &ours.shards, &plan).await
    }

    async fn backup(&self, _path: &Path) -> Result<(), StoreError> {
        Err(StoreError(
            "a store in Redis is copied by Redis: run BGSAVE there and keep its dump file".to_owned(),
        ))
    }
}
