//! What one batch gathers while its commands are decided.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde::Serialize;
use skein_shared::entity::{BlobChange, Changes, DocumentChange, Effect, Entity};
use skein_shared::fence::Epoch;
use skein_shared::id::EntityKey;
use skein_shared::json::{Fields, Json};
use skein_shared::mutation::{self, Mutation};
use skein_shared::time::Timestamp;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use crate::store::{Batch, EventRecord, Mark, OutboxEffect, StoredReply, TimerChange, Version};

#[derive(Debug)]
pub(super) struct Draft {
    documents: Vec<DocumentChange>,
    blobs: Vec<BlobChange>,
    events: Vec<EventRecord>,
    outbox: Vec<OutboxEffect>,
    pub(super) seen: Vec<Mark>,
    pub(super) replies: Vec<StoredReply>,
    pub(super) timer: TimerChange,
    /// Whom to wake after the commit.
    pub(super) topics: Vec<String>,
    /// Roughly how long all of it is, bytes.
    pub(super) weight: usize,
    /// A tick is among the commands: what was due has been decided.
    pub(super) ticked: bool,
}

impl Default for Draft {
    fn default() -> Self {
        Self {
            documents: Vec::new(),
            blobs: Vec::new(),
            events: Vec::new(),
            outbox: Vec::new(),
            seen: Vec::new(),
            replies: Vec::new(),
            timer: TimerChange::Keep,
            topics: Vec::new(),
            weight: 0,
            ticked: false,
        }
    }
}

impl Draft {
    pub(super) fn event(&mut self, record: EventRecord, changes: Changes) {
        self.weight += changes.documents.iter().map(DocumentChange::length).sum::<usize>();
        self.documents.extend(changes.documents);
        self.blobs.extend(changes.blobs);
        self.events.push(record);
    }

    pub(super) fn effect(&mut self, sequence: u64, effect: Effect) {
        self.outbox.push(OutboxEffect { sequence, effect });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
            && self.outbox.is_empty()
            && self.seen.is_empty()
            && self.timer == TimerChange::Keep
    }

    /// The batch that follows a version and the one that made it.
    pub(super) fn finish(
        self,
        key: &EntityKey,
        (expected, after): (Version, Uuid),
        at: Timestamp,
        id: Uuid,
    ) -> Batch {
        Batch {
            key: key.clone(),
            expected,
            after,
            id,
            at,
            documents: fold(self.documents),
            events: self.events,
            seen: last_of_each(self.seen),
            replies: self.replies,
            timer: self.timer,
            outbox: self.outbox,
            blobs: self.blobs,
        }
    }
}

/// An event as the log of its entity has it.
pub(super) fn record<E: Entity>(event: &E::Event) -> EventRecord {
    EventRecord { subject: E::subject(event), body: Json::of(event) }
}

/// Folds the changes of one document into one: a commit writes each document once. Of one that is deleted and made
/// anew both stay, in their order, so that nothing of the old body is left.
fn fold(changes: Vec<DocumentChange>) -> Vec<DocumentChange> {
    let mut at: HashMap<String, usize> = HashMap::new();
    let mut folded: Vec<DocumentChange> = Vec::with_capacity(changes.len());
    for change in changes {
        let earlier = at.get(change.key()).copied();
        let Some(index) = earlier.filter(|index| !is_put_after_delete(&folded[*index], &change)) else {
            at.insert(change.key().to_owned(), folded.len());
            folded.push(change);
            continue;
        };
        let empty = DocumentChange::Delete { key: String::new() };
        let earlier = std::mem::replace(&mut folded[index], empty);
        folded[index] = join(earlier, change);
    }
    folded
}

fn is_put_after_delete(earlier: &DocumentChange, later: &DocumentChange) -> bool {
    matches!((earlier, later), (DocumentChange::Delete { .. }, DocumentChange::Put { .. }))
}

/// Joins two changes of one document, of which the later is no put after a delete.
fn join(earlier: DocumentChange, later: DocumentChange) -> DocumentChange {
    match (earlier, later) {
        (
            DocumentChange::Put { body: Some(earlier), new, .. },
            DocumentChange::Put { key, live, head, body: later, .. },
        ) => {
            // A null stays in the change, so that the store removes the field too.
            let body = Fields::joined([&earlier].into_iter().chain(&later)).map(Cow::into_owned);
            DocumentChange::Put { key, live, head, body, new }
        }
        (_, later) => later,
    }
}

/// The last mark of each source, which stands for those before it.
fn last_of_each(seen: Vec<Mark>) -> Vec<Mark> {
    let mut sources = HashSet::new();
    let mut last: Vec<Mark> =
        seen.into_iter().rev().filter(|mark| sources.insert(mark.source.clone())).collect();
    last.reverse();
    last
}

/// How far each source's deliveries were taken in.
#[derive(Debug, Default)]
pub(super) struct Marks(HashMap<EntityKey, (Epoch, u64)>);

impl Marks {
    pub(super) fn restore(marks: Vec<Mark>) -> Self {
        let mut restored = Self::default();
        for mark in marks {
            restored.note(&mark);
        }
        restored
    }

    pub(super) fn has(&self, mark: &Mark) -> bool {
        let seen = self.0.get(&mark.source).filter(|_| !mutation::is_on(Mutation::IgnoreMarks));
        seen.is_some_and(|&seen| (mark.epoch, mark.sequence) <= seen)
    }

    /// Whether the mark is news.
    pub(super) fn note(&mut self, mark: &Mark) -> bool {
        if self.has(mark) {
            return false;
        }
        self.0.insert(mark.source.clone(), (mark.epoch, mark.sequence));
        true
    }
}

/// Tells commands apart, so that a reused idempotency key with other arguments is refused.
pub(super) fn digest(command: &impl Serialize) -> u64 {
    let bytes = serde_json::to_vec(command).expect("a command is plain data");
    xxh3_64(&bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use skein_shared::id::{Kind, Name};

    use super::*;

    /// A store that is only told of the last adds it to the old body.
    #[test]
    fn of_a_document_that_is_deleted_and_made_anew_both_changes_stay() {
        let put = |key: &str, body: Value, new: bool| DocumentChange::Put {
            key: key.to_owned(),
            live: true,
            head: json!({}).into(),
            body: Some(body.into()),
            new,
        };
        let delete = |key: &str| DocumentChange::Delete { key: key.to_owned() };
        let changes = vec![
            put("a", json!({ "old": 1 }), false),
            put("b", json!({ "one": 1 }), true),
            delete("a"),
            put("a", json!({ "one": 1 }), true),
            put("b", json!({ "two": 2 }), false),
            put("a", json!({ "two": 2 }), false),
        ];
        let both = json!({ "one": 1, "two": 2 });
        let expected = [delete("a"), put("b", both.clone(), true), put("a", both, true)];
        assert_eq!(fold(changes), expected);
        let again = vec![delete("a"), put("a", json!({}), true), delete("a")];
        assert_eq!(fold(again), [delete("a"), delete("a")]);
    }

    /// Each would be written, looked up and listed by its age, and only the last of a source counts.
    #[test]
    fn of_the_marks_of_one_source_the_last_is_written() {
        let swarm = Name::parse("default").unwrap();
        let mark = |kind, epoch, sequence| Mark {
            source: EntityKey::of(kind, &swarm),
            epoch: Epoch(epoch),
            sequence,
        };
        let (pool, epics) = (|n| mark(Kind::Pool, 1, n), mark(Kind::Epics, 1, 7));
        let seen = vec![pool(1), epics.clone(), pool(2), pool(3), mark(Kind::Pool, 2, 1)];
        let draft = Draft { seen, ..Draft::default() };
        let place = (Version(0), Uuid::nil());
        let batch = draft.finish(&mark(Kind::Channels, 1, 1).source, place, Timestamp(1), Uuid::nil());
        assert_eq!(batch.seen, [epics, mark(Kind::Pool, 2, 1)]);
    }
}
