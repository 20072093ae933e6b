//! Bodies of documents that were read or written a moment ago, so that an answer which shows one costs no read
//! of the store.
//!
//! A document has one slot, by its hash. The host tells of each commit before it answers, and a commit
//! changes what its slot holds, or at least the slot's turn: then a reader that was under way with an older
//! body finds the turn changed and keeps what it read to itself.

use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};
use skein_shared::entity::DocumentChange;
use skein_shared::harness::merge;
use skein_shared::id::EntityKey;
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

/// Documents kept at most.
const SLOTS: usize = 4096;
/// Greatest body that is kept, in bytes of its texts and names: some long ones must not fill the memory.
const WEIGHT: usize = 2048;

/// Recent bodies.
#[derive(Debug)]
pub(super) struct Documents {
    slots: Box<[Mutex<Slot>]>,
}

#[derive(Debug, Default)]
struct Slot {
    /// How often a document of this slot was changed.
    turn: u64,
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    key: EntityKey,
    document: String,
    body: Map<String, Value>,
}

impl Held {
    fn is(&self, key: &EntityKey, document: &str) -> bool {
        self.document == document && self.key == *key
    }
}

/// What a slot said.
pub(super) enum Found {
    Body(Value),
    /// Read it from the store, and give it back with this turn.
    Nothing(u64),
}

impl Default for Documents {
    fn default() -> Self {
        Self { slots: (0..SLOTS).map(|_| Mutex::default()).collect() }
    }
}

impl Documents {
    pub(super) fn find(&self, key: &EntityKey, document: &str) -> Found {
        let slot = self.slot(key, document);
        match &slot.held {
            Some(held) if held.is(key, document) => Found::Body(Value::Object(held.body.clone())),
            _ => Found::Nothing(slot.turn),
        }
    }

    /// Keeps a body as the store gave it, unless something was committed meanwhile.
    pub(super) fn keep(&self, key: &EntityKey, document: &str, turn: u64, body: &Value) {
        let Value::Object(body) = body else { return };
        if weight(body) > WEIGHT {
            return;
        }
        let mut slot = self.slot(key, document);
        if slot.turn == turn {
            let (key, document) = (key.clone(), document.to_owned());
            slot.held = Some(Held { key, document, body: body.clone() });
        }
    }

    /// Follows a commit.
    pub(super) fn committed(&self, key: &EntityKey, changes: &[DocumentChange]) {
        for change in changes {
            let (document, body) = match change {
                DocumentChange::Put { key, body, .. } => (key, body.as_ref()),
                DocumentChange::Delete { key } => (key, None),
            };
            let mut slot = self.slot(key, document);
            slot.turn += 1;
            let Some(held) = slot.held.as_mut().filter(|held| held.is(key, document)) else { continue };
            if matches!(change, DocumentChange::Delete { .. }) || !held.take(body) {
                slot.held = None;
            }
        }
    }

    /// Forgets everything: the store has changed, or may have, without a commit that was told.
    pub(super) fn forget(&self) {
        for slot in &self.slots {
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            slot.turn += 1;
            slot.held = None;
        }
    }

    fn slot(&self, key: &EntityKey, document: &str) -> MutexGuard<'_, Slot> {
        let hash = Xxh3DefaultBuilder::new().hash_one((key, document));
        #[allow(clippy::cast_possible_truncation, reason = "the remainder is less than the number of slots")]
        let slot = &self.slots[(hash % SLOTS as u64) as usize];
        slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Merges a change as the store does. False if the body has become too large to be kept.
    fn take(&mut self, change: Option<&Value>) -> bool {
        if let Some(change) = change {
            merge(&mut self.body, change.clone());
        }
        weight(&self.body) <= WEIGHT
    }
}

fn weight(body: &Map<String, Value>) -> usize {
    body.iter().map(|(name, value)| name.len() + value_weight(value)).sum()
}

fn value_weight(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(value_weight).sum(),
        Value::Object(fields) => weight(fields),
        _ => size_of::<Value>(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skein_shared::id::{Kind, Name};

    use super::*;

    const TASK: &str = "task/1";

    fn pool() -> EntityKey {
        EntityKey::of(Kind::Pool, &Name::parse("default").unwrap())
    }

    fn put(body: Value) -> [DocumentChange; 1] {
        [DocumentChange::Put { key: TASK.to_owned(), live: true, head: Value::Null, body: Some(body) }]
    }

    fn body(documents: &Documents) -> Option<Value> {
        match documents.find(&pool(), TASK) {
            Found::Body(body) => Some(body),
            Found::Nothing(_) => None,
        }
    }

    fn read(documents: &Documents, stored: &Value) {
        let Found::Nothing(turn) = documents.find(&pool(), TASK) else { panic!("it is there already") };
        documents.keep(&pool(), TASK, turn, stored);
    }

    #[test]
    fn a_commit_changes_what_was_read() {
        let documents = Documents::default();
        assert_eq!(body(&documents), None);
        read(&documents, &json!({ "a": 1, "b": 2 }));
        documents.committed(&pool(), &put(json!({ "b": null, "c": 3 })));
        assert_eq!(body(&documents), Some(json!({ "a": 1, "c": 3 })));
        documents.committed(&pool(), &[DocumentChange::Delete { key: TASK.to_owned() }]);
        assert_eq!(body(&documents), None);
    }

    #[test]
    fn a_body_that_a_commit_has_overtaken_is_not_kept() {
        let documents = Documents::default();
        let Found::Nothing(turn) = documents.find(&pool(), TASK) else { panic!("nothing was read yet") };
        documents.committed(&pool(), &put(json!({ "a": 2 })));
        documents.keep(&pool(), TASK, turn, &json!({ "a": 1 }));
        assert_eq!(body(&documents), None);

        let Found::Nothing(turn) = documents.find(&pool(), TASK) else { panic!("it was not kept") };
        documents.forget();
        documents.keep(&pool(), TASK, turn, &json!({ "a": 1 }));
        assert_eq!(body(&documents), None);
    }

    #[test]
    fn long_bodies_are_not_kept() {
        let documents = Documents::default();
        read(&documents, &json!({ "text": "x".repeat(WEIGHT) }));
        assert_eq!(body(&documents), None);
        read(&documents, &json!({ "text": "x" }));
        assert_eq!(body(&documents), Some(json!({ "text": "x" })));
        documents.committed(&pool(), &put(json!({ "output": ["x".repeat(WEIGHT)] })));
        assert_eq!(body(&documents), None);
    }
}
