//! Runs an entity the way the host does, for property tests: every command is decided, applied and checked,
//! and the documents must give back the state that the events made.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use uuid::Uuid;

use crate::code::Refusal;
use crate::entity::{BlobChange, Changes, Ctx, DocumentChange, Effect, Entity, LiveDocument};
use crate::fence::Epoch;
use crate::id::EntityKey;
use crate::json;
use crate::time::Timestamp;

/// An entity with its documents, its history and a clock that only the test moves.
pub(crate) struct Bench<E: Entity> {
    pub(crate) entity: E,
    pub(crate) key: EntityKey,
    pub(crate) now: Timestamp,
    pub(crate) serving_since: Timestamp,
    pub(crate) epoch: Epoch,
    pub(crate) events: Vec<E::Event>,
    /// Effects of every command so far, oldest first.
    pub(crate) effects: Vec<Effect>,
    documents: BTreeMap<String, (bool, Value)>,
    bodies: BTreeMap<String, serde_json::Map<String, Value>>,
    blobs: BTreeSet<Uuid>,
    requests: u128,
}

impl<E: Entity> Bench<E> {
    pub(crate) fn new(key: EntityKey) -> Self {
        let start = Timestamp(1_790_000_000_000);
        Self {
            entity: E::empty(&key),
            key,
            now: start,
            serving_since: start,
            epoch: Epoch(start.0),
            events: Vec::new(),
            effects: Vec::new(),
            documents: BTreeMap::new(),
            bodies: BTreeMap::new(),
            blobs: BTreeSet::new(),
            requests: 0,
        }
    }

    pub(crate) fn ctx(&mut self) -> Ctx {
        self.requests += 1;
        Ctx::new(self.now, self.now, self.serving_since, self.epoch, Uuid::from_u128(self.requests))
    }

    /// Decides one command and applies its events.
    ///
    /// # Panics
    /// When an invariant breaks or the documents do not give back the state: that is what it is for.
    pub(crate) fn run(&mut self, command: E::Command) -> Result<E::Reply, Refusal> {
        let mut ctx = self.ctx();
        let decision = self.entity.decide(&command, &mut ctx)?;
        for event in &decision.events {
            let mut changes = Changes::default();
            self.entity.apply(event, &mut changes);
            self.store(changes);
            if let Err(broken) = self.entity.check() {
                panic!("invariant {broken} does not hold after {event:?}, decided for {command:?}");
            }
        }
        self.events.extend(decision.events);
        self.effects.extend(decision.effects);
        Ok(decision.reply)
    }

    /// What a command would write: its events, their documents and its effects, bytes.
    ///
    /// # Panics
    /// When the command is refused.
    pub(crate) fn weight(&mut self, command: &E::Command) -> usize
    where
        E: Clone,
    {
        let mut ctx = self.ctx();
        let decision = self.entity.decide(command, &mut ctx).expect("it is decided");
        let (mut followed, mut changes) = (self.entity.clone(), Changes::default());
        decision.events.iter().for_each(|event| followed.apply(event, &mut changes));
        let lists = json::length(&decision.events) + json::length(&decision.effects);
        lists + json::length(&changes.documents)
    }

    /// Moves the clock and ticks while a timer is due.
    ///
    /// # Panics
    /// When ticking does not move the timer on.
    pub(crate) fn advance(&mut self, span: Duration) {
        self.now = self.now + span;
        for _ in 0..10_000 {
            match self.entity.next_wake() {
                Some(due) if due <= self.now => {
                    let _ = self.run(E::tick());
                }
                _ => return,
            }
        }
        panic!("a tick left its timer due");
    }

    /// The entity as its documents give it back.
    ///
    /// # Panics
    /// When a document cannot be read.
    pub(crate) fn restored(&self) -> E {
        let mut entity = E::empty(&self.key);
        for (key, (live, head)) in &self.documents {
            if *live {
                let document = LiveDocument { key: key.clone(), head: head.to_string() };
                entity.restore(document).expect("own documents can be read");
            }
        }
        entity.restored();
        entity.loaded(self.now);
        for document in entity.recalls(self.now) {
            entity.recall(&document, &self.bodies[&document]);
        }
        entity
    }

    /// Throws the memory away and restores from the documents, under a new epoch, as a takeover does.
    pub(crate) fn restart(&mut self) {
        self.entity = self.restored();
        self.epoch = Epoch(self.epoch.0 + 1);
        self.serving_since = self.now;
    }

    /// The head of a document, live or not.
    pub(crate) fn head(&self, key: &str) -> Option<&Value> {
        self.documents.get(key).map(|(_, head)| head)
    }

    /// The body of a document.
    pub(crate) fn body(&self, key: &str) -> Option<&serde_json::Map<String, Value>> {
        self.bodies.get(key)
    }

    /// The blobs that are kept.
    pub(crate) fn blobs(&self) -> &BTreeSet<Uuid> {
        &self.blobs
    }

    fn store(&mut self, changes: Changes) {
        for change in changes.blobs {
            match change {
                BlobChange::Keep { blob, .. } => assert!(self.blobs.insert(blob), "{blob} is kept already"),
                BlobChange::Free { blob } => assert!(self.blobs.remove(&blob), "{blob} is not kept"),
            }
        }
        for change in changes.documents {
            match change {
                DocumentChange::Put { key, live, head, body, new } => {
                    assert!(!new || !self.documents.contains_key(&key), "{key} is not new");
                    if let Some(body) = body {
                        json::merge(self.bodies.entry(key.clone()).or_default(), body.value());
                    }
                    self.documents.insert(key, (live, head.value()));
                }
                DocumentChange::Delete { key } => {
                    self.documents.remove(&key);
                    self.bodies.remove(&key);
                }
            }
        }
    }
}
