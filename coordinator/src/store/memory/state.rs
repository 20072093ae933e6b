//! The contents of the store in memory: what a commit changes, and what is read of it. Who may write is not its
//! business.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use serde_json::{Map, Value};
use skein_shared::entity::{DocumentChange, LiveDocument};
use skein_shared::id::EntityKey;
use skein_shared::json::merge;
use skein_shared::limits::REPLY_KEEP;
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::blobs::Blobs;
use crate::store::{
    Batch, Chunk, CommitError, DeadLetter, EventRecord, Fence, LIVE_PAGE, LivePage, Loaded, Mark,
    OutboxEffect, OutboxEntry, Record, StoredBlob, StoredDocument, StoredReply, TimerChange, TrimPlan,
    Trimmed, Version,
};

/// Entities, records and effects.
#[derive(Clone, Default)]
pub struct State {
    pub(super) fence: Option<Fence>,
    /// By the text of the key, whose order the contract names.
    entities: BTreeMap<String, Held>,
    records: BTreeMap<u64, Kept>,
    last_record: u64,
    outbox: BTreeMap<u64, OutboxEntry>,
    last_effect: u64,
    dead: BTreeMap<u64, DeadLetter>,
    blobs: Blobs,
    /// What other processes own is not in the lists of this one.
    pub(super) elsewhere: BTreeSet<EntityKey>,
}

/// An entity.
#[derive(Clone)]
struct Held {
    key: EntityKey,
    version: Version,
    batch: Uuid,
    at: Timestamp,
    sequence: u64,
    documents: BTreeMap<String, Document>,
    marks: BTreeMap<String, (Mark, Timestamp)>,
    timer: Option<Timestamp>,
}

#[derive(Clone)]
struct Document {
    live: bool,
    head: Value,
    body: Map<String, Value>,
    version: Version,
    at: Timestamp,
}

/// A record; what was trimmed from it is empty.
#[derive(Clone)]
struct Kept {
    key: EntityKey,
    version: Version,
    at: Timestamp,
    events: Vec<EventRecord>,
    replies: Vec<StoredReply>,
}

impl State {
    /// Applies one batch under a fence that was found to be right.
    ///
    /// # Errors
    /// `Conflict` when the entity stands elsewhere, `Failed` when chunks are missing of what it keeps.
    pub fn commit(&mut self, fence: Fence, batch: &Batch) -> Result<Version, CommitError> {
        let name = batch.key.to_string();
        let version = Version(batch.expected.0 + 1);
        let found = self.entities.get(&name);
        let (actual, last) = found.map_or_else(Default::default, |held| (held.version, held.batch));
        if (actual, last) == (version, batch.id) {
            return Ok(version);
        }
        if (actual, last) != (batch.expected, batch.after) {
            return Err(CommitError::Conflict { actual });
        }
        self.blobs.check(batch)?;
        self.blobs.take(batch);
        let held = self.entities.entry(name).or_insert_with(|| Held::new(&batch.key));
        held.take(batch, version);
        for entry in &batch.outbox {
            self.last_effect += 1;
            let position = self.last_effect;
            let (source, epoch, at) = (batch.key.clone(), fence.epoch, batch.at);
            let OutboxEffect { sequence, effect } = entry.clone();
            let fence = Fence::NONE;
            self.outbox
                .insert(position, OutboxEntry { position, source, epoch, sequence, at, effect, fence });
        }
        self.last_record += 1;
        let Batch { key, at, events, replies, .. } = batch.clone();
        self.records.insert(self.last_record, Kept { key, version, at, events, replies });
        Ok(version)
    }

    /// Writes a chunk under a fence that was found to be right.
    pub fn write_chunk(&mut self, chunk: &Chunk) {
        self.blobs.write(chunk);
    }

    /// A chunk of a blob that is kept.
    pub fn chunk(&self, key: &EntityKey, blob: Uuid, place: u32) -> Option<Vec<u8>> {
        self.blobs.chunk(key, blob, place)
    }

    /// Blobs that are kept, after the given one.
    pub fn blobs(&self, after: Option<(EntityKey, Uuid)>, limit: usize) -> Vec<StoredBlob> {
        self.blobs.kept(after, limit)
    }

    pub fn load(&self, key: &EntityKey) -> Loaded {
        let Some(held) = self.entities.get(&key.to_string()) else { return Loaded::default() };
        let since = held.at - REPLY_KEEP;
        let replies = self.records.values().filter(|record| record.key == *key && record.at >= since);
        Loaded {
            version: held.version,
            batch: held.batch,
            at: held.at,
            sequence: held.sequence,
            live: self.live(key, "", LIVE_PAGE),
            marks: held.marks.values().map(|(mark, _)| mark.clone()).collect(),
            replies: replies.flat_map(|record| record.replies.iter().cloned()).collect(),
            timer: held.timer,
        }
    }

    pub fn live_page(&self, key: &EntityKey, after: &str, limit: usize) -> LivePage {
        let held = self.entities.get(&key.to_string());
        let (version, batch) = held.map(|held| (held.version, held.batch)).unwrap_or_default();
        LivePage { version, batch, documents: self.live(key, after, limit) }
    }

    pub fn live(&self, key: &EntityKey, after: &str, limit: usize) -> Vec<LiveDocument> {
        let Some(held) = self.entities.get(&key.to_string()) else { return Vec::new() };
        let later = held.documents.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
        let live = later.filter(|(_, document)| document.live).take(limit);
        live.map(|(key, document)| LiveDocument { key: key.clone(), head: document.head.to_string() })
            .collect()
    }

    pub fn document(&self, key: &EntityKey, document: &str) -> Option<StoredDocument> {
        let held = self.entities.get(&key.to_string())?;
        held.documents.get_key_value(document).map(|(name, found)| held.stored(name, found))
    }

    pub fn documents(&self, after: Option<(EntityKey, String)>, limit: usize) -> Vec<StoredDocument> {
        let (entity, last) = after.map_or_else(Default::default, |(key, last)| (key.to_string(), last));
        let later = self.entities.range((Bound::Included(entity.clone()), Bound::Unbounded));
        later
            .filter(|(_, held)| !self.elsewhere.contains(&held.key))
            .flat_map(|(name, held)| {
                let after = if *name == entity { last.as_str() } else { "" };
                held.documents
                    .range::<str, _>((Bound::Excluded(after), Bound::Unbounded))
                    .map(|(name, document)| held.stored(name, document))
            })
            .take(limit)
            .collect()
    }

    pub(super) fn documents_of(&self, key: &EntityKey, after: &str, limit: usize) -> Vec<StoredDocument> {
        let Some(held) = self.entities.get(&key.to_string()) else { return Vec::new() };
        let later = held.documents.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
        later.take(limit).map(|(name, document)| held.stored(name, document)).collect()
    }

    pub fn versions(&self) -> Vec<(EntityKey, Version)> {
        let own = self.entities.values().filter(|held| !self.elsewhere.contains(&held.key));
        own.map(|held| (held.key.clone(), held.version)).collect()
    }

    pub(super) fn records(&self, after: u64, limit: usize) -> Vec<Record> {
        self.records_that(after, limit, |_| true)
    }

    pub(super) fn own_records(&self, after: u64, limit: usize) -> Vec<Record> {
        self.records_that(after, limit, |record| !self.elsewhere.contains(&record.key))
    }

    fn records_that(&self, after: u64, limit: usize, wanted: impl Fn(&Kept) -> bool) -> Vec<Record> {
        let later = self.records.range((Bound::Excluded(after), Bound::Unbounded));
        later
            .filter(|(_, record)| !record.events.is_empty() && wanted(record))
            .take(limit)
            .map(|(&position, record)| record.stored(position))
            .collect()
    }

    pub(super) fn records_of(&self, key: &EntityKey, versions: &[Version]) -> Vec<Record> {
        self.records
            .iter()
            .filter(|(_, record)| record.key == *key && versions.contains(&record.version))
            .filter(|(_, record)| !record.events.is_empty())
            .map(|(&position, record)| record.stored(position))
            .collect()
    }

    pub(super) fn history(&self, key: &EntityKey, after: Version, limit: usize) -> Vec<Record> {
        self.records
            .iter()
            .filter(|(_, record)| record.key == *key && record.version > after && !record.events.is_empty())
            .take(limit)
            .map(|(&position, record)| record.stored(position))
            .collect()
    }

    pub(super) fn last_position(&self) -> u64 {
        self.last_record
    }

    pub fn timers(&self, limit: usize) -> Vec<(EntityKey, Timestamp)> {
        let mut timers: Vec<(Timestamp, &String, &Held)> =
            self.entities.iter().filter_map(|(name, held)| Some((held.timer?, name, held))).collect();
        timers.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        timers.into_iter().take(limit).map(|(due, _, held)| (held.key.clone(), due)).collect()
    }

    pub(super) fn outbox_len(&self) -> usize {
        self.outbox.len()
    }

    pub fn outbox(&self, after: u64, limit: usize) -> Vec<OutboxEntry> {
        let later = self.outbox.range((Bound::Excluded(after), Bound::Unbounded));
        later.take(limit).map(|(_, entry)| entry.clone()).collect()
    }

    pub fn delivered(&mut self, positions: impl Iterator<Item = u64>) {
        for position in positions {
            self.outbox.remove(&position);
        }
    }

    pub fn bury(&mut self, position: u64, reason: String, at: Timestamp) {
        if let Some(entry) = self.outbox.remove(&position) {
            self.dead.insert(position, DeadLetter { entry, reason, buried_at: at });
        }
    }

    pub fn dead_letters(&self, after: u64, limit: usize) -> Vec<DeadLetter> {
        let later = self.dead.range((Bound::Excluded(after), Bound::Unbounded));
        later.take(limit).map(|(_, letter)| letter.clone()).collect()
    }

    pub(super) fn trim(&mut self, plan: &TrimPlan) -> Trimmed {
        let trimmed = Trimmed {
            records: self.trim_events(plan),
            replies: self.trim_replies(plan),
            marks: self.trim_marks(plan),
            documents: self.trim_documents(plan),
            dead_letters: self.trim_dead_letters(plan),
            loose: self.blobs.sweep(plan.loose_before, plan.limit),
        };
        self.records.retain(|_, record| !record.events.is_empty() || !record.replies.is_empty());
        trimmed
    }

    /// Age and surplus have the limit each, as in the other stores.
    fn trim_events(&mut self, plan: &TrimPlan) -> u64 {
        let mut old = 0;
        for record in self.records.values_mut() {
            if !record.events.is_empty() && record.at < plan.events_before && old < plan.limit {
                record.events.clear();
                old += 1;
            }
        }
        let mut surplus = 0;
        for record in self.records.values_mut() {
            let newest = self.entities.get(&record.key.to_string()).map_or(0, |held| held.version.0);
            let too_many = record.version.0.saturating_add(plan.events_per_entity) <= newest;
            if !record.events.is_empty() && too_many && surplus < plan.limit {
                record.events.clear();
                surplus += 1;
            }
        }
        (old + surplus) as u64
    }

    fn trim_replies(&mut self, plan: &TrimPlan) -> u64 {
        let old = self
            .records
            .values_mut()
            .filter(|record| !record.replies.is_empty() && record.at < plan.replies_before);
        old.take(plan.limit).map(|record| record.replies.clear()).count() as u64
    }

    fn trim_marks(&mut self, plan: &TrimPlan) -> u64 {
        let mut left = plan.limit;
        for held in self.entities.values_mut() {
            held.marks.retain(|_, (_, at)| !spend(&mut left, *at < plan.marks_before));
        }
        (plan.limit - left) as u64
    }

    fn trim_documents(&mut self, plan: &TrimPlan) -> u64 {
        let mut left = plan.limit;
        for held in self.entities.values_mut() {
            held.documents.retain(|_, document| {
                !spend(&mut left, !document.live && document.at < plan.archived_before)
            });
        }
        (plan.limit - left) as u64
    }

    fn trim_dead_letters(&mut self, plan: &TrimPlan) -> u64 {
        let mut left = plan.limit;
        self.dead.retain(|_, letter| !spend(&mut left, letter.buried_at < plan.dead_letters_before));
        (plan.limit - left) as u64
    }
}

/// Whether something due may still be removed within the step's limit.
fn spend(left: &mut usize, due: bool) -> bool {
    if !due || *left == 0 {
        return false;
    }
    *left -= 1;
    true
}

impl Kept {
    fn stored(&self, position: u64) -> Record {
        Record {
            position,
            key: self.key.clone(),
            version: self.version,
            at: self.at,
            events: self.events.clone(),
        }
    }
}

impl Held {
    fn new(key: &EntityKey) -> Self {
        Self {
            key: key.clone(),
            version: Version(0),
            batch: Uuid::nil(),
            at: Timestamp::ZERO,
            sequence: 0,
            documents: BTreeMap::new(),
            marks: BTreeMap::new(),
            timer: None,
        }
    }

    fn stored(&self, name: &str, document: &Document) -> StoredDocument {
        StoredDocument {
            key: self.key.clone(),
            document: name.to_owned(),
            live: document.live,
            head: document.head.clone(),
            body: Value::Object(document.body.clone()),
            version: document.version,
            at: document.at,
        }
    }

    /// Everything of a batch but its record and its effects.
    fn take(&mut self, batch: &Batch, version: Version) {
        self.version = version;
        self.batch = batch.id;
        self.at = batch.at;
        self.sequence = batch.outbox.iter().map(|entry| entry.sequence).fold(self.sequence, u64::max);
        for change in &batch.documents {
            self.change(change, version, batch.at);
        }
        for mark in &batch.seen {
            let source = mark.source.to_string();
            let stored = self.marks.get(&source).map(|(mark, _)| (mark.epoch, mark.sequence));
            if stored.is_none_or(|stored| (mark.epoch, mark.sequence) > stored) {
                self.marks.insert(source, (mark.clone(), batch.at));
            }
        }
        match batch.timer {
            TimerChange::Keep => {}
            TimerChange::Set(due) => self.timer = Some(due),
            TimerChange::Clear => self.timer = None,
        }
    }

    fn change(&mut self, change: &DocumentChange, version: Version, at: Timestamp) {
        match change {
            DocumentChange::Put { key, live, head, body, .. } => {
                let mut merged = self.documents.remove(key).map(|document| document.body).unwrap_or_default();
                if let Some(change) = body {
                    merge(&mut merged, change.value());
                }
                let document = Document { live: *live, head: head.value(), body: merged, version, at };
                self.documents.insert(key.clone(), document);
            }
            DocumentChange::Delete { key } => {
                self.documents.remove(key);
            }
        }
    }
}
