//! Finds the actor of an entity, or starts it. Each node has its own directory: no global registry, so two
//! nodes may share a process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ractor::{ActorId, MessagingErr};
use skein_shared::entity::{Entity, Signal};
use skein_shared::id::{EntityKey, Kind};
use skein_shared::json::Json;
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::desk::delivery_id;
use super::documents::Documents;
use super::host::{self, EntityActor, Message, Ticket};
use super::ownership::Streams;
use super::refusals::{moving, unavailable, unknown_to};
use super::request::Request;
use super::routing::Router;
use super::slot::{Farewell, Slot};
use super::supervision::Wards;
use super::traces::Traces;
use super::upkeep::Swarms;
use super::{Clock, Hub};
use crate::alarms::Alarms;
use crate::by_kind;
use crate::cluster::Cluster;
use crate::projection::Projection;
use crate::store::{Fence, Mark, Store, StoreError, Version};

/// The entities of this node.
#[derive(Clone)]
pub struct Entities {
    shared: Arc<Shared>,
}

/// What every host needs.
pub struct Shared {
    pub store: Arc<dyn Store>,
    pub projection: Projection,
    pub clock: Clock,
    pub hub: Hub,
    /// Tells the timer pump that a timer was set.
    pub timers: tokio::sync::watch::Sender<Timestamp>,
    /// Tells the outbox pump that an effect was committed.
    pub outbox: tokio::sync::watch::Sender<u64>,
    pub(super) documents: Documents,
    /// What is wrong until somebody looks after it.
    pub alarms: Alarms,
    /// To which traces effects belong.
    pub traces: Traces,
    /// Where entities live that are not this node's; none when all are.
    pub(super) router: Option<Router>,
    /// The runners that are connected here.
    pub(super) streams: OnceLock<Arc<dyn Streams>>,
    /// Counts how often shards came or went.
    pub shards: tokio::sync::watch::Sender<u64>,
    actors: Mutex<HashMap<EntityKey, Slot>>,
    /// Of those that were sent away with their shards, what tells that they are gone.
    moved: Mutex<Vec<CancellationToken>>,
    pub(super) wards: Wards,
    pub(super) swarms: tokio::sync::Mutex<Swarms>,
}

impl Shared {
    /// Takes out the slot of a host that is dying. After this no message reaches it.
    pub(super) fn retire(&self, key: &EntityKey, id: ActorId) {
        let mut actors = self.lock();
        if actors.get(key).is_some_and(|slot| slot.id == id) {
            actors.remove(key);
        }
        drop(actors);
        self.hub.publish_all();
    }

    /// Takes in a host that was loaded. One that is late leaves again: another serves its entity already, or its fence
    /// was lost while it loaded, after those of that fence were sent away.
    fn admit(&self, key: &EntityKey, slot: Slot) {
        let mut actors = self.lock();
        if actors.contains_key(key) || slot.fence != self.store.fence(key) {
            slot.dismiss(Farewell::Moved);
            return;
        }
        actors.insert(key.clone(), slot);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<EntityKey, Slot>> {
        self.actors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn unreadable(error: StoreError) -> Refusal {
    Refusal::new(Code::Unavailable, format!("{error}; try again in a moment")).retry_after(500)
}

impl Entities {
    /// All entities of the store.
    pub fn new(store: Arc<dyn Store>, projection: Projection, clock: Clock, hub: Hub) -> Self {
        Self::embedded(store, projection, clock, hub, Alarms::default())
    }

    /// The same on a node that has noticed already whether something is wrong.
    pub fn embedded(
        store: Arc<dyn Store>,
        projection: Projection,
        clock: Clock,
        hub: Hub,
        alarms: Alarms,
    ) -> Self {
        Self::build(store, projection, clock, hub, alarms, None)
    }

    /// Those whose shards this node has; whatever is for others goes to their nodes.
    pub fn clustered(
        store: Arc<dyn Store>,
        projection: Projection,
        clock: Clock,
        hub: Hub,
        cluster: Arc<Cluster>,
    ) -> Self {
        let alarms = cluster.alarms().clone();
        Self::build(store, projection, clock, hub, alarms, Some(Router::new(cluster)))
    }

    fn build(
        store: Arc<dyn Store>,
        projection: Projection,
        clock: Clock,
        hub: Hub,
        alarms: Alarms,
        router: Option<Router>,
    ) -> Self {
        let shared = Shared {
            store,
            projection,
            clock,
            hub,
            timers: tokio::sync::watch::channel(Timestamp::NEVER).0,
            outbox: tokio::sync::watch::channel(0).0,
            documents: Documents::default(),
            alarms,
            traces: Traces::default(),
            router,
            streams: OnceLock::new(),
            shards: tokio::sync::watch::Sender::new(0),
            actors: Mutex::default(),
            moved: Mutex::default(),
            wards: Wards::default(),
            swarms: tokio::sync::Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub fn hub(&self) -> &Hub {
        &self.shared.hub
    }

    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Asks an entity and waits for its answer, which comes after the commit. Given up before the entity has decided,
    /// it does not happen: what is wanted though nobody waits for it is asked in a task of its own.
    ///
    /// # Errors
    /// The entity's refusal; `overloaded` when too much waits; `outcome_unknown` when no answer came in time
    /// or the store's answer was lost: repeat the same request to learn what became of it.
    pub async fn ask<E: Entity>(
        &self,
        key: &EntityKey,
        request: Request,
        command: E::Command,
    ) -> Result<E::Reply, Refusal> {
        self.send::<E>(key, request, command).await.map(|(reply, _)| reply)
    }

    /// Takes in what one source's outbox holds for an entity of this node, each command with its mark, in their order.
    /// They are decided one after the other and share commits. One that was not taken in leaves none after it taken in,
    /// save that a command at which the entity fails is refused by itself.
    ///
    /// The outcomes are those of [`Entities::ask`]; `internal` also when a command is none of this kind's.
    pub(super) async fn deliver_here(
        &self,
        key: &EntityKey,
        life: u64,
        commands: Vec<(Mark, &Json)>,
    ) -> Vec<Result<(), Refusal>> {
        by_kind!(key.kind, E => self.deliver_to::<E>(key, life, commands).await)
    }

    async fn deliver_to<E: Entity>(
        &self,
        key: &EntityKey,
        life: u64,
        commands: Vec<(Mark, &Json)>,
    ) -> Vec<Result<(), Refusal>> {
        let mut deliveries = Vec::with_capacity(commands.len());
        let count = commands.len();
        let mut outcomes = Vec::with_capacity(count);
        for (mark, command) in commands {
            let command = match command.read::<E::Command>().map_err(unknown_to(key)) {
                Ok(command) => match self.informed::<E>(key, command).await {
                    Ok(command) => Ok(command),
                    // None may go before it, for the mark of a later one stands for it too.
                    Err(refusal) => return vec![Err(refusal); count],
                },
                Err(refusal) => Err(refusal),
            };
            outcomes.push(command.map(|command| {
                let request = Request { id: delivery_id(&mark), ..Request::read() };
                let trace = self.shared.traces.of(&mark.source, mark.sequence);
                let (ticket, answered) = Ticket::following(key, &trace);
                let mark = Some(mark);
                deliveries.push(host::Pending { request, mark, command, ticket });
                answered
            }));
        }
        if let Err(refusal) = self.post_or_start::<E>(key, Message::Deliveries(life, deliveries)).await {
            // Also to what this program does not know: whoever decides for the entity next may.
            return outcomes.into_iter().map(|_| Err(refusal.clone())).collect();
        }
        let end = Instant::now() + Request::TIMEOUT;
        let mut told = Vec::with_capacity(outcomes.len());
        for outcome in outcomes {
            told.push(match outcome {
                Ok(answered) => answer_of::<E>(key, answered, end).await.map(|_| ()),
                Err(refusal) => Err(refusal),
            });
        }
        told
    }

    /// Passes on a sign of life to an entity that is in memory here; others learn by their grace period.
    pub(super) fn observe_here(&self, key: &EntityKey, signal: Signal) {
        by_kind!(key.kind, E => {
            let actors = self.shared.lock();
            if let Some(actor) = actors.get(key).and_then(Slot::actor::<E>) {
                let _ = actor.cast(Message::Observe(signal));
            }
        });
    }

    /// The version that every write acknowledged before this question has, at least: a reader of the read
    /// side waits for it. For entities of this node.
    ///
    /// # Errors
    /// `unavailable` when the entity cannot be loaded.
    pub(super) async fn version(&self, key: &EntityKey) -> Result<Version, Refusal> {
        by_kind!(key.kind, E => {
            let (answer, answered) = oneshot::channel();
            self.post_or_start::<E>(key, Message::Version(answer)).await?;
            tokio::time::timeout(Request::TIMEOUT, answered).await.ok().and_then(Result::ok).ok_or_else(|| unavailable(key))
        })
    }

    /// Sends the tick of a due timer and waits for it.
    pub async fn tick(&self, key: &EntityKey) -> Result<(), Refusal> {
        by_kind!(key.kind, E => self.send_here::<E>(key, Request::read(), E::tick()).await.map(|_| ()))
    }

    /// The entities in memory, with the commands that each has waiting.
    pub fn in_memory(&self) -> Vec<(EntityKey, usize)> {
        let actors = self.shared.lock();
        actors.iter().map(|(key, slot)| (key.clone(), slot.admission.in_flight())).collect()
    }

    /// The entities of a kind that are this node's, in memory or not.
    ///
    /// # Errors
    /// `unavailable` when the store cannot be read.
    pub async fn of_kind(&self, kind: Kind) -> Result<Vec<EntityKey>, Refusal> {
        let versions = self.shared.store.versions().await.map_err(unreadable)?;
        Ok(versions.into_iter().map(|(key, _)| key).filter(|key| key.kind == kind).collect())
    }

    pub(super) async fn send_here<E: Entity>(
        &self,
        key: &EntityKey,
        request: Request,
        command: E::Command,
    ) -> Result<(E::Reply, Version), Refusal> {
        debug_assert_eq!(key.kind, E::KIND);
        let command = self.informed::<E>(key, command).await?;
        let (ticket, answered) = Ticket::new(key);
        let pending = host::Pending { request, mark: None, command, ticket };
        self.post_or_start::<E>(key, Message::Command(pending)).await?;
        answer_of::<E>(key, answered, Instant::now() + request.timeout).await
    }

    /// Puts a message into the mailbox of an entity, which it loads if need be. A message that met an entity
    /// on its way out was not taken in, for certain, and goes to the one that is loaded after it.
    async fn post_or_start<E: Entity>(&self, key: &EntityKey, message: Message<E>) -> Result<(), Refusal> {
        const TRIES: usize = 3;
        let mut message = message;
        for _ in 0..TRIES {
            let Some(back) = self.post::<E>(key, message)? else { return Ok(()) };
            message = back;
            // In a task of its own: whoever asks may be one of many futures that are left alone for a while, and all
            // others would wait with it at the door.
            let (this, of) = (self.clone(), key.clone());
            let starting = async move { this.start::<E>(&of).await }.in_current_span();
            tokio::spawn(starting).await.unwrap_or_else(|_| Err(unavailable(key)))?;
        }
        self.post::<E>(key, message)?.map_or(Ok(()), |_| Err(unavailable(key)))
    }

    /// Gives the message back if the entity is not in memory.
    fn post<E: Entity>(
        &self,
        key: &EntityKey,
        mut message: Message<E>,
    ) -> Result<Option<Message<E>>, Refusal> {
        let mut actors = self.shared.lock();
        let Some(slot) = actors.get_mut(key) else { return Ok(Some(message)) };
        if slot.fence != self.shared.store.fence(key) {
            // Nobody is told anything from a memory that may be out of date.
            self.shared.dismiss(slot);
            actors.remove(key);
            return Ok(Some(message));
        }
        match &mut message {
            Message::Command(pending) => {
                pending.ticket.permit = Some(slot.enter::<E>()?);
            }
            // One for all, held until the last is answered: they go together or not at all.
            Message::Deliveries(life, all) => {
                if *life != self.life() {
                    // What led to them may be gone.
                    return Err(moving(key));
                }
                if let Some(last) = all.last_mut() {
                    last.ticket.permit = Some(slot.enter::<E>()?);
                }
            }
            // Whoever only looks at lists asks how far an entity is, and keeps none in memory by that.
            _ => {}
        }
        let Some(actor) = slot.actor::<E>() else { return Err(unavailable(key)) };
        match actor.cast(message) {
            Ok(()) => Ok(None),
            Err(MessagingErr::SendErr(back)) => {
                actors.remove(key);
                Ok(Some(back))
            }
            Err(_) => Err(unavailable(key)),
        }
    }

    /// Loads an entity. Of many who ask for it one does the work.
    async fn start<E: Entity>(&self, key: &EntityKey) -> Result<(), Refusal> {
        let ward = self.shared.wards.of(key);
        let _door = ward.door.lock().await;
        if self.shared.lock().contains_key(key) {
            return Ok(());
        }
        if self.shared.store.fence(key) == Fence::NONE {
            return Err(moving(key));
        }
        ward.ready(key).await?;
        if ward.has_died_lately() {
            // Its last commit may have come to the store after all, and nobody told what it changed.
            self.shared.documents.forget();
        }
        let started = EntityActor::<E>::start(key.clone(), Arc::clone(&self.shared), Arc::clone(&ward)).await;
        let failed = |refusal: &Refusal| {
            if refusal.code != Code::NotOwner {
                ward.died();
            }
        };
        let slot = Slot::of(started.inspect_err(failed)?);
        self.shared.admit(key, slot);
        Ok(())
    }

    /// Sends away the entities that had no command for `idle` and have nothing to lose. Says how many.
    pub(super) fn passivate(&self, idle: Duration) -> usize {
        let mut actors = self.shared.lock();
        let before = actors.len();
        actors.retain(|key, slot| {
            let stays =
                slot.used.elapsed() < idle || slot.admission.in_flight() > 0 || slot.vitals.must_stay();
            if !stays {
                if slot.vitals.has_deadline() {
                    self.shared.wards.of(key).resumes(slot.vitals.serving_since);
                }
                slot.dismiss(Farewell::Idle);
            }
            stays
        });
        let left = before - actors.len();
        drop(actors);
        self.shared.wards.forget_idle();
        left
    }
}

impl Shared {
    /// Sends away the entities that are written under a fence which this node does not have any more. Gives what tells
    /// that they are gone, and those that were sent away before them. No others: what one of them has under way would
    /// be taken under the same fence behind the back of whoever loads it again.
    pub(super) fn send_away(&self) -> Vec<CancellationToken> {
        self.lock().retain(|key, slot| {
            let stays = slot.fence == self.store.fence(key);
            if !stays {
                self.dismiss(slot);
            }
            stays
        });
        self.moved.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whoever gives the shard away waits until its host has told what is under way, whoever found it out first.
    fn dismiss(&self, slot: &Slot) {
        slot.dismiss(Farewell::Moved);
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        moved.retain(|gone| !gone.is_cancelled());
        moved.push(slot.gone.clone());
    }
}

/// The answer to a command that was taken in.
async fn answer_of<E: Entity>(
    key: &EntityKey,
    answered: oneshot::Receiver<host::Answer<E>>,
    end: Instant,
) -> host::Answer<E> {
    let why = match tokio::time::timeout_at(end, answered).await {
        Ok(Ok(outcome)) => return outcome,
        Ok(Err(_)) => "restarted before it could answer",
        Err(_) => "did not answer in time",
    };
    let problem = format!("{key} {why}; repeat the request with the same idempotency key");
    Err(Refusal::new(Code::Unknown, problem))
}
