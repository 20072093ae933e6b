//! Two nodes of a cluster in this process, of which one forwards to the other over loopback; and the same service
//! without Skein.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use async_trait::async_trait;
use futures::Stream;
use skein_coordinator::alarms::Alarms;
use skein_coordinator::cluster::door::{self, Door};
use skein_coordinator::cluster::member::Member;
use skein_coordinator::cluster::{Cluster, Outcome, Route, Secret, Settings, Tenants, Wake};
use skein_coordinator::entity::Clock;
use skein_coordinator::store::redis::shard::Shard;
use skein_coordinator::store::redis::{Options as Access, Redis};
use skein_proto::v1::forward_reply::Outcome as Said;
use skein_proto::v1::peer_client::PeerClient;
use skein_proto::v1::peer_server::{self, PeerServer};
use skein_proto::v1::{self, ForwardBatch, ForwardReplies, ForwardReply, ForwardRequest, WakesRequest};
use skein_shared::id::{EntityKey, Name};
use skein_tests::redis::Server;
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};

use super::embedded::refused;
use crate::harness::contender::{Card, Contender, Durability, Metered, Plan, Work};
use crate::harness::load::{self, Operation};

/// About what a claim is, written out, and its answer.
const CALL: usize = 300;
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the nodes may take to share the shards.
const SHARE: Duration = Duration::from_secs(30);
const TOKEN: &str = "bench";

/// Answers with what it was asked.
struct Echo {
    wakes: broadcast::Sender<Wake>,
}

#[async_trait]
impl Tenants for Echo {
    async fn leave(&self) {}

    fn forget(&self, _shards: &[Shard]) {}

    async fn answer(
        &self,
        _entity: Option<EntityKey>,
        _life: u64,
        _timeout: Duration,
        call: &[u8],
    ) -> Option<Vec<u8>> {
        Some(call.to_vec())
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.wakes.subscribe()
    }

    fn wake(&self, _wake: &Wake) {}
}

/// Two nodes over a Redis of their own.
pub(crate) struct Neighbours {
    asker: Arc<Cluster>,
    /// The other one, and an entity that it owns.
    other: Arc<Member>,
    key: EntityKey,
    _server: Server,
    _stop: DropGuard,
}

impl Neighbours {
    /// # Errors
    /// When they do not find one another.
    pub(crate) async fn start() -> Result<Arc<Self>> {
        let server = Server::start().await?;
        let stop = CancellationToken::new();
        let (asker, _) = join(&server, "a", &stop).await?;
        let (other, address) = join(&server, "b", &stop).await?;
        let swarm = Name::parse("default").map_err(refused)?;
        let found = async {
            loop {
                for number in 0..64 {
                    let name = Name::parse(&format!("agent-{number}")).map_err(refused)?;
                    let key = EntityKey::agent(&swarm, &name);
                    if let Route::There(member) = asker.route(&key) {
                        return anyhow::Ok((member, key));
                    }
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let (member, key) =
            tokio::time::timeout(SHARE, found).await.context("the nodes do not share the shards")??;
        ensure!(member.address == address && other.me().id == member.id, "a stranger has the shard");
        Ok(Arc::new(Self { asker, other: member, key, _server: server, _stop: stop.drop_guard() }))
    }

    async fn ask(&self, key: Option<&EntityKey>) -> Result<()> {
        match self.asker.forward(&self.other, key, TIMEOUT, vec![7; CALL]).await? {
            Outcome::Answer(answer) => ensure!(answer.len() == CALL, "another answer"),
            Outcome::NotOwner { .. } => bail!("the shard has moved"),
        }
        Ok(())
    }
}

/// A node that owns shards and answers for them with an echo.
async fn join(server: &Server, id: &str, stop: &CancellationToken) -> Result<(Arc<Cluster>, String)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let store = Arc::new(Redis::join(&Access::new(server.url(), id), Clock::start().wall()).await?);
    let settings = Settings {
        id: id.to_owned(),
        address: address.clone(),
        lease: Duration::from_secs(10),
        settle: Duration::from_millis(500),
        secret: Secret::new(TOKEN).context("a token that a header carries")?,
        passes_on: false,
        identity: None,
        alarms: Alarms::default(),
        wall: Arc::new(|| Clock::start().wall()),
    };
    let cluster = Cluster::new(store, settings);
    let tenants = Arc::new(Echo { wakes: broadcast::Sender::new(16) });
    cluster.serve_for(Arc::<Echo>::clone(&tenants), stop.clone());
    tokio::spawn(Arc::clone(&cluster).keep(stop.clone()));
    let verify = Arc::new(|token: &str| token == TOKEN);
    let door = Door { cluster: Arc::clone(&cluster), tenants, verify, stop: stop.clone() };
    tokio::spawn(door::serve(listener, door));
    Ok((cluster, address))
}

/// One node forwards to the other, by a call each or on its stream.
pub(crate) struct Forwarding {
    pub label: &'static str,
    pub nodes: Arc<Neighbours>,
    pub streams: bool,
}

#[async_trait]
impl Contender for Forwarding {
    fn card(&self) -> Card {
        Card { label: self.label, ..Card::skein(Durability::NotStored, Metered::Myself) }
    }

    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        let (nodes, streams) = (Arc::clone(&self.nodes), self.streams);
        let operation: Operation = Arc::new(move |_| {
            let nodes = Arc::clone(&nodes);
            Box::pin(async move { nodes.ask(streams.then_some(&nodes.key)).await })
        });
        load::run(plan, operation).await
    }
}

/// The same call through tonic alone.
pub(crate) struct Bare {
    client: PeerClient<Channel>,
    server: tokio::task::JoinHandle<()>,
}

impl Bare {
    /// # Errors
    /// When the port cannot be had.
    pub(crate) async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address: SocketAddr = listener.local_addr()?;
        let serving = tonic::transport::Server::builder().add_service(PeerServer::new(Nothing));
        let server = tokio::spawn(async move {
            let _ = serving.serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))).await;
        });
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true);
        Ok(Self { client: PeerClient::new(endpoint.connect().await?), server })
    }
}

#[async_trait]
impl Contender for Bare {
    fn card(&self) -> Card {
        Card::limit("bare tonic", Durability::NotStored, "tonic 0.14".to_owned(), Metered::Myself)
    }

    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        let client = self.client.clone();
        let operation: Operation = Arc::new(move |_| {
            let mut client = client.clone();
            Box::pin(async move {
                let call = vec![7; CALL];
                let request = ForwardRequest {
                    format: 1,
                    entity: String::new(),
                    timeout_ms: 1,
                    call,
                    ..Default::default()
                };
                let reply = client.forward(request).await?.into_inner();
                let answered = matches!(reply.outcome, Some(Said::Answer(answer)) if answer.len() == CALL);
                ensure!(answered, "another answer");
                Ok(())
            })
        });
        load::run(plan, operation).await
    }

    async fn stop(self: Box<Self>) -> Result<()> {
        self.server.abort();
        Ok(())
    }
}

/// A service that answers with what it was asked, and does nothing else.
struct Nothing;

type Never<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl peer_server::Peer for Nothing {
    async fn forward(&self, request: Request<ForwardRequest>) -> Result<Response<ForwardReply>, Status> {
        let outcome = Some(Said::Answer(request.into_inner().call));
        Ok(Response::new(ForwardReply { outcome }))
    }

    type ForwardManyStream = Never<ForwardReplies>;

    async fn forward_many(
        &self,
        _request: Request<Streaming<ForwardBatch>>,
    ) -> Result<Response<Self::ForwardManyStream>, Status> {
        Err(Status::unimplemented("bare"))
    }

    type WakesStream = Never<v1::Wake>;

    async fn wakes(&self, _request: Request<WakesRequest>) -> Result<Response<Self::WakesStream>, Status> {
        Err(Status::unimplemented("bare"))
    }
}
