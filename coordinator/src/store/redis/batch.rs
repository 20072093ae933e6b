//! A batch as the arguments of the commit script: keys, their types, and what to do with them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use redis::Cmd;
use serde_json::Value;
use skein_shared::entity::DocumentChange;
use skein_shared::fence::Epoch;
use skein_shared::time::Timestamp;

use super::shard::{INHABITED, Keys, POSITION};
use crate::store::{Batch, CommitError, Fence, TimerChange, Version};

/// Effects of one batch that an outbox position has room for.
pub(super) const EFFECTS: u64 = 1 << 16;
/// The largest batch. While it is written Redis serves nobody else.
const BYTES: usize = 64 * 1024 * 1024;
/// Fields that one command sets: Lua can pass on some thousands of arguments.
const FIELDS: usize = 1000;
/// What the names of a body's fields begin with, beside the fields that every document has.
pub(super) const BODY: &str = "b:";

/// The types of keys, as `check.lua` names them.
#[derive(Clone, Copy)]
enum Type {
    /// The script itself finds out.
    Seen,
    Hash,
    SortedSet,
    Stream,
    Text,
}

impl Type {
    fn letter(self) -> char {
        match self {
            Type::Seen => '-',
            Type::Hash => 'h',
            Type::SortedSet => 'z',
            Type::Stream => 'x',
            Type::Text => 's',
        }
    }
}

/// How a batch leaves a document, as the script names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Live,
    Archived,
    Deleted,
}

impl Left {
    fn of(change: &DocumentChange) -> Self {
        match change {
            DocumentChange::Put { live: true, .. } => Left::Live,
            DocumentChange::Put { live: false, .. } => Left::Archived,
            DocumentChange::Delete { .. } => Left::Deleted,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Left::Live => "1",
            Left::Archived => "0",
            Left::Deleted => "",
        }
    }
}

/// A batch that is ready to be sent. The caller's task makes it, so that the writer only sends.
pub(super) struct Prepared {
    pub(super) version: Version,
    keys: Vec<String>,
    numbers: HashMap<String, usize>,
    types: String,
    /// What comes before the operations, without the fence.
    head: Vec<Vec<u8>>,
    operations: Vec<Vec<u8>>,
    /// Roughly how much is sent.
    pub(super) bytes: usize,
}

impl Prepared {
    pub(super) fn new(batch: &Arc<Batch>) -> Result<Self, CommitError> {
        if batch.outbox.len() as u64 >= EFFECTS {
            let count = batch.outbox.len();
            return Err(CommitError::Failed(format!("a batch may have {EFFECTS} effects, not {count}")));
        }
        let keys = Keys::new(&batch.key);
        let sequence = batch.outbox.iter().map(|entry| entry.sequence).max();
        let mut prepared = Self {
            version: Version(batch.expected.0 + 1),
            keys: Vec::new(),
            numbers: HashMap::new(),
            types: String::new(),
            head: vec![
                batch.expected.0.to_string().into(),
                batch.id.to_string().into(),
                batch.at.0.to_string().into(),
                sequence.map_or_else(String::new, |last| last.to_string()).into(),
                keys.name.clone().into(),
            ],
            operations: Vec::new(),
            bytes: 0,
        };
        prepared.write(batch, &keys)?;
        prepared.bytes = prepared.operations.iter().map(Vec::len).sum();
        if prepared.bytes > BYTES {
            return Err(CommitError::Failed(format!(
                "a batch of {} MiB is too large for Redis, which would serve nobody else meanwhile; send fewer or \
                 smaller things at once ({} MiB)",
                prepared.bytes >> 20,
                BYTES >> 20
            )));
        }
        Ok(prepared)
    }

    /// The call of the script, under the fence that it gets.
    pub(super) fn call(&self, script: &str, fence: Fence) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(script).arg(self.keys.len());
        for key in &self.keys {
            call.arg(key);
        }
        call.arg(&self.types).arg(fence.epoch.0).arg(nonce(fence));
        for part in self.head.iter().chain(&self.operations) {
            call.arg(part.as_slice());
        }
        call
    }

    fn write(&mut self, batch: &Batch, keys: &Keys) -> Result<(), CommitError> {
        let shard = keys.shard;
        // The script finds these by their numbers.
        for key in [
            shard.lease(),
            keys.entity(),
            POSITION.to_owned(),
            keys.documents(),
            keys.live(),
            keys.shard.archived(),
        ] {
            self.key(key, Type::Seen);
        }
        self.list_documents(batch, keys);
        // The streams first: they are what could refuse.
        if !batch.events.is_empty() {
            let history = self.key(keys.history(), Type::SortedSet);
            self.put("EVENTS", shard.events(), Type::Stream, [history, json(&batch.events)?]);
        }
        for (place, entry) in batch.outbox.iter().enumerate() {
            let effect = [place.to_string(), entry.sequence.to_string(), json(&entry.effect)?];
            self.put("EFFECT", shard.outbox(), Type::Stream, effect);
        }
        if batch.expected == Version(0) {
            self.put("ZADD", shard.entities(), Type::SortedSet, ["0", &keys.name]);
            self.put("SETBIT", INHABITED.to_owned(), Type::Text, [shard.number().to_string().as_str(), "1"]);
        }
        self.write_documents(batch, keys)?;
        self.write_marks(batch, keys);
        if !batch.replies.is_empty() {
            let (version, at) = (self.version.0.to_string(), batch.at.0.to_string());
            // The version makes it unlike any other, for equal members are one.
            let replies = format!("{version} {at} {}", json(&batch.replies)?);
            self.put("ZADD", keys.replies(), Type::SortedSet, [version.clone(), replies]);
            let member = format!("{} {version}", keys.name);
            self.put("ZADD", shard.reply_ages(), Type::SortedSet, [at, member]);
        }
        self.write_timer(batch.timer, keys);
        Ok(())
    }

    /// Says how each document is left: the last word on it counts.
    fn list_documents(&mut self, batch: &Batch, keys: &Keys) {
        let left: BTreeMap<&str, Left> =
            batch.documents.iter().map(|change| (change.key(), Left::of(change))).collect();
        self.head.push(left.len().to_string().into());
        for (name, left) in left {
            self.key(keys.document(name), Type::Seen);
            self.head.extend([name.into(), left.as_str().into()]);
        }
    }

    /// Writes the documents one by one.
    fn write_documents(&mut self, batch: &Batch, keys: &Keys) -> Result<(), CommitError> {
        for change in &batch.documents {
            let document = keys.document(change.key());
            let DocumentChange::Put { head, body, new, .. } = change else {
                self.put("UNLINK", document, Type::Seen, [""; 0]);
                continue;
            };
            let (version, at) = (self.version.0.to_string(), batch.at.0.to_string());
            let live = Left::of(change).as_str();
            let own = [("head", head.text()), ("live", live), ("version", &version), ("at", &at)];
            let own = own.iter().flat_map(|(field, value)| [(*field).to_owned(), (*value).to_owned()]);
            self.write_fields(&document, own.collect(), body.as_ref(), *new)?;
        }
        Ok(())
    }

    /// Each field of the body is a field of the document; a null takes it away, from one that is not new.
    fn write_fields(
        &mut self,
        document: &str,
        mut pairs: Vec<String>,
        body: Option<&Value>,
        new: bool,
    ) -> Result<(), CommitError> {
        let mut gone = Vec::new();
        for (name, value) in body.and_then(Value::as_object).into_iter().flatten() {
            let name = format!("{BODY}{name}");
            match value {
                Value::Null if new => {}
                Value::Null => gone.push(name),
                value => pairs.extend([name, json(value)?]),
            }
        }
        for part in pairs.chunks(FIELDS * 2) {
            self.put("HSET", document.to_owned(), Type::Seen, part.iter().cloned());
        }
        for part in gone.chunks(FIELDS) {
            self.put("HDEL", document.to_owned(), Type::Seen, part.iter().cloned());
        }
        Ok(())
    }

    fn write_marks(&mut self, batch: &Batch, keys: &Keys) {
        for mark in &batch.seen {
            let ages = self.key(keys.shard.mark_ages(), Type::SortedSet);
            let source = mark.source.to_string();
            let member = format!("{} {source}", keys.name);
            let Epoch(epoch) = mark.epoch;
            let moved = [ages, member, source, epoch.to_string(), mark.sequence.to_string()];
            self.put("MARK", keys.marks(), Type::Hash, moved);
        }
    }

    /// The order needs no more than a score; what the timer says exactly stands in the entity.
    fn write_timer(&mut self, timer: TimerChange, keys: &Keys) {
        match timer {
            TimerChange::Keep => {}
            TimerChange::Set(due) => {
                self.put("HSET", keys.entity(), Type::Seen, ["timer", &due.0.to_string()]);
                let score = if due == Timestamp::NEVER { "+inf".to_owned() } else { due.0.to_string() };
                self.put("ZADD", keys.shard.timers(), Type::SortedSet, [&score, &keys.name]);
            }
            TimerChange::Clear => {
                self.put("HDEL", keys.entity(), Type::Seen, ["timer"]);
                self.put("ZREM", keys.shard.timers(), Type::SortedSet, [&keys.name]);
            }
        }
    }

    fn put<A: Into<String>>(
        &mut self,
        command: &str,
        key: String,
        of: Type,
        arguments: impl IntoIterator<Item = A>,
    ) {
        let key = self.key(key, of);
        let arguments: Vec<Vec<u8>> =
            arguments.into_iter().map(|argument| argument.into().into_bytes()).collect();
        self.operations.push(arguments.len().to_string().into());
        self.operations.push(command.into());
        self.operations.push(key.into());
        self.operations.extend(arguments);
    }

    /// The number of a key, as text.
    fn key(&mut self, key: String, of: Type) -> String {
        let next = self.keys.len() + 1;
        let number = *self.numbers.entry(key.clone()).or_insert(next);
        if number == next {
            self.keys.push(key);
            self.types.push(of.letter());
        }
        number.to_string()
    }
}

/// The nonce as the lease has it.
pub(super) fn nonce(fence: Fence) -> String {
    format!("{:016x}", fence.nonce)
}

fn json(value: &impl serde::Serialize) -> Result<String, CommitError> {
    serde_json::to_string(value)
        .map_err(|error| CommitError::Failed(format!("not writable as JSON: {error}")))
}
