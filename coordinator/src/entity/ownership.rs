//! What happens here when shards come to this node and go from it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use skein_shared::ask::Ask;
use skein_shared::entity::{Reign, RunnerCommand};
use skein_shared::fence::Epoch;
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Entities;
use super::remote::{NodeCall, read, write};
use crate::cluster::member::Member;
use crate::cluster::{Cluster, Outcome, Route, Tenants, Wake};
use crate::store::redis::shard::Shard;
use crate::store::{Fence, OutboxEntry};

/// How a command to a runner fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It is on the runner's stream. The runner's report tells what became of it.
    Sent,
    /// The runner has no stream here: try again when it has.
    NotConnected,
    /// The runner has a stream here, and did not say over it that it has the agent that is to start.
    NotOffered,
}

impl Delivery {
    /// What another node is answered. Earlier releases knew the first two.
    fn to_answer(self) -> Value {
        match self {
            Self::Sent => true.into(),
            Self::NotConnected => false.into(),
            Self::NotOffered => NOT_OFFERED.into(),
        }
    }

    fn of_answer(answer: &Value) -> Self {
        match answer {
            Value::Bool(true) => Self::Sent,
            Value::String(word) if word == NOT_OFFERED => Self::NotOffered,
            _ => Self::NotConnected,
        }
    }
}

/// The streams of the runners that are connected to this node.
#[async_trait]
pub trait Streams: Send + Sync + 'static {
    /// Puts a command on a runner's stream.
    async fn send(&self, runner: &str, command: &RunnerCommand, reign: &Reign) -> Delivery;

    /// Asks a runner something on its stream. `None` when it has none here.
    async fn ask(&self, runner: &str, ask: &Ask) -> Option<Result<String, Refusal>>;

    /// Nobody waits for the answer to this question any more.
    fn withdraw(&self, id: Uuid);
}

/// How a node answers that its runner has no such agent.
const NOT_OFFERED: &str = "not_offered";
/// How long another node may take to be told that it is to give its shards away.
const TELL: Duration = Duration::from_secs(5);

#[async_trait]
impl Tenants for Entities {
    async fn leave(&self) {
        for gone in self.shared().send_away() {
            gone.cancelled().await;
        }
    }

    fn forget(&self, shards: &[Shard]) {
        lose(self, shards);
    }

    fn catch_up(&self) {
        if self.clock().catch_up() {
            // What stays is due sooner than it was.
            self.shared().timers.send_modify(|earliest| *earliest = Timestamp(0));
        }
    }

    async fn answer(
        &self,
        entity: Option<EntityKey>,
        life: u64,
        timeout: Duration,
        call: &[u8],
    ) -> Option<Vec<u8>> {
        let router = self.shared().router.as_ref()?;
        match entity {
            // No further: the asker knows more of the owners after this, and one that is forwarded again and again
            // finds nobody.
            Some(key) if router.cluster.route(&key) == Route::Here => {
                self.answer_for(&key, life, timeout, call).await
            }
            Some(_) => None,
            None => write(&self.answer_as_node(&router.cluster, call).await).ok(),
        }
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.hub().outgoing()
    }

    fn wake(&self, wake: &Wake) {
        match wake {
            Wake::Topic(topic) => self.hub().wake(topic),
            Wake::All => self.hub().wake_all(),
        }
        self.shared().projection.happened();
    }
}

impl Entities {
    async fn answer_as_node(&self, cluster: &Cluster, call: &[u8]) -> Result<Value, Refusal> {
        let json = |error: serde_json::Error| {
            Refusal::new(Code::InvalidArgument, format!("another node asks what this one cannot: {error}"))
        };
        match serde_json::from_slice(call).map_err(json)? {
            NodeCall::List(query) => serde_json::to_value(self.list_own(*query).await?).map_err(json),
            NodeCall::Runner { runner, command, reign } => {
                let sent = match self.shared().streams.get() {
                    Some(streams) => streams.send(&runner, &command, &reign).await,
                    None => Delivery::NotConnected,
                };
                Ok(sent.to_answer())
            }
            NodeCall::Ask { runner, ask } => {
                let answer = match self.shared().streams.get() {
                    Some(streams) => streams.ask(&runner, &ask).await,
                    None => None,
                };
                serde_json::to_value(answer).map_err(json)
            }
            NodeCall::Withdraw { id } => {
                if let Some(streams) = self.shared().streams.get() {
                    streams.withdraw(id);
                }
                Ok(Value::Null)
            }
            NodeCall::Lag => {
                let lag = self.lag().await;
                let lag = lag.map_err(|problem| Refusal::new(Code::Unavailable, problem.to_string()))?;
                serde_json::to_value(lag).map_err(json)
            }
            NodeCall::Drain => {
                cluster.drain();
                Ok(Value::Null)
            }
        }
    }

    /// Says which runners other nodes reach through this one.
    pub fn reaches(&self, streams: Arc<dyn Streams>) {
        let _ = self.shared().streams.set(streams);
    }

    /// Sends a command to a runner that has a stream to another node, and none to this one that takes it.
    pub async fn command_elsewhere(&self, runner: &str, command: &RunnerCommand, reign: &Reign) -> Delivery {
        let mut delivery = Delivery::NotConnected;
        let Some(cluster) = self.cluster() else { return delivery };
        let (command, reign) = (Box::new(command.clone()), reign.clone());
        let Ok(call) = write(&NodeCall::Runner { runner: runner.to_owned(), command, reign }) else {
            return delivery;
        };
        for member in cluster.others() {
            let asked = cluster.forward(&member, None, TELL, call.clone()).await;
            let Ok(Outcome::Answer(answer)) = asked else { continue };
            match read(&answer).map_or(Delivery::NotConnected, |answer| Delivery::of_answer(&answer)) {
                Delivery::Sent => return Delivery::Sent,
                Delivery::NotOffered => delivery = Delivery::NotOffered,
                Delivery::NotConnected => {}
            }
        }
        delivery
    }

    /// Waits until the read side was told of every shard that has come to this node so far, at most for `limit`; says
    /// whether it was.
    pub(super) async fn followed(&self, limit: Duration) -> bool {
        let Some(router) = &self.shared().router else { return true };
        let changed = *router.cluster.held_changes().borrow();
        let mut followed = router.followed.subscribe();
        tokio::time::timeout(limit, followed.wait_for(|followed| *followed >= changed))
            .await
            .is_ok_and(|seen| seen.is_ok())
    }

    /// The cluster that this node is part of; none when it has its store for itself.
    pub fn cluster(&self) -> Option<&Cluster> {
        self.shared().router.as_ref().map(|router| router.cluster.as_ref())
    }

    /// The epoch under which this node may carry out an effect; none when its source is another's, or was lost since
    /// the effect was read.
    pub fn reign_over(&self, effect: &OutboxEntry) -> Option<Epoch> {
        let (shared, read) = (self.shared(), effect.fence);
        let now = shared.store.fence(&effect.source);
        // Without a cluster nobody else can have it, and effects are read under no fence.
        let has_it_still = shared.router.is_none() || now == read;
        (has_it_still && now != Fence::NONE).then_some(now.epoch)
    }

    /// The number of the life of the store on which this node relies; 0 without a cluster, where it has one alone.
    pub fn life(&self) -> u64 {
        self.cluster().map_or(0, |cluster| cluster.life())
    }

    /// Whether an entity is this node's, in memory or not.
    pub fn has(&self, key: &EntityKey) -> bool {
        self.shared().store.fence(key) != Fence::NONE
    }

    /// The epoch under which an entity is owned, as far as this node knows.
    pub fn epoch(&self, key: &EntityKey) -> Epoch {
        match self.shared().store.fence(key) {
            Fence::NONE => self.cluster().map_or(Epoch(0), |cluster| cluster.epoch(key)),
            fence => fence.epoch,
        }
    }

    /// Lets a node, named by its id or its address, give all its shards to the others.
    ///
    /// # Errors
    /// `not_found` for a name that nobody has; `wrong_state` when nobody else could take them; `unavailable` when the
    /// node does not answer.
    pub async fn drain(&self, node: &str) -> Result<(), Refusal> {
        let Some(cluster) = self.cluster() else {
            return Err(Refusal::new(
                Code::WrongState,
                "this node has its store for itself; there is nobody to drain to",
            ));
        };
        let members: Vec<_> = cluster.survey().into_iter().map(|(member, _)| member).collect();
        let is_named = |member: &Member| member.id == node || member.address == node;
        if members.iter().any(|member| is_named(member) && member.draining) {
            return Ok(());
        }
        let mut known: Vec<_> = members.into_iter().filter(Member::takes_shards).collect();
        let Some(place) = known.iter().position(is_named) else {
            let problem =
                format!("no node `{node}` has shards or takes any; `skein cluster status` lists the nodes");
            return Err(Refusal::new(Code::NotFound, problem));
        };
        let member = known.swap_remove(place);
        if known.is_empty() {
            return Err(Refusal::new(
                Code::WrongState,
                "there is no other node that could take its shards; start one",
            ));
        }
        if member.id == cluster.me().id {
            cluster.drain();
            return Ok(());
        }
        let asked = cluster.forward(&member, None, TELL, write(&NodeCall::Drain)?).await;
        match asked {
            Ok(Outcome::Answer(answer)) => read(&answer),
            Ok(Outcome::NotOwner { .. }) => {
                Err(Refusal::new(Code::Internal, "it did not understand; report this"))
            }
            Err(silence) => Err(Refusal::new(Code::Unavailable, silence.to_string()).retry_after(1000)),
        }
    }
}

/// Follows which shards this node has, until `stop`: what lived on those that went leaves memory at once, and what is
/// due on those that came is looked at. Of most that went their keeper has told before ([`Tenants::forget`]), also of
/// those that came and went between two looks; what a reader of the store has given up shows here alone.
pub async fn follow(entities: Entities, stop: CancellationToken) {
    let Some(router) = &entities.shared().router else { return stop.cancelled().await };
    let mut changes = router.cluster.held_changes();
    let mut had: BTreeMap<Shard, Fence> = BTreeMap::new();
    loop {
        let seen = *changes.borrow_and_update();
        let has: BTreeMap<Shard, Fence> = router.cluster.held().into_iter().collect();
        let went: Vec<Shard> = had
            .iter()
            .filter(|(shard, fence)| has.get(shard) != Some(fence))
            .map(|(shard, _)| *shard)
            .collect();
        let came = has.iter().any(|(shard, fence)| had.get(shard) != Some(fence));
        if !went.is_empty() {
            lose(&entities, &went);
        }
        if came {
            entities.shared().projection.adopt();
            // A host that was late to leave may have put there what another node has changed since.
            entities.shared().documents.forget();
        }
        if came || !went.is_empty() {
            entities.shared().shards.send_modify(|count| *count += 1);
            entities.shared().timers.send_modify(|earliest| *earliest = Timestamp(0));
        }
        had = has;
        router.followed.send_replace(seen);
        tokio::select! {
            () = stop.cancelled() => return,
            _ = changes.changed() => {}
        }
    }
}

/// The shards may be back under another fence by now, and what was loaded under that one stays.
fn lose(entities: &Entities, went: &[Shard]) {
    let shared = entities.shared();
    shared.send_away();
    shared.documents.forget();
    shared.wards.forget(|key| went.contains(&Shard::of(key)));
    let went = went.to_vec();
    shared.projection.disown(move |key| went.contains(&Shard::of(key)));
    // Whoever waits for one of them asks its next owner.
    shared.hub.publish_all();
}
