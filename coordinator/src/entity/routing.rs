//! Sends what is for an entity to the node that has it: to this one's directory, or through the cluster.
//!
//! This is the one place where the two ways part, so that services, the outbox, webhooks and runners all come by here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use skein_shared::entity::{Entity, Signal};
use skein_shared::id::EntityKey;
use skein_shared::json::Json;
use skein_shared::{Code, Refusal};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::directory::Entities;
use super::errand::{Errand, Next};
use super::refusals::{moving, unanswered};
use super::remote::{Call, read, write};
use super::request::Request;
use crate::by_kind;
use crate::cluster::{Cluster, Outcome, Route};
use crate::store::{Mark, Version};

/// How long another node may take for a sign of life: the next one is on its way.
const SIGNAL: Duration = Duration::from_secs(2);

/// The way to the entities of other nodes.
pub(super) struct Router {
    pub(super) cluster: Arc<Cluster>,
    /// In their order: the end of a poll must not overtake its beginning.
    signals: mpsc::UnboundedSender<(EntityKey, Signal)>,
    /// The change of the shards held here up to which the read side was told what came and went.
    pub(super) followed: watch::Sender<u64>,
}

impl Router {
    /// Begins to pass signs of life on; it ends with the last handle.
    pub(super) fn new(cluster: Arc<Cluster>) -> Self {
        let (signals, queue) = mpsc::unbounded_channel();
        tokio::spawn(pass_on(Arc::clone(&cluster), queue));
        Self { cluster, signals, followed: watch::Sender::new(0) }
    }
}

impl Entities {
    pub(super) async fn send<E: Entity>(
        &self,
        key: &EntityKey,
        request: Request,
        command: E::Command,
    ) -> Result<(E::Reply, Version), Refusal> {
        let Some(router) = &self.shared().router else {
            return self.send_here::<E>(key, request, command).await;
        };
        let call = Call::Ask { id: request.id, keep: request.kept_elsewhere(), command: &command };
        let here = |request| self.send_here::<E>(key, request, command.clone());
        router.routed(key, request, &call, here).await
    }

    /// Like [`Entities::ask`], and gives the document along that the answer shows, as it is after the change; none when
    /// it cannot be read.
    ///
    /// # Errors
    /// Those of [`Entities::ask`].
    pub async fn ask_shown<E: Entity>(
        &self,
        key: &EntityKey,
        request: Request,
        command: E::Command,
    ) -> Result<(E::Reply, Option<Value>), Refusal> {
        let Some(router) = &self.shared().router else {
            return self.show_here::<E>(key, request, command).await;
        };
        let call = Call::Show { id: request.id, keep: request.kept_elsewhere(), command: &command };
        let here = |request| self.show_here::<E>(key, request, command.clone());
        router.routed(key, request, &call, here).await
    }

    /// Asks something of an entity's node that changes nothing, or nothing more when it is asked again.
    pub(super) async fn read_routed<T, F, R>(
        &self,
        key: &EntityKey,
        call: &Call<Value>,
        here: F,
    ) -> Result<T, Refusal>
    where
        T: DeserializeOwned,
        F: Fn() -> R,
        R: Future<Output = Result<T, Refusal>>,
    {
        match &self.shared().router {
            None => here().await,
            Some(router) => router.routed(key, Request::read(), call, |_| here()).await,
        }
    }

    /// Takes in what one source's outbox holds for an entity, each command with its mark, in their order. They
    /// are decided one after the other and share commits. One that was not taken in leaves none after it taken
    /// in, save that a command at which the entity fails is refused by itself.
    ///
    /// The outcomes are those of [`Entities::ask`]; `internal` when a command is none of this kind's. Nothing is tried
    /// twice: what comes to nothing stays in the outbox. What was decided in another life of the store than the one on
    /// which the entity's node relies is not taken in.
    pub async fn deliver(
        &self,
        key: &EntityKey,
        life: u64,
        commands: Vec<(Mark, &Json)>,
    ) -> Vec<Result<(), Refusal>> {
        let Some(router) = &self.shared().router else { return self.deliver_here(key, life, commands).await };
        let count = commands.len();
        let member = match router.cluster.route(key) {
            Route::Here => return self.deliver_here(key, life, commands).await,
            Route::There(member) => member,
            Route::Nowhere => return vec![Err(moving(key)); count],
        };
        let commands = commands.into_iter().map(|(mark, command)| (mark, command.clone())).collect();
        let Ok(call) = write(&Call::<Value>::Deliver(commands)) else {
            return vec![Err(moving(key)); count];
        };
        let answered = router.cluster.forward_decided(&member, key, Request::TIMEOUT, life, call).await;
        if let Ok(Outcome::Answer(answer)) = answered
            && let Ok(outcomes) = read::<Vec<Result<(), Refusal>>>(&answer)
            && outcomes.len() == count
        {
            return outcomes;
        }
        // Whatever came of it, only an outcome of its own may end an effect.
        vec![Err(moving(key)); count]
    }

    /// Passes on a sign of life to an entity that is in memory; others learn by their grace period.
    pub fn observe(&self, key: &EntityKey, signal: Signal) {
        match &self.shared().router {
            Some(router) if router.cluster.route(key) != Route::Here => {
                let _ = router.signals.send((key.clone(), signal));
            }
            _ => self.observe_here(key, signal),
        }
    }

    /// Executes what came from another node, which may say in which life of the store it was decided. `None` when the
    /// entity is not this node's.
    pub(super) async fn answer_for(
        &self,
        key: &EntityKey,
        life: u64,
        timeout: Duration,
        call: &[u8],
    ) -> Option<Vec<u8>> {
        let answer = by_kind!(key.kind, E => self.answer_call::<E>(key, life, timeout, call).await);
        answer.unwrap_or_else(|refusal| {
            (refusal.code != Code::NotOwner).then(|| write(&Err::<(), _>(refusal)).ok())?
        })
    }

    async fn answer_call<E: Entity>(
        &self,
        key: &EntityKey,
        life: u64,
        timeout: Duration,
        call: &[u8],
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let call: Call<E::Command> = serde_json::from_slice(call).map_err(|error| {
            Refusal::new(
                Code::InvalidArgument,
                format!("{key} does not know what another node asks: {error}"),
            )
        })?;
        Ok(match call {
            Call::Ask { id, keep, command } => {
                encoded(self.send_here::<E>(key, Request::forwarded(id, timeout, keep), command).await?)
            }
            Call::Show { id, keep, command } => {
                encoded(self.show_here::<E>(key, Request::forwarded(id, timeout, keep), command).await?)
            }
            Call::Deliver(commands) => {
                let commands = commands.iter().map(|(mark, command)| (mark.clone(), command)).collect();
                // Another life may be relied on since the one that was said was compared at the door.
                let life = if life == 0 { self.life() } else { life };
                encoded(self.deliver_here(key, life, commands).await)
            }
            Call::Observe(signals) => {
                signals.into_iter().for_each(|signal| self.observe_here(key, signal));
                encoded(())
            }
            Call::Read(wanted) => encoded(self.read_here(key, *wanted).await?),
            Call::Chunk { blob, place, bytes } => encoded(self.take_chunk(key, blob, place, &bytes).await?),
        })
    }
}

fn encoded<T: Serialize>(answer: T) -> Option<Vec<u8>> {
    write(&Ok::<_, Refusal>(answer)).ok()
}

impl Router {
    /// Asks the owner, whoever that is, until it has answered or the time is over. Whatever is asked may be asked
    /// again: its answer is kept, or it changes nothing. What was sent on may be this node's to answer in the end, so
    /// it looks for such an answer then.
    async fn routed<C, T, F, R>(
        &self,
        key: &EntityKey,
        request: Request,
        call: &Call<C>,
        here: F,
    ) -> Result<T, Refusal>
    where
        C: Serialize,
        T: DeserializeOwned,
        F: Fn(Request) -> R,
        R: Future<Output = Result<T, Refusal>>,
    {
        let mut errand = Errand::new(Instant::now() + request.timeout);
        let (mut owners, mut held) = (self.cluster.changes(), self.cluster.held_changes());
        let mut written = None;
        loop {
            owners.mark_unchanged();
            held.mark_unchanged();
            let left = errand.left(Instant::now());
            let outcome = match self.cluster.route(key) {
                Route::Here => here(request.again(left, errand.may_be_done())).await,
                Route::There(member) => {
                    let call = match &written {
                        Some(call) => Vec::clone(call),
                        None => written.insert(write(call)?).clone(),
                    };
                    // In a box, for most are asked here and need no room for this.
                    match Box::pin(self.cluster.forward(&member, Some(key), left, call)).await {
                        Ok(Outcome::Answer(answer)) => read(&answer),
                        Ok(Outcome::NotOwner { .. }) => Err(moving(key)),
                        Err(silence) => {
                            errand.unanswered(unanswered(key, &silence.to_string()));
                            Err(moving(key))
                        }
                    }
                }
                Route::Nowhere => Err(moving(key)),
            };
            let pause = match errand.heard(outcome, Instant::now()) {
                Next::Done(outcome) => return outcome,
                Next::Again(pause) => pause,
            };
            tokio::select! {
                _ = owners.changed() => {}
                _ = held.changed() => {}
                () = tokio::time::sleep(jittered(pause)) => errand.slower(),
            }
        }
    }
}

/// Somewhere between half of a pause and all of it, so that those who wait do not come all at once.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [128];
    let _ = getrandom::fill(&mut byte);
    pause / 2 + pause * u32::from(byte[0]) / 512
}

/// Passes signs of life on to the nodes that have their entities. What cannot be delivered now is dropped.
async fn pass_on(cluster: Arc<Cluster>, mut queue: mpsc::UnboundedReceiver<(EntityKey, Signal)>) {
    while let Some((key, signal)) = queue.recv().await {
        let mut signals = BTreeMap::from([(key, vec![signal])]);
        while let Ok((key, signal)) = queue.try_recv() {
            signals.entry(key).or_default().push(signal);
        }
        let calls = signals.into_iter().map(|(key, signals)| {
            let cluster = Arc::clone(&cluster);
            async move {
                if let (Route::There(member), Ok(call)) =
                    (cluster.route(&key), write(&Call::<Value>::Observe(signals)))
                {
                    let _ = cluster.forward(&member, Some(&key), SIGNAL, call).await;
                }
            }
        });
        join_all(calls).await;
    }
}
