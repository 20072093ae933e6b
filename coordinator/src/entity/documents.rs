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

use crate::store::{StoredDocument, Version};

/// Documents kept at most.
const SLOTS: usize = 2048;
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
    /// The entity's version that the body is of. A reader may find a commit in the store before it is told.
    version: Version,
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

    /// Keeps a body as the store gave it, unless a commit was told of meanwhile.
    pub(super) fn keep(&self, turn: u64, stored: &StoredDocument) {
        let StoredDocument { key, document, version, body: Value::Object(body), .. } = stored else { return };
        if weight(body) > WEIGHT {
            return;
        }
        let mut slot = self.slot(key, document);
        if slot.turn == turn {
            let (key, document) = (key.clone(), document.clone());
            slot.held = Some(Held { key, document, version: *version, body: body.clone() });
        }
    }

    /// Follows a commit.
    pub(super) fn committed(&self, key: &EntityKey, version: Version, changes: &[DocumentChange]) {
        for change in changes {
            let document = change.key();
            let mut slot = self.slot(key, document);
            slot.turn += 1;
            match slot.held.as_mut().filter(|held| held.is(key, document)) {
                Some(held) if held.version >= version => {}
                Some(held) => {
                    if !held.follow(version, change) {
                        slot.held = None;
                    }
                }
                None => {
                    if let Some(made) = Held::made(key, version, change) {
                        slot.held = Some(made);
                    }
                }
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
    /// A new document, of which the change says everything. Whoever made it is about to be shown it.
    fn made(key: &EntityKey, version: Version, change: &DocumentChange) -> Option<Self> {
        let DocumentChange::Put { key: document, body: Some(fields), new: true, .. } = change else {
            return None;
        };
        let mut body = Map::new();
        merge(&mut body, fields.clone());
        let (key, document) = (key.clone(), document.clone());
        (weight(&body) <= WEIGHT).then_some(Self { key, document, version, body })
    }

    /// Merges a change as the store does. False if nothing is left that could be kept.
    fn follow(&mut self, version: Version, change: &DocumentChange) -> bool {
        let DocumentChange::Put { body, .. } = change else { return false };
        if let Some(fields) = body {
            merge(&mut self.body, fields.clone());
        }
        self.version = version;
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
    use skein_shared::time::Timestamp;

    use super::*;

    const TASK: &str = "task/1";

    fn pool() -> EntityKey {
        EntityKey::of(Kind::Pool, &Name::parse("default").unwrap())
    }

    fn put(body: Value) -> [DocumentChange; 1] {
        let head = Value::Null.into();
        [DocumentChange::Put { key: TASK.to_owned(), live: true, head, body: Some(body), new: false }]
    }

    fn stored(version: u64, body: Value) -> StoredDocument {
        StoredDocument {
            key: pool(),
            document: TASK.to_owned(),
            live: true,
            head: Value::Null,
            body,
            version: Version(version),
            at: Timestamp(0),
        }
    }

    fn body(documents: &Documents) -> Option<Value> {
        match documents.find(&pool(), TASK) {
            Found::Body(body) => Some(body),
            Found::Nothing(_) => None,
        }
    }

    fn turn(documents: &Documents) -> u64 {
        match documents.find(&pool(), TASK) {
            Found::Body(body) => panic!("it is there already: {body}"),
            Found::Nothing(turn) => turn,
        }
    }

    #[test]
    fn a_commit_changes_what_was_read() {
        let documents = Documents::default();
        documents.keep(turn(&documents), &stored(1, json!({ "a": 1, "b": 2 })));
        documents.committed(&pool(), Version(2), &put(json!({ "b": null, "c": 3 })));
        assert_eq!(body(&documents), Some(json!({ "a": 1, "c": 3 })));
        let delete = DocumentChange::Delete { key: TASK.to_owned() };
        documents.committed(&pool(), Version(3), &[delete]);
        assert_eq!(body(&documents), None);
    }

    #[test]
    fn what_was_read_before_a_commit_was_told_is_not_changed_back() {
        let documents = Documents::default();
        documents.keep(turn(&documents), &stored(3, json!({ "a": 3 })));
        for version in [2, 3] {
            documents.committed(&pool(), Version(version), &put(json!({ "a": version })));
            assert_eq!(body(&documents), Some(json!({ "a": 3 })));
        }
    }

    #[test]
    fn a_body_that_a_commit_has_overtaken_is_not_kept() {
        let documents = Documents::default();
        let before = turn(&documents);
        documents.committed(&pool(), Version(2), &put(json!({ "a": 2 })));
        documents.keep(before, &stored(1, json!({ "a": 1 })));
        assert_eq!(body(&documents), None);

        let before = turn(&documents);
        documents.forget();
        documents.keep(before, &stored(2, json!({ "a": 2 })));
        assert_eq!(body(&documents), None);
    }

    #[test]
    fn a_new_document_is_at_hand_without_a_read() {
        let documents = Documents::default();
        let [DocumentChange::Put { key, live, head, body: made, .. }] = put(json!({ "a": 1, "b": null }))
        else {
            panic!("a put")
        };
        let create = DocumentChange::Put { key, live, head, body: made, new: true };
        documents.committed(&pool(), Version(1), &[create]);
        documents.committed(&pool(), Version(2), &put(json!({ "c": 3 })));
        assert_eq!(body(&documents), Some(json!({ "a": 1, "c": 3 })));
    }

    #[test]
    fn long_bodies_are_not_kept() {
        let documents = Documents::default();
        documents.keep(turn(&documents), &stored(1, json!({ "text": "x".repeat(WEIGHT) })));
        assert_eq!(body(&documents), None);
        documents.keep(turn(&documents), &stored(1, json!({ "text": "x" })));
        assert_eq!(body(&documents), Some(json!({ "text": "x" })));
        documents.committed(&pool(), Version(2), &put(json!({ "output": ["x".repeat(WEIGHT)] })));
        assert_eq!(body(&documents), None);
    }
}
