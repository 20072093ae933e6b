//! The connections to the other nodes.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use skein_proto::v1::forward_reply::Outcome as Said;
use skein_proto::v1::peer_client::PeerClient;
use skein_proto::v1::{ForwardRequest, Wake, WakesRequest};
use skein_shared::id::EntityKey;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{self, Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use uuid::Uuid;

use super::handshake;
use super::identity::{Identity, host};
use super::member::{FORMAT, Member};

const CONNECT: Duration = Duration::from_secs(1);
/// A connection that is silent is probed, and given up without an answer.
pub(super) const PROBE: Duration = Duration::from_secs(3);
pub(super) const PROBE_ANSWER: Duration = Duration::from_secs(3);
/// What the largest entity may answer; a list has up to a thousand whole documents.
pub(super) const MESSAGE: usize = 64 << 20;

/// With what nodes prove to one another that they belong together: `Bearer …`.
#[derive(Clone)]
pub struct Secret(MetadataValue<Ascii>);

impl Secret {
    /// `None` for a text that no header can carry.
    pub fn new(token: &str) -> Option<Self> {
        let mut value: MetadataValue<Ascii> = format!("Bearer {token}").parse().ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }
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
    /// The two nodes are there and do not trust one another.
    distrusts: bool,
}

impl Silence {
    pub(super) fn moved() -> Self {
        Self { problem: "the shard got another owner meanwhile".to_owned(), distrusts: false }
    }

    pub(super) fn late() -> Self {
        Self { problem: "no answer in time".to_owned(), distrusts: false }
    }

    /// Whether it lasts until somebody does something about it.
    pub(super) fn distrusts(&self) -> bool {
        self.distrusts
    }
}

pub(super) struct Peers {
    secret: Secret,
    /// Without one, nodes speak plain text.
    identity: Option<Arc<Identity>>,
    /// By incarnation: a restarted node is another one.
    channels: Mutex<HashMap<Uuid, Channel>>,
}

impl Peers {
    pub(super) fn new(secret: Secret, identity: Option<Arc<Identity>>) -> Self {
        Self { secret, identity, channels: Mutex::default() }
    }

    pub(super) async fn forward(
        &self,
        to: &Member,
        key: Option<&EntityKey>,
        timeout: Duration,
        call: Vec<u8>,
    ) -> Result<Outcome, Silence> {
        let request = ForwardRequest {
            format: FORMAT,
            entity: key.map(ToString::to_string).unwrap_or_default(),
            timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
            call,
        };
        let mut client = self.client(to)?;
        let answered = tokio::time::timeout(timeout, client.forward(self.signed(request))).await;
        let reply = answered.map_err(|_| silent(to, "no answer in time"))?;
        let said = reply.map_err(|status| refused(to, &status))?.into_inner().outcome;
        match said {
            Some(Said::Answer(answer)) => Ok(Outcome::Answer(answer)),
            Some(Said::NotOwner(not)) => Ok(Outcome::NotOwner { owner: not.owner, epoch: not.epoch }),
            None => Err(silent(to, "an answer of another kind")),
        }
    }

    pub(super) async fn wakes(&self, of: &Member) -> Result<Streaming<Wake>, Silence> {
        let mut client = self.client(of)?;
        let stream = client.wakes(self.signed(WakesRequest {})).await;
        Ok(stream.map_err(|status| refused(of, &status))?.into_inner())
    }

    /// Finds out why a node gave no answer, as exactly as can be.
    pub(super) async fn look_into(&self, node: &Member, silence: Silence) -> Silence {
        if silence.distrusts {
            return silence;
        }
        let Some(identity) = &self.identity else {
            return if node.tls {
                distrusted(
                    node,
                    "it speaks mutual TLS, and this node plain text; name the folder with \
                 this node's certificate as `tls` in [cluster], or with --cluster-tls",
                )
            } else {
                silence
            };
        };
        match handshake::greet(identity, &node.address).await {
            Ok(Some(reason)) => distrusted(node, &reason),
            Ok(None) => silence,
            Err(problem) => silent(node, &problem.to_string()),
        }
    }

    /// Forgets the connections to those who are gone.
    pub(super) fn keep_only(&self, members: &[Member]) {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        channels.retain(|incarnation, _| members.iter().any(|member| member.incarnation == *incarnation));
    }

    fn signed<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", self.secret.0.clone());
        request
    }

    fn client(&self, of: &Member) -> Result<PeerClient<Channel>, Silence> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let channel = match channels.get(&of.incarnation) {
            Some(channel) => channel.clone(),
            None => {
                let channel =
                    self.endpoint(of).map_err(|error| silent(of, &error.to_string()))?.connect_lazy();
                channels.insert(of.incarnation, channel.clone());
                channel
            }
        };
        Ok(PeerClient::new(channel).max_decoding_message_size(MESSAGE).max_encoding_message_size(MESSAGE))
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
    let problem = format!("the node at {} and this one do not trust one another: {reason}", node.address);
    Silence { problem, distrusts: true }
}

fn silent(node: &Member, problem: &str) -> Silence {
    let problem = format!("the node at {} gave no answer: {problem}", node.address);
    Silence { problem, distrusts: false }
}
