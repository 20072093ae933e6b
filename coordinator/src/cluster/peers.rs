//! The connections to the other nodes.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use skein_proto::trace;
use skein_proto::v1::forward_reply::Outcome as Said;
use skein_proto::v1::peer_client::PeerClient;
use skein_proto::v1::{ForwardRequest, Wake, WakesRequest};
use skein_shared::Refusal;
use skein_shared::id::EntityKey;
use tokio::net::lookup_host;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{self, Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tracing::Span;
use uuid::Uuid;

use super::handshake;
use super::identity::{Identity, host};
use super::member::{FORMAT, Member};
use super::pipe::Pipe;

const CONNECT: Duration = Duration::from_secs(1);
/// A connection that is silent is probed, and given up without an answer.
pub(super) const PROBE: Duration = Duration::from_secs(2);
pub(super) const PROBE_ANSWER: Duration = Duration::from_secs(3);
/// What the largest entity may answer; a list has up to a thousand whole documents.
pub(super) const MESSAGE: usize = 64 << 20;
/// What stands around a call or an answer in its message, bytes, at most.
const AROUND: usize = 4 << 10;

/// An answer to what no message takes: sent all the same it would end the stream, with all that is under way on it.
pub(super) fn too_long(bytes: usize) -> Option<Vec<u8>> {
    if bytes <= MESSAGE - AROUND {
        return None;
    }
    let problem = format!(
        "this is {} MiB long, and nodes pass at most {} MiB on to one another; ask for fewer, or send less",
        bytes >> 20,
        MESSAGE >> 20
    );
    let refusal = Err::<(), _>(Refusal::new(skein_shared::Code::TooLarge, problem));
    Some(serde_json::to_vec(&refusal).unwrap_or_default())
}

/// With what nodes prove to one another that they belong together: `Bearer …`.
#[derive(Clone)]
pub struct Secret(Arc<ArcSwap<MetadataValue<Ascii>>>);

impl Secret {
    /// Puts it on a request.
    pub(super) fn sign<T>(&self, request: &mut Request<T>) {
        request.metadata_mut().insert("authorization", MetadataValue::clone(&self.0.load()));
    }

    /// `None` for a text that no header can carry.
    pub fn new(token: &str) -> Option<Self> {
        Some(Self(Arc::new(ArcSwap::from_pointee(header(token)?))))
    }

    /// Proves it by another token from now on, wherever this one was given to. Says whether a header can carry that.
    pub fn renew(&self, token: &str) -> bool {
        header(token).map(|value| self.0.store(Arc::new(value))).is_some()
    }
}

fn header(token: &str) -> Option<MetadataValue<Ascii>> {
    let mut value: MetadataValue<Ascii> = format!("Bearer {token}").parse().ok()?;
    value.set_sensitive(true);
    Some(value)
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What another node said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Answer(Vec<u8>),
    /// Nothing was done; the owner is empty when that node does not know it.
    NotOwner {
        owner: String,
        epoch: u64,
    },
}

/// No answer came, so nobody knows whether something was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct Silence {
    problem: String,
    /// The two nodes are there, and do not trust or do not understand one another.
    distrusts: bool,
}

impl Silence {
    pub(super) fn moved() -> Self {
        Self { problem: "the shard got another owner meanwhile".to_owned(), distrusts: false }
    }

    /// What is to be said of a node whose program does not fit this one's.
    pub(super) fn of_a_stranger(me: &Member, other: &Member) -> Option<Self> {
        me.quarrel(other).map(|reason| distrusted(other, &reason))
    }

    pub(super) fn late() -> Self {
        Self { problem: "no answer in time".to_owned(), distrusts: false }
    }

    /// Whether it lasts until somebody does something about it.
    pub(super) fn distrusts(&self) -> bool {
        self.distrusts
    }
}

/// What is passed on to another node.
pub(super) struct Forwarding<'a> {
    /// None for the node itself.
    pub(super) key: Option<&'a EntityKey>,
    pub(super) timeout: Duration,
    pub(super) call: Vec<u8>,
    /// The life of the store that both nodes have to rely on; 0 for any.
    pub(super) life: u64,
}

pub(super) struct Peers {
    secret: Secret,
    /// Without one, nodes speak plain text.
    identity: Option<Arc<Identity>>,
    /// By incarnation: a restarted node is another one.
    channels: Mutex<HashMap<Uuid, Connection>>,
}

/// A connection to a node, and the stream on it, if something was forwarded.
struct Connection {
    channel: Channel,
    pipe: Option<Pipe>,
}

impl Peers {
    pub(super) fn new(secret: Secret, identity: Option<Arc<Identity>>) -> Self {
        Self { secret, identity, channels: Mutex::default() }
    }

    pub(super) async fn forward(&self, to: &Member, forwarding: Forwarding<'_>) -> Result<Outcome, Silence> {
        let Forwarding { key, timeout, call, life } = forwarding;
        if let Some(refusal) = too_long(call.len()) {
            return Ok(Outcome::Answer(refusal));
        }
        let request = ForwardRequest {
            format: FORMAT,
            entity: key.map(EntityKey::text).unwrap_or_default(),
            timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
            call,
            traceparent: trace::traceparent(&Span::current()),
            life,
        };
        let answered = async {
            match key {
                Some(_) => self.pipe(to).await?.ask(request).await,
                // What a node itself is asked is seldom and may have a long answer, behind which nothing shall wait.
                None => {
                    let reply = self.client(to).await?.forward(self.signed(request)).await;
                    Ok(reply.map_err(|status| refused(to, &status))?.into_inner())
                }
            }
        };
        let reply = tokio::time::timeout(timeout, answered).await;
        match reply.map_err(|_| silent(to, "no answer in time"))??.outcome {
            Some(Said::Answer(answer)) => Ok(Outcome::Answer(answer)),
            Some(Said::NotOwner(not)) => Ok(Outcome::NotOwner { owner: not.owner, epoch: not.epoch }),
            None => Err(silent(to, "an answer of another kind")),
        }
    }

    pub(super) async fn wakes(&self, of: &Member) -> Result<Streaming<Wake>, Silence> {
        let mut client = self.client(of).await?;
        let stream = client.wakes(self.signed(WakesRequest {})).await;
        Ok(stream.map_err(|status| refused(of, &status))?.into_inner())
    }

    /// Finds out why a node gave no answer, as exactly as can be.
    pub(super) async fn look_into(&self, node: &Member, silence: Silence) -> Silence {
        if silence.distrusts {
            return silence;
        }
        let Some(identity) = &self.identity else { return silence };
        match handshake::greet(identity, &node.address).await {
            Ok(Some(reason)) => distrusted(node, &reason),
            Ok(None) => silence,
            Err(problem) => silent(node, &problem.to_string()),
        }
    }

    /// Forgets the connections to those who are gone.
    pub(super) fn keep_only(&self, members: &[Member]) {
        self.channels()
            .retain(|incarnation, _| members.iter().any(|member| member.incarnation == *incarnation));
    }

    fn signed<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        self.secret.sign(&mut request);
        request
    }

    async fn client(&self, of: &Member) -> Result<PeerClient<Channel>, Silence> {
        let known = self.channels().get(&of.incarnation).map(|connection| connection.channel.clone());
        let channel = match known {
            Some(channel) => channel,
            None => {
                self.may_be_spoken_to(of).await?;
                let endpoint = self.endpoint(of).map_err(|error| silent(of, &error.to_string()))?;
                let fresh = || Connection { channel: endpoint.connect_lazy(), pipe: None };
                self.channels().entry(of.incarnation).or_insert_with(fresh).channel.clone()
            }
        };
        Ok(PeerClient::new(channel).max_decoding_message_size(MESSAGE).max_encoding_message_size(MESSAGE))
    }

    /// The stream to a node, or a new one if the last has ended.
    async fn pipe(&self, to: &Member) -> Result<Pipe, Silence> {
        let there = |connections: &HashMap<Uuid, Connection>| {
            let pipe = connections.get(&to.incarnation)?.pipe.as_ref()?;
            (!pipe.is_over()).then(|| pipe.clone())
        };
        if let Some(pipe) = there(&self.channels()) {
            return Ok(pipe);
        }
        let client = self.client(to).await?;
        let mut connections = self.channels();
        // Another one may have been quicker.
        if let Some(pipe) = there(&connections) {
            return Ok(pipe);
        }
        let pipe = Pipe::open(to, client, &self.secret);
        if let Some(connection) = connections.get_mut(&to.incarnation) {
            connection.pipe = Some(pipe.clone());
        }
        Ok(pipe)
    }

    /// Without TLS this node's token would go over the network as it is, before the other could refuse it.
    async fn may_be_spoken_to(&self, node: &Member) -> Result<(), Silence> {
        if self.identity.is_some() {
            return Ok(());
        }
        if node.tls {
            return Err(distrusted(
                node,
                "it speaks mutual TLS, and this node plain text; name the folder with this node's certificate as `tls` \
                 in [cluster], or with --cluster-tls",
            ));
        }
        let mut found = lookup_host(&node.address).await.map_err(|error| silent(node, &error.to_string()))?;
        match found.all(|address| address.ip().is_loopback()) {
            true => Ok(()),
            false => Err(distrusted(
                node,
                "it is on another machine, where nothing is sent in plain text; give both nodes certificates of one \
                 `skein cluster init`",
            )),
        }
    }

    fn channels(&self) -> MutexGuard<'_, HashMap<Uuid, Connection>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn endpoint(&self, of: &Member) -> Result<Endpoint, transport::Error> {
        let scheme = if self.identity.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{}", of.address))?
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PROBE)
            .keep_alive_timeout(PROBE_ANSWER)
            .keep_alive_while_idle(true);
        let Some(identity) = &self.identity else { return Ok(endpoint) };
        let tls = identity.channel.clone().domain_name(host(&of.address)).timeout(handshake::LIMIT);
        endpoint.tls_config(tls)
    }
}

/// What gRPC says of a request that was not answered.
pub(super) fn refused(node: &Member, status: &Status) -> Silence {
    match status.code() {
        Code::Unauthenticated => distrusted(node, status.message()),
        _ => silent(node, status.message()),
    }
}

fn distrusted(node: &Member, reason: &str) -> Silence {
    let problem = format!("the node at {} and this one do not work together: {reason}", node.address);
    Silence { problem, distrusts: true }
}

pub(super) fn silent(node: &Member, problem: &str) -> Silence {
    let problem = format!("the node at {} gave no answer: {problem}", node.address);
    Silence { problem, distrusts: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_said_in_plain_text_to_another_machine() {
        let peers = Peers::new(Secret::new("token").unwrap(), None);
        let at = |address: &str, tls| Member { tls, ..Member::new("a", Uuid::now_v7(), address) };
        peers.client(&at("127.0.0.1:7703", false)).await.unwrap();
        peers.client(&at("[::1]:7703", false)).await.unwrap();
        for (node, problem) in [
            (at("192.0.2.1:7703", false), "on another machine"),
            (at("127.0.0.1:7703", true), "--cluster-tls"),
        ] {
            let refused = peers.client(&node).await.unwrap_err();
            assert!(refused.distrusts() && refused.to_string().contains(problem), "{refused}");
        }
    }
}
