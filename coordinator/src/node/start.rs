//! Brings a node up: data directory, store, entities, pumps, listeners, runner, in this order.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use skein_shared::blobs::Bounds;
use skein_shared::id::Name;
use skein_shared::{Code, Refusal};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};
use uuid::Uuid;

use super::datadir::{DataDir, DataDirError, Layout};
use super::endpoint::Endpoint;
use super::faces::{self, Parts};
use super::serving::{self, Face};
use super::tasks::Tasks;
use super::truth::{self, Sharing, Truth};
use super::{addresses, health, keys, listening, retention, runner};
use crate::api::{Admin, server};
use crate::auth::Role;
use crate::auth::issuer::Issuers;
use crate::auth::token::{self, Claims, Keys};
use crate::cluster::identity::IdentityError;
use crate::cluster::{Cluster, Silence};
use crate::config::{Config, Limits};
use crate::embeddings::{self, Endpoint as Embeddings};
use crate::entity::{Clock, Entities, Hub, notice, passivation, timers};
use crate::ingress::{self, Gate};
use crate::mcp;
use crate::outbox::{Runners, pump};
use crate::projection::{Projection, ProjectionError};
use crate::runners::{Control, Sessions};
use crate::service::access::Access;
use crate::service::{Service, embedding, presence};
use crate::slack::Workspaces;
use crate::store::StoreError;
use crate::vault::Vault;

/// Connections of the main listener at a time: each of 10,000 agents may wait on one and ask on others.
const HTTP: usize = 32 * 1024;
/// Those of the ingress, which are short. With heads that do not end, all of them take what bodies may, 128 MiB.
const INGRESS: usize = 2 * 1024;

/// What this process does besides hosting entities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// Hosts entities and takes agents. Without it the node passes events on to the coordinators of its cluster.
    pub coordinator: bool,
    pub ingress: bool,
    pub runner: bool,
}

/// A running node.
pub struct Node {
    pub(super) data: DataDir,
    pub(super) entities: Entities,
    /// Cancelled first of all: from then on nobody should be sent here who can go elsewhere.
    pub(super) leaving: CancellationToken,
    /// The runner of this process, which leaves first.
    pub(super) runner: Tasks,
    /// What takes requests.
    pub(super) tasks: Tasks,
    /// What entities need to finish requests.
    pub(super) pumps: Tasks,
    /// What keeps the store this process' own, so it ends after everything else.
    pub(super) leases: Tasks,
    /// The others that share the store, if any may.
    pub(super) cluster: Option<Arc<Cluster>>,
    pub(super) drain: Duration,
    endpoint: Endpoint,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Projection(#[from] ProjectionError),
    #[error("the keys in {0} cannot be used: {1}")]
    Keys(PathBuf, io::Error),
    #[error("the tokens of other issuers cannot be taken: {0}")]
    Issuers(String),
    #[error(
        "cannot listen on {0}: {1}; choose another address with --listen, --grpc or --ingress, or stop what listens there"
    )]
    Listen(SocketAddr, io::Error),
    #[error("--node-addr {0} cannot be used: {1}")]
    Node(String, String),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("this node cannot join its cluster: {0}")]
    Distrusted(Silence),
    #[error("{0} cannot be written: {1}")]
    Write(PathBuf, io::Error),
    /// A setting of which only the part that it is for could tell that it is wrong.
    #[error("{0}")]
    Setting(String),
    #[error("the tools contradict each other: {0}")]
    Catalogue(String),
    #[error("signals cannot be received: {0}")]
    Signals(io::Error),
    #[error("{}", .0.message)]
    Refused(Refusal),
    #[error("a part of the node failed: {0}")]
    Failed(String),
}

impl Node {
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub fn layout(&self) -> &Layout {
        self.data.layout()
    }
}

/// Starts everything and returns once requests are taken.
///
/// # Errors
/// When the data directory is in use, an address is taken, or the store cannot be opened.
pub async fn start(data: DataDir, config: Config, roles: Roles) -> Result<Node, StartError> {
    let (tasks, leases, drain) = (Tasks::default(), Tasks::default(), config.limits.drain);
    match begin(&data, config, roles, tasks.clone(), leases.clone()).await {
        Ok(node) => Ok(node(data)),
        Err(problem) => {
            tasks.stop().cancel();
            // Nobody shall have to wait for the end of what it has taken. What took that from it is why it cannot
            // start.
            leases.stop().cancel();
            Err(leases.finish(drain).await.map_or(problem, StartError::Failed))
        }
    }
}

/// Starts everything; what comes of it wants the data directory, which stays closed to others until the end.
async fn begin(
    data: &DataDir,
    config: Config,
    roles: Roles,
    tasks: Tasks,
    leases: Tasks,
) -> Result<impl FnOnce(DataDir) -> Node + use<>, StartError> {
    let clock = Clock::start();
    let catalogue = roles.coordinator.then(|| tools(&config)).transpose()?;
    let joined = health::Joined::default();
    let (face, http) = open_lobby(&tasks, &config, &joined).await?;
    // Before there are keys: any that it made for want of the cluster's would be its own for good.
    let entrance = truth::entrance(&config, &clock).await?;
    let (keys, vault) = keys_and_vault(data.layout().root(), &config)?;
    write_operator_token(data.layout(), &keys, &clock)?;
    let Truth { store, alarms, shared } =
        truth::open(data, &config, roles, &keys, &clock, &leases, entrance).await?;
    if let Some(sharing) = &shared {
        let _ = joined.set(Arc::clone(&sharing.cluster));
        sharing.settled(config.cluster.lease, &leases).await?;
    }
    let projection = Projection::open(&data.layout().projection(), Arc::clone(&store))?;
    let cluster = shared.as_ref().map(|sharing| Arc::clone(&sharing.cluster));
    let entities = match &cluster {
        None => Entities::embedded(store, projection, clock.clone(), Hub::default(), alarms),
        Some(cluster) => {
            Entities::clustered(store, projection, clock.clone(), Hub::default(), Arc::clone(cluster))
        }
    };
    let door = shared.as_ref().and_then(Sharing::address);
    if let Some(sharing) = shared {
        sharing.serve(&leases, &entities, &keys, &clock);
    }
    let listeners = Listeners::bind(&config, roles).await?;
    let endpoint = Endpoint { node: door, ..listeners.endpoint(&config, http)? };
    if let Some(cluster) = cluster.as_ref().filter(|_| roles.coordinator)
        && let Some(url) = addresses::for_runners(&config, endpoint.grpc)
    {
        cluster.is_open_to_runners(url);
    }

    let (runner, pumps) = (Tasks::default(), Tasks::default());
    let sessions = Sessions::new(keys.clone(), entities.clock().clone());
    entities.reaches(Arc::new(sessions.clone()));
    let slack = Workspaces::new(&config.slack).map_err(|error| StartError::Refused(error.refusal()))?;
    let embeddings =
        config.embeddings.as_ref().map(Embeddings::new).transpose().map_err(outside)?.map(Arc::new);
    start_pumps(&pumps, &entities, &sessions, &slack, &config);
    if let Some(endpoint) = &embeddings {
        let embedder = embedding::run(entities.clone(), Arc::clone(endpoint), pumps.stop().clone());
        pumps.spawn("embeddings", quiet(embedder));
    }
    let leaving = CancellationToken::new();
    let health = health::router(entities.clone(), leaving.clone());
    let service = service(entities.clone(), slack.clone(), vault, embeddings, &config);
    let issuers = Issuers::new(config.auth.issuer.clone());
    let issuers = issuers.map_err(StartError::Issuers)?;
    let access = Access::new(keys.clone(), entities.clone()).trusting(issuers);
    pumps.spawn("presence", quiet(presence::watch(service.clone(), pumps.stop().clone())));
    let parts = Parts {
        service: service.clone(),
        access: &access,
        config: &config,
        layout: data.layout(),
        endpoint: &endpoint,
    };
    face.opens(faces::http_face(parts, catalogue, health, tasks.stop(), &pumps));
    let instances = addresses::for_instances(&config, &endpoint);
    if let Some(problem) = addresses::problem(&config, &endpoint).filter(|_| roles.coordinator) {
        warn!("{problem}");
    }
    serve_grpc(&tasks, listeners.grpc, service.clone(), &sessions, &access, &endpoint, &instances);
    let turn = keys::follow(data.layout().clone(), keys.clone(), entities.clone(), pumps.stop().clone());
    pumps.spawn("keys", quiet(turn));
    pumps.spawn("slack", quiet(slack.clone().greet(pumps.stop().clone())));
    if let Some(listener) = listeners.ingress {
        start_ingress(&tasks, listener, service, slack, &config);
    }
    if roles.runner {
        runner::start(&runner, data, &config, &keys, &entities, &endpoint)?;
        runner::welcomed(&runner, &sessions, &config.runner.name).await?;
    }
    let path = data.layout().endpoint();
    endpoint.write(data.layout()).map_err(|error| StartError::Write(path, error))?;
    info!(http = %endpoint.http, grpc = %endpoint.grpc, ingress = ?endpoint.ingress, "ready");
    let drain = config.limits.drain;
    Ok(move |data| Node { data, entities, leaving, runner, tasks, pumps, leases, cluster, drain, endpoint })
}

/// The cluster's, where it hands them out, else this node's own.
fn keys_and_vault(root: &Path, config: &Config) -> Result<(Keys, Vault), StartError> {
    if let Some(folder) = &config.cluster.tls {
        let failed = |error| StartError::Keys(folder.clone(), error);
        Keys::adopt(root, folder).map_err(failed)?;
        Vault::adopt(root, folder).map_err(failed)?;
    }
    let unusable = |error| StartError::Keys(root.to_owned(), error);
    let keys = Keys::load_or_create(root).map_err(unusable)?;
    let vault = Vault::open(root, config.secrets.key.as_ref()).map_err(unusable)?;
    Ok((keys, vault))
}

fn service(
    entities: Entities,
    slack: Workspaces,
    vault: Vault,
    embeddings: Option<Arc<Embeddings>>,
    config: &Config,
) -> Service {
    let Limits { result_bytes, swarm_result_bytes, .. } = config.limits;
    let bounds = Bounds { each: result_bytes, all: swarm_result_bytes };
    let service = Service::new(entities).speaking_in(slack).bounded(bounds).keeping_secrets(vault);
    service.understanding(embeddings).serving_below(&config.listen.services_domain)
}

fn outside(problem: embeddings::Error) -> StartError {
    StartError::Refused(Refusal::new(Code::Unavailable, problem.to_string()))
}

/// Issues the token with which the command line administers this node.
///
/// # Errors
/// When signing fails.
pub fn operator_token(keys: &Keys, clock: &Clock) -> Result<String, Refusal> {
    own_token(keys, clock, Role::Operator, &Name::parse("operator")?, Uuid::now_v7())
}

pub(super) fn own_token(
    keys: &Keys,
    clock: &Clock,
    role: Role,
    name: &Name,
    agent: Uuid,
) -> Result<String, Refusal> {
    let claims = Claims {
        swarm: Name::parse("default")?,
        agent,
        agent_name: name.clone(),
        role,
        view: None,
        instance: None,
        lifetime: token::OWN,
    };
    keys.issue(claims, clock.wall()).map(|issued| issued.text().to_owned())
}

/// Writes the operator's token at the first start, and anew when the keys no longer know it.
pub(super) fn write_operator_token(layout: &Layout, keys: &Keys, clock: &Clock) -> Result<(), StartError> {
    let path = layout.operator_token();
    let known =
        std::fs::read_to_string(&path).is_ok_and(|text| keys.verify(text.trim(), clock.wall()).is_ok());
    if known {
        return Ok(());
    }
    let token = operator_token(keys, clock).map_err(StartError::Refused)?;
    layout
        .write_private(&path, format!("{token}\n").as_bytes())
        .map_err(|error| StartError::Write(path, error))
}

/// Listens for HTTP before anything that may take its time: whoever looks after this node is to hear that it lives, and
/// what it waits for. Gives where that is, too.
async fn open_lobby(
    tasks: &Tasks,
    config: &Config,
    joined: &health::Joined,
) -> Result<(Face, SocketAddr), StartError> {
    let wanted = config.listen.http;
    let listener = bind(wanted).await?;
    let address = listener.local_addr().map_err(|error| StartError::Listen(wanted, error))?;
    let face = Face::starting("http", health::lobby(Arc::clone(joined)));
    serve(tasks, "http", listener, face.clone(), HTTP);
    Ok((face, address))
}

/// What listens once requests are taken.
struct Listeners {
    grpc: TcpListener,
    ingress: Option<TcpListener>,
}

impl Listeners {
    async fn bind(config: &Config, roles: Roles) -> Result<Self, StartError> {
        let listen = &config.listen;
        let ingress = if roles.ingress { Some(bind(listen.ingress).await?) } else { None };
        Ok(Self { grpc: bind(listen.grpc).await?, ingress })
    }

    /// The real addresses: port 0 lets the system choose.
    fn endpoint(&self, config: &Config, http: SocketAddr) -> Result<Endpoint, StartError> {
        let address = |listener: &TcpListener, wanted| {
            listener.local_addr().map_err(|error| StartError::Listen(wanted, error))
        };
        let ingress = self.ingress.as_ref().map(|listener| address(listener, config.listen.ingress));
        let endpoint = Endpoint {
            http,
            grpc: address(&self.grpc, config.listen.grpc)?,
            ingress: ingress.transpose()?,
            node: None,
            url: String::new(),
        };
        Ok(Endpoint { url: addresses::public(config, &endpoint), ..endpoint })
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    listening::on(address).await.map_err(|error| StartError::Listen(address, error))
}

fn start_pumps(pumps: &Tasks, entities: &Entities, sessions: &Sessions, slack: &Workspaces, config: &Config) {
    let stop = pumps.stop();
    let runners: Arc<dyn Runners> = Arc::new(sessions.clone());
    let timers = timers::pump(entities.clone(), stop.clone());
    pumps.spawn("timers", quiet(timers));
    pumps.spawn("notices", quiet(notice::look(entities.clone(), stop.clone())));
    let sweep = passivation::sweep(entities.clone(), passivation::IDLE, stop.clone());
    pumps.spawn("passivation", quiet(sweep));
    pumps.spawn("outbox", quiet(pump::run(entities.clone(), runners, slack.clone(), stop.clone())));
    pumps.spawn("retention", quiet(retention::run(entities.clone(), config.retention.clone(), stop.clone())));
}

fn start_ingress(tasks: &Tasks, listener: TcpListener, service: Service, slack: Workspaces, config: &Config) {
    let gate = Gate::new(&config.ingress.source, &config.limits, Arc::new(service.entities().clone()));
    let gate = Arc::new(gate.hearing(slack));
    let sources = config.ingress.source.clone();
    tasks.spawn("accounts", quiet(ingress::subscribe(sources, service, tasks.stop().clone())));
    tasks.spawn("socket mode", quiet(ingress::listen(Arc::clone(&gate), tasks.stop().clone())));
    serve(tasks, "ingress", listener, Face::new("ingress", ingress::router(gate)), INGRESS);
}

/// A task that cannot fail.
pub(super) async fn quiet(role: impl Future<Output = ()>) -> Result<(), io::Error> {
    role.await;
    Ok(())
}

/// All tools, if those that the settings limit are among them.
fn tools(config: &Config) -> Result<mcp::Catalogue, StartError> {
    let catalogue = mcp::tools::catalogue().map_err(|error| StartError::Catalogue(error.to_string()))?;
    match mcp::quota::Limits::from(&config.limits).problem(&catalogue) {
        Some(problem) => Err(StartError::Setting(problem)),
        None => Ok(catalogue),
    }
}

/// Serves until the node stops, so many connections at a time.
fn serve(tasks: &Tasks, name: &'static str, listener: TcpListener, face: Face, most: usize) {
    tasks.spawn(name, serving::serve(listener, face, most, tasks.stop().clone()));
}

fn serve_grpc(
    tasks: &Tasks,
    listener: TcpListener,
    service: Service,
    sessions: &Sessions,
    access: &Access,
    endpoint: &Endpoint,
    instances: &str,
) {
    let stop = tasks.stop().clone();
    let control = Control {
        entities: service.entities().clone(),
        sessions: sessions.clone(),
        access: access.clone(),
        mcp_url: format!("{instances}/mcp"),
        stop: stop.clone(),
        tracker: TaskTracker::new(),
    };
    let admin = Admin {
        service,
        sessions: sessions.clone(),
        access: access.clone(),
        endpoint: endpoint.clone(),
        stop: stop.clone(),
    };
    tasks.spawn("grpc", server::serve(listener, control, admin, stop));
}
