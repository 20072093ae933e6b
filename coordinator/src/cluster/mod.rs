//! Many coordinators over one store: who lives, who owns which shard, and how one reaches the other.
//!
//! There is no leader. Each node says that it lives ([`member`]) and hears who else does ([`living`]), all come to the
//! same order by themselves ([`rank`]), each decides what to take and what to hand over ([`plan`]), and does so
//! ([`keeper`]). Where something is to be sent shows in the [`table`]; it goes over [`peers`] and comes in at [`door`].
//! All of that may be wrong for a moment: what may be written is decided by the fence in the write, in the store.
//!
//! Beyond one machine nodes speak mutual TLS: an [`authority`] issues what a node's [`identity`] is made of, the
//! [`handshake`] lets nobody else in, and [`distrust`] says why.

mod answering;
pub mod authority;
mod certificate;
mod distrust;
pub mod door;
mod handshake;
pub mod identity;
mod keeper;
pub mod living;
pub mod member;
mod peers;
mod pipe;
pub mod plan;
pub mod rank;
pub mod steward;
pub mod table;
mod twin;
mod wakes;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use skein_shared::fence::Epoch;
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;
use tokio::sync::{Notify, broadcast, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::alarms::{Alarms, Kind};
use crate::store::redis::incident::Incident;
use crate::store::redis::lease::AHEAD;
use crate::store::redis::shard::Shard;
use crate::store::redis::{Generation, Redis};
use crate::store::{Fence, StoreError};
use identity::Identity;
use keeper::Keeper;
use member::Member;
use peers::{Forwarding, Peers};
pub use peers::{Outcome, Secret, Silence};
use table::Table;
pub use twin::Twin;

/// How long a node may take to answer one that is about to join.
const INTRODUCTION: Duration = Duration::from_secs(5);

/// How a node takes part.
#[derive(Clone)]
pub struct Settings {
    /// The same over restarts.
    pub id: String,
    /// Where the others reach it.
    pub address: String,
    /// How long a shard stays with a node that does not renew.
    pub lease: Duration,
    /// How long the members have to be the same before shards are handed over.
    pub settle: Duration,
    /// Without it nobody gets in.
    pub secret: Secret,
    /// It owns nothing and passes everything on.
    pub passes_on: bool,
    /// Without one, nodes speak plain text.
    pub identity: Option<Arc<Identity>>,
    /// Takes what is wrong between this node and the others.
    pub alarms: Alarms,
    /// Says what time it is on the wall.
    pub wall: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

/// Whom to wake, on this node and on the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wake {
    Topic(Arc<str>),
    /// What happened may have been told to nobody: all look again.
    All,
}

/// What lives on the shards, and answers for them.
#[async_trait]
pub trait Tenants: Send + Sync + 'static {
    /// Lets everything leave memory for which this node may not decide any more; what is in flight is finished. Returns
    /// once it is gone.
    async fn leave(&self);

    /// Forgets at once what is known of these shards, which were lost: the store may have gone back behind it, and they
    /// may come again the next moment.
    fn forget(&self, shards: &[Shard]);

    /// Makes up for the time in which this machine has slept, and the others have not. Those that have no clock have
    /// nothing to do.
    fn catch_up(&self) {}

    /// Answers what another node passed on, for an entity or for this node itself. `None` when the entity turned out to
    /// be somebody else's, and nothing was done. With the life of the store in which it was decided, or 0 where that is
    /// not said.
    async fn answer(
        &self,
        entity: Option<EntityKey>,
        life: u64,
        timeout: Duration,
        call: &[u8],
    ) -> Option<Vec<u8>>;

    /// Whom the entities of this node wake.
    fn wakes(&self) -> broadcast::Receiver<Wake>;

    /// Wakes those on this node, for an entity of another one.
    fn wake(&self, wake: &Wake);
}

/// Where something for an entity goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    Here,
    There(Arc<Member>),
    /// Nobody owns it at the moment, or nobody knows who: wait for [`Cluster::changes`].
    Nowhere,
}

/// This node's part in the cluster.
pub struct Cluster {
    settings: Settings,
    incarnation: Uuid,
    store: Arc<Redis>,
    table: Table,
    peers: Peers,
    tenants: OnceLock<Arc<dyn Tenants>>,
    draining: AtomicBool,
    ending: AtomicBool,
    /// Where runners reach this node, once they do.
    runners: OnceLock<String>,
    /// Wakes the keeper.
    nudge: Notify,
    /// The same, for another node has told that leases have changed.
    told: Notify,
    /// Counts what this node took and gave up, so that the others look at once.
    leases_changed: watch::Sender<u64>,
}

impl Cluster {
    /// Takes part from [`Cluster::keep`] on.
    pub fn new(store: Arc<Redis>, settings: Settings) -> Arc<Self> {
        Arc::new(Self {
            peers: Peers::new(settings.secret.clone(), settings.identity.clone()),
            settings,
            incarnation: Uuid::now_v7(),
            store,
            table: Table::default(),
            tenants: OnceLock::new(),
            draining: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            runners: OnceLock::new(),
            nudge: Notify::new(),
            told: Notify::new(),
            leases_changed: watch::Sender::new(0),
        })
    }

    /// Says what lives on the shards of this node, and begins to wake it for the others' entities.
    pub fn serve_for(self: &Arc<Self>, tenants: Arc<dyn Tenants>, stop: CancellationToken) {
        if self.tenants.set(Arc::clone(&tenants)).is_ok() {
            tokio::spawn(wakes::follow(Arc::clone(self), tenants, stop));
        }
    }

    /// Takes part until `stop`, and then gives everything up.
    ///
    /// # Errors
    /// When another node goes by the same id, and was there before: everything is given up, too.
    pub async fn keep(self: Arc<Self>, stop: CancellationToken) -> Result<(), Twin> {
        Keeper::new(self).run(stop).await
    }

    /// Lets runners know where to reach this node.
    pub fn is_open_to_runners(&self, url: String) {
        let _ = self.runners.set(url);
        self.nudge.notify_one();
    }

    /// Waits until every shard that anybody can have has an owner that serves it, at most for `limit`. Says whether it
    /// came to that.
    pub async fn settled(&self, limit: Duration) -> bool {
        let mut changes = self.changes();
        let is_settled = |_: &u64| self.table.is_settled(&self.settings.id, |shard| self.has(shard));
        tokio::time::timeout(limit, changes.wait_for(is_settled)).await.is_ok_and(|seen| seen.is_ok())
    }

    /// Whether every shard has an owner that can be asked, as far as this node knows.
    pub fn is_whole(&self) -> bool {
        self.table.is_whole(&self.settings.id, |shard| self.has(shard))
    }

    /// Who has the store for itself, to export or to import, if anybody has: nobody serves its shards meanwhile.
    pub fn sole_owner(&self) -> Option<String> {
        self.table.sole_owner(&self.settings.id)
    }

    fn has(&self, shard: Shard) -> bool {
        self.store.held().fence(shard) != Fence::NONE
    }

    /// What this node says of itself.
    pub fn me(&self) -> Member {
        Member {
            draining: self.is_draining(),
            ending: self.ending.load(Ordering::Acquire),
            passes_on: self.settings.passes_on,
            tls: self.settings.identity.is_some(),
            runners: self.runners.get().cloned().unwrap_or_default(),
            lives_ms: u64::try_from(steward::lives(self.settings.lease).as_millis()).ok(),
            ..Member::new(&self.settings.id, self.incarnation, &self.settings.address)
        }
    }

    /// Where something for an entity goes.
    pub fn route(&self, key: &EntityKey) -> Route {
        let shard = Shard::of(key);
        self.table.route(shard, &self.settings.id, self.has(shard))
    }

    /// Changes when the owners of shards or the members do.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.table.changes()
    }

    /// Changes when the store may have lost what it acknowledged, and this node has begun anew with it.
    pub fn lives(&self) -> watch::Receiver<u64> {
        self.store.lives()
    }

    /// Changes when this node took, closed or lost a shard.
    pub fn held_changes(&self) -> watch::Receiver<u64> {
        self.store.held().changes()
    }

    /// All who live.
    pub fn members(&self) -> Vec<Member> {
        self.table.members()
    }

    /// The others that live.
    pub fn others(&self) -> Vec<Member> {
        let mut all = self.members();
        all.retain(|member| member.id != self.settings.id);
        all
    }

    /// All who live, with the shards that each owns and their epochs.
    pub fn survey(&self) -> Vec<(Member, Vec<(u16, u64)>)> {
        self.table.survey()
    }

    /// What is wrong, as this node sees it.
    pub fn alarms(&self) -> &Alarms {
        &self.settings.alarms
    }

    /// Another node was not reached. One that is not trusted stays so until somebody does something.
    fn is_silent(&self, node: &Member, silence: &Silence) {
        let (raised, cleared) = match silence.distrusts() {
            true => (Kind::Distrusted, Kind::Unreachable),
            false => (Kind::Unreachable, Kind::Distrusted),
        };
        self.alarms().clear(cleared, &node.address);
        self.alarms().raise(raised, &node.address, &silence.to_string());
    }

    /// Another node was reached.
    fn is_reached(&self, node: &Member) {
        self.alarms().clear(Kind::Unreachable, &node.address);
        self.alarms().clear(Kind::Distrusted, &node.address);
    }

    /// Proves to the others by another token that it belongs to them: its keys have changed, and theirs may have
    /// before.
    pub fn proves_by(&self, token: &str) -> bool {
        self.settings.secret.renew(token)
    }

    /// Who this node is to the others; nobody in particular when they speak plain text.
    pub fn identity(&self) -> Option<&Identity> {
        self.settings.identity.as_deref()
    }

    /// Looks whether those who live would understand and trust this node, before it takes shards for which they could
    /// not ask it.
    ///
    /// # Errors
    /// When one of them does not understand it, or none of those who are there trusts it. The store's own error when it
    /// does not say who lives.
    pub async fn introduce(&self) -> Result<Result<(), Silence>, StoreError> {
        let records = self.store.members().all().await?;
        let members = records.iter().filter_map(|record| serde_json::from_str::<Member>(record).ok());
        let others: Vec<Member> = members.filter(|member| member.id != self.settings.id).collect();
        let me = self.me();
        if let Some(stranger) = others.iter().find_map(|other| Silence::of_a_stranger(&me, other)) {
            return Ok(Err(stranger));
        }
        let standings = futures::future::join_all(others.iter().map(|other| self.standing(other))).await;
        let there: Vec<&Result<(), Silence>> = standings
            .iter()
            .filter(|standing| !matches!(standing, Err(silence) if !silence.distrusts()))
            .collect();
        if there.iter().any(|standing| standing.is_ok()) {
            return Ok(Ok(()));
        }
        Ok(there.first().map_or(Ok(()), |standing| (*standing).clone()))
    }

    /// Whether a node answers this one.
    async fn standing(&self, other: &Member) -> Result<(), Silence> {
        let asked = tokio::time::timeout(INTRODUCTION, self.peers.wakes(other)).await;
        match asked {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(silence)) => Err(self.peers.look_into(other, silence).await),
            Err(_) => Err(self.peers.look_into(other, Silence::late()).await),
        }
    }

    /// The life of the server on which this node relies.
    pub fn generation(&self) -> Generation {
        self.store.generation()
    }

    /// The number of that life, by which nodes know whether they rely on the same one.
    pub fn life(&self) -> u64 {
        self.store.life()
    }

    /// What failovers of the store threw away, the last one first.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn incidents(&self) -> Result<Vec<Incident>, StoreError> {
        self.store.incidents().await
    }

    /// The shards that this node holds, with their fences.
    pub fn held(&self) -> Vec<(Shard, Fence)> {
        self.store.held().all()
    }

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        Shard::all().count()
    }

    /// The epoch under which an entity was last known to be owned.
    pub fn epoch(&self, key: &EntityKey) -> Epoch {
        self.table.lease(Shard::of(key)).epoch
    }

    /// How many shards this node holds.
    pub fn shards_held(&self) -> usize {
        self.held().len()
    }

    /// Passes something on to another node and waits for what it says. Given up when the shard gets another owner.
    ///
    /// # Errors
    /// When no answer came: nobody knows whether it was done.
    pub async fn forward(
        &self,
        to: &Member,
        key: Option<&EntityKey>,
        timeout: Duration,
        call: Vec<u8>,
    ) -> Result<Outcome, Silence> {
        self.pass_on(to, Forwarding { key, timeout, call, life: 0 }).await
    }

    /// Like [`Cluster::forward`], for what was decided in this life of the store: a node that relies on another one
    /// takes nothing of it in.
    ///
    /// # Errors
    /// When no answer came: nobody knows whether it was done.
    pub async fn forward_decided(
        &self,
        to: &Member,
        key: &EntityKey,
        timeout: Duration,
        life: u64,
        call: Vec<u8>,
    ) -> Result<Outcome, Silence> {
        self.pass_on(to, Forwarding { key: Some(key), timeout, call, life }).await
    }

    async fn pass_on(&self, to: &Member, forwarding: Forwarding<'_>) -> Result<Outcome, Silence> {
        let (key, is_decided) = (forwarding.key, forwarding.life != 0);
        let answered = self.peers.forward(to, forwarding);
        let Some(key) = key else { return answered.await };
        let mut changes = self.changes();
        // What else it says of itself may change meanwhile.
        let has_it = |owner: &Member| owner.incarnation == to.incarnation;
        let elsewhere =
            changes.wait_for(|_| !matches!(self.route(key), Route::There(owner) if has_it(&owner)));
        let outcome = tokio::select! {
            outcome = answered => outcome,
            _ = elsewhere => Err(Silence::moved()),
        };
        if let Ok(Outcome::NotOwner { owner, epoch }) = &outcome {
            self.table.hint(Shard::of(key), owner, *epoch);
            self.nudge.notify_one();
            if is_decided {
                // It may rely on another life of the store already.
                self.store.doubt();
            }
        }
        outcome
    }

    /// Somebody was commanded by an entity under this epoch. If its shard is held under a lower one, it is taken anew
    /// above that. Says whether this node is the one that holds it so.
    pub fn outranked(&self, key: &EntityKey, epoch: Epoch) -> bool {
        if epoch.0 > (self.settings.wall)().0 + AHEAD {
            return false;
        }
        let fence = self.store.held().fence(Shard::of(key));
        self.store.leases().sees(Shard::of(key), epoch);
        self.nudge.notify_one();
        fence != Fence::NONE && fence.epoch < epoch
    }

    /// Takes no more shards and gives those that it has to the others. Without others it keeps them, and takes what is
    /// nobody's until one comes.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.nudge.notify_one();
    }

    /// Like [`Cluster::drain`], in a process that is about to end: it takes nothing, whoever is left.
    pub fn retire(&self) {
        self.ending.store(true, Ordering::Release);
        self.drain();
    }

    /// Whether it gives its shards away, by [`Cluster::drain`] or [`Cluster::retire`].
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Waits until a drained node has given everything away, at most for `limit`.
    pub async fn drained(&self, limit: Duration) -> bool {
        let mut held = self.held_changes();
        let empty = held.wait_for(|_| self.shards_held() == 0);
        tokio::time::timeout(limit, empty).await.is_ok_and(|seen| seen.is_ok())
    }

    /// Whether there is somebody to whom shards could go.
    pub fn has_successors(&self) -> bool {
        self.others().iter().any(Member::takes_shards)
    }
}
