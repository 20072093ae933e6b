//! Opens the store that the settings name, and takes part in its cluster if others may share it.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::datadir::DataDir;
use super::start::{Roles, StartError, operator_token};
use super::tasks::Tasks;
use crate::auth::Role;
use crate::auth::token::Keys;
use crate::cluster::door::{self, Door};
use crate::cluster::{Cluster, Secret, Settings};
use crate::config::Config;
use crate::entity::{Clock, Entities, ownership};
use crate::store::redis::{Options, Redis};
use crate::store::sqlite::Sqlite;
use crate::store::{Store, StoreError};

/// The store, and how it is shared.
pub(super) struct Truth {
    pub(super) store: Arc<dyn Store>,
    pub(super) shared: Option<Sharing>,
}

/// This node's part in the cluster, with the listener for the others.
pub(super) struct Sharing {
    pub(super) cluster: Arc<Cluster>,
    listener: TcpListener,
}

/// `leases` gets the task that keeps the shards; nothing may use the store after it has ended.
///
/// # Errors
/// When the store cannot be opened, or the others cannot be listened for.
pub(super) async fn open(
    data: &DataDir,
    config: &Config,
    roles: Roles,
    keys: &Keys,
    clock: &Clock,
    leases: &Tasks,
) -> Result<Truth, StartError> {
    let Some(url) = &config.store.redis else {
        let store = Arc::new(Sqlite::open(&data.layout().store(), clock.wall())?);
        return Ok(Truth { store, shared: None });
    };
    let listener = listen(config).await?;
    let address = advertised(config, &listener)?;
    let id = data.identity()?.to_string();
    let mut options = Options::new(url.clone(), id.clone());
    (options.durability, options.lease) = (config.store.durability, config.cluster.lease);
    options.address = address.clone();
    let store = Arc::new(Redis::join(&options, clock.wall()).await?);
    let token = operator_token(keys, clock).map_err(StartError::Refused)?;
    let secret =
        Secret::new(&token).ok_or_else(|| StoreError("the signing keys make no token".to_owned()))?;
    let settings = Settings {
        id,
        address,
        lease: config.cluster.lease,
        settle: config.cluster.settle,
        secret,
        passes_on: !roles.coordinator,
    };
    let cluster = Cluster::new(Arc::clone(&store), settings);
    leases.spawn("store", Arc::clone(&cluster).keep(leases.stop().clone()));
    // Whoever died without giving its shards up has them for as long as its lease.
    if !cluster.settled(config.cluster.lease * 3).await {
        return Err(StartError::Store(StoreError(
            "not every shard of the store has found an owner; look at the logs of the other coordinators and at Redis"
                .to_owned(),
        )));
    }
    info!(shards = cluster.shards_held(), others = cluster.others().len(), "takes part in the cluster");
    Ok(Truth { store, shared: Some(Sharing { cluster, listener }) })
}

impl Sharing {
    /// Where the others are listened for.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Lets the others in, and follows which shards come and go.
    pub(super) fn serve(self, tasks: &Tasks, entities: &Entities, keys: &Keys, clock: &Clock) {
        let stop = tasks.stop().clone();
        let tenants = Arc::new(entities.clone());
        self.cluster.serve_for(Arc::<Entities>::clone(&tenants), stop.clone());
        let (keys, clock) = (keys.clone(), clock.clone());
        let verify =
            move |token: &str| keys.verify(token, clock.now()).is_ok_and(|who| who.role == Role::Operator);
        let door = Door { cluster: self.cluster, tenants, verify: Arc::new(verify), stop: stop.clone() };
        tasks.spawn("peers", door::serve(self.listener, door));
        tasks.spawn("shards", followed(entities.clone(), stop));
    }
}

async fn followed(entities: Entities, stop: CancellationToken) -> Result<(), std::io::Error> {
    ownership::follow(entities, stop).await;
    Ok(())
}

/// What nodes say to one another is not encrypted.
async fn listen(config: &Config) -> Result<TcpListener, StartError> {
    let wanted = &config.cluster.node;
    let unusable = |problem: String| StartError::Node(wanted.clone(), problem);
    let addresses: Vec<_> = wanted.to_socket_addrs().map_err(|error| unusable(error.to_string()))?.collect();
    if !config.cluster.plaintext && !addresses.iter().all(|address| address.ip().is_loopback()) {
        return Err(unusable(
            "what coordinators say to one another is not encrypted; set `plaintext = true` in [cluster] if only they \
             can reach this network, or use a tunnel"
                .to_owned(),
        ));
    }
    TcpListener::bind(&addresses[..]).await.map_err(|error| unusable(error.to_string()))
}

/// What was said to be the way here; else the host as it was written, which the others may know better than the address,
/// and the real port.
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
