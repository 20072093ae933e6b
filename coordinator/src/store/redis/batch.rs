//! A batch as the arguments of the commit script: keys, their types, and what to do with them.

use redis::Cmd;
use skein_shared::blobs::chunks;
use skein_shared::entity::BlobChange;
use skein_shared::limits;
use skein_shared::time::Timestamp;

use super::arguments::Arguments;
use super::body::{self, Documents};
use super::shard::{INHABITED, Keys, POSITION, Shard};
use crate::store::{Batch, CommitError, Fence, TimerChange, Version};

/// Effects of one batch that an outbox position has room for.
pub(super) const EFFECTS: u64 = 1 << 16;
/// The largest batch: a decision, what else is in its batch, and what stands around it.
const BYTES: usize = limits::DECISION + 16 * 1024 * 1024;
/// Arguments of one operation, at most: Lua passes on some thousands.
const TOGETHER: usize = 1000;
/// Keys that the script finds by their numbers, and which of them is the entity.
const FIXED: usize = 9;
const ENTITY: usize = 2;

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

/// A batch that is ready to be sent. The caller's task makes it, so that the writer only sends.
pub(super) struct Prepared {
    pub(super) shard: Shard,
    pub(super) version: Version,
    keys: Arguments,
    /// Of the keys, a letter each.
    types: String,
    /// Without the fence.
    arguments: Arguments,
}

impl Prepared {
    pub(super) fn new(batch: &Batch) -> Result<Self, CommitError> {
        if batch.outbox.len() as u64 >= EFFECTS {
            let count = batch.outbox.len();
            return Err(CommitError::Failed(format!("a batch may have {EFFECTS} effects, not {count}")));
        }
        let prepared = Preparing::new(batch).finish()?;
        if prepared.bytes() > BYTES {
            return Err(CommitError::Failed(format!(
                "a batch of {} MiB is too large for Redis, which would serve nobody else meanwhile; send fewer or \
                 smaller things at once ({} MiB)",
                prepared.bytes() >> 20,
                BYTES >> 20
            )));
        }
        Ok(prepared)
    }

    /// The call of the script, under the fence that it gets.
    pub(super) fn call(&self, script: &str, fence: Fence) -> Cmd {
        // What stands before the keys, and before the arguments, is little.
        let mut call = Cmd::with_capacity(
            self.keys.len() + self.arguments.len() + 8,
            self.keys.bytes() + self.arguments.bytes() + 256,
        );
        call.arg("EVALSHA").arg(script).arg(self.keys.len());
        for key in self.keys.iter() {
            call.arg(key);
        }
        call.arg(&self.types).arg(fence.epoch.0).arg(nonce(fence));
        for argument in self.arguments.iter() {
            call.arg(argument);
        }
        call
    }

    /// Roughly how much is sent.
    pub(super) fn bytes(&self) -> usize {
        self.arguments.bytes()
    }
}

/// A batch that is being written as keys and arguments. Keys have numbers, from one on.
struct Preparing<'a> {
    batch: &'a Batch,
    names: Keys,
    prepared: Prepared,
    documents: Documents<'a>,
}

impl<'a> Preparing<'a> {
    fn new(batch: &'a Batch) -> Self {
        let names = Keys::new(&batch.key);
        let prepared = Prepared {
            shard: names.shard,
            version: Version(batch.expected.0 + 1),
            keys: Arguments::default(),
            types: String::new(),
            arguments: Arguments::with_room(batch.weight()),
        };
        Self { batch, names, prepared, documents: Documents::new(&batch.documents) }
    }

    fn finish(mut self) -> Result<Prepared, CommitError> {
        self.head();
        self.put_heads();
        self.put_bodies();
        self.check_blobs();
        // The streams first: they are what could refuse, and the script looks for them there.
        self.events()?;
        self.effects()?;
        if self.batch.expected == Version(0) {
            self.inhabit();
        }
        self.change_blobs();
        self.move_marks();
        self.keep_replies()?;
        self.set_timer();
        Ok(self.prepared)
    }

    /// What comes before the documents, and the keys that the script finds by their numbers.
    fn head(&mut self) {
        let (names, shard) = (&self.names, self.names.shard);
        let fixed: [String; FIXED] = [
            shard.lease(),
            names.entity(),
            POSITION.to_owned(),
            names.documents(),
            names.live(),
            shard.archived(),
            names.heads(),
            names.bodies(),
            names.changes(),
        ];
        for key in &fixed {
            self.prepared.keys.text(key);
        }
        self.prepared.types.extend(std::iter::repeat_n(Type::Seen.letter(), FIXED));
        let (batch, arguments) = (self.batch, &mut self.prepared.arguments);
        arguments.shown(batch.expected.0);
        match batch.after {
            none if none.is_nil() => arguments.text(""),
            after => arguments.shown(after),
        }
        arguments.shown(batch.id);
        arguments.shown(batch.at.0);
        match batch.outbox.iter().map(|entry| entry.sequence).max() {
            Some(last) => arguments.shown(last),
            None => arguments.text(""),
        }
        arguments.text(&names.name);
    }

    /// The heads of all documents that are put, and the names of those that are deleted.
    fn put_heads(&mut self) {
        let (documents, arguments) = (&self.documents, &mut self.prepared.arguments);
        let since = format!(" {} {} ", self.prepared.version.0, self.batch.at.0);
        arguments.shown(documents.each().filter(|document| document.head().is_some()).count());
        for document in documents.each() {
            let Some((live, head)) = document.head() else { continue };
            arguments.text(document.name());
            arguments.texts(&[if live { "1" } else { "0" }, &since, head.text()]);
        }
        let deleted = || documents.each().filter(|document| document.head().is_none());
        arguments.shown(deleted().count());
        deleted().for_each(|document| arguments.text(document.name()));
    }

    /// The bodies that are made, and what is changed of others.
    fn put_bodies(&mut self) {
        let (documents, arguments) = (&self.documents, &mut self.prepared.arguments);
        let made = || documents.each().filter(|document| document.is_made());
        arguments.shown(made().count());
        for document in made() {
            arguments.text(document.name());
            document.add_made(arguments);
        }
        let changed = documents.each().filter_map(|document| Some((document.name(), document.changed()?)));
        let changed: Vec<_> = changed.collect();
        arguments.shown(changed.len());
        for (name, fields) in &changed {
            arguments.text(name);
            body::add_changes(fields, arguments);
        }
    }

    /// What the script has to find before it writes anything.
    fn check_blobs(&mut self) {
        let kept = self.batch.blobs.iter().filter_map(|change| match change {
            BlobChange::Keep { blob, bytes } => Some((*blob, *bytes)),
            BlobChange::Free { .. } => None,
        });
        let kept: Vec<_> = kept.collect();
        self.prepared.arguments.shown(kept.len());
        for (blob, bytes) in kept {
            let key = self.key(self.names.chunks(blob), Type::Hash);
            let arguments = &mut self.prepared.arguments;
            arguments.shown(key);
            arguments.shown(chunks(bytes));
            arguments.shown(bytes);
            arguments.shown(blob);
        }
    }

    /// Each list is touched once, or in order of what adds to it: one that has lost its last member counts as moved
    /// while the slot of a Redis Cluster is, and a script that touches it again is stopped half way.
    fn change_blobs(&mut self) {
        let batch = self.batch;
        if batch.blobs.is_empty() {
            return;
        }
        let blobs = self.key(self.names.blobs(), Type::Hash);
        let loose = self.key(self.names.shard.loose(), Type::SortedSet);
        let entity = self.names.name.clone();
        for part in batch.blobs.chunks(TOGETHER) {
            let arguments = self.operation("ZREM", loose, part.len());
            for change in part {
                let (BlobChange::Keep { blob, .. } | BlobChange::Free { blob }) = change;
                arguments.text(&format!("{entity} {blob}"));
            }
        }
        let mut freed = Vec::new();
        for change in &batch.blobs {
            match change {
                BlobChange::Keep { blob, bytes } => {
                    let arguments = self.operation("HSET", blobs, 2);
                    arguments.shown(blob);
                    arguments.text(&format!("{bytes} {}", batch.at.0));
                }
                BlobChange::Free { blob } => freed.push(*blob),
            }
        }
        for part in freed.chunks(TOGETHER) {
            let arguments = self.operation("HDEL", blobs, part.len());
            part.iter().for_each(|blob| arguments.shown(blob));
        }
        for blob in freed {
            let chunks = self.key(self.names.chunks(blob), Type::Hash);
            self.operation("UNLINK", chunks, 0);
        }
    }

    fn events(&mut self) -> Result<(), CommitError> {
        let batch = self.batch;
        if batch.events.is_empty() {
            return Ok(());
        }
        let history = self.key(self.names.history(), Type::SortedSet);
        let stream = self.key(self.names.shard.events(), Type::Stream);
        let arguments = self.operation("EVENTS", stream, 2);
        arguments.shown(history);
        arguments.json("", &batch.events)
    }

    fn effects(&mut self) -> Result<(), CommitError> {
        let batch = self.batch;
        for (place, entry) in batch.outbox.iter().enumerate() {
            let outbox = self.key(self.names.shard.outbox(), Type::Stream);
            let arguments = self.operation("EFFECT", outbox, 3);
            arguments.shown(place);
            arguments.shown(entry.sequence);
            arguments.json("", &entry.effect)?;
        }
        Ok(())
    }

    /// Lists an entity that is new.
    fn inhabit(&mut self) {
        let (shard, name) = (self.names.shard, self.names.name.clone());
        let entities = self.key(shard.entities(), Type::SortedSet);
        let arguments = self.operation("ZADD", entities, 2);
        arguments.text("0");
        arguments.text(&name);
        let inhabited = self.key(INHABITED.to_owned(), Type::Text);
        let arguments = self.operation("SETBIT", inhabited, 2);
        arguments.shown(shard.number());
        arguments.text("1");
    }

    fn move_marks(&mut self) {
        let batch = self.batch;
        for mark in &batch.seen {
            let ages = self.key(self.names.shard.mark_ages(), Type::SortedSet);
            let marks = self.key(self.names.marks(), Type::Hash);
            let (source, entity) = (mark.source.to_string(), self.names.name.clone());
            let arguments = self.operation("MARK", marks, 5);
            arguments.shown(ages);
            arguments.texts(&[&entity, " ", &source]);
            arguments.text(&source);
            arguments.shown(mark.epoch.0);
            arguments.shown(mark.sequence);
        }
    }

    fn keep_replies(&mut self) -> Result<(), CommitError> {
        let (batch, version) = (self.batch, self.prepared.version.0);
        if batch.replies.is_empty() {
            return Ok(());
        }
        let replies = self.key(self.names.replies(), Type::SortedSet);
        let arguments = self.operation("ZADD", replies, 2);
        arguments.shown(version);
        // The version makes it unlike any other, for equal members are one.
        arguments.json(&format!("{version} {} ", batch.at.0), &batch.replies)?;
        let ages = self.key(self.names.shard.reply_ages(), Type::SortedSet);
        let member = format!("{} {version}", self.names.name);
        let arguments = self.operation("ZADD", ages, 2);
        arguments.shown(batch.at.0);
        arguments.text(&member);
        Ok(())
    }

    /// The order needs no more than a score; what the timer says exactly stands in the entity.
    fn set_timer(&mut self) {
        let name = self.names.name.clone();
        let due = match self.batch.timer {
            TimerChange::Keep => return,
            TimerChange::Set(due) => Some(due),
            TimerChange::Clear => None,
        };
        let timers = self.key(self.names.shard.timers(), Type::SortedSet);
        let Some(due) = due else {
            self.operation("HDEL", ENTITY, 1).text("timer");
            self.operation("ZREM", timers, 1).text(&name);
            return;
        };
        let arguments = self.operation("HSET", ENTITY, 2);
        arguments.text("timer");
        arguments.shown(due.0);
        let arguments = self.operation("ZADD", timers, 2);
        match due {
            Timestamp::NEVER => arguments.text("+inf"),
            due => arguments.shown(due.0),
        }
        arguments.text(&name);
    }

    /// Begins an operation on a key; so many arguments follow.
    fn operation(&mut self, command: &str, key: usize, count: usize) -> &mut Arguments {
        let arguments = &mut self.prepared.arguments;
        arguments.shown(count);
        arguments.text(command);
        arguments.shown(key);
        arguments
    }

    /// The number of a key that is not among the fixed ones. There are few.
    fn key(&mut self, key: String, of: Type) -> usize {
        let keys = &mut self.prepared.keys;
        let known = keys.iter().skip(FIXED).position(|known| known == key.as_bytes());
        if let Some(place) = known {
            return FIXED + place + 1;
        }
        keys.text(&key);
        self.prepared.types.push(of.letter());
        keys.len()
    }
}

/// The nonce as the lease has it.
pub(super) fn nonce(fence: Fence) -> String {
    format!("{:016x}", fence.nonce)
}
