//! A real entity as a part of a model's state: decided and applied by the product's own code.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};

use skein_shared::Refusal;
use skein_shared::entity::{Changes, Ctx, Decision, DocumentChange, Entity, LiveDocument};
use skein_shared::id::EntityKey;

/// An entity with its documents.
///
/// Two of them are the same if everything in memory is, signs of life too, which the entity itself does not
/// compare; so they are told apart by all that they show of themselves.
#[derive(Clone)]
pub(crate) struct Stage<E> {
    pub(crate) entity: E,
    pub(crate) key: EntityKey,
    documents: BTreeMap<String, (bool, String)>,
    shown: String,
}

impl<E: Entity + Clone + Debug> Stage<E> {
    pub(crate) fn new(key: EntityKey) -> Self {
        let entity = E::empty(&key);
        let shown = format!("{entity:?}");
        Self { entity, key, documents: BTreeMap::new(), shown }
    }

    pub(crate) fn decide(&self, command: &E::Command, mut ctx: Ctx) -> Result<Decision<E>, Refusal> {
        self.entity.decide(command, &mut ctx)
    }

    /// Applies what was decided.
    pub(crate) fn apply(&mut self, events: &[E::Event]) {
        let mut changes = Changes::default();
        for event in events {
            self.entity.apply(event, &mut changes);
        }
        for change in changes.documents {
            match change {
                DocumentChange::Put { key, live, head, .. } => {
                    self.documents.insert(key, (live, head.text().to_owned()));
                }
                DocumentChange::Delete { key } => {
                    self.documents.remove(&key);
                }
            }
        }
        self.look();
    }

    /// Changes what is in memory and nowhere else.
    pub(crate) fn observe(&mut self, observe: impl FnOnce(&mut E)) {
        observe(&mut self.entity);
        self.look();
    }

    /// Throws the memory away and loads from the documents, as a new owner does.
    pub(crate) fn restore(&mut self) {
        let mut entity = E::empty(&self.key);
        for (key, (live, head)) in &self.documents {
            if *live {
                entity.restore(LiveDocument { key: key.clone(), head: head.clone() }).unwrap();
            }
        }
        entity.restored();
        self.entity = entity;
        self.look();
    }

    fn look(&mut self) {
        self.shown = format!("{:?}", self.entity);
    }
}

impl<E> PartialEq for Stage<E> {
    fn eq(&self, other: &Self) -> bool {
        self.shown == other.shown && self.documents == other.documents
    }
}

impl<E> Eq for Stage<E> {}

impl<E> Hash for Stage<E> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.shown.hash(state);
        self.documents.hash(state);
    }
}

impl<E> Debug for Stage<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown)
    }
}

/// Something that can be told apart by what it shows of itself, and not otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Shown<T>(pub(crate) T);

impl<T: Debug> PartialEq for Shown<T> {
    fn eq(&self, other: &Self) -> bool {
        format!("{:?}", self.0) == format!("{:?}", other.0)
    }
}

impl<T: Debug> Eq for Shown<T> {}

impl<T: Debug> Hash for Shown<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        format!("{:?}", self.0).hash(state);
    }
}
