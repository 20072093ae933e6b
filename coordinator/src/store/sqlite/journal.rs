//! What was committed and is not in its tables yet.
//!
//! A commit appends one row to a table of the journal, whatever it changes. Documents, the places of records, heads of
//! entities and marks get to their own tables many commits at once ([`super::fold`]), so that a document which was
//! written three times meanwhile is written there once. Until then this is where readers find them, and a restart takes
//! the rows up again ([`Journal::read`]).

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use rusqlite::{Connection, params};
use serde_json::{Map, Value};
use skein_shared::entity::DocumentChange;
use skein_shared::id::EntityKey;
use skein_shared::json::merge;
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::number::{signed, unsigned};
use super::reader;
use crate::store::{Batch, Mark, StoredDocument, TimerChange, Version};

/// Documents that grow together before they are folded: enough for the steps of a short task to meet.
const DOCUMENTS: usize = 2048;
/// Bytes of JSON that do.
const BYTES: usize = 4 * 1024 * 1024;
/// What a batch weighs beside its JSON.
const BATCH: usize = 256;
/// Places that are folded as one part, which takes about as long as a document.
const PLACES: usize = 8;

/// All that waits. One half grows while the other is folded, a few parts with each commit, so that nobody waits for all
/// of them.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub young: Arc<Journal>,
    /// Its parts may be in their tables already.
    pub old: Arc<Journal>,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.young.is_empty() && self.old.is_empty()
    }

    pub(super) fn has(&self, key: &EntityKey) -> bool {
        self.young.entities.contains_key(key) || self.old.entities.contains_key(key)
    }

    pub(super) fn head(&self, key: &EntityKey) -> Option<Head> {
        let unfolded = self.young.entities.get(key).or_else(|| self.old.entities.get(key));
        unfolded.map(|unfolded| unfolded.head)
    }

    /// Where the record of a version is.
    pub(super) fn place(&self, key: &EntityKey, version: Version) -> Option<Place> {
        self.young.place(key, version).or_else(|| self.old.place(key, version))
    }

    /// The changes of a document, oldest first.
    pub(super) fn changes(&self, key: &EntityKey, document: &str) -> Vec<Change> {
        [self.old.changes(key, document), self.young.changes(key, document)].concat()
    }
}

/// The journal's tables take turns: one takes what is committed while the other is folded and emptied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Table {
    #[default]
    Even,
    Odd,
}

impl Table {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Even => Self::Odd,
            Self::Odd => Self::Even,
        }
    }

    /// Without a condition: SQLite then frees the pages without a look at the rows.
    pub(super) fn empty(self, connection: &Connection) -> rusqlite::Result<()> {
        let delete = match self {
            Self::Even => "DELETE FROM journal_even",
            Self::Odd => "DELETE FROM journal_odd",
        };
        connection.prepare_cached(delete)?.execute([])?;
        Ok(())
    }

    fn insert(self) -> &'static str {
        match self {
            Self::Even => {
                "INSERT INTO journal_even (position, entity, version, batch, at, sequence, documents, seen)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
            }
            Self::Odd => {
                "INSERT INTO journal_odd (position, entity, version, batch, at, sequence, documents, seen)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
            }
        }
    }
}

/// Commits that wait to be folded.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    entities: HashMap<EntityKey, Unfolded>,
    documents: usize,
    bytes: usize,
}

/// What waits of one entity.
#[derive(Clone, Debug)]
pub(super) struct Unfolded {
    pub head: Head,
    /// The changes of each document, oldest first. What lay before a deletion is left out.
    pub documents: BTreeMap<String, Vec<Change>>,
    /// The last mark of each source, with its time.
    pub marks: BTreeMap<EntityKey, (Mark, Timestamp)>,
    /// In the order of their versions.
    pub places: Vec<Place>,
}

/// Where the record of a version is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub version: Version,
    pub position: i64,
}

/// What is folded at once.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// A document by its name.
    Document(EntityKey, String),
    /// Some of the entity's places.
    Places(EntityKey, Range<usize>),
}

/// Where an entity stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub version: Version,
    /// The id of the last batch: the same one again is a repeat.
    pub batch: Uuid,
    pub at: Timestamp,
    /// The last outbox sequence among the commits that wait; zero if none of them has an effect.
    pub sequence: u64,
}

/// One change of a document, within the batch that made it.
#[derive(Clone, Debug)]
pub(super) struct Change {
    batch: Arc<Batch>,
    place: usize,
}

impl Change {
    pub(super) fn get(&self) -> &DocumentChange {
        &self.batch.documents[self.place]
    }

    pub(super) fn version(&self) -> Version {
        Version(self.batch.expected.0 + 1)
    }

    pub(super) fn at(&self) -> Timestamp {
        self.batch.at
    }
}

impl Journal {
    pub(super) fn is_empty(&self) -> bool {
        self.entities.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.documents >= DOCUMENTS || self.bytes >= BYTES
    }

    pub(super) fn entities(&self) -> impl Iterator<Item = (&EntityKey, &Unfolded)> {
        self.entities.iter()
    }

    /// Follows a commit, whose record is at this position.
    pub(super) fn take_in(&mut self, batch: &Arc<Batch>, position: i64, sequence: u64, bytes: usize) {
        let head = Head { version: Version(batch.expected.0 + 1), batch: batch.id, at: batch.at, sequence };
        let unfolded = match self.entities.get_mut(&batch.key) {
            Some(unfolded) => unfolded,
            None => self.entities.entry(batch.key.clone()).or_insert_with(|| Unfolded {
                head,
                documents: BTreeMap::new(),
                marks: BTreeMap::new(),
                places: Vec::new(),
            }),
        };
        unfolded.places.push(Place { version: head.version, position });
        let sequence = sequence.max(unfolded.head.sequence);
        unfolded.head = Head { sequence, ..head };
        for (place, change) in batch.documents.iter().enumerate() {
            let made = Change { batch: Arc::clone(batch), place };
            match unfolded.documents.get_mut(change.key()) {
                Some(changes) => {
                    if matches!(change, DocumentChange::Delete { .. }) {
                        changes.clear();
                    }
                    changes.push(made);
                }
                None => {
                    unfolded.documents.insert(change.key().to_owned(), vec![made]);
                    self.documents += 1;
                }
            }
        }
        for mark in &batch.seen {
            let last = unfolded.marks.get(&mark.source).map(|(last, _)| (last.epoch, last.sequence));
            if last.is_none_or(|last| (mark.epoch, mark.sequence) > last) {
                unfolded.marks.insert(mark.source.clone(), (mark.clone(), batch.at));
            }
        }
        self.bytes += bytes + BATCH;
    }

    /// All that waits but the entities' heads and marks, what belongs together side by side.
    pub(super) fn parts(&self) -> impl Iterator<Item = Part> {
        self.entities.iter().flat_map(|(key, unfolded)| {
            let documents = unfolded.documents.keys().map(|name| Part::Document(key.clone(), name.clone()));
            let count = unfolded.places.len();
            let places = (0..count).step_by(PLACES).map(move |from| from..count.min(from + PLACES));
            documents.chain(places.map(|range| Part::Places(key.clone(), range)))
        })
    }

    pub(super) fn places(&self, key: &EntityKey) -> &[Place] {
        self.entities.get(key).map_or(&[], |unfolded| unfolded.places.as_slice())
    }

    fn place(&self, key: &EntityKey, version: Version) -> Option<Place> {
        let places = self.places(key);
        let found = places.binary_search_by_key(&version, |place| place.version).ok()?;
        Some(places[found])
    }

    /// The changes of a document, oldest first.
    pub(super) fn changes(&self, key: &EntityKey, document: &str) -> &[Change] {
        let changes = self.entities.get(key).and_then(|unfolded| unfolded.documents.get(document));
        changes.map_or(&[], Vec::as_slice)
    }

    /// Takes up the rows that the last process left.
    ///
    /// # Errors
    /// When the file cannot be read, or holds what no commit wrote.
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let mut journal = Self::default();
        let mut statement = connection.prepare(
            "SELECT entity, version, batch, at, sequence, documents, seen, position
             FROM (SELECT * FROM journal_even UNION ALL SELECT * FROM journal_odd) ORDER BY position",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let batch = Batch {
                key: reader::entity(row, 0)?,
                expected: Version(unsigned(row.get(1)?).saturating_sub(1)),
                // It was looked at when the batch was taken.
                after: Uuid::nil(),
                id: Uuid::from_bytes(row.get(2)?),
                at: Timestamp(unsigned(row.get(3)?)),
                documents: reader::json(row, 5)?,
                events: Vec::new(),
                seen: reader::json(row, 6)?,
                replies: Vec::new(),
                timer: TimerChange::Keep,
                outbox: Vec::new(),
                blobs: Vec::new(),
            };
            journal.take_in(&Arc::new(batch), row.get(7)?, unsigned(row.get(4)?), 0);
        }
        Ok(journal)
    }
}

/// A commit's part of the journal, as text.
pub(super) struct Entry {
    /// The batch's documents and marks as JSON arrays.
    pub documents: String,
    pub seen: String,
    /// The highest outbox sequence of the batch; zero without effects.
    pub sequence: u64,
}

impl Entry {
    /// # Errors
    /// When a body has no JSON form.
    pub(super) fn new(batch: &Batch) -> serde_json::Result<Self> {
        Ok(Self {
            documents: serde_json::to_string(&batch.documents)?,
            seen: serde_json::to_string(&batch.seen)?,
            sequence: batch.outbox.iter().map(|entry| entry.sequence).max().unwrap_or(0),
        })
    }

    /// Appends the commit's row within the open transaction; its record has a position already.
    pub(super) fn append(
        &self,
        connection: &Connection,
        table: Table,
        position: i64,
        key: &str,
        batch: &Batch,
    ) -> rusqlite::Result<()> {
        connection.prepare_cached(table.insert())?.execute(params![
            position,
            key,
            signed(batch.expected.0 + 1),
            batch.id.as_bytes(),
            signed(batch.at.0),
            signed(self.sequence),
            self.documents,
            self.seen
        ])?;
        Ok(())
    }
}

/// A document as it is when the changes that wait are added to what its table has. The changes may have been folded
/// between the two looks: then the table has the last word.
pub(super) fn with_changes(
    key: &EntityKey,
    document: &str,
    stored: Option<StoredDocument>,
    changes: &[Change],
) -> Option<StoredDocument> {
    let Some(last) = changes.last() else { return stored };
    if stored.as_ref().is_some_and(|stored| stored.version >= last.version()) {
        return stored;
    }
    let DocumentChange::Put { live, head, .. } = last.get() else { return None };
    let mut body = match stored.map(|stored| stored.body) {
        Some(Value::Object(body)) => body,
        _ => Map::new(),
    };
    for change in changes {
        match change.get() {
            DocumentChange::Put { body: Some(fields), .. } => merge(&mut body, fields.value()),
            DocumentChange::Put { body: None, .. } => {}
            DocumentChange::Delete { .. } => body.clear(),
        }
    }
    Some(StoredDocument {
        key: key.clone(),
        document: document.to_owned(),
        live: *live,
        head: head.value(),
        body: Value::Object(body),
        version: last.version(),
        at: last.at(),
    })
}
