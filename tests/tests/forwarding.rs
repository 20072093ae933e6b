//! What one node of a cluster passes on to another one, over a real Redis.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use async_trait::async_trait;
use skein_coordinator::alarms::Alarms;
use skein_coordinator::cluster::door::{self, Door};
use skein_coordinator::cluster::member::{FORMAT, Member};
use skein_coordinator::cluster::{Cluster, Outcome, Route, Secret, Settings, Tenants, Wake};
use skein_coordinator::entity::Clock;
use skein_coordinator::store::redis::shard::Shard;
use skein_coordinator::store::redis::{Options, Redis};
use skein_proto::v1::peer_client::PeerClient;
use skein_proto::v1::{ForwardBatch, ForwardRequest, Forwarded};
use skein_shared::id::{EntityKey, Name};
use skein_shared::{Code, Refusal};
use skein_tests::redis::Server;
use tokio::net::TcpListener;
use tokio::sync::{Notify, broadcast};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Request;

const LIMIT: Duration = Duration::from_secs(60);
const TOKEN: &str = "test";
/// More than a message has.
const TOO_LONG: usize = 65 << 20;

/// Answers `long` with more than a message has, and everything else once it may.
struct Answering {
    wakes: broadcast::Sender<Wake>,
    asked: Notify,
    may: Notify,
    /// It has stopped answering.
    left: Notify,
}

struct Unanswered<'a>(&'a Notify);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[async_trait]
impl Tenants for Answering {
    async fn leave(&self) {}

    fn forget(&self, _shards: &[Shard]) {}

    async fn answer(
        &self,
        _entity: Option<EntityKey>,
        _life: u64,
        _timeout: Duration,
        call: &[u8],
    ) -> Option<Vec<u8>> {
        if call == b"long" {
            return Some(vec![b' '; TOO_LONG]);
        }
        let unanswered = Unanswered(&self.left);
        self.asked.notify_one();
        self.may.notified().await;
        std::mem::forget(unanswered);
        Some(call.to_vec())
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.wakes.subscribe()
    }

    fn wake(&self, _wake: &Wake) {}
}

/// A node that lets the others in.
async fn join(server: &Server, id: &str, stop: &CancellationToken) -> Result<(Arc<Cluster>, Arc<Answering>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let clock = Clock::start();
    let store = Arc::new(Redis::join(&Options::new(server.url(), id), clock.wall()).await?);
    let settings = Settings {
        id: id.to_owned(),
        address: listener.local_addr()?.to_string(),
        lease: Duration::from_secs(10),
        settle: Duration::from_millis(500),
        secret: Secret::new(TOKEN).context("a token that a header carries")?,
        passes_on: false,
        identity: None,
        alarms: Alarms::default(),
        wall: Arc::new(move || clock.wall()),
    };
    let cluster = Cluster::new(store, settings);
    let wakes = broadcast::Sender::new(16);
    let tenants =
        Arc::new(Answering { wakes, asked: Notify::new(), may: Notify::new(), left: Notify::new() });
    cluster.serve_for(Arc::<Answering>::clone(&tenants), stop.clone());
    tokio::spawn(Arc::clone(&cluster).keep(stop.clone()));
    let verify = Arc::new(|token: &str| token == TOKEN);
    let of = Arc::<Answering>::clone(&tenants);
    let door = Door { cluster: Arc::clone(&cluster), tenants: of, verify, stop: stop.clone() };
    tokio::spawn(door::serve(listener, door));
    Ok((cluster, tenants))
}

/// Two nodes, of which the one asks, and the other has the entity.
struct Neighbours {
    asker: Arc<Cluster>,
    other: Arc<Cluster>,
    owner: Arc<Member>,
    answering: Arc<Answering>,
    key: EntityKey,
    _stop: DropGuard,
}

impl Neighbours {
    async fn start(server: &Server) -> Result<Self> {
        let stop = CancellationToken::new();
        let (asker, _) = join(server, "a", &stop).await?;
        let (other, answering) = join(server, "b", &stop).await?;
        let swarm = Name::parse("default")?;
        let agents = (0..64).map(|number| Name::parse(&format!("agent-{number}")));
        let keys: Vec<EntityKey> =
            agents.map(|name| Ok(EntityKey::agent(&swarm, &name?))).collect::<Result<_>>()?;
        let mut changes = asker.changes();
        let found = async {
            loop {
                changes.mark_unchanged();
                // Both have to know it: whoever is not the owner any more is asked nothing.
                let there = keys.iter().find_map(|key| match (asker.route(key), other.route(key)) {
                    (Route::There(member), Route::Here) => Some((member, key.clone())),
                    _ => None,
                });
                if let Some(there) = there {
                    return there;
                }
                let _ = tokio::time::timeout(Duration::from_millis(50), changes.changed()).await;
            }
        };
        let found = tokio::time::timeout(LIMIT, found).await;
        let (owner, key) = found.context("the nodes do not share the shards")?;
        Ok(Self { asker, other, owner, answering, key, _stop: stop.drop_guard() })
    }

    async fn ask(&self, key: Option<&EntityKey>, call: &[u8]) -> Result<Vec<u8>> {
        match self.asker.forward(&self.owner, key, LIMIT, call.to_vec()).await? {
            Outcome::Answer(answer) => Ok(answer),
            Outcome::NotOwner { .. } => bail!("the shard has moved"),
        }
    }

    async fn is_refused(&self, key: Option<&EntityKey>, call: &[u8]) -> Result<()> {
        let answer = self.ask(key, call).await?;
        let refusal = serde_json::from_slice::<Result<(), Refusal>>(&answer)?.err().context("it is taken")?;
        ensure!(refusal.code == Code::TooLarge && refusal.message.contains("ask for fewer"), "{refusal:?}");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_message_between_nodes_takes_is_refused_and_ends_nothing_else() -> Result<()> {
    let server = Server::in_memory().await?;
    let nodes = Neighbours::start(&server).await?;
    let key = Some(&nodes.key);
    let under_way = nodes.ask(key, b"in time");
    let refused = async {
        nodes.answering.asked.notified().await;
        nodes.is_refused(key, b"long").await?;
        nodes.is_refused(None, b"long").await?;
        nodes.is_refused(key, &vec![b' '; TOO_LONG]).await?;
        nodes.answering.may.notify_one();
        anyhow::Ok(())
    };
    let (answer, refused) = tokio::join!(under_way, refused);
    refused?;
    ensure!(answer? == b"in time", "another answer");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_way_is_not_given_up_when_its_owner_says_something_else_of_itself() -> Result<()> {
    let server = Server::in_memory().await?;
    let nodes = Neighbours::start(&server).await?;
    let under_way = nodes.ask(Some(&nodes.key), b"in time");
    let url = "https://127.0.0.1:1";
    let told = async {
        nodes.answering.asked.notified().await;
        nodes.other.is_open_to_runners(url.to_owned());
        let mut changes = nodes.asker.changes();
        let is_told = |_: &u64| nodes.asker.members().iter().any(|member| member.runners == url);
        tokio::time::timeout(LIMIT, changes.wait_for(is_told)).await??;
        // Whoever waits for the same has seen it by then.
        tokio::task::yield_now().await;
        nodes.answering.may.notify_one();
        anyhow::Ok(())
    };
    let (answer, told) = tokio::join!(under_way, told);
    told?;
    ensure!(answer? == b"in time", "another answer");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_waits_for_any_more_is_withdrawn_from_its_owner() -> Result<()> {
    let server = Server::in_memory().await?;
    let nodes = Neighbours::start(&server).await?;
    let key = Some(&nodes.key);
    for asked in 0..3 {
        tokio::select! {
            answer = nodes.ask(key, b"unwanted") => bail!("{asked} was answered: {answer:?}"),
            () = nodes.answering.asked.notified() => {}
        }
        tokio::time::timeout(LIMIT, nodes.answering.left.notified())
            .await
            .context("it is being answered still")?;
    }
    nodes.answering.may.notify_one();
    ensure!(nodes.ask(key, b"wanted").await? == b"wanted", "another answer");
    Ok(())
}

/// As that of a node that has died.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_asked_on_a_stream_is_not_wanted_any_more_when_it_ends() -> Result<()> {
    let server = Server::in_memory().await?;
    let nodes = Neighbours::start(&server).await?;
    let mut client = PeerClient::connect(format!("http://{}", nodes.owner.address)).await?;
    let request = ForwardRequest {
        format: FORMAT,
        entity: nodes.key.text(),
        timeout_ms: u32::try_from(LIMIT.as_millis())?,
        call: b"unwanted".to_vec(),
        ..ForwardRequest::default()
    };
    let batch = ForwardBatch {
        forwarded: vec![Forwarded { number: 1, request: Some(request) }],
        ..ForwardBatch::default()
    };
    let (asks, stream) = futures::channel::mpsc::unbounded();
    asks.unbounded_send(batch)?;
    let mut stream = Request::new(stream);
    stream.metadata_mut().insert("authorization", format!("Bearer {TOKEN}").parse()?);
    let _replies = client.forward_many(stream).await?;
    tokio::time::timeout(LIMIT, nodes.answering.asked.notified()).await?;
    drop(asks);
    tokio::time::timeout(LIMIT, nodes.answering.left.notified()).await.context("it is being answered still")
}
