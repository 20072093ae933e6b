//! Where the other nodes come in: the gRPC service `Peer`.

use std::collections::BTreeSet;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, TryStreamExt};
use skein_proto::trace::{self, TRACES};
use skein_proto::v1::forward_reply::Outcome;
use skein_proto::v1::peer_server::{self, PeerServer};
use skein_proto::v1::{
    self, ForwardBatch, ForwardReplies, ForwardReply, ForwardRequest, NotOwner, WakesRequest,
};
use skein_shared::id::EntityKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataMap;
use tonic::transport::Server;
use tonic::transport::server::{Connected, TcpIncoming};
use tonic::{Request, Response, Status, Streaming};
use tracing::{Instrument, debug_span};

use super::answering;
use super::handshake;
use super::member::READS;
use super::peers::{MESSAGE, PROBE, PROBE_ANSWER, too_long};
use super::{Cluster, Tenants, Wake};
use crate::greeting::Greeting;
use crate::store::redis::shard::Shard;

/// How long topics gather after a message before the next one. Each commit of a busy node would be a message to every
/// other one; the first after a pause goes at once.
const GATHER: Duration = Duration::from_millis(1);
/// Topics that go out together.
const TOPICS: usize = 512;

/// Whether a token is one that the shared keys have signed for a node.
pub type Verify = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Lets other nodes in.
#[derive(Clone)]
pub struct Door {
    pub cluster: Arc<Cluster>,
    pub tenants: Arc<dyn Tenants>,
    pub verify: Verify,
    pub stop: CancellationToken,
}

/// The listener failed.
#[derive(Debug, thiserror::Error)]
#[error("the listener for the other nodes failed: {0}")]
pub struct DoorError(#[from] tonic::transport::Error);

/// Serves until `stop`.
///
/// # Errors
/// When the listener fails.
pub async fn serve(listener: TcpListener, door: Door) -> Result<(), DoorError> {
    let stop = door.stop.clone();
    let (identity, alarms) = (door.cluster.settings.identity.clone(), door.cluster.alarms().clone());
    let peer = PeerServer::new(door).max_decoding_message_size(MESSAGE).max_encoding_message_size(MESSAGE);
    let server = Server::builder()
        .http2_keepalive_interval(Some(PROBE))
        .http2_keepalive_timeout(Some(PROBE_ANSWER))
        .add_service(peer);
    let serving = async {
        match identity {
            Some(identity) => {
                let incoming = handshake::incoming(listener, &identity, alarms, stop.clone());
                server.serve_with_incoming(incoming).await
            }
            None => server.serve_with_incoming(plain(listener)).await,
        }
    };
    tokio::select! {
        // What the others still ask goes to the next owners; waiting for them would only hold up the end.
        biased;
        () = stop.cancelled() => Ok(()),
        served = serving => Ok(served?),
    }
}

/// Those who come in plain text, which whoever is on this machine may.
fn plain(listener: TcpListener) -> impl Stream<Item = io::Result<Greeting<TcpStream>>> {
    TcpIncoming::from(listener).with_nodelay(Some(true)).map_ok(Greeting::of)
}

impl<S> Connected for Greeting<S> {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl Door {
    fn let_in(&self, metadata: &MetadataMap) -> Result<(), Status> {
        let header = metadata.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
        match header.strip_prefix("Bearer ").is_some_and(|token| (self.verify)(token)) {
            true => Ok(()),
            false => Err(Status::unauthenticated(
                "this node does not know your token; all coordinators of a cluster need the same signing keys: copy \
                 them from the data folder of the first",
            )),
        }
    }

    pub(super) async fn answer(&self, request: ForwardRequest) -> Result<Outcome, Status> {
        if !READS.contains(&request.format) {
            return Err(Status::unimplemented(format!(
                "this node does not read format {}; run the same version on all nodes",
                request.format
            )));
        }
        if request.life != 0 && request.life != self.cluster.life() {
            // One of both nodes has not heard of the other's yet. The sender tries again, or has forgotten what it
            // decided.
            self.cluster.store.doubt();
            return Ok(Outcome::NotOwner(NotOwner::default()));
        }
        let key = match request.entity.as_str() {
            "" => None,
            text => {
                Some(text.parse::<EntityKey>().map_err(|refusal| Status::invalid_argument(refusal.message))?)
            }
        };
        let timeout = Duration::from_millis(request.timeout_ms.into());
        let span = debug_span!(target: TRACES, "forwarded", otel.kind = "server", entity = request.entity);
        trace::follow(&span, &request.traceparent);
        let shard = key.as_ref().map(Shard::of);
        let answer = self.tenants.answer(key, request.life, timeout, &request.call).instrument(span).await;
        let fits = |answer: Vec<u8>| Outcome::Answer(too_long(answer.len()).unwrap_or(answer));
        Ok(answer.map_or_else(|| Outcome::NotOwner(self.owner(shard)), fits))
    }

    fn owner(&self, shard: Option<Shard>) -> NotOwner {
        let lease = shard.map(|shard| self.cluster.table.lease(shard)).unwrap_or_default();
        let known = lease.held && lease.owner != self.cluster.settings.id;
        NotOwner { owner: if known { lease.owner } else { String::new() }, epoch: lease.epoch.0 }
    }
}

#[tonic::async_trait]
impl peer_server::Peer for Door {
    async fn forward(&self, request: Request<ForwardRequest>) -> Result<Response<ForwardReply>, Status> {
        self.let_in(request.metadata())?;
        let outcome = self.answer(request.into_inner()).await?;
        Ok(Response::new(ForwardReply { outcome: Some(outcome) }))
    }

    type ForwardManyStream = Pin<Box<dyn Stream<Item = Result<ForwardReplies, Status>> + Send>>;

    async fn forward_many(
        &self,
        request: Request<Streaming<ForwardBatch>>,
    ) -> Result<Response<Self::ForwardManyStream>, Status> {
        self.let_in(request.metadata())?;
        Ok(Response::new(Box::pin(answering::answer_all(self.clone(), request.into_inner()))))
    }

    type WakesStream = Pin<Box<dyn Stream<Item = Result<v1::Wake, Status>> + Send>>;

    async fn wakes(&self, request: Request<WakesRequest>) -> Result<Response<Self::WakesStream>, Status> {
        self.let_in(request.metadata())?;
        let (listener, stream) = mpsc::channel(16);
        // Both before the first message, which says that nothing is left out from here on.
        let (wakes, leases) = (self.tenants.wakes(), self.cluster.leases_changed.subscribe());
        tokio::spawn(tell(wakes, leases, listener, self.stop.clone()));
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}

/// Tells one listener until it goes away.
async fn tell(
    mut wakes: broadcast::Receiver<Wake>,
    mut leases: watch::Receiver<u64>,
    listener: mpsc::Sender<Result<v1::Wake, Status>>,
    stop: CancellationToken,
) {
    let mut next = v1::Wake { topics: Vec::new(), all: true, leases: false };
    while listener.send(Ok(next)).await.is_ok() {
        tokio::time::sleep(GATHER).await;
        next = tokio::select! {
            () = stop.cancelled() => return,
            () = listener.closed() => return,
            changed = leases.changed() => match changed {
                Ok(()) => v1::Wake { topics: Vec::new(), all: false, leases: true },
                Err(_) => return,
            },
            first = wakes.recv() => match gather(first, &mut wakes) {
                Some(wake) => wake,
                None => return,
            },
        };
    }
}

/// Puts what has come meanwhile into one message, each topic once.
fn gather(first: Result<Wake, RecvError>, wakes: &mut broadcast::Receiver<Wake>) -> Option<v1::Wake> {
    let (mut topics, mut all) = (BTreeSet::new(), false);
    match first {
        Ok(Wake::Topic(topic)) => drop(topics.insert(topic)),
        // Some were left out.
        Ok(Wake::All) | Err(RecvError::Lagged(_)) => all = true,
        Err(RecvError::Closed) => return None,
    }
    while topics.len() < TOPICS {
        match wakes.try_recv() {
            Ok(Wake::Topic(topic)) => drop(topics.insert(topic)),
            Ok(Wake::All) | Err(TryRecvError::Lagged(_)) => all = true,
            Err(TryRecvError::Empty | TryRecvError::Closed) => break,
        }
    }
    Some(v1::Wake { topics: topics.iter().map(ToString::to_string).collect(), all, leases: false })
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn who_never_begins_in_plain_text_keeps_no_connection_to_a_node() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut incoming = Box::pin(plain(listener));
        let _peer = TcpStream::connect(address).await.unwrap();
        let mut stream = incoming.next().await.unwrap().unwrap();
        tokio::time::pause();
        assert_eq!(stream.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
