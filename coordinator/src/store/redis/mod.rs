//! The store of a cluster: one Redis, which holds the truth, the timers and the outbox, and nothing to search by.
//!
//! Entities are spread over 256 shards ([`shard`]). A shard has one owner ([`lease`]), and each write compares the
//! owner's fence in the same script that writes ([`writer`], `scripts/`): whoever lost the shard changes nothing,
//! however late its write arrives. What this process holds is in [`held`]. Reads are pages of sorted sets and streams
//! ([`reader`] for one entity, [`loading`] for what its owner has in memory, [`scan`] over the shards).

mod alone;
mod arguments;
mod batch;
mod body;
mod connection;
mod discovery;
mod extent;
mod generation;
pub mod held;
pub mod incident;
pub mod lease;
mod loading;
mod losses;
pub mod members;
mod merge;
mod options;
mod position;
mod reader;
mod recent;
mod scan;
mod server;
pub mod shard;
mod spoilt;
mod surplus;
mod upkeep;
pub mod vigil;
mod watch;
mod writer;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::{
    Batch, Chunk, CommitError, CopyError, DeadLetter, Fence, LIVE_PAGE, LivePage, Loaded, OutboxEntry,
    OutboxPlace, Receipt, Record, Store, StoreError, StoredBlob, StoredDocument, TrimPlan, Trimmed, Version,
};
pub use alone::Lost;
use batch::Prepared;
use connection::Connection;
use discovery::Discovery;
pub use discovery::check_url;
use extent::Extent;
pub use generation::Generation;
use generation::{REPLACED, Reliance};
use held::Held;
use incident::{Incident, Incidents};
use lease::Leases;
use loading::{AHEAD, Begin};
use members::Members;
pub use options::{Durability, Options, Tls};
use position::Positions;
use reader::Reader;
use recent::Recent;
use scan::Scan;
use server::Info;
use shard::Shard;
use spoilt::Spoilt;
use upkeep::Upkeep;
use writer::{Start, Writer};

/// The store of a cluster, of whose shards this process holds some.
pub struct Redis {
    writer: Writer,
    reader: Reader,
    upkeep: Upkeep,
    leases: Leases,
    /// For the leases alone, so that no long answer delays them.
    aside: Connection,
    discovery: Discovery,
    durability: Durability,
    lease: Duration,
    held: Arc<Held>,
    reliance: Arc<Reliance>,
    recent: Arc<Recent>,
    incidents: Incidents,
    owner: String,
    positions: Positions,
    spoilt: Spoilt,
    /// It is this process that fills the store.
    imports: AtomicBool,
}

/// Of which shards something is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// Those that this process holds.
    Ours,
    All,
}

impl Redis {
    /// The fence under which an effect was read, if this process has its shard under that still.
    fn still(&self, effect: &OutboxPlace) -> Fence {
        let now = self.held.fence(Shard::of(&effect.source));
        if now == effect.fence { now } else { Fence::NONE }
    }

    /// Connects and looks whether the server keeps what it acknowledges. It holds no shard yet.
    ///
    /// # Errors
    /// When Redis cannot be reached or is set up to lose writes, or another program or another number of shards has
    /// the database, or nobody has made a store of it in the time that that was waited for.
    pub async fn join(options: &Options, wall: Timestamp) -> Result<Self, StoreError> {
        let discovery = Discovery::new(options)?;
        let connection = Connection::open(&discovery, "reads").await?;
        let aside = Connection::open(&discovery.answering_within(options.patience()), "leases").await?;
        let info = server::check(&connection, &discovery, options.durability, wall).await?;
        server::warn_if_alone(&info, &discovery);
        if let Some(known) = &options.store {
            server::recognize(server::store_id(&connection).await?.as_deref(), known)?;
        }
        if let Some(limit) = options.awaits {
            server::is_made(&connection, limit).await?;
        }
        let store = server::claim(&connection, options.awaits.is_none()).await?;
        let positions = Positions::new();
        positions.begin(&aside, &info.generation(), &store).await?;
        let leases = Leases::new(aside.clone(), store.clone(), options);
        let reliance = Arc::new(Reliance::new(info.generation(), store));
        let held = Arc::<Held>::default();
        let writer = Writer::start(Start {
            discovery: discovery.clone(),
            reliance: Arc::clone(&reliance),
            held: Arc::clone(&held),
            durability: options.durability,
            within: options.answer / 2,
            keeps: options.answer,
        });
        Ok(Self {
            writer,
            reader: Reader::new(connection.clone()),
            upkeep: Upkeep::new(connection, Arc::clone(&reliance)),
            leases,
            discovery,
            durability: options.durability,
            lease: options.lease,
            held,
            reliance,
            recent: Arc::default(),
            incidents: Incidents::new(aside.clone()),
            owner: options.owner.clone(),
            aside,
            positions,
            spoilt: Spoilt::default(),
            imports: AtomicBool::new(false),
        })
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

    /// The store's id, for ever.
    pub fn id(&self) -> &str {
        &self.reliance.store
    }

    /// The life of the server on which this process relies.
    pub fn generation(&self) -> Generation {
        self.reliance.generation()
    }

    /// The number of that life, for what nodes say to one another.
    pub fn life(&self) -> u64 {
        self.reliance.number()
    }

    /// Whether the server is in the life on which this process relies.
    ///
    /// # Errors
    /// When it cannot be asked, does not have this store any more, or another process fills it.
    pub async fn is_the_same(&self) -> Result<bool, StoreError> {
        // A server whose place another has taken may answer as before. Where one is to be asked is asked anew, then.
        let is_passed_over = self.discovery.fails_over() && self.aside.watch.is_refused();
        if self.reliance.end_doubt() || is_passed_over {
            self.aside.renew();
        }
        if Info::ask(&self.aside).await?.generation() != self.reliance.generation() {
            return Ok(false);
        }
        self.recognize().await?;
        self.aside.watch.fit();
        Ok(true)
    }

    /// Whether the server has the store to which this process belongs, and all of it.
    async fn recognize(&self) -> Result<(), StoreError> {
        let (watch, store) = (&self.aside.watch, &self.reliance.store);
        let found = server::store_there(&self.aside).await;
        // That it does not say so is not that it has another.
        let (found, is_importing) = found.inspect_err(|StoreError(problem)| watch.failed(problem))?;
        let ours = server::recognize(found.as_deref(), store);
        ours.inspect(|()| watch.found(store))
            .inspect_err(|StoreError(problem)| watch.lost(store, problem))?;
        if is_importing && !self.imports.load(Ordering::Relaxed) {
            let problem = server::half_filled();
            watch.half_filled(&problem.0);
            return Err(problem);
        }
        Ok(())
    }

    /// Changes when this process begins anew, with whatever the server has left.
    pub fn lives(&self) -> tokio::sync::watch::Receiver<u64> {
        self.reliance.lives()
    }

    /// Says that the server may be another one, as somebody else has found it.
    pub fn doubt(&self) {
        self.reliance.doubt();
    }

    /// Returns when the server seems to be another one.
    pub async fn doubted(&self) {
        self.reliance.doubted().await;
    }

    /// Forgets what this process holds, and relies on the server as it is now, if it is fit. What it acknowledged in
    /// its former life may be gone, so everything has to be taken and loaded anew. `wall` is the time that it is now:
    /// what has passed by the monotonic clock since the process began leaves out for how long its machine stood still.
    ///
    /// # Errors
    /// When it cannot be asked, is set up to lose writes, or does not have this store. That is an alarm: nothing works
    /// until it is mended.
    pub async fn begin_anew(&self, wall: Timestamp) -> Result<(), StoreError> {
        let watch = &self.aside.watch;
        let begun = self.rely_anew(wall).await;
        begun.inspect(|()| watch.fit()).inspect_err(|StoreError(problem)| watch.unfit(problem))
    }

    async fn rely_anew(&self, wall: Timestamp) -> Result<(), StoreError> {
        let held: Vec<Shard> = self.held.all().into_iter().map(|(shard, _)| shard).collect();
        self.held.lose(&held);
        // They may lead to what was the primary.
        self.aside.renew();
        self.reader.connection.renew();
        let info = server::check(&self.aside, &self.discovery, self.durability, wall).await?;
        self.recognize().await?;
        let life = info.generation();
        self.positions.begin(&self.aside, &life, &self.reliance.store).await?;
        // Two connections may lead to two servers while one takes the place of the other, which has lost nothing.
        self.reader.connection.is_in(&life).await?;
        self.tell_losses(wall).await?;
        self.reliance.begin(life);
        server::warn_if_alone(&info, &self.discovery);
        metrics::counter!("skein_store_generations_total").increment(1);
        Ok(())
    }

    /// What failovers threw away, the last one first.
    ///
    /// # Errors
    /// When Redis cannot be asked.
    pub async fn incidents(&self) -> Result<Vec<Incident>, StoreError> {
        self.incidents.all().await
    }

    /// What cannot be read is an alarm.
    fn read<T>(&self, read: Result<T, StoreError>) -> Result<T, StoreError> {
        read.inspect_err(|StoreError(problem)| self.reader.connection.watch.failed(problem))
    }

    /// By the store's own word: this process may not have heard yet that another server is in charge, where it holds
    /// nothing and others write.
    fn taken_away(&self, key: &EntityKey) -> StoreError {
        self.doubt();
        StoreError(format!("the shard of {key} is not this coordinator's any more"))
    }

    async fn live_page(
        &self,
        key: &EntityKey,
        begin: Begin<'_>,
        limit: usize,
    ) -> Result<LivePage, StoreError> {
        let page = self.read(self.reader.live(key, self.fence(key), begin, limit).await)?;
        page.ok_or_else(|| self.taken_away(key))
    }

    async fn scan(&self, of: Of) -> Result<Scan<'_>, StoreError> {
        let extent = self.read(Extent::ask(&self.reader.connection).await)?;
        self.positions.sees(extent.newest);
        let has = |shard: &Shard| extent.may_have(*shard);
        let shards = match of {
            Of::All => Shard::all().filter(has).collect(),
            Of::Ours => self.held.all().into_iter().map(|(shard, _)| shard).filter(has).collect(),
        };
        let newest = extent.newest;
        Ok(Scan { reader: &self.reader, shards, newest, spoilt: &self.spoilt, held: &self.held })
    }
}

#[async_trait]
impl Store for Redis {
    fn fence(&self, key: &EntityKey) -> Fence {
        self.held.fence(Shard::of(key))
    }

    fn submit(&self, fence: Fence, batch: Arc<Batch>, receipt: Receipt) {
        let prepared = match Prepared::new(&batch) {
            Ok(prepared) => prepared,
            Err(problem) => return receipt.give(Err(problem)),
        };
        let (recent, life) = (Arc::clone(&self.recent), self.recent.life());
        let receipt = Receipt::new(move |outcome| {
            let noted = outcome.is_err() || recent.note(&batch, life);
            if matches!(outcome, Err(CommitError::Unknown(_))) {
                recent.doubt(&batch, life);
            }
            receipt.give(if noted { outcome } else { Err(CommitError::Unknown(REPLACED.to_owned())) });
        });
        self.writer.commit(fence, prepared, receipt);
    }

    async fn load(&self, key: &EntityKey) -> Result<Loaded, StoreError> {
        let loaded = self.read(self.reader.load(key, self.fence(key)).await)?;
        loaded.ok_or_else(|| self.taken_away(key))
    }

    async fn live(&self, key: &EntityKey, after: &str, limit: usize) -> Result<LivePage, StoreError> {
        self.live_page(key, Begin::Behind(after), limit).await
    }

    fn rest<'a>(&'a self, key: &'a EntityKey, _last: String) -> BoxStream<'a, Result<LivePage, StoreError>> {
        let page = move |number: usize| self.live_page(key, Begin::Place(number * LIVE_PAGE), LIVE_PAGE);
        stream::iter(1..).map(page).buffered(AHEAD).boxed()
    }

    async fn document(&self, key: &EntityKey, document: &str) -> Result<Option<StoredDocument>, StoreError> {
        let found = self.read(self.reader.documents(&[(key.clone(), document.to_owned())]).await)?.pop();
        found.map(|found| self.read(found)).transpose()
    }

    async fn documents(
        &self,
        after: Option<(EntityKey, String)>,
        limit: usize,
    ) -> Result<Vec<StoredDocument>, StoreError> {
        self.read(self.scan(Of::Ours).await?.documents(after, limit).await)
    }

    async fn documents_of(
        &self,
        key: &EntityKey,
        after: &str,
        limit: usize,
    ) -> Result<Vec<StoredDocument>, StoreError> {
        self.read(self.reader.documents_of(&self.spoilt, key, after, limit).await)
    }

    async fn versions(&self) -> Result<Vec<(EntityKey, Version)>, StoreError> {
        self.read(self.scan(Of::Ours).await?.versions().await)
    }

    async fn entities(&self) -> Result<Vec<EntityKey>, StoreError> {
        self.read(self.scan(Of::All).await?.all_entities().await)
    }

    async fn records(&self, after: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.read(self.scan(Of::All).await?.records(after, limit).await)
    }

    /// Shard by shard.
    async fn own_records(
        &self,
        after: Option<(EntityKey, u64)>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let after = after.map(|(key, position)| (Shard::of(&key), position));
        self.read(self.scan(Of::Ours).await?.shard_by_shard(after, limit).await)
    }

    /// Where a life of the server has begun there are positions of no batch.
    async fn newest_records(&self, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.read(self.scan(Of::All).await?.newest_records(limit).await)
    }

    async fn records_of(&self, key: &EntityKey, versions: Vec<Version>) -> Result<Vec<Record>, StoreError> {
        self.read(self.reader.records_of(key, versions).await)
    }

    async fn history(
        &self,
        key: &EntityKey,
        after: Version,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.read(self.reader.history(key, after, limit).await)
    }

    /// Of the life that is relied on: at the beginning of another one it lies behind what was read of the last.
    async fn last_position(&self) -> Result<u64, StoreError> {
        self.reader.connection.is_in(&self.reliance.generation()).await?;
        Ok(self.scan(Of::All).await?.newest)
    }

    async fn timers(&self, limit: usize) -> Result<Vec<(EntityKey, Timestamp)>, StoreError> {
        self.read(self.scan(Of::Ours).await?.timers(limit).await)
    }

    async fn outbox(&self, after: u64, limit: usize) -> Result<Vec<OutboxEntry>, StoreError> {
        // Before it is read, so that what is read of a former life is not taken out of the next.
        let held: HashMap<Shard, Fence> = self.held.all().into_iter().collect();
        let mut entries = self.read(self.scan(Of::Ours).await?.outbox(after, limit).await)?;
        for entry in &mut entries {
            entry.fence = held.get(&Shard::of(&entry.source)).copied().unwrap_or(Fence::NONE);
        }
        Ok(entries)
    }

    async fn delivered(&self, effects: Vec<OutboxPlace>) -> Result<(), CommitError> {
        self.upkeep.delivered(|effect| self.still(effect), &effects).await
    }

    async fn bury(&self, effect: OutboxPlace, reason: String, at: Timestamp) -> Result<(), CommitError> {
        self.upkeep.bury(|effect| self.still(effect), &effect, reason, at).await
    }

    async fn dead_letters(&self, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.read(self.scan(Of::All).await?.dead_letters(after, limit).await)
    }

    async fn write_chunk(&self, fence: Fence, chunk: Chunk) -> Result<(), CommitError> {
        // As with commits, what is in flight may finish in a shard that is on its way to another.
        let still = |shard| if self.held.has(shard, fence) { fence } else { Fence::NONE };
        self.upkeep.write_chunk(still, chunk).await
    }

    async fn chunk(&self, key: &EntityKey, blob: Uuid, place: u32) -> Result<Option<Vec<u8>>, StoreError> {
        self.read(self.reader.chunk(key, blob, place).await)
    }

    async fn blobs(
        &self,
        after: Option<(EntityKey, Uuid)>,
        limit: usize,
    ) -> Result<Vec<StoredBlob>, StoreError> {
        self.read(self.scan(Of::Ours).await?.blobs(after, limit).await)
    }

    async fn trim(&self, plan: TrimPlan) -> Result<Trimmed, CommitError> {
        let ours = self.scan(Of::Ours).await.map_err(|StoreError(problem)| CommitError::Failed(problem))?;
        self.upkeep.trim(|shard| self.held.fence(shard), &ours.shards, &plan).await
    }

    async fn mark_import(&self, under_way: bool) -> Result<(), CommitError> {
        let marked = async {
            if under_way {
                self.has_all().await?;
                self.imports.store(true, Ordering::Relaxed);
            }
            server::mark_import(&self.aside, under_way).await
        };
        marked.await.map_err(|StoreError(problem)| CommitError::Failed(problem))
    }

    async fn backup(&self, _path: &Path) -> Result<(), CopyError> {
        Err(CopyError::AnotherWay(
            "a store in Redis is copied by Redis: run BGSAVE there and keep its dump file".to_owned(),
        ))
    }
}
