//! The keeper of a node's leases over a real Redis, with something on its shards that does not do what it should.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use skein_coordinator::alarms::Alarms;
use skein_coordinator::cluster::member::Member;
use skein_coordinator::cluster::{Cluster, Secret, Settings, Tenants, Wake};
use skein_coordinator::entity::Clock;
use skein_coordinator::store::redis::shard::Shard;
use skein_coordinator::store::redis::{Options, Redis};
use skein_shared::id::EntityKey;
use skein_tests::cluster::pretender;
use skein_tests::redis::{Server, until};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

/// Nothing is renewed while entities are waited for. What is left after that is enough for a node and a Redis that wait
/// for a processor.
const LEASE: Duration = Duration::from_secs(8);
const LIMIT: Duration = Duration::from_secs(120);

/// Leave at once, or never.
struct Guests {
    leave: bool,
    /// What they were told to forget.
    forgotten: Mutex<BTreeSet<Shard>>,
    wakes: broadcast::Sender<Wake>,
}

impl Guests {
    fn leaving(leave: bool) -> Arc<Self> {
        Arc::new(Self { leave, forgotten: Mutex::default(), wakes: broadcast::Sender::new(1) })
    }

    fn forgotten(&self) -> MutexGuard<'_, BTreeSet<Shard>> {
        self.forgotten.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Tenants for Guests {
    async fn leave(&self) {
        if !self.leave {
            std::future::pending().await
        }
    }

    fn forget(&self, shards: &[Shard]) {
        self.forgotten().extend(shards);
    }

    async fn answer(
        &self,
        _entity: Option<EntityKey>,
        _life: u64,
        _timeout: Duration,
        _call: &[u8],
    ) -> Option<Vec<u8>> {
        None
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.wakes.subscribe()
    }

    fn wake(&self, _wake: &Wake) {}
}

/// A node by the name of `a`.
async fn node(server: &Server, tenants: Arc<dyn Tenants>, stop: &CancellationToken) -> Result<Arc<Cluster>> {
    node_over(server.url(), tenants, stop).await
}

/// The same, by this way to its server.
async fn node_over(url: String, tenants: Arc<dyn Tenants>, stop: &CancellationToken) -> Result<Arc<Cluster>> {
    let options = Options { lease: LEASE, ..Options::new(url, "a") };
    let clock = Clock::start();
    let store = Arc::new(Redis::join(&options, clock.wall()).await?);
    let settings = Settings {
        id: "a".to_owned(),
        address: "127.0.0.1:1".to_owned(),
        lease: LEASE,
        settle: Duration::from_millis(500),
        secret: Secret::new("test").context("a token that a header carries")?,
        passes_on: false,
        identity: None,
        alarms: Alarms::default(),
        wall: Arc::new(move || clock.wall()),
    };
    let cluster = Cluster::new(store, settings);
    cluster.serve_for(tenants, stop.clone());
    Ok(cluster)
}

/// From now on shards go to a newcomer, and come back.
async fn newcomer_takes_nothing(server: &Server) -> Result<AbortOnDropHandle<()>> {
    pretender(server, &Member::new("b", Uuid::from_u128(1), "127.0.0.1:2")).await
}

/// Whoever looks from time to time what a node holds does not see a shard that came and went in between, and would keep
/// in its lists what another node has.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_lives_on_a_shard_is_told_that_it_goes() -> Result<()> {
    let server = Server::in_memory().await?;
    let stop = CancellationToken::new();
    let guests = Guests::leaving(true);
    let cluster = node(&server, Arc::<Guests>::clone(&guests), &stop).await?;
    let keeps = tokio::spawn(Arc::clone(&cluster).keep(stop.clone()));
    ensure!(cluster.settled(LIMIT).await, "it does not take the shards");
    let mut changes = cluster.held_changes();
    let _newcomer = newcomer_takes_nothing(&server).await?;
    let some_go = changes.wait_for(|_| cluster.shards_held() < cluster.shards());
    tokio::time::timeout(LIMIT, some_go).await.context("nothing is handed over")??;
    let held: BTreeSet<Shard> = cluster.held().into_iter().map(|(shard, _)| shard).collect();
    until("they are told of what went", async || {
        Ok(Shard::all().all(|shard| held.contains(&shard) || guests.forgotten().contains(&shard)))
    })
    .await?;
    stop.cancel();
    keeps.await??;
    let told = guests.forgotten().len();
    ensure!(told < cluster.shards(), "what is to be gone on with after a restart was forgotten");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn entities_that_do_not_leave_cost_the_shards_that_stay_no_lease() -> Result<()> {
    let server = Server::in_memory().await?;
    let stop = CancellationToken::new();
    let cluster = node(&server, Guests::leaving(false), &stop).await?;
    tokio::spawn(Arc::clone(&cluster).keep(stop.clone()));
    ensure!(cluster.settled(LIMIT).await, "it does not take the shards");
    let mut changes = cluster.held_changes();
    let _newcomer = newcomer_takes_nothing(&server).await?;
    let (mut had, mut handed_over) = (cluster.shards_held(), 0);
    let hand_overs = async {
        while handed_over < 24 {
            changes.changed().await?;
            let has = cluster.shards_held();
            let gone = had.saturating_sub(has);
            ensure!(gone <= 8, "{gone} shards were lost at a time");
            handed_over += gone;
            had = has;
        }
        Ok(())
    };
    tokio::time::timeout(LIMIT, hand_overs).await.context("nothing is handed over")??;
    stop.cancel();
    Ok(())
}

/// Redis is well, and takes other connections.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_falls_silent_costs_no_lease() -> Result<()> {
    let server = Server::in_memory().await?;
    let link = server.link()?;
    let stop = CancellationToken::new();
    let cluster = node_over(link.redis(), Guests::leaving(true), &stop).await?;
    let keeps = tokio::spawn(Arc::clone(&cluster).keep(stop.clone()));
    ensure!(cluster.settled(LIMIT).await, "it does not take the shards");
    let ends_in_the_store = async || {
        let ends: u64 = redis::cmd("HGET")
            .arg(Shard::all().next().context("there is one")?.key("lease"))
            .arg("until")
            .query_async(&mut server.connection().await?)
            .await?;
        Ok::<_, anyhow::Error>(Duration::from_millis(ends))
    };
    let (fences, ends) = (cluster.held(), ends_in_the_store().await?);
    link.silence();
    // The renewal that was under way then is not meant, but the next, or whoever took the shard anew.
    until("it is renewed", async || Ok(ends_in_the_store().await? > ends + LEASE / 2)).await?;
    let now = cluster.held();
    ensure!(now == fences, "of {} shards it has {}, or under other fences", fences.len(), now.len());
    stop.cancel();
    keeps.await??;
    Ok(())
}

/// A data folder was copied, with the id of its node.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_nodes_by_one_name_the_later_ends_and_says_what_to_do() -> Result<()> {
    let server = Server::in_memory().await?;
    let stop = CancellationToken::new();
    let tenants = Guests::leaving(true);
    let first = node(&server, Arc::<Guests>::clone(&tenants), &stop).await?;
    let first_keeps = tokio::spawn(Arc::clone(&first).keep(stop.clone()));
    ensure!(first.settled(LIMIT).await, "it does not take the shards");
    let later = node(&server, tenants, &stop).await?;
    let later_keeps = tokio::spawn(Arc::clone(&later).keep(stop.clone()));
    let ended = tokio::time::timeout(LIMIT, later_keeps).await.context("they fight for ever")??;
    ensure!(format!("{ended:?}").contains("remove node.id"), "{ended:?}");
    let alarms = later.alarms().all();
    ensure!(alarms.iter().any(|alarm| alarm.problem.contains("remove node.id")), "{alarms:?}");
    ensure!(later.shards_held() == 0, "it has {} shards", later.shards_held());

    let mut changes = first.held_changes();
    let all = changes.wait_for(|_| first.shards_held() == first.shards());
    tokio::time::timeout(LIMIT, all).await.context("the first does not have its shards again")??;
    ensure!(!first_keeps.is_finished(), "the first has ended too");
    until("its alarm is over", async || Ok(first.alarms().all().is_empty())).await?;
    stop.cancel();
    first_keeps.await??;
    Ok(())
}
