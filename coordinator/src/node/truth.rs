//! Opens the store that the settings name, and takes part in its cluster if others may share it.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::datadir::DataDir;
use super::start::{Roles, StartError, operator_token, quiet};
use super::tasks::Tasks;
use crate::alarms::{Alarms, Kind};
use crate::auth::token::Keys;
use crate::auth::{Principal, Right, policy};
use crate::cluster::door::{self, Door};
use crate::cluster::identity::{Identity, host};
use crate::cluster::{Cluster, Secret, Settings};
use crate::config::Config;
use crate::entity::{Clock, Entities, ownership};
use crate::store::redis::{Options, Redis};
use crate::store::sqlite::{Ahead, Sqlite};
use crate::store::{Store, StoreError};

/// The certificate is looked at so often at least: its end comes by the wall clock, which is set at times.
const HOUR: Duration = Duration::from_secs(3600);

/// The store, what was noticed on the way to it, and how it is shared.
pub(super) struct Truth {
    pub(super) store: Arc<dyn Store>,
    pub(super) alarms: Alarms,
    pub(super) shared: Option<Sharing>,
}

/// Where the others come in, and by what they know this node.
pub(super) struct Entrance {
    identity: Option<Arc<Identity>>,
    listener: TcpListener,
    address: String,
}

/// This node's part in the cluster, with the listener for the others.
pub(super) struct Sharing {
    pub(super) cluster: Arc<Cluster>,
    listener: TcpListener,
}

/// Lets the others of a cluster come in, if others may share the store.
///
/// # Errors
/// When this node's certificate cannot be used, or the others cannot be listened for.
pub(super) async fn entrance(config: &Config, clock: &Clock) -> Result<Option<Entrance>, StartError> {
    if config.store.redis.is_none() {
        return Ok(None);
    }
    let identity = identity(config, clock)?;
    let listener = listen(config).await?;
    let address = advertised(config, &listener)?;
    Ok(Some(Entrance { identity, listener, address }))
}

/// `leases` gets the tasks that stay with the store: in a cluster the one that keeps the shards, and nothing may use
/// the store after it has ended. Nor before all shards have their owners ([`Sharing::settled`]).
///
/// # Errors
/// When the store cannot be opened.
pub(super) async fn open(
    data: &DataDir,
    config: &Config,
    roles: Roles,
    keys: &Keys,
    clock: &Clock,
    leases: &Tasks,
    entrance: Option<Entrance>,
) -> Result<Truth, StartError> {
    let alarms = Alarms::default();
    let (Some(url), Some(entrance)) = (&config.store.redis, entrance) else {
        return own(data, clock, leases, alarms);
    };
    let Entrance { identity, listener, address } = entrance;
    let options = options(data, config, url, roles, &address, &alarms)?;
    let store = Arc::new(Redis::join(&options, clock.wall()).await?);
    data.belongs_to(store.id())?;
    let token = operator_token(keys, clock).map_err(StartError::Refused)?;
    let secret =
        Secret::new(&token).ok_or_else(|| StoreError("the signing keys make no token".to_owned()))?;
    let settings = Settings {
        id: options.owner,
        address,
        lease: config.cluster.lease,
        settle: config.cluster.settle,
        secret,
        passes_on: !roles.coordinator,
        identity,
        alarms,
        wall: Arc::new({
            let clock = clock.clone();
            move || clock.wall()
        }),
    };
    let cluster = Cluster::new(Arc::clone(&store), settings);
    // Before it takes shards for which the others could not ask it.
    cluster.introduce().await?.map_err(StartError::Distrusted)?;
    leases.spawn("store", Arc::clone(&cluster).keep(leases.stop().clone()));
    let alarms = cluster.alarms().clone();
    Ok(Truth { store, alarms, shared: Some(Sharing { cluster, listener }) })
}

/// What keeps a node from getting ready.
fn unsettled(cluster: &Cluster) -> StoreError {
    StoreError(match cluster.sole_owner() {
        Some(owner) => format!(
            "`skein export` or `skein import` ({owner}) has the store for itself; start this node again when that has \
             ended"
        ),
        None => {
            "not every shard of the store has found an owner; look at the logs of the other coordinators and at Redis"
                .to_owned()
        }
    })
}

/// The store of a node that shares it with nobody.
fn own(data: &DataDir, clock: &Clock, leases: &Tasks, alarms: Alarms) -> Result<Truth, StartError> {
    let store = Sqlite::open(&data.layout().store(), clock.wall())?.serving(alarms.clone());
    if let Some(ahead) = store.ahead() {
        let (alarms, stop) = (alarms.clone(), leases.stop().clone());
        leases.spawn("clock", quiet(stands_still(alarms, clock.clone(), ahead, stop)));
    }
    Ok(Truth { store: Arc::new(store), alarms, shared: None })
}

/// How the store that others share is reached.
fn options(
    data: &DataDir,
    config: &Config,
    url: &SecretString,
    roles: Roles,
    address: &str,
    alarms: &Alarms,
) -> Result<Options, StartError> {
    let mut options = Options::new(url.clone(), data.identity()?.to_string());
    (options.durability, options.lease) = (config.store.durability, config.cluster.lease);
    options.address = address.to_owned();
    options.tls = config.store.tls();
    options.store = data.store()?;
    // A store that it made itself would only hide that Redis has lost the cluster's.
    options.awaits = (!roles.coordinator).then_some(config.cluster.lease * 3);
    options.alarms = alarms.clone();
    Ok(options)
}

impl Sharing {
    /// Waits until every shard has an owner. Whoever died without giving its shards up has them for as long as its
    /// lease.
    ///
    /// # Errors
    /// When that takes longer than three leases, or this node loses the store meanwhile.
    pub(super) async fn settled(&self, lease: Duration, leases: &Tasks) -> Result<(), StartError> {
        let cluster = &self.cluster;
        let is_settled = tokio::select! {
            is_settled = cluster.settled(lease * 3) => is_settled,
            () = leases.stop().cancelled() => false,
        };
        if !is_settled {
            return Err(StartError::Store(unsettled(cluster)));
        }
        info!(shards = cluster.shards_held(), others = cluster.others().len(), "takes part in the cluster");
        Ok(())
    }

    /// Where the others are listened for.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Lets the others in, and follows which shards come and go.
    pub(super) fn serve(self, tasks: &Tasks, entities: &Entities, keys: &Keys, clock: &Clock) {
        let stop = tasks.stop().clone();
        let tenants = Arc::new(entities.clone());
        self.cluster.serve_for(Arc::<Entities>::clone(&tenants), stop.clone());
        tasks.spawn("certificate", quiet(warned(Arc::clone(&self.cluster), clock.clone(), stop.clone())));
        let (keys, clock) = (keys.clone(), clock.clone());
        // What nodes say of themselves has all rights of an operator; a token that was handed to somebody may have
        // fewer.
        let is_whole =
            |who: &Principal| policy::require(who, Right::Administer).is_ok() && who.view.is_none();
        let verify = move |token: &str| keys.verify(token, clock.wall()).is_ok_and(|who| is_whole(&who));
        let door = Door { cluster: self.cluster, tenants, verify: Arc::new(verify), stop: stop.clone() };
        tasks.spawn("peers", door::serve(self.listener, door));
        tasks.spawn("shards", quiet(ownership::follow(entities.clone(), stop)));
    }
}

/// Says until when time stands still for what a clock that was ahead has written.
async fn stands_still(alarms: Alarms, clock: Clock, ahead: Ahead, stop: CancellationToken) {
    let Ahead { entities, until } = ahead;
    let problem = format!(
        "{entities} of the store's entities were written by a clock that was ahead of this one, as late as {until}. Set \
         the clock and start again if it is this one that is wrong. If it was the other, time stands still for each of \
         them until it is as late as it was: nothing in them ends, falls due or is old before. Wait for that, or restore \
         a backup from before"
    );
    alarms.raise(Kind::Clock, "store", &problem);
    tokio::select! {
        () = stop.cancelled() => return,
        () = tokio::time::sleep(clock.until(until)) => alarms.clear(Kind::Clock, "store"),
    }
    stop.cancelled().await;
}

/// Reads by what the others know this node, and says so if it ends soon.
fn identity(config: &Config, clock: &Clock) -> Result<Option<Arc<Identity>>, StartError> {
    let Some(folder) = &config.cluster.tls else { return Ok(None) };
    let address = config.cluster.advertise.as_ref().unwrap_or(&config.cluster.node);
    let identity = Identity::load(folder, host(address), clock.wall())?;
    Ok(Some(Arc::new(identity)))
}

/// Warns of the end of this node's certificate.
async fn warned(cluster: Arc<Cluster>, clock: Clock, stop: CancellationToken) {
    let Some(identity) = cluster.identity() else { return stop.cancelled().await };
    loop {
        let now = clock.wall();
        if let Some(problem) = identity.warning(now) {
            cluster.alarms().raise(Kind::Certificate, &cluster.me().address, &problem);
        }
        // Once it has ended nothing more comes.
        let next = Some(identity.next_warning(now)).filter(|next| !next.is_zero()).unwrap_or(HOUR);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(next.min(HOUR)) => {}
        }
    }
}

/// Without a certificate what nodes say to one another is not encrypted, so it stays on this machine.
async fn listen(config: &Config) -> Result<TcpListener, StartError> {
    let wanted = &config.cluster.node;
    let unusable = |problem: String| StartError::Node(wanted.clone(), problem);
    let addresses: Vec<_> = wanted.to_socket_addrs().map_err(|error| unusable(error.to_string()))?.collect();
    if config.cluster.tls.is_none() && !addresses.iter().all(|address| address.ip().is_loopback()) {
        return Err(unusable(
            "beyond this machine coordinators speak mutual TLS; make certificates with `skein cluster init`, and name \
             the folder of this node with --cluster-tls or as `tls` in [cluster]"
                .to_owned(),
        ));
    }
    TcpListener::bind(&addresses[..]).await.map_err(|error| unusable(error.to_string()))
}

/// What was said to be the way here; else the host as it was written, which the others may know better than the
/// address, and the real port.
fn advertised(config: &Config, listener: &TcpListener) -> Result<String, StartError> {
    if let Some(way) = &config.cluster.advertise {
        let port = way.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        let unusable = || StartError::Node(way.clone(), "`advertise` in [cluster] names no port".to_owned());
        return port.filter(|port| *port != 0).map(|_| way.clone()).ok_or_else(unusable);
    }
    let wanted = &config.cluster.node;
    let unusable = |problem: String| StartError::Node(wanted.clone(), problem);
    let port = listener.local_addr().map_err(|error| unusable(error.to_string()))?.port();
    let (host, _) = wanted.rsplit_once(':').ok_or_else(|| unusable("it names no port".to_owned()))?;
    Ok(format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_stands_still_until_it_is_as_late_as_it_was() {
        let (alarms, clock, stop) = (Alarms::default(), Clock::start(), CancellationToken::new());
        let ahead = Ahead { entities: 1, until: clock.now() + HOUR * 2 };
        let telling = tokio::spawn(stands_still(alarms.clone(), clock, ahead, stop.clone()));
        tokio::time::sleep(HOUR).await;
        let [alarm] = &alarms.all()[..] else { panic!("{:?}", alarms.all()) };
        assert!(alarm.kind == Kind::Clock && alarm.problem.contains(&ahead.until.iso()), "{alarm:?}");
        tokio::time::sleep(HOUR * 2).await;
        assert_eq!(alarms.all(), []);
        assert!(!telling.is_finished(), "a role that ends takes its node down");
        stop.cancel();
        telling.await.unwrap();
    }
}
