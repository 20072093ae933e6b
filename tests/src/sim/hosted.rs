//! Entities of any kind at the real [`Desk`], with commands and replies as nodes send them to one another.

use serde_json::Value;
use skein_coordinator::entity::desk::{Begun, Desk, Pending, Settled};
use skein_coordinator::entity::line::Outcome;
use skein_coordinator::entity::{Request, Time};
use skein_coordinator::store::memory::State;
use skein_coordinator::store::{Batch, Fence, Loaded, Mark, Version};
use skein_shared::entity::{Entity, Signal};
use skein_shared::id::EntityKey;
use skein_shared::json::Json;
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal};
use std::marker::PhantomData;
use std::sync::Arc;
use uuid::Uuid;

/// The way back to whoever asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// A request of a client at this node.
    Trip(u64),
    /// A request that another node has sent on.
    Peer(Back),
    /// One of several deliveries, decided in this life of the store.
    Delivery { run: u64, gather: u64, place: usize, mark: Mark },
    /// The timers.
    Tick,
}

/// The question of a node that an answer belongs to. Whoever runs at that node later numbers its questions anew, and
/// has connections of its own: it hears nothing of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Back {
    pub node: usize,
    pub life: u64,
    pub rpc: u64,
}

/// A command for an entity.
#[derive(Clone, Debug)]
pub struct Asked {
    pub request: Request,
    pub mark: Option<Mark>,
    pub command: Json,
    pub way: Way,
}

/// An answer, and the version at which it was given.
#[derive(Clone, Debug)]
pub struct Told {
    pub way: Way,
    pub outcome: Result<Value, Refusal>,
    pub version: Version,
}

/// What became of the commands that waited.
pub enum Started {
    Batch(Arc<Batch>),
    Answers(Vec<Told>),
}

/// What became of a commit.
pub struct Ended {
    pub done: Option<(Arc<Batch>, Version)>,
    pub told: Vec<Told>,
    /// Those who hear nothing.
    pub lost: Vec<Way>,
}

/// An entity that was read from the store.
pub trait Found {
    fn serve(self: Box<Self>, fence: Fence, since: Timestamp) -> Box<dyn Hosted>;
}

/// An entity in memory.
pub trait Hosted {
    fn take_in(&mut self, asked: Vec<Asked>) -> Vec<Told>;
    fn should_begin(&self) -> bool;
    fn begin(&mut self, time: Time, id: Uuid) -> Started;
    fn committed(&mut self, outcome: Outcome) -> Option<Ended>;
    fn leave(&mut self) -> Vec<Told>;
    fn is_over(&self) -> bool;
    fn observe(&mut self, signal: &Signal, now: Timestamp);
    /// # Errors
    /// The first invariant that does not hold.
    fn check(&self) -> Result<(), String>;
}

/// Reads an entity, as `entity/load.rs` does.
///
/// # Panics
/// When a document cannot be read: that is a finding.
pub fn find(key: &EntityKey, state: &State, now: Timestamp) -> Box<dyn Found> {
    skein_coordinator::by_kind!(key.kind, E => Box::new(Read::<E>::new(key, state, now)))
}

struct Read<E> {
    key: EntityKey,
    entity: E,
    loaded: Loaded,
}

impl<E: Entity> Read<E> {
    fn new(key: &EntityKey, state: &State, now: Timestamp) -> Self {
        let mut loaded = state.load(key);
        let mut entity = E::empty(key);
        for document in std::mem::take(&mut loaded.live) {
            entity.restore(document).expect("what was written can be read");
        }
        entity.restored();
        entity.loaded(now);
        for document in entity.recalls(now) {
            if let Some(found) = state.document(key, &document)
                && let Value::Object(body) = found.body
            {
                entity.recall(&document, &body);
            }
        }
        Self { key: key.clone(), entity, loaded }
    }
}

impl<E: Entity> Found for Read<E> {
    fn serve(self: Box<Self>, fence: Fence, since: Timestamp) -> Box<dyn Hosted> {
        let Read { key, entity, loaded } = *self;
        Box::new(Host::<E> { desk: Desk::new(key, fence, since, (entity, loaded)), kind: PhantomData })
    }
}

struct Host<E: Entity> {
    desk: Desk<E, Way>,
    kind: PhantomData<E>,
}

impl<E: Entity> Host<E> {
    fn told(&self, settled: Vec<Settled<E, Way>>) -> Vec<Told> {
        let version = self.desk.version();
        let told = settled.into_iter().map(|Settled { outcome, ticket, .. }| {
            let outcome = outcome.map(|reply| serde_json::to_value(reply).expect("a reply is plain data"));
            Told { way: ticket, outcome, version }
        });
        told.collect()
    }
}

impl<E: Entity> Hosted for Host<E> {
    fn take_in(&mut self, asked: Vec<Asked>) -> Vec<Told> {
        let (mut commands, mut refused) = (Vec::new(), Vec::new());
        for Asked { request, mark, command, way } in asked {
            match command.read::<E::Command>() {
                Ok(command) => commands.push(Pending { request, mark, command, ticket: way }),
                Err(error) => {
                    let refusal = Refusal::new(Code::InvalidArgument, error.to_string());
                    refused.push(Settled { outcome: Err(refusal), effects: 0..0, ticket: way });
                }
            }
        }
        refused.extend(self.desk.take_in(commands));
        self.told(refused)
    }

    fn should_begin(&self) -> bool {
        self.desk.should_begin()
    }

    fn begin(&mut self, time: Time, id: Uuid) -> Started {
        match self.desk.begin(time, id) {
            Begun::Batch(batch) => Started::Batch(batch),
            Begun::Answers(answers) | Begun::Broken(answers) => Started::Answers(self.told(answers)),
        }
    }

    fn committed(&mut self, outcome: Outcome) -> Option<Ended> {
        Some(match self.desk.committed(outcome)? {
            Ok(committed) => Ended {
                told: self.told(committed.answers),
                done: Some((committed.batch, committed.version)),
                lost: Vec::new(),
            },
            Err(undone) => Ended { told: self.told(undone.answers), done: None, lost: undone.lost },
        })
    }

    fn leave(&mut self) -> Vec<Told> {
        let turned_away = self.desk.leave();
        self.told(turned_away)
    }

    fn is_over(&self) -> bool {
        self.desk.is_over()
    }

    fn observe(&mut self, signal: &Signal, now: Timestamp) {
        self.desk.observe(signal, now);
    }

    fn check(&self) -> Result<(), String> {
        self.desk.entity().check()
    }
}
