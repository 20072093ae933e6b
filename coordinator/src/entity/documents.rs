//! Bodies of documents that were read or written a moment ago, so that an answer which shows one costs no read
//! of the store.
//!
//! A document has its place in one set, by its hash; a set holds a few, so that those which share it do not drive
//! each other out. The host tells of each commit before it answers, and a commit changes what the set holds, or at
//! least the set's turn: then a reader that was under way with an older body finds the turn changed and keeps what
//! it read to itself. Bodies are texts, and most change more often than they are read: changes are kept as they came
//! until one is.

use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use skein_shared::entity::DocumentChange;
use skein_shared::id::EntityKey;
use skein_shared::json::{Fields, Json};
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

use crate::store::{StoredDocument, Version};

/// Documents kept at most: so many sets of so many.
const SETS: usize = 256;
const WAYS: usize = 8;
/// Greatest body that is kept, in bytes of its text: some long ones must not fill the memory.
const WEIGHT: usize = 2048;

/// Recent bodies.
#[derive(Debug)]
pub(super) struct Documents {
    sets: Box<[Mutex<Set>]>,
}

#[derive(Debug, Default)]
struct Set {
    /// How often a document of this set was changed.
    turn: u64,
    /// The one that came first goes first.
    held: Vec<Held>,
}

impl Set {
    fn position(&self, name: &Name<'_>) -> Option<usize> {
        self.held.iter().position(|held| held.is(name))
    }

    /// Takes a body in, in place of the document's older one.
    fn put(&mut self, name: &Name<'_>, new: Held) {
        match self.position(name) {
            Some(at) => self.held[at] = new,
            None => {
                if self.held.len() == WAYS {
                    self.held.remove(0);
                }
                self.held.push(new);
            }
        }
    }
}

/// Which document.
struct Name<'a> {
    key: &'a EntityKey,
    document: &'a str,
    hash: u64,
}

impl<'a> Name<'a> {
    fn new(key: &'a EntityKey, document: &'a str) -> Self {
        Self { key, document, hash: Xxh3DefaultBuilder::new().hash_one((key, document)) }
    }
}

#[derive(Debug)]
struct Held {
    key: EntityKey,
    document: String,
    /// Of both, for most that share a set differ in it.
    hash: u64,
    /// The entity's version that the body is of. A reader may find a commit in the store before it is told.
    version: Version,
    /// What the body was made of, oldest first: itself, if it is whole.
    changes: Vec<Json>,
    /// Whether all that was changed is merged into the one body.
    whole: bool,
}

/// What a set said.
pub(super) enum Found {
    Body(Json),
    /// Read it from the store, and give it back with this turn.
    Nothing(u64),
}

impl Default for Documents {
    fn default() -> Self {
        Self { sets: (0..SETS).map(|_| Mutex::default()).collect() }
    }
}

impl Documents {
    pub(super) fn find(&self, key: &EntityKey, document: &str) -> Found {
        let name = Name::new(key, document);
        let mut set = self.set(&name);
        match set.position(&name) {
            Some(at) => Found::Body(set.held[at].read().clone()),
            None => Found::Nothing(set.turn),
        }
    }

    /// Keeps a body as the store gave it, unless a commit was told of meanwhile.
    pub(super) fn keep(&self, turn: u64, stored: &StoredDocument) {
        let StoredDocument { key, document, version, body, .. } = stored;
        if !body.is_object() {
            return;
        }
        let body = Json::of(body);
        if body.text().len() > WEIGHT {
            return;
        }
        let name = Name::new(key, document);
        let mut set = self.set(&name);
        if set.turn == turn {
            let held = Held::new(&name, *version, body, true);
            set.put(&name, held);
        }
    }

    /// Follows a commit.
    pub(super) fn committed(&self, key: &EntityKey, version: Version, changes: &[DocumentChange]) {
        for change in changes {
            let name = Name::new(key, change.key());
            let mut set = self.set(&name);
            set.turn += 1;
            match set.position(&name) {
                Some(at) if set.held[at].version >= version => {}
                Some(at) => {
                    if !set.held[at].follow(version, change) {
                        set.held.remove(at);
                    }
                }
                None => {
                    if let Some(made) = Held::made(&name, version, change) {
                        set.put(&name, made);
                    }
                }
            }
        }
    }

    /// Forgets everything: the store has changed, or may have, without a commit that was told.
    pub(super) fn forget(&self) {
        for set in &self.sets {
            let mut set = set.lock().unwrap_or_else(PoisonError::into_inner);
            set.turn += 1;
            set.held.clear();
        }
    }

    fn set(&self, name: &Name<'_>) -> MutexGuard<'_, Set> {
        #[allow(clippy::cast_possible_truncation, reason = "the remainder is less than the number of sets")]
        let set = &self.sets[(name.hash % SETS as u64) as usize];
        set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn new(name: &Name<'_>, version: Version, body: Json, whole: bool) -> Self {
        let (key, document) = (name.key.clone(), name.document.to_owned());
        Self { key, document, hash: name.hash, version, changes: vec![body], whole }
    }

    /// A new document, of which the change says everything. Whoever made it is about to be shown it, if it is live.
    fn made(name: &Name<'_>, version: Version, change: &DocumentChange) -> Option<Self> {
        let DocumentChange::Put { live: true, body: Some(fields), new: true, .. } = change else {
            return None;
        };
        // It may be a great deal longer than what is kept, and to merge it takes its time.
        if fields.text().len() > 2 * WEIGHT {
            return None;
        }
        // It may name a field that it has not.
        let mut made = Self::new(name, version, fields.clone(), false);
        made.settle().then_some(made)
    }

    fn is(&self, name: &Name<'_>) -> bool {
        self.hash == name.hash && self.document == name.document && self.key == *name.key
    }

    /// Takes a change in. False if nothing is left that could be kept.
    fn follow(&mut self, version: Version, change: &DocumentChange) -> bool {
        let DocumentChange::Put { body, new, .. } = change else { return false };
        if let Some(change) = body {
            // It has the place of one that is gone, of which nothing stays.
            if *new {
                self.changes.clear();
            }
            self.changes.push(change.clone());
            self.whole = false;
        }
        self.version = version;
        self.settle()
    }

    /// False if the body has become too long to be kept. Changes are merged only if that has to be found out.
    fn settle(&mut self) -> bool {
        if self.weight() > WEIGHT {
            self.read();
        }
        self.weight() <= WEIGHT
    }

    fn weight(&self) -> usize {
        self.changes.iter().map(|change| change.text().len()).sum()
    }

    /// The body with all its changes, merged as the store does.
    fn read(&mut self) -> &Json {
        if !self.whole {
            let mut body = Fields::default();
            self.changes.iter().for_each(|change| body.merge(Fields::of(change)));
            self.changes = vec![Json::of(&body)];
            self.whole = true;
        }
        &self.changes[0]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use skein_shared::id::{Kind, Name};
    use skein_shared::time::Timestamp;

    use super::*;

    const TASK: &str = "task/1";

    fn pool() -> EntityKey {
        EntityKey::of(Kind::Pool, &Name::parse("default").unwrap())
    }

    fn put(body: Value) -> [DocumentChange; 1] {
        let head = Value::Null.into();
        [DocumentChange::Put { key: TASK.to_owned(), live: true, head, body: Some(body.into()), new: false }]
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
            Found::Body(body) => Some(body.value()),
            Found::Nothing(_) => None,
        }
    }

    impl Documents {
        /// Whether there is anything, without a look at it.
        fn holds(&self) -> bool {
            self.sets.iter().any(|set| !set.lock().unwrap().held.is_empty())
        }
    }

    fn turn(documents: &Documents) -> u64 {
        match documents.find(&pool(), TASK) {
            Found::Body(body) => panic!("it is there already: {body:?}"),
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

    /// Its store says so too: what is new has no more than its body.
    #[test]
    fn a_document_that_is_made_anew_has_nothing_of_the_former() {
        for read in [false, true] {
            let documents = Documents::default();
            documents.keep(turn(&documents), &stored(1, json!({ "a": 1, "b": 2 })));
            documents.committed(&pool(), Version(2), &put(json!({ "c": 3 })));
            assert!(!read || body(&documents).is_some());
            let [DocumentChange::Put { key, live, head, body: made, .. }] = put(json!({ "a": 2, "d": null }))
            else {
                panic!("a put")
            };
            let create = DocumentChange::Put { key, live, head, body: made, new: true };
            documents.committed(&pool(), Version(3), &[create]);
            assert_eq!(body(&documents), Some(json!({ "a": 2 })));
            documents.committed(&pool(), Version(4), &put(json!({ "b": 4 })));
            assert_eq!(body(&documents), Some(json!({ "a": 2, "b": 4 })));
        }
    }

    #[test]
    fn what_is_archived_at_once_drives_nothing_out() {
        let documents = Documents::default();
        let [DocumentChange::Put { key, head, body: made, .. }] = put(json!({ "a": 1 })) else {
            panic!("a put")
        };
        let archived = DocumentChange::Put { key, live: false, head, body: made, new: true };
        documents.committed(&pool(), Version(1), &[archived]);
        assert_eq!(body(&documents), None);
    }

    /// The hash has no seed, so that these are never too many for a set.
    #[test]
    fn documents_do_not_drive_each_other_out() {
        let documents = Documents::default();
        let named = |number: usize| StoredDocument {
            document: format!("task/{number}"),
            ..stored(1, json!({ "a": number }))
        };
        let is_kept =
            |number: usize| matches!(documents.find(&pool(), &format!("task/{number}")), Found::Body(_));
        let keep = |number: usize| match documents.find(&pool(), &format!("task/{number}")) {
            Found::Nothing(turn) => documents.keep(turn, &named(number)),
            Found::Body(_) => panic!("{number} is there already"),
        };
        (0..64).for_each(keep);
        assert_eq!((0..64).filter(|&number| is_kept(number)).count(), 64);
        let many = 10 * SETS * WAYS;
        (64..many).for_each(keep);
        let kept = (0..many).filter(|&number| is_kept(number)).count();
        assert_eq!(kept, SETS * WAYS, "every set is full");
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

    /// Whether it is read between its changes or not.
    #[test]
    fn bodies_that_grow_too_long_are_not_kept() {
        for read in [false, true] {
            let documents = Documents::default();
            documents.keep(turn(&documents), &stored(1, json!({})));
            let kept = (2..8).take_while(|&version| {
                let note = json!({ format!("note {version}"): "x".repeat(WEIGHT / 3) });
                documents.committed(&pool(), Version(version), &put(note));
                if read { body(&documents).is_some() } else { documents.holds() }
            });
            assert_eq!(kept.count(), 2);
        }
    }

    #[test]
    fn changes_that_wait_are_merged_in_their_order() {
        let documents = Documents::default();
        documents.keep(turn(&documents), &stored(1, json!({ "a": 1 })));
        documents.committed(&pool(), Version(2), &put(json!({ "a": null, "b": 2 })));
        documents.committed(&pool(), Version(3), &put(json!({ "b": null, "a": 3 })));
        assert_eq!(body(&documents), Some(json!({ "a": 3 })));
    }
}
